"""``icl_lab.train``: a training of a user's own, kept in a folder as runs of binaries are, resumed and prolonged."""

import contextlib
import dataclasses
import inspect
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn
from jax.experimental.compilation_cache import compilation_cache

from icl_lab import machine
from icl_lab.lab import checkpoints, execution, own_comparison, own_record, records, stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.own_record import INSTEAD, LOCKED, NAME, STAGE, Keepable
from icl_lab.lab.provenance import checked_out, code_version, digest, precision, source_version, versions
from icl_lab.lab.record import Record, RecordError
from icl_lab.lab.trainings import host
from icl_lab.prompts import Sampler
from icl_lab.prompts.tracing import check_number, whole
from icl_lab.training import trained
from icl_lab.training.fitting import check
from icl_lab.training.model import Model
from icl_lab.training.optimizers import evaluated
from icl_lab.training.plans import Training, training

KEPT_AS = ("float32", "float16")
log = logging.getLogger("icl_lab")


def train(
    network: nn.Module | Model,
    sampler: Sampler | Callable[[Any], Sampler],
    *,
    folder: str | Path | None = None,
    name: str = "",
    overwrite: bool = False,
    checkpoint_seconds: float = 15.0,
    keep: int = 0,
    keep_dtype: str = "float32",
    progress: bool = True,
    devices: int | Sequence[jax.Device] | None = None,
    **options: Any,
) -> Keepable:
    """Trains independent members of one network on fresh tasks, all in one compiled program.

    With a ``folder`` the training is kept there. However the process ends (``kill -9``, SIGTERM, Ctrl-C), the same call
    resumes it, loses at most ``checkpoint_seconds`` of it, and gives the same bits. Of a finished training the same
    call returns what was kept, and one with more ``steps`` goes on from it. The folder is read by ``load`` (as
    ``Trained``) and by ``load_run`` (as any run).

    Whether a call is the same is decided by what it computes (``lab.computed``): a digest of its programs, with all
    constants, keys and settings, wherever values are hidden. ``until`` is compared by its compiled code and the values
    that it reads. ``config.json`` has these plain values of all arguments, by which a refusal names what differs.

    Args:
      network: a ``Transformer`` or another module that ``models.learner`` takes, or a ``Model``.
      sampler: the task distribution, ``(key, batch) -> Sample``; with ``settings``, ``setting -> sampler``.
      folder: where the training is kept; None keeps nothing.
      name: stands, in the comparison of calls, for what cannot be compared (a program that calls Python for a value, as
        by ``jax.pure_callback``; a generator of random numbers in ``until``): change it whenever that changes.
      overwrite: trains again, whatever the folder holds.
      checkpoint_seconds: between two checkpoints, which are made between two measurements.
      keep: of about so many measurements, evenly spaced, the last among them, the folder keeps the parameters of all
        members: ``load_run(folder).learner(member, stage="training@400")``, after 400 steps. The last of a training
        whose ``steps`` are no multiple of ``measure_every`` is its end, ``stage="training"``.
      keep_dtype: of these on disk, ``float32`` or ``float16``.
      progress: shows the loss beside a bar, on a terminal and in a notebook (with ipywidgets), else a line a minute.
      devices: that share the members, or how many of ``jax.devices()``; None: all. They change no number by more than
        rounding.
      options: of ``icl_lab.training.training``, which describes all: ``members`` (10), ``steps`` (2000), ``batch``
        (256), ``learning_rate`` (1e-3) or ``optimizer``, ``layout``, ``seed``, ``settings``, ``objective``, ...

    Returns:
      The members, with their final parameters and what was measured: ``fit.metrics``, as ``training`` says.

    Warns:
      RuntimeWarning: naming the members whose loss or gradient was not finite; they are stopped before that step
        (``fit.diverged_at``). The log says where a finished training by other versions is returned, which only its
        plain values show to be the same.

    Raises:
      TypeError: for an option that ``training`` does not have.
      ValueError: as ``training``; where ``fit`` refuses the optimizer; without a folder for what belongs to one; and
        for values that cannot be compared and no ``name``.
      RecordError: where the folder holds another training, naming what differs, or one of more steps, or files and no
        training; or an unfinished one by other versions of JAX, Flax, optax or icl_lab or another back end; or where
        another process is at work in it.
      OSError: where the folder cannot be written.
    """
    trained.check_options(options, train)
    for option, switch in {"overwrite": overwrite, "progress": progress}.items():
        if not isinstance(switch, bool):
            raise ValueError(f"{option} must be True or False, got {switch!r}")
    call = {"network": network, "sampler": sampler, **options}
    if folder is None:
        given = {"name": name, "overwrite": overwrite, "keep": keep}
        given |= {"checkpoint_seconds": checkpoint_seconds, "keep_dtype": keep_dtype}
        for option, value in given.items():
            if value != inspect.signature(train).parameters[option].default:
                raise ValueError(f"{option}={value!r} is of a training that is kept; give folder= too")
        mesh, planned = trained.mesh_of(devices), training(**call)
        trained.check_network(planned, network)
        return Keepable(*trained.carried_out(planned, call, progress=progress, mesh=mesh))
    folder = machine.path(folder).absolute()  # whatever ``until`` makes of the working directory
    if not isinstance(name, str):
        raise ValueError(f"name must be words, got {name!r}")
    check_number("checkpoint_seconds", checkpoint_seconds, at_least=0, scalar=True)
    keep = whole("keep", keep, 0)
    if keep_dtype not in KEPT_AS:
        raise ValueError(f"keep_dtype must be one of {', '.join(KEPT_AS)}, got {keep_dtype!r}")
    mesh, planned = trained.mesh_of(devices), training(**call)
    if options.get("measure_every") is None and not overwrite:
        planned = _measured_as_before(planned, folder)
    functions = own_comparison.traceable(planned)
    try:
        computed = own_comparison.computed(planned, functions)
    except Exception:  # which may come from what is refused in words
        check(planned.init, planned.optimizer, planned.keys, planned.settings, planned.members_at_once)
        raise
    config = own_record.configuration(call, planned, computed["foreign"], name)
    if keep:
        config |= {"keep": keep, "keep_dtype": keep_dtype}
    run: dict[str, Any] = {
        "experiment": NAME,
        "config": config,
        "precision": precision(),
        "versions": versions(),
        "computed": computed,
    }
    execution.check_place(folder, own_record.ELSEWHERE)
    with records.locked(folder, instead=LOCKED), stopping.heeding(), _programs_kept(folder.parent):
        record = None if overwrite else _found(folder, run, planned.steps)
        if record is not None and record.config["steps"] == planned.steps:
            return own_record.trained_of(record, planned.model, call)
        trained.check_network(planned, network)
        started, place = time.monotonic(), folder / "checkpoints"
        run |= {"steps": planned.steps}
        checkpoints.begin(place, run, over=overwrite, instead=INSTEAD, differs=_unfinished)
        code = code_version(source_version())
        checked_out()  # the commit now, whatever is committed while it trains
        fingerprint = digest([NAME, computed, planned.measure_every, code, checkpoints.FORMAT])
        checkpoint = Checkpoint(place / STAGE, fingerprint, checkpoint_seconds)
        snapshots = _Snapshots(checkpoint, place / "kept", planned, keep, keep_dtype, goes_on=record is not None)
        with stopping.held():
            result = trained.carried_out(
                planned, call, progress=progress, resume=snapshots, mesh=mesh, functions=functions
            )
        outcome = own_record.record_of(result.fit, planned, call, config, computed, time.monotonic() - started)
        earlier = {name: leaf for name, leaf in (record.params if record else {}).items() if "@" in name.split("/")[0]}
        records.save(
            dataclasses.replace(outcome, params={**outcome.params, **earlier, **snapshots.read()}), folder, claims=[]
        )
        snapshots.clear()
        checkpoints.write_down(place, run | {"over": False})  # the state stays: more steps go on from it
        return Keepable(*result)


