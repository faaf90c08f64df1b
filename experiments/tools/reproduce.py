"""Runs every binary of the laboratory at one preset, as many at once as there are cores, and says what was found.

    python -m experiments.reproduce --preset=quick

Each run is a process of its own; finished ones are skipped, broken ones resumed. One headline experiment of each paper
comes first, the longest of the others next. As a run ends it gets one line: verdict, finding, measured against
expected, picture; at the end one screen says what held and what did not, and where the page is. --verbose adds every
claim. With --against=figures what came out is held against the committed records of the same preset, by claims and
overlapping intervals, not by bits (icl_lab/lab/drift.py), and every difference is printed.

Exit status: 0 all as committed; 1 a binary raised, a verdict differs from the one committed for the preset, or drift;
2 the command line is refused; 75 stopped by a scheduler (SIGTERM, SIGUSR1) and 130 by Ctrl-C: the same command resumes.
"""

import contextlib
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jax
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from experiments.binaries import GALLERY, choose, discover
from experiments.page import write_page
from experiments.papers import pictures
from experiments.tools import forks, summary
from experiments.tools.pace import Left, Pace, committed_seconds, timed
from icl_lab.lab import command_line as lab
from icl_lab.lab import drift, records, report, stopping
from icl_lab.lab.constraints import holds
from icl_lab.lab.execution import Outcome, default_outdir
from icl_lab.lab.executors import run_elsewhere
from icl_lab.lab.experiment import PRESETS, Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.plans import Run
from icl_lab.lab.records import LOG
from icl_lab.machine import cores

