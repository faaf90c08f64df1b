"""Runs every binary of the laboratory at one preset, and prints one table of all claims.

    python -m experiments.reproduce --preset=quick

Finished runs are skipped, broken ones resumed. With --workers=2 two run at once, each in a process of its own. The
table, the figures and a self-contained HTML report say what came out. With --against=figures what came out is held
against the committed records of the same preset, by names and by overlapping intervals, not by bits
(icl_lab/lab/drift.py), and every difference is printed.

Exit status: 0 all as committed; 1 a binary raised, a verdict differs from the one committed for the preset, or drift;
2 the command line is refused; 75 stopped by a scheduler (SIGTERM, SIGUSR1) and 130 by Ctrl-C: the same command resumes.
"""

import dataclasses
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
from absl import flags as absl_flags
from rich.console import Console

import experiments
from icl_lab.lab import command_line as lab
from icl_lab.lab import drift, flags, records, report, stopping
from icl_lab.lab.executors import run_elsewhere, run_here, start_here
from icl_lab.lab.experiment import PRESETS, Experiment, Outcome, default_outdir
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Run


def discover() -> dict[str, Experiment]:
    """Every binary by name, sorted: the modules ``experiments.<paper>.<figure>`` that have an ``EXPERIMENT``."""
    found = {}
    for paper in pkgutil.iter_modules(experiments.__path__):
        if not paper.ispkg:
            continue
        package = importlib.import_module(f"experiments.{paper.name}")
        for figure in pkgutil.iter_modules(package.__path__, f"experiments.{paper.name}."):
            experiment = getattr(importlib.import_module(figure.name), "EXPERIMENT", None)
            if isinstance(experiment, Experiment):
                found[figure.name.removeprefix("experiments.")] = experiment
    return dict(sorted(found.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    values = absl_flags.FlagValues()
    absl_flags.DEFINE_enum("preset", "quick", PRESETS, "size of the runs", flag_values=values)
    absl_flags.DEFINE_list("only", [], "names of the binaries to run, comma-separated", flag_values=values)
    absl_flags.DEFINE_string("outroot", "runs", "folder of the run folders and the report", flag_values=values)
    absl_flags.DEFINE_integer("seed", 0, "seed of every run", flag_values=values)
    absl_flags.DEFINE_integer("workers", 1, "binaries that run at once", lower_bound=1, flag_values=values)
    absl_flags.DEFINE_string("against", "", "gallery of committed records to compare with", flag_values=values)
    absl_flags.DEFINE_boolean("list", False, "name the binaries and stop", flag_values=values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    lab.start_logging()
    try:
        lab.parse_words(values, sys.argv if argv is None else argv)
        if values.help:
            print(help_text(__doc__, values))
            return lab.DONE
        chosen = choose(discover(), values.only)
        if values.list:
            print("\n".join(f"{name:32} {e.about.strip().splitlines()[0]}" for name, e in chosen.items()))
            return 0
        preset, root, gallery = values.preset, Path(values.outroot), Path(values.against) if values.against else None
        if gallery is not None and not gallery.is_dir():
            raise flags.FlagError(f"--against={gallery} is not a folder; allowed is a gallery such as figures")
        plan = []
        for e in chosen.values():
            config = dataclasses.replace(e.presets[preset], seed=values.seed)
            flags.validate(config)
            e.check(config)
            plan.append(Run(e.name, e, preset, config, default_outdir(e, preset, config, root)))
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK):
            raise flags.FlagError(f"--outroot={root} cannot be written; allowed is a folder you can write")
    except (absl_flags.Error, flags.FlagError, OSError) as error:
        return lab.refused(f"{error}\nTry --help.")
    lab.use_compilation_cache(root)
    jax.config.update("jax_default_matmul_precision", Options().precision)
    with stopping.heeding():
        try:
            results, failures = carry_out(plan, values.workers)
        except KeyboardInterrupt as error:
            return lab.stopped(error)
        except OSError as error:  # no process can be started
            return lab.refused(error)
    drifts = [] if gallery is None else drifted(results, preset, gallery)
    return _conclude(results, failures, drifts, root / f"report-{preset}.html")


def help_text(about: str | None, values: absl_flags.FlagValues) -> str:
    """What ``--help`` prints: what the command does, and its flags."""
    names = sorted(name for name in values if len(name) > 1)
    lines = [f"  --{name}: {values[name].help} (default: {values[name].default_as_str})" for name in names]
    return "\n".join([(about or "").strip(), "", *lines])


def carry_out(plan: Sequence[Run], workers: int) -> tuple[list[tuple[Experiment, Outcome]], dict[str, str]]:
    """Carries out a plan; a run that raises does not stop the others.

    Returns:
      The experiments that finished with their outcomes, and what the others raised, by name.
    """
    failures: dict[str, str] = {}
    with lab.console_progress() as progress:
        if workers > 1:
            failed = run_elsewhere(plan, start_here, workers, progress)
            plan = [run for run in plan if run not in failed]
            failures = {run.name: words for run, words in failed.items()}
        outcomes = list(zip(plan, run_here(plan, progress)))
    results = [(run.experiment, found) for run, found in outcomes if isinstance(found, Outcome)]
    raised = {run.name: f"{type(e).__name__}: {e}" for run, e in outcomes if isinstance(e, Exception)}
    return results, failures | raised


def drifted(results: list[tuple[Experiment, Outcome]], preset: str, gallery: Path) -> list[str]:
    """What these runs say otherwise than the committed records of the preset; a line each."""
    lines, compared = [], 0
    for experiment, outcome in results:
        folder = gallery.joinpath(*experiment.name.split("."), preset)
        if (folder / "record.json").exists():
            compared += 1
            try:
                found = drift.drift(outcome.record, outcome.ledger, *drift.committed(folder))
            except records.RecordError as error:
                found = [str(error)]
            lines += [f"{experiment.name}: {sentence}" for sentence in found]
    print(f"held against {gallery}: {compared} of {len(results)} binaries have a committed record of preset {preset}")
    return lines


def _conclude(
    results: list[tuple[Experiment, Outcome]], failures: dict[str, str], drifts: list[str], page: Path
) -> int:
    """Prints the table, writes the page, and says how it went."""
    records.write_atomically(page, report.html(results, failures).encode())
    rows = [(row, outcome.seconds) for _, outcome in results for row in outcome.ledger]
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(report.claims_table(rows))
    surprises = [row["id"] for row, _ in rows if report.is_surprise(row)]
    if surprises:
        print(f"verdicts that differ from what was expected: {', '.join(surprises)}", file=sys.stderr)
    if failures:
        print(f"did not finish: {', '.join(failures)}", file=sys.stderr)
    for line in drifts:
        print(f"drift: {line}", file=sys.stderr)
    print(f"report: {page}")
    return 1 if surprises or failures or drifts else 0


def choose(found: dict[str, Experiment], names: Sequence[str]) -> dict[str, Experiment]:
    """The named binaries; all of them where none is named.

    Raises:
      FlagError: for a name that is not among them.
    """
    unknown = [name for name in names if name not in found]
    if unknown:
        raise flags.FlagError(f"--only={','.join(unknown)}: there is no such binary; there are {', '.join(found)}")
    return {name: e for name, e in found.items() if name in names or not names}


if __name__ == "__main__":
    sys.exit(main())