class _Snapshots:
    """A place for the state, which also keeps the parameters at some measurements, in a file each.

    What ``goes_on`` is a finished training: without the state with which it ended no more steps can be taken.
    """

    def __init__(self, checkpoint: Checkpoint, folder: Path, planned: Training, about: int, kind: str, goes_on: bool):
        self.checkpoint, self.folder, self.kind, self.goes_on = checkpoint, folder, kind, goes_on
        self.every = planned.measure_every or planned.steps
        self.stride = max(1, round(planned.steps / self.every / about)) if about else 0
        self.done = 0  # measurements after the first

    def load(self, like: Callable[[], Any]) -> Any:
        """As ``Checkpoint.load``; raises RecordError where a finished training cannot go on."""
        tree = self.checkpoint.load(like)
        if tree is None and self.goes_on:
            problem = "keeps no state of its optimizer that could be used here, so it cannot go on"
            raise RecordError(f"{self.folder.parents[1]} {problem}; allowed is start=icl_lab.load(folder), elsewhere")
        if tree is None:
            self.clear()
            self.done = -1  # the measurement at step 0 is still to be saved
        else:
            self.done = len(tree["metrics"]["train_loss"][0]) - 1
        return tree

    def save(self, tree: Callable[[], Any], finished: bool) -> None:
        """Writes the snapshot first, since ``Checkpoint.save`` may end the process."""
        self.done += 1
        if self.stride and (finished or self.done % self.stride == 0):
            state = tree()["state"]
            params = host(jax.vmap(evaluated)(state.opt_state, state.params))
            named = {place: leaf.astype(self.kind) for place, leaf in own_record.by_place(params).items()}
            self.folder.mkdir(parents=True, exist_ok=True)
            records.write_atomically(self.folder / f"{self.done * self.every}.npz", records.npz(named))
        self.checkpoint.save(tree, finished)

    def read(self) -> dict[str, Any]:
        """All that is kept, by stage and place."""
        files = sorted(self.folder.glob("*.npz"))
        params = {path.stem: records.unzipped(path.read_bytes()) for path in files}
        return {
            own_record.at(f"{STAGE}@{step}", place): leaf for step, one in params.items() for place, leaf in one.items()
        }

    def clear(self) -> None:
        """Removes the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def _programs_kept(root: Path) -> Iterator[None]:
    """Programs that are compiled inside are kept below ``root``, as those of binaries, unless JAX was told of a place.

    The settings of JAX are then what they were.
    """
    config: Any = jax.config  # whose names no type checker knows
    if config.jax_compilation_cache_dir:
        yield
        return
    least = config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(machine.compiled_programs(root)))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
        compilation_cache.reset_cache()


def _measured_as_before(planned: Training, folder: Path) -> Training:
    """A training that goes on is measured every so many steps as it was before, where none are given."""
    config = checkpoints.of(folder / "checkpoints").get("config", {})
    with contextlib.suppress(RecordError):
        config = records.read_json(folder / "config.json")
    every = config.get("measure_every") if isinstance(config, dict) else None
    return dataclasses.replace(planned, measure_every=every) if isinstance(every, int) else planned


def _unfinished(there: own_comparison.Run, here: own_comparison.Run) -> str:
    """Why an unfinished training is not gone on with, in words; empty: it is."""
    apart = own_comparison.incomparable(there, here)
    return own_comparison.difference(there, here) or (apart and f"this training, {apart}, and cannot be finished here")


def _found(folder: Path, run: own_comparison.Run, steps: int) -> Record | None:
    """The finished training in a folder, None where there is none.

    Raises:
      RecordError: where the finished training is another one, or this one, finished or not, already has more steps.
    """
    record = execution.usable(folder)
    if record is not None and (different := own_comparison.difference(own_comparison.run_of(record), run)):
        raise RecordError(f"{folder} holds a run of {different}; {INSTEAD}")
    finished, begun = record.config["steps"] if record else 0, checkpoints.of(folder / "checkpoints")
    same = bool(begun) and not begun.get("over") and not own_comparison.difference(begun, run)
    most = max(finished, begun["steps"] if same else 0)
    if steps < most and steps != finished:
        raise RecordError(f"{folder} holds this training with {most} steps; allowed is that many, or more")
    if record is not None:
        execution.warn_of_settings(record, folder, "overwrite=True does it again")
        apart = own_comparison.incomparable(own_comparison.run_of(record), run)
        if apart and steps > finished:
            problem = f"cannot go on from {finished} to {steps} steps: it was {apart}"
            raise RecordError(f"{folder} {problem}; allowed is start=icl_lab.load(folder), elsewhere")
        if apart:
            words = "its plain values are the same, what it computes was not compared; overwrite=True does it again"
            log.warning("%s holds a finished training %s; %s", folder, apart, words)
    return record
