"""How an experiment is carried out into a folder: run, resumed, found finished, drawn, judged."""

import contextlib
import dataclasses
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from rich.progress import Progress

from icl_lab.lab import checkpoints, flags, provenance, records, style
from icl_lab.lab.combining import code_of
from icl_lab.lab.experiment import PRINTED, Experiment
from icl_lab.lab.quantities import AxesError
from icl_lab.lab.record import Record, RecordError, flat, in_single
from icl_lab.lab.session import Session
from icl_lab.training import processes

log = logging.getLogger("icl_lab")
REMEASURE = "where measured was corrected, --overwrite trains and measures again; corrected quantities are enough alone"
"""What a person may do whose finished run has arrays that the quantities do not name."""
_OF_A_RUN = (".lock", "checkpoints", records.LOG, *records.FILES)
"""One of these is in every folder in which a run has begun."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What ``execute`` returns."""

    record: Record
    ledger: list[dict]
    figures: list[Path]
    ran: bool  # now, or it was finished
    seconds: float


def default_outdir(experiment: Experiment, preset: str, config: Any, root: Path = Path("runs")) -> Path:
    """``runs/<paper>/<figure>/<preset>-<digest of the configuration>``: another setting is another folder."""
    return root.joinpath(*experiment.name.split(".")) / f"{preset}-{provenance.digest(flags.to_json(config))[:8]}"


def execute(
    experiment: Experiment,
    preset: str,
    config: Any,
    outdir: Path,
    *,
    overwrite: bool = False,
    checkpoint_seconds: float = 15.0,
    progress: Progress | None = None,
    memory_gb: float = 0.0,
    wait: bool = False,
) -> Outcome:
    """Runs an experiment into a folder, or finishes what lies there: skips, resumes, redraws, rejudges.

    Raises:
      flags.FlagError: for a configuration that is not allowed (before anything is written).
      AxesError: for an array whose axes are not named, or not as they are; the run is saved.
      RecordError: if the folder holds a run of another configuration, one with such arrays, or files and no run, or
        another process is at work in it (where it is not waited for).
      OSError: if the folder cannot be written.
    """
    experiment.validate(config)
    plain = flags.to_json(config)
    identity = {"experiment": experiment.name, "config": plain, "precision": provenance.precision()}
    started, outdir = time.monotonic(), outdir.absolute()  # whatever a measurement makes of the working directory
    check_place(outdir)
    with contextlib.ExitStack() as held:
        processes.led(lambda: held.enter_context(records.locked(outdir, wait)))
        label = experiment.label(preset, config)
        record = None if overwrite else _found(experiment, label, plain, outdir)
        ran = record is None
        if record is None:
            processes.led(lambda: checkpoints.begin(outdir / "checkpoints", identity, over=overwrite))
            sources = experiment.source_version()  # as they were loaded, whatever is edited meanwhile
            provenance.checked_out()  # the commit now, whatever is committed while it trains
            code = provenance.code_version(sources)
            fingerprint = provenance.digest([experiment.name, plain, code, jax.default_backend(), checkpoints.FORMAT])
            session = Session(outdir, fingerprint, checkpoint_seconds, progress, memory_gb)
            with session.profile.listening(), experiment.compiling(preset):
                fits = session.fits(experiment.trainings(config))
                metrics, arrays, params = experiment.carried_out(config, fits)
            arrays = {name: in_single(array) for name, array in arrays.items()}
            origin = provenance.provenance(time.monotonic() - started, config.seed)
            origin |= {"stages": session.stages, "compilation": session.profile.summary(), "sources": sources}
            metrics = json.loads(json.dumps(metrics, default=lambda number: number.tolist()))  # numpy's too
            record = Record(experiment.name, label, plain, metrics, arrays, origin, params=flat(params))
        try:
            record = dataclasses.replace(record, axes=experiment.axes_of(record.arrays, plain))
            ledger = experiment.judged(record)
        except AxesError as error:
            if not ran:
                raise RecordError(f"{outdir} {_former(experiment, record)} ({error}); {REMEASURE}") from error
            processes.led(lambda: records.save(record, outdir, []))
            raise
        except Exception:
            if ran:  # wrong axes or a wrong claim lose no run: the next one finds it finished
                processes.led(lambda: records.save(record, outdir, []))
            raise

        def write() -> list[str]:
            records.save(record, outdir, ledger)
            checkpoints.remove(outdir / "checkpoints")
            return [str(path) for path in draw(experiment, record, outdir)]

        drawn = processes.led(write)
    return Outcome(record, ledger, [Path(name) for name in drawn], ran, time.monotonic() - started)