FIRST = ("zhang_frei_bartlett.random_covariance", "von_oswald.one_step", "reddy.landscape", "dai.dual_form")
"""One headline experiment of each paper."""
EARLIER = "finished earlier"
Results = list[tuple[Experiment, Outcome]]


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.reproduce``."""

    preset: str = setting("quick", "size of the runs", choices=PRESETS)
    only: str = setting("", "binaries to run, or folders of them as dai, comma-separated; empty: all")
    outroot: str = setting("runs", "folder of the run folders and the report", path=True)
    seed: int = setting(0, "seed of every run", at_least=0, at_most=2**32 - 1)
    workers: int = setting(0, "runs at once; 0: as many as cores", at_least=0)
    against: str = setting("", "gallery of committed records to compare with; empty: none", path=True)
    list: bool = setting(False, "name the binaries and stop")
    verbose: bool = setting(False, "print every claim, not the headlines alone")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    lab.start_logging()
    gallery = holds("a gallery, as figures", "against", when=lambda o: not o.against or Path(o.against).is_dir())
    return lab.command(__doc__, Options(), reproduce, argv, [gallery])


def reproduce(options: Options) -> int:
    """Runs what was chosen and says what came of it; returns the exit status.

    Raises:
      FlagError: for what is not allowed, before any run.
      OSError: if the folder cannot be written, or no process can be started.
    """
    chosen, root = choose(discover(), options.only), Path(options.outroot)
    if options.list:
        print("\n".join(f"{name:32} {e.about.strip().splitlines()[0]}" for name, e in chosen.items()))
        return lab.DONE
    lab.check_compiling()
    plan, workers = [], options.workers or cores()
    shared = ("--wait", *["--cpu_devices=1"] * (workers > 1))  # runs side by side share the cores
    for e in chosen.values():
        config = dataclasses.replace(e.presets[options.preset], seed=options.seed)
        e.validate(config)
        folder = default_outdir(e, options.preset, config, root)
        plan.append(Run(e.name, e, options.preset, config, folder, shared))
    lab.check_writable(root, "outroot")
    root.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_default_matmul_precision", lab.Options().precision)
    began, ledger = time.monotonic(), committed_verdicts()
    with stopping.heeding():
        try:
            results, failures = carry_out(plan, workers, options.preset, ledger, options.verbose)
        except KeyboardInterrupt as error:
            return lab.stopped(error)
    drifts = drifted(results, options.preset, Path(options.against)) if options.against else []
    minutes = (time.monotonic() - began) / 60
    page: Path | str = "none, as the committed records that it shows (figures/ of a checkout) are not here"
    folders = [run.folder for run in plan if run.name not in failures]
    if GALLERY.is_dir():  # no wheel has it
        page = root / f"report-{options.preset}.html"
        write_page(folders, GALLERY / "claims.json", page, chosen, failures)
    print("\n".join(["", *summary.screen(results, failures, ledger, page, minutes)]))
    return _status(results, failures, drifts)


def committed_verdicts(gallery: Path = GALLERY) -> dict[str, dict]:
    """The rows of the committed ledger at lab, by claim; none where there is no ledger."""
    path = gallery / "claims.json"
    rows = json.loads(path.read_bytes()) if path.exists() else []
    return {row["id"]: row for row in rows if row["preset"] == "lab"}


def in_order(plan: Sequence[Run], seconds: Mapping[str, float]) -> list[Run]:
    """One headline experiment of each paper, the shortest first; then the others, the longest first."""
    return sorted(plan, key=lambda run: (0, seconds[run.name]) if run.name in FIRST else (1, -seconds[run.name]))


def carry_out(
    plan: Sequence[Run], workers: int, preset: str, ledger: Mapping[str, dict], verbose: bool
) -> tuple[Results, dict[str, str]]:
    """Carries out a plan, and prints a line for each run that ends; one that fails does not stop the others.

    Returns:
      The experiments that finished with their outcomes, by name, and what is known of the others.
    """
    seconds = committed_seconds([run.name for run in plan], preset, GALLERY)
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, str] = {}
    left, console = [], lab.Screen()

    def tell(run: Run, words: str) -> None:
        if words.startswith("failed"):
            log = run.folder / LOG
            failures[run.name] = f"{reason(log, logged[run]) or words.partition(';')[0]}; {log}"
        else:
            try:
                outcomes[run.name] = outcome(run, judge=words == EARLIER)
            except Exception as error:  # a claim or a record that is wrong stops no other run
                failures[run.name] = f"{type(error).__name__}: {error}; {run.folder}"
        if run.name in failures:
            lines = [f"{'no record':12} {run.name}: {failures[run.name]}"]
        else:
            lines = [summary.line(run.experiment, outcomes[run.name], ledger)]
            lines += summary.every_claim(outcomes[run.name], ledger) if verbose else []
        count = f"[{len(outcomes) + len(failures)}/{len(plan)}] "
        console.print(count + "\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    for run in in_order(plan, seconds):
        if run.folder.joinpath("record.json").exists() and any(run.folder.glob("*.png")) and _readable(run):
            tell(run, EARLIER)
        else:
            left.append(run)
    logged = {run: log.stat().st_size if (log := run.folder / LOG).exists() else 0 for run in left}
    pace = Pace({run: seconds[run.name] for run in left}, workers)

    def ended(progress: Progress, run: Run, words: str) -> None:
        pace.ends(run, finished=not words.startswith("failed"))
        tell(run, words)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left(pace))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress, threads_for(workers):
        run_elsewhere(left, timed(forks.starter(left), pace), workers, progress, tell=ended)
    return [(e, outcomes[e.name]) for e in (run.experiment for run in plan) if e.name in outcomes], failures


@contextlib.contextmanager
def threads_for(workers: int) -> Iterator[None]:
    """Children that are started inside have as many threads, XLA's and numpy's, as there are cores for each.

    More would take turns on the cores: two runs at once on two cores then took 1.2 times as long. Sums are divided by
    threads, so the last bits are not those of the binary alone; on one machine they are always the same.
    """
    before = {name: os.environ.get(name) for name in ("NPROC", "OMP_NUM_THREADS")}  # of XLA, of numpy's products
    if workers > 1:
        for name in before:
            os.environ.setdefault(name, str(max(1, cores() // workers)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def outcome(run: Run, judge: bool) -> Outcome:
    """What a finished run found; where it was not judged just now, by the claims as they are now, also in its folder.

    Raises:
      RecordError: if the record cannot be read.
    """
    record, rows = drift.committed(run.folder)
    if judge and (judged := run.experiment.judged(record)) != rows:
        records.replace_claims(run.folder, rows := judged)
    return Outcome(record, rows, pictures(run.name, run.folder), True, record.provenance.get("seconds", 0.0))


def _readable(run: Run) -> bool:
    """Whether the folder holds the record of this run; what it holds otherwise, its own process says."""
    try:
        return run.is_finished()
    except records.RecordError:
        return False


def reason(log: Path, start: int = 0) -> str:
    """Why a run failed, by its log from byte ``start`` on: the exception or the refusal that comes last.

    Else the last line that is none of a stack of C++; empty where nothing was said.
    """
    lines = log.read_bytes()[start:].decode("utf-8", "replace").splitlines() if log.exists() else []
    raised = [i for i, line in enumerate(lines) if line.startswith("Traceback")]
    below = lines[raised[-1] + 1 :] if raised else []
    candidates = [line for line in below if line.strip() and not line.startswith(" ")][:1]
    candidates = [line for line in lines if line.startswith("error: ")][-1:] or candidates
    candidates = candidates or [line for line in lines if line.strip() and not re.match(r"\s*(@|#\d|\*\*\*)", line)]
    return candidates[-1].strip() if candidates else ""


def drifted(results: list[tuple[Experiment, Outcome]], preset: str, gallery: Path) -> list[str]:
    """What these runs say otherwise than the committed records of the preset; a line each."""
    lines, compared = [], 0
    for experiment, outcome in results:
        folder = gallery.joinpath(*experiment.name.split("."), preset)
        if (folder / "record.json").exists():
            compared += 1
            try:
                sentences = drift.drift(outcome.record, outcome.ledger, *drift.committed(folder))
            except records.RecordError as error:
                sentences = [str(error)]
            lines += [f"{experiment.name}: {sentence}" for sentence in sentences]
    print(f"held against {gallery}: {compared} of {len(results)} binaries have a committed record of preset {preset}")
    return lines


def _status(results: Results, failures: Mapping[str, str], drifts: Sequence[str]) -> int:
    """Says on stderr what is not as committed; returns the exit status."""
    surprises = [row["id"] for _, one in results for row in one.ledger if report.is_surprise(row)]
    if surprises:
        print(f"verdicts that differ from the committed ones: {', '.join(surprises)}", file=sys.stderr)
    if failures:
        print(f"did not finish: {', '.join(failures)}", file=sys.stderr)
    for line in drifts:
        print(f"drift: {line}", file=sys.stderr)
    return 1 if surprises or failures or drifts else 0
