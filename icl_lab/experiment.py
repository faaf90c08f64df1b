"""An experiment is a Config, run(config) -> Record, figures(record), claims(record); here is what runs every one."""

import dataclasses
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags as absl_flags
from matplotlib.figure import Figure
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from icl_lab import checkpoints, flags, records, style
from icl_lab.checkpoints import Checkpoint
from icl_lab.claims import Claim, judge
from icl_lab.devices import member_mesh
from icl_lab.records import Record, RecordError
from icl_lab.training import Fit, fit

PRESETS = ("smoke", "quick", "lab", "paper")
INTERRUPTED = 130
log = logging.getLogger("icl_lab")


class Session:
    """What a running experiment may use beside its configuration: resumable training and progress bars."""

    def __init__(self, folder: Path, fingerprint: str, checkpoint_seconds: float, progress: Progress | None):
        self._folder, self._fingerprint, self._every, self._progress = folder, fingerprint, checkpoint_seconds, progress

    def fit(self, stage: str, *args, **options) -> Fit:
        """``training.fit`` with this stage's checkpoint and progress bar. A finished stage is not trained again."""
        checkpoint = Checkpoint(
            self._folder / "checkpoints" / stage, records.digest([self._fingerprint, stage]), self._every
        )
        with self.bar(stage, options["steps"]) as advance:
            result = fit(*args, resume=checkpoint, progress=advance, mesh=member_mesh(), **options)
        stopped = np.flatnonzero(result.diverged_at >= 0)
        if stopped.size:
            steps = ", ".join(f"{m} at step {result.diverged_at[m]}" for m in stopped[:8])
            log.warning(
                "%s: %d of %d members diverged and were stopped (member %s%s)",
                stage,
                stopped.size,
                result.diverged_at.size,
                steps,
                ", ..." if stopped.size > 8 else "",
            )
        return result

    def bar(self, label: str, total: int) -> "_Bar":
        """A progress bar as a context; call what it gives with ``(done, total)``."""
        return _Bar(self._progress, label, total)


class _Bar:
    def __init__(self, progress: Progress | None, label: str, total: int):
        self._progress, self._label, self._total = progress, label, total

    def __enter__(self) -> Callable[[int, int], None]:
        if self._progress is None:
            return lambda done, total: None
        task = self._progress.add_task(self._label, total=self._total)
        return lambda done, total: self._progress.update(task, completed=done, total=total)  # type: ignore[union-attr]

    def __exit__(self, *exception) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One binary: a figure or table of a paper.

    Attributes:
      name: ``paper.figure``.
      about: the module's docstring; ``--help`` prints it.
      presets: a configuration for each of ``PRESETS``; the configuration class has fields ``seed`` and ``members``.
      run: ``(config, session) -> (metrics, arrays)``.
      figures: ``record -> {name: Figure}``.
      claims: what is judged.
      check: raises FlagError for a configuration whose fields do not fit together.
      feeds_others: other binaries read the arrays of its record, so the gallery keeps them whatever their size.
    """

    name: str
    about: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Session], tuple[dict[str, Any], dict[str, np.ndarray]]]
    figures: Callable[[Record], dict[str, Figure]]
    claims: tuple[Claim, ...]
    check: Callable[[Any], None] = lambda config: None
    feeds_others: bool = False

    def label(self, preset: str, config: Any) -> str:
        """The preset's name, with what differs from it.

        Another seed, more members, or a choice of parts (a field ``only``) do not make it another preset.
        """
        base = self.presets[preset]
        differing = {
            f.name: getattr(config, f.name)
            for f in dataclasses.fields(config)
            if getattr(config, f.name) != getattr(base, f.name)
            and f.name not in ("seed", "only")
            and not (f.name == "members" and config.members >= base.members)
        }
        return f"{preset} with {', '.join(f'{k}={v}' for k, v in differing.items())}" if differing else preset


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What ``execute`` returns: the record, the ledger rows, the figure files, whether it was run now, and seconds."""

    record: Record
    ledger: list[dict]
    figures: list[Path]
    ran: bool
    seconds: float