def _former(experiment: Experiment, record: Record) -> str:
    """Says which arrays of a finished run the quantities of its binary do not fit."""
    names = experiment.unnamed(record.arrays, record.config)
    listed = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
    return f"holds a finished run with arrays of former code{': ' * bool(names)}{listed}"


def check_place(folder: Path, instead: str = "choose another --outdir") -> None:
    """Raises RecordError, saying what to do ``instead``, for a file, and where a folder holds files and no run."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise RecordError(f"{folder} cannot be a folder, as {existing} is a file; {instead}")
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).exists() for name in _OF_A_RUN):
        raise RecordError(f"{folder} is not empty and holds no run; {instead}")


def draw(experiment: Experiment, record: Record, folder: Path, pdf: bool = True, svg: str | None = None) -> list[Path]:
    """Draws every figure of a record into a folder, all or, when it is stopped, none; nothing retrains.

    As PNG, at lab and paper also as ``pdf``; the figure that is named ``svg`` as SVG, too.
    """
    members, seed = record.config["members"], record.config["seed"]
    caption = f"{record.experiment} · preset {record.preset} · {members}\u00a0members · seed\u00a0{seed}"
    written = []
    with style.styled(), tempfile.TemporaryDirectory(dir=folder, prefix=records.DRAWING) as drawing:
        for name, figure in experiment.figures(record).items():
            printed = pdf and record.preset.startswith(PRINTED)
            written += style.save(figure, Path(drawing) / name, caption, pdf=printed, svg=name == svg)
        return [path.replace(folder / path.name) for path in written]


def _found(experiment: Experiment, label: str, config: dict, outdir: Path) -> Record | None:
    """The finished run that process 0 finds, in all processes (without parameters, which only process 0 writes)."""
    record: Record | None = None

    def find() -> dict[str, Any] | None:
        nonlocal record
        record = _finished(experiment, label, config, outdir)
        return {k: v for k, v in vars(record).items() if k not in ("arrays", "params")} if record else None

    fields = processes.led(find)
    if fields is None or processes.count() == 1:
        return record
    arrays = processes.bytes_of_writer(lambda: records.npz(record.arrays if record else {}))
    axes = {name: tuple(names) for name, names in fields.pop("axes").items()}
    return record or Record(**fields, arrays=records.unzipped(arrays), axes=axes)


def _finished(experiment: Experiment, label: str, config: dict, outdir: Path) -> Record | None:
    """The finished run in the folder, None where there is none (``usable``)."""
    record = usable(outdir)
    if record is None:
        return None
    if different := checkpoints.differing(vars(record), {"experiment": experiment.name, "config": config}):
        raise RecordError(f"{outdir} holds a run of {different}; {checkpoints.INSTEAD}")
    if record.preset != label:  # equal numbers, judged otherwise and compiled with another effort
        problem = f"holds a run of the preset {record.preset}, not {label}; {checkpoints.INSTEAD}"
        raise RecordError(f"{outdir} {problem}")
    warn_of_settings(record, outdir)
    say_commit(record, experiment, outdir)
    return record


def usable(folder: Path) -> Record | None:
    """The record in a folder, None where there is none; what cannot be used is named and set aside."""
    try:
        return records.load(folder)
    except RecordError as error:
        if moved := records.set_record_aside(folder):
            log.warning("%s; set aside as %s, running again", error, ", ".join(p.name for p in moved))
        return None


def warn_of_settings(record: Record, folder: Path, instead: str = "--overwrite of its binary does it again") -> None:
    """Says where a finished run was computed under other settings of JAX than those of this process."""
    if different := provenance.other_settings(record.provenance.get("precision") or {}):
        log.warning("%s holds a finished run under %s; %s", folder, different, instead)


def say_commit(record: Record, experiment: Experiment, folder: Path) -> None:
    """Says of which commit a finished run is, where today's sources are not those that made it."""
    if code_of(record)["sources"] not in (None, experiment.source_version()):
        commit = provenance.commit_of(record.provenance)
        log.info("%s holds a finished run of commit %s; --overwrite trains again by today's code", folder, commit)
