"""An experiment: presets, ``run``, and figures and claims, made of its record alone; here is what runs every one."""

import contextlib
import dataclasses
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
from rich.progress import Progress

from icl_lab.lab import checkpoints, flags, records, style
from icl_lab.lab.axes import Axes, checked, named
from icl_lab.lab.claims import QUICK_TOLERANCE, Claim, Quick, judge
from icl_lab.lab.provenance import loaded, other_settings, precision, source_version
from icl_lab.lab.record import Record, RecordError, flat, in_single
from icl_lab.lab.session import Session
from icl_lab.lab.style import Figure
from icl_lab.prompts import BatchLearner
from icl_lab.training import effort, processes

PRESETS = ("smoke", "quick", "lab", "paper")
EFFORT = {"smoke": "little", "quick": "some"}
"""How hard XLA works on the programs of presets that are compilation for a large part."""
PRINTED = ("lab", "paper")
"""Presets whose figures are also written as PDF; fonts and all, that takes as long as the pixels and a second more."""
log = logging.getLogger("icl_lab")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One binary: a figure or table of a paper.

    Attributes:
      name: ``paper.figure``.
      about: the module's docstring; ``--help`` prints it.
      presets: a configuration for each of ``PRESETS``; the configuration class has fields ``seed`` and ``members``.
      run: ``(config, session) -> (metrics, arrays)``; names of arrays nested in dicts are joined by ``/``.
      check: raises FlagError for a configuration whose fields do not fit together.
      parts: patterns (``fnmatch``) of the names of arrays that a configuration, as plain JSON values, has and others
        leave out on purpose: of the networks, sizes, ... that it chooses.
      feeds_others: other binaries read its record, so the gallery keeps arrays and parameters whatever their size.
      axes: names of the axes of every array, by a pattern of the array's name (``icl_lab.lab.axes``).
      learners: what the final parameters of each training predict (``icl_lab.load_run``).
      quick: the one to three claims that sum it up, by their names without the binary's, and how the preset quick
        judges each (None: it is judged at lab only). At quick no other claim is judged.
      effort: how hard XLA works on the programs of a preset (``training.effort``), where not as ``EFFORT`` says.
      finding: one or two sentences; fields name estimates of its claims at lab (``experiments.page.words``).
      given: members are loaded from another run, or do not depend on the seed, so a grid over seeds repeats them.
      reads: names of the binaries whose records it opens.
    """

    name: str
    about: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Session], tuple[dict[str, Any], dict[str, Any]]]
    figures: Callable[[Record], dict[str, Figure]]
    claims: tuple[Claim, ...]
    check: Callable[[Any], None] = lambda config: None
    parts: Callable[[Mapping[str, Any]], Iterable[str]] = lambda config: ()
    feeds_others: bool = False
    axes: Mapping[str, Axes] = dataclasses.field(default_factory=dict)
    learners: Callable[[Any], Mapping[str, Callable[[Any], BatchLearner]]] = lambda config: {}  # by stage
    quick: Mapping[str, Quick | None] = dataclasses.field(default_factory=dict)
    effort: Mapping[str, str] = dataclasses.field(default_factory=dict)
    finding: str = ""
    given: bool = False
    reads: tuple[str, ...] = ()

    def __post_init__(self):
        check_claims(self.name, self.claims)
        tolerances = {claim.id: claim.tolerance for claim in self.claims}
        for name, quick in zip(self.headlines, self.quick.values()):
            if name not in tolerances:
                raise ValueError(f"{name}: a headline, but no claim; there are {', '.join(tolerances)}")
            if quick is not None and quick.tolerance > QUICK_TOLERANCE * tolerances[name] * (1 + 1e-12):
                raise ValueError(f"{name}: the tolerance at quick is more than {QUICK_TOLERANCE} times that at lab")

    def check_complete(self) -> None:
        """Checks what a command line needs.

        Raises:
          ValueError: for a preset that is missing, or a configuration of which no flags can be made.
        """
        if missing := [name for name in PRESETS if name not in self.presets]:
            raise ValueError(f"{self.name}: there is no preset {', '.join(missing)}")
        flags.check_class(type(self.presets["paper"]), needed=("seed", "members"))

    @property
    def headlines(self) -> tuple[str, ...]:
        """Ids of the claims that sum the experiment up, the first one first."""
        return tuple(f"{self.name}.{name}" for name in self.quick)

    @property
    def module(self) -> str:
        """The module that decides its numbers: that of its name, or the one that runs."""
        module = f"experiments.{self.name}"
        return module if module in loaded() else self.run.__module__

    def source_version(self) -> str:
        """Digest of the sources that decide its numbers (``provenance.source_version``)."""
        return source_version(self.module, [f"experiments.{name}" for name in self.reads])

    def axes_of(self, names: Iterable[str], config: Mapping[str, Any]) -> dict[str, Axes]:
        """The axes of every array, by its name.

        Raises:
          AxesError: for a name that no pattern matches.
        """
        return named(self.axes, names)

    def left_out(self, config: Mapping[str, Any]) -> set[str]:
        """Patterns of the names of arrays that runs of a preset have and those of this configuration have not."""
        every = {part for preset in self.presets.values() for part in self.parts(flags.to_json(preset))}
        return every - set(self.parts(config))

    def compiling(self, preset: str) -> contextlib.AbstractContextManager:
        """Inside this block XLA works as hard on a program as it does for runs of the preset."""
        return effort.at_most(self.effort.get(preset, EFFORT.get(preset, "full")))

    def judged(self, record: Record) -> list[dict]:
        """The ledger rows of a record, in the order of the claims (``claims.judge``)."""
        left_out, claims = self.left_out(record.config), self.claims
        if record.preset == "quick":
            claims = tuple(claim.at_quick(self.quick.get(claim.id[len(self.name) + 1 :])) for claim in claims)
        return [judge(claim, record, left_out) for claim in claims]

    def label(self, preset: str, config: Any) -> str:
        """The preset's name, with what differs from it.

        Another seed, more members, or a choice of parts (a field ``only``) do not make it another preset.
        """
        base = vars(self.presets[preset])
        free = {"seed", "only"} | ({"members"} if config.members >= base["members"] else set())
        differing = [f"{k}={v}" for k, v in vars(config).items() if v != base[k] and k not in free]
        return f"{preset} with {', '.join(differing)}" if differing else preset


def check_claims(name: str, claims: Iterable[Claim]) -> None:
    """Raises ValueError for claims of an experiment whose ids are not its own, or that name a verdict at quick."""
    ids = [claim.id for claim in claims]
    for one in ids:
        if not one.startswith(f"{name}.") or ids.count(one) > 1:
            raise ValueError(f"{one}: the id of a claim begins with {name}. and is its own")
    if early := [claim.id for claim in claims if "quick" in claim.expected_verdict]:
        raise ValueError(f"{early[0]}: its verdict at quick is given by quick=, with a tolerance")


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
    memory_gb: float = 0.0,
    wait: bool = False,
) -> Outcome:
    """Runs an experiment into a folder, or finishes what lies there: skips, resumes, redraws, rejudges.

    Raises:
      flags.FlagError: for a configuration that is not allowed (before anything is written).
      AxesError: for an array whose axes are not named, or not as they are.
      RecordError: if the folder holds a run of another configuration, or files and no run, or another process is at
        work in it (where it is not waited for).
      OSError: if the folder cannot be written.
    """
    flags.validate(config)
    experiment.check(config)
    plain = flags.to_json(config)
    identity = {"experiment": experiment.name, "config": plain, "precision": precision()}
    started = time.monotonic()
    if outdir.is_dir() and any(outdir.iterdir()) and not any((outdir / name).exists() for name in _OF_A_RUN):
        raise RecordError(f"{outdir} is not empty and holds no run; choose another --outdir")
    with contextlib.ExitStack() as held:
        processes.led(lambda: held.enter_context(records.locked(outdir, wait)))
        label = experiment.label(preset, config)
        record = None if overwrite else _found(experiment, label, plain, outdir)
        ran = record is None
        if record is None:
            processes.led(lambda: checkpoints.begin(outdir / "checkpoints", identity, over=overwrite))
            sources = experiment.source_version()  # as they were loaded, whatever is edited meanwhile
            code = records.code_version(sources)
            fingerprint = records.digest([experiment.name, plain, code, jax.default_backend(), checkpoints.FORMAT])
            session = Session(outdir, fingerprint, checkpoint_seconds, progress, memory_gb)
            with session.profile.listening(), experiment.compiling(preset):
                metrics, tree = experiment.run(config, session)
            arrays = {name: in_single(array) for name, array in flat(tree).items()}
            origin = records.provenance(time.monotonic() - started, config.seed)
            origin |= {"stages": session.stages, "compilation": session.profile.summary(), "sources": sources}
            metrics = json.loads(json.dumps(metrics, default=lambda number: number.tolist()))  # numpy's too
            record = Record(experiment.name, label, plain, metrics, arrays, origin, params=flat(session.params))
        try:
            axes = checked(experiment.axes_of(record.arrays, plain), record.arrays, config.members)
            record = dataclasses.replace(record, axes=axes)
            ledger = experiment.judged(record)
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


def draw(experiment: Experiment, record: Record, folder: Path) -> list[Path]:
    """Draws every figure of a record into a folder, all or, when it is stopped, none; nothing retrains."""
    members, seed = record.config["members"], record.config["seed"]
    caption = f"{record.experiment} · preset {record.preset} · {members} members · seed {seed}"
    written = []
    with style.styled(), tempfile.TemporaryDirectory(dir=folder, prefix=records.DRAWING) as drawing:
        for name, figure in experiment.figures(record).items():
            written += style.save(figure, Path(drawing) / name, caption, pdf=record.preset.startswith(PRINTED))
        return [path.replace(folder / path.name) for path in written]


def _found(experiment: Experiment, label: str, config: dict, outdir: Path) -> Record | None:
    """The finished run that process 0 finds, in all processes (without parameters, which only process 0 writes)."""
    record: Record | None = None

    def find() -> dict[str, Any] | None:
        nonlocal record
        record = _finished(experiment, label, config, outdir)
        return {k: v for k, v in vars(record).items() if k not in ("arrays", "params")} if record else None

    said = processes.led(find)
    if said is None or processes.count() == 1:
        return record
    arrays = processes.bytes_of_writer(lambda: records.npz(record.arrays if record else {}))
    axes = {name: tuple(names) for name, names in said.pop("axes").items()}
    return record or Record(**said, arrays=records.unzipped(arrays), axes=axes)


def _finished(experiment: Experiment, label: str, config: dict, outdir: Path) -> Record | None:
    """The finished run in the folder, None where there is none (what cannot be used is named and set aside)."""
    try:
        record = records.load(outdir)
    except RecordError as error:
        if moved := records.set_record_aside(outdir):
            log.warning("%s; set aside as %s, running again", error, ", ".join(p.name for p in moved))
        return None
    if different := checkpoints.differing(vars(record), {"experiment": experiment.name, "config": config}):
        raise RecordError(f"{outdir} holds a run of {different}; choose another --outdir, or --overwrite it")
    if record.preset != label:  # equal numbers, judged otherwise and compiled with another effort
        said = f"holds a run of the preset {record.preset}, not {label}; choose another --outdir, or --overwrite it"
        raise RecordError(f"{outdir} {said}")
    warn_of_settings(record, outdir)
    return record


def warn_of_settings(record: Record, folder: Path) -> None:
    """Says where a finished run was computed under other settings of JAX than those of this process."""
    if different := other_settings(record.provenance.get("precision") or {}):
        log.warning("%s holds a finished run under %s; --overwrite of its binary does it again", folder, different)