def default_outdir(experiment: Experiment, preset: str, config: Any, root: Path = Path("runs")) -> Path:
    """``runs/<paper>/<figure>/<preset>-<digest of the configuration>``: another setting is another folder."""
    return root.joinpath(*experiment.name.split(".")) / f"{preset}-{records.digest(flags.to_json(config))[:8]}"


def execute(
    experiment: Experiment,
    preset: str,
    config: Any,
    outdir: Path,
    *,
    overwrite: bool = False,
    checkpoint_seconds: float = 15.0,
    progress: Progress | None = None,
) -> Outcome:
    """Runs an experiment into a folder, or finishes what lies there: skips, resumes, redraws, rejudges.

    Raises:
      flags.FlagError: for a configuration that is not allowed (before anything is written).
      RecordError: if the folder holds a run of another configuration, or another process is at work in it.
      OSError: if the folder cannot be written.
    """
    flags.validate(config)
    experiment.check(config)
    plain = flags.to_json(config)
    started = time.monotonic()
    with records.locked(outdir):
        record = None if overwrite else _finished(experiment, plain, outdir)
        ran = record is None
        if record is None:
            if overwrite:
                checkpoints.remove(outdir / "checkpoints")
            fingerprint = records.digest([experiment.name, plain, records.code_version(), jax.default_backend()])
            session = Session(outdir, fingerprint, checkpoint_seconds, progress)
            metrics, arrays = experiment.run(config, session)
            origin = records.provenance(time.monotonic() - started)
            record = Record(experiment.name, experiment.label(preset, config), plain, metrics, arrays, origin)
        ledger = [judge(claim, record) for claim in experiment.claims]
        records.save(record, outdir, ledger)
        checkpoints.remove(outdir / "checkpoints")
        drawn = draw(experiment, record, outdir)
    return Outcome(record, ledger, drawn, ran, time.monotonic() - started)


def draw(experiment: Experiment, record: Record, folder: Path) -> list[Path]:
    """Draws every figure of a record into a folder; nothing retrains."""
    members, seed = record.config["members"], record.config["seed"]
    caption = f"{record.experiment} · preset {record.preset} · {members} members · seed {seed}"
    written = []
    with style.styled():
        for name, figure in experiment.figures(record).items():
            written += style.save(figure, folder / name, caption)
    return written


def _finished(experiment: Experiment, config: dict, outdir: Path) -> Record | None:
    """The finished run in the folder, None where there is none (what cannot be used is named and set aside)."""
    try:
        record = records.load(outdir)
    except RecordError as error:
        moved = records.set_record_aside(outdir)
        if moved:
            log.warning("%s; set aside as %s, running again", error, ", ".join(p.name for p in moved))
        return None
    if record.experiment != experiment.name:
        raise RecordError(f"{outdir} holds a run of {record.experiment}; choose another --outdir")
    if dict(record.config) != config:
        differing = [k for k in {**config, **record.config} if record.config.get(k) != config.get(k)]
        changes = ", ".join(f"{k}: {record.config.get(k)} there, {config.get(k)} here" for k in differing)
        raise RecordError(f"{outdir} holds a run of another configuration ({changes}); choose another --outdir")
    return record


