"""``icl_lab.train``: a training of a user's own, kept in a folder as runs of binaries are, resumed and prolonged."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

from icl_lab.lab import checkpoints, execution, own_record, records, stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.own_record import INSTEAD, LOCKED, NAME, STAGE
from icl_lab.lab.provenance import precision, source_version
from icl_lab.lab.record import Record, RecordError
from icl_lab.prompts import Sampler
from icl_lab.training import trained
from icl_lab.training.model import Model
from icl_lab.training.plans import Training, training
from icl_lab.training.trained import Trained


def train(
    network: nn.Module | Model,
    sampler: Sampler | Callable[[Any], Sampler],
    *,
    folder: str | Path | None = None,
    name: str = "",
    overwrite: bool = False,
    checkpoint_seconds: float = 15.0,
    progress: bool = True,
    **options: Any,
) -> Trained:
    """Trains independent members of one network on fresh tasks, all in one compiled program.

    With a ``folder`` the training is kept there. However the process ends (``kill -9``, SIGTERM, Ctrl-C), the same call
    resumes it, loses at most ``checkpoint_seconds`` of it, and gives the same bits. Of a finished training the same
    call returns what was kept, and one with more ``steps`` goes on from it. The folder is read by ``load`` (as
    ``Trained``) and by ``load_run`` (as any run).

    Whether a call is the same is decided by the values of all arguments. Functions are compared by their compiled code
    and by every value that they read: closures, defaults, globals, and so on in what they call
    (``lab.recognised.described``; the result is in ``config.json``).

    Args:
      network: a ``Transformer`` or another module that ``models.learner`` takes, or a ``Model``.
      sampler: the task distribution, ``(key, batch) -> Sample``; with ``settings``, ``setting -> sampler``.
      folder: where the training is kept; None keeps nothing.
      name: stands, in the comparison of calls, for values that cannot be compared (a generator of random numbers, an
        object of a compiled library): change it whenever they change.
      overwrite: trains again, whatever the folder holds.
      checkpoint_seconds: between two checkpoints, which are made between two measurements.
      progress: shows a progress bar on a terminal.
      options: of ``training``: ``members``, ``steps``, ``batch``, ``learning_rate`` or ``optimizer``, ``layout``,
        ``seed``, ``settings``, ``objective``, ``references``, ``extra``, ``eval_tasks``, ``measure_every``, ...

    Returns:
      The members, with their final parameters and what was measured: ``fit.metrics``, as ``training`` says.

    Warns:
      RuntimeWarning: naming the members whose loss or gradient was not finite; they are stopped before that step
        (``fit.diverged_at``).

    Raises:
      ValueError: as ``training``; where ``fit`` refuses the optimizer; without a folder for what belongs to one; and
        for values that cannot be compared and no ``name``.
      RecordError: where the folder holds another training, naming what differs, or one of more steps, or files and no
        training; or where another process is at work in it.
      OSError: where the folder cannot be written.
    """
    call = {"network": network, "sampler": sampler, **options}
    if folder is None:
        if name or overwrite:
            raise ValueError("name= and overwrite= are of a training that is kept; give folder= too")
        return trained.train(**call, progress=progress)
    planned, folder = training(**call), Path(folder)
    if "measure_every" not in options:
        planned = _measured_as_before(planned, folder)
    config = own_record.configuration(call, planned, name)
    execution.check_place(folder, INSTEAD)
    with records.locked(folder, instead=LOCKED), stopping.heeding():
        record = None if overwrite else _found(folder, config, planned.steps)
        if record is not None and record.config["steps"] == planned.steps:
            return own_record.trained_of(record, planned.model, call)
        return _carried_out(planned, call, config, folder, overwrite, record, (checkpoint_seconds, progress))


def _carried_out(
    planned: Training, call: Mapping[str, Any], config: dict[str, Any], folder: Path, over: bool,
    record: Record | None, how: tuple[float, bool],
) -> Trained:  # fmt: skip
    """Trains what is left to train, and writes the record."""
    started, place = time.monotonic(), folder / "checkpoints"
    run = {"experiment": NAME, "config": config, "precision": precision(), "steps": planned.steps}
    checkpoints.begin(place, run, over=over, instead=INSTEAD)
    fingerprint = [NAME, config, records.code_version(source_version("")), jax.default_backend(), checkpoints.FORMAT]
    kind = Checkpoint if record is None else _State
    resume = kind(place / STAGE, records.digest(fingerprint), how[0])
    with stopping.held():
        found = trained.carried_out(planned, call, progress=how[1], resume=resume)
    made = own_record.record_of(found.fit, planned, call, config, time.monotonic() - started)
    records.save(made, folder, claims=[])
    checkpoints.write_down(place, run | {"over": False})  # the state stays: more steps go on from it
    return found


class _State(Checkpoint):
    """The state with which a finished training ended; without it no more steps can be taken."""

    def load(self, like: Callable[[], Any]) -> Any:
        """As ``Checkpoint.load``; raises RecordError where there is none."""
        found = super().load(like)
        if found is None:
            said = "keeps no state of its optimizer that could be used here, so it cannot go on"
            raise RecordError(f"{self.folder.parents[1]} {said}; allowed is start=icl_lab.load(folder), elsewhere")
        return found


def _measured_as_before(planned: Training, folder: Path) -> Training:
    """A training that goes on is measured every so many steps as it was before, where none are given."""
    config = checkpoints.of(folder / "checkpoints").get("config", {})
    with contextlib.suppress(RecordError):
        config = records.load(folder, arrays=False).config
    every = config.get("measure_every")
    if not isinstance(every, int) or every == planned.measure_every or planned.steps % every:
        return planned
    return dataclasses.replace(planned, measure_every=every)


def _found(folder: Path, config: dict[str, Any], steps: int) -> Record | None:
    """The finished training in a folder, None where there is none.

    Raises:
      RecordError: where it, or one that is not finished, is another one, or has more steps.
    """
    record = execution.usable(folder)
    if record is not None:
        here = {"experiment": NAME, "config": config | {"steps": record.config.get("steps")}}
        if different := checkpoints.differing(vars(record), here):
            raise RecordError(f"{folder} holds a run of {different}; {INSTEAD}")
    there = [record.config["steps"]] if record else []
    begun = checkpoints.of(folder / "checkpoints")
    there += [begun["steps"]] if begun.get("config") == config and not begun.get("over") else []
    if there and steps < max(there) and steps not in there[: record is not None]:
        raise RecordError(f"{folder} holds this training with {max(there)} steps; allowed is that many, or more")
    if record is not None:
        execution.warn_of_settings(record, folder)
    return record