def console_progress() -> Progress:
    """The progress bars of the binaries (on stderr; silent where it is not a terminal, but for the last state)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))


def start_logging() -> None:
    """Warnings of the laboratory go to stderr in one form, also above a progress bar."""
    log.handlers[:] = [RichHandler(console=Console(stderr=True), show_path=False, show_time=False)]
    log.setLevel(logging.INFO)
    log.propagate = False


def use_compilation_cache(root: Path = Path("runs")) -> None:
    """Keeps compiled programs on disk, so that repeats start at once (never changes a number)."""
    jax.config.update("jax_compilation_cache_dir", os.fspath(root.resolve() / ".xla_cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def main(experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """The command line of one binary; returns the exit status (0 done, 2 refused, 130 interrupted and resumable)."""
    words = list(sys.argv if argv is None else argv)
    values = absl_flags.FlagValues()
    start_logging()
    try:
        preset, config, outdir, overwrite, seconds = parse_command_line(experiment, words, values)
    except _HelpRequested:
        print(help_text(experiment))
        return 0
    except (absl_flags.Error, flags.FlagError, OSError) as error:
        print(f"error: {error}\nTry --help.", file=sys.stderr)
        return 2
    use_compilation_cache()
    try:
        with console_progress() as progress:
            outcome = execute(
                experiment, preset, config, outdir, overwrite=overwrite, checkpoint_seconds=seconds, progress=progress
            )
    except (flags.FlagError, RecordError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    from icl_lab.report import claims_table  # rich tables; imported here so that --help stays fast

    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(claims_table([(row, outcome.seconds) for row in outcome.ledger]))
    console.print(
        f"{'ran' if outcome.ran else 'finished earlier'} in {outcome.seconds:.0f} s; everything is in {outdir}"
    )
    return 0


class _HelpRequested(Exception):  # noqa: N818
    pass


def parse_command_line(experiment: Experiment, words: list[str], values: absl_flags.FlagValues):
    """(preset, config, outdir, overwrite, checkpoint_seconds) from the command line.

    Raises:
      absl flags.Error, FlagError: naming the flag, the value and what is allowed.
    """
    absl_flags.DEFINE_enum("preset", "quick", PRESETS, "size of the run", flag_values=values)
    absl_flags.DEFINE_string("outdir", None, "run folder", flag_values=values)
    absl_flags.DEFINE_boolean("overwrite", False, "run again over a finished run", flag_values=values)
    absl_flags.DEFINE_float("checkpoint_seconds", 15.0, "seconds between checkpoints", 0.0, flag_values=values)
    absl_flags.DEFINE_integer("cpu_devices", 1, "devices that a CPU counts as", 1, flag_values=values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    flags.define(type(experiment.presets["paper"]), values)
    rest = values(words)[1:]
    if values["help"].value:
        raise _HelpRequested
    if rest:
        raise flags.FlagError(f"unexpected argument {rest[0]!r}; settings are given as --name=value")
    if values.cpu_devices > 1:
        jax.config.update("jax_num_cpu_devices", values.cpu_devices)
    preset = str(values["preset"].value)
    config = flags.parse(experiment.presets[preset], values)
    experiment.check(config)
    seconds = values.checkpoint_seconds
    if not math.isfinite(seconds):
        raise flags.FlagError(f"--checkpoint_seconds={seconds}: allowed is number >= 0")
    given = values["outdir"].value
    outdir = Path(given) if given else default_outdir(experiment, preset, config)
    _check_writable(outdir)
    return preset, config, outdir, values["overwrite"].value, seconds


def help_text(experiment: Experiment) -> str:
    """What ``--help`` prints: the science, the flags with their presets, what is allowed."""
    lines = [experiment.about.strip(), "", f"python -m experiments.{experiment.name} --preset=quick", ""]
    lines += ["  --preset: " + ", ".join(PRESETS) + " (default quick); --outdir: run folder (default under runs/);"]
    lines += [
        "  --overwrite: run again over a finished run; --checkpoint_seconds: seconds between checkpoints (15);",
        "  --cpu_devices: devices that a CPU counts as (1); members are shared among all devices, whatever they are",
        "",
    ]
    for field in dataclasses.fields(experiment.presets["paper"]):
        lines.append(f"  --{field.name}: {field.metadata['about']}")
        by_preset = {name: getattr(config, field.name) for name, config in experiment.presets.items()}
        if len(set(by_preset.values())) == 1:
            shown = f"{_show(by_preset['paper'])} in every preset"
        else:
            shown = "; ".join(f"{name} {_show(value)}" for name, value in by_preset.items())
        lines.append(f"      {shown}. Allowed: {flags.allowed(field)}")
    return "\n".join(lines)


def _show(value: Any) -> str:
    return ",".join(str(v) for v in value) if isinstance(value, tuple) else str(value)


def _check_writable(outdir: Path) -> None:
    """Refuses an outdir that is a file or cannot be written, before any work."""
    existing = next(p for p in (outdir, *outdir.absolute().parents) if p.exists())
    if not existing.is_dir():
        raise flags.FlagError(f"--outdir={outdir}: {existing} is not a folder")
    if not os.access(existing, os.W_OK):
        raise flags.FlagError(f"--outdir={outdir}: {existing} cannot be written; allowed is a folder you can write")
