"""A finished run, read back: its record, and what its members have become."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from icl_lab import machine, notebook
from icl_lab.lab import flags, own_record, records
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import Record, RecordError, below
from icl_lab.lab.trainings import After, Fits, Table
from icl_lab.prompts import BatchLearner, Learner, Sampler, one_prompt
from icl_lab.prompts.layouts import Layout
from icl_lab.training.fitting import Fit
from icl_lab.training.model import Model
from icl_lab.training.plans import Training


class FinishedRun(NamedTuple):
    """A finished run: what it found, and the binary that made it."""

    record: Record
    experiment: Experiment

    def __repr__(self) -> str:
        summary = f"{self.record.experiment}, {self.record.preset}, {self.record.config['members']} members"
        return f"FinishedRun({summary}, {len(self.record.arrays)} arrays)"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a FinishedRun holds functions, which no pickle keeps: load_run(folder) reads it, where it is needed"
        )

    def _repr_html_(self) -> str:
        arrays = self.record.arrays.items()
        rows = [
            {"array": name, "shape": a.shape, "axes": ", ".join(self.record.axes.get(name, ()))} for name, a in arrays
        ]
        return notebook.text(repr(self)) + notebook.table(rows)

    def stages(self) -> list[str]:
        """Names of the trainings whose members can be asked to predict, each before what was kept of it, by step."""
        return [stage for stage in in_order(self._learners()) if below(self.record.params, stage) is not None]

    def params(self, member: int = 0, stage: str = "") -> Any:
        """Final parameters of a member, from 0, of a training (empty: the only one): the pytree that its network takes.

        Raises:
          RecordError: if there is no such training or member, the run kept no parameters, or no training is named where
            there are several.
        """
        fit = self._fit(stage := stage or self._only_stage())
        members = fit.diverged_at.size
        if not isinstance(member, int | np.integer) or member not in range(members):
            raise RecordError(f"there is no member {member} of stage {stage!r}; allowed is 0 to {members - 1}")
        return jax.tree.map(lambda leaf: leaf[member], fit.params)

    def batch_learner(self, member: int = 0, stage: str = "") -> BatchLearner:
        """A member as a learner of B prompts at once.

        Raises:
          RecordError: as ``params``, or if the experiment does not say what its parameters predict.
        """
        return self.with_params(self.params(member, stage), stage)

    def with_params(self, params: Any, stage: str = "") -> BatchLearner:
        """What such parameters predict; they may be traced, so that all members share one program.

        Raises:
          RecordError: if the experiment does not say what parameters of this training predict, or as ``params``.
        """
        learners = self._learners()
        stage = stage or self._only_stage()
        if stage not in learners:
            known = f"only those of {', '.join(learners)}" if learners else "of none"
            raise RecordError(f"{self.record.experiment} does not say what the members of {stage!r} predict, {known}")
        return learners[stage](params)

    def learner(self, member: int = 0, stage: str = "") -> Learner:
        """A member as a learner, ``Prompt -> prediction``; raises as ``batch_learner``."""
        return one_prompt(self.batch_learner(member, stage))

    def sampler(self, member: int = 0, stage: str = "") -> Sampler:
        """The task distribution on which a member was measured, ``(key, batch) -> Sample``.

        Raises:
          RecordError: as ``params``, or if the experiment does not say on what this training was measured.
        """
        stage, _ = stage or self._only_stage(), self.params(member, stage)
        table = self._trainings()
        planned: Training | After | None = table[stage]
        if isinstance(planned, After) and planned.learner is not None and planned.sampler is None:
            planned = planned.plan(Fits(table, lambda other, _: self._fit(other)))
        if planned is None or planned.sampler is None:
            raise RecordError(f"{self.record.experiment} does not say on what prompts {stage!r} was measured")
        settings = planned.settings if isinstance(planned, Training) else None
        return planned.sampler(jax.tree.map(lambda leaf: leaf[member], settings))

    def _fit(self, stage: str) -> Fit:
        """Of the outcome of a training what a run keeps: parameters; no measurements, nor which members diverged."""
        if (params := below(self.record.params, stage)) is None:
            kept = in_order(dict.fromkeys(name.split("/")[0] for name in self.record.params))
            known = f"it has those of {', '.join(kept)}" if kept else "it kept none"
            missing = f"of a stage {stage!r}" if stage else "that its binary can turn to learners"
            raise RecordError(f"this run of {self.record.experiment} has no parameters {missing}; {known}")
        return Fit(params, np.zeros(0, int), {}, np.full(jax.tree.leaves(params)[0].shape[0], -1))

    def _only_stage(self) -> str:
        stages = [stage for stage in self.stages() if "@" not in stage]  # what was kept on the way is asked for by name
        if len(stages) > 1:
            raise RecordError(f"this run has several trainings; allowed is stage= one of {', '.join(stages)}")
        return next(iter(stages or self._learners()), "")

    def _learners(self) -> dict[str, Any]:
        return {stage: one.learner for stage, one in self._trainings().items() if one.learner is not None}

    def _trainings(self) -> Table:
        if "grid" in self.record.config:
            cells = ", ".join(self.record.metrics["cells"])
            raise RecordError(f"this is a grid; its runs, each with members, are in cells/ of its folder: {cells}")
        if not self.experiment.presets:  # of icl_lab.train: its record has all that there is of a configuration
            return self.experiment.trainings(self.record.config)
        preset = type(self.experiment.presets["paper"])
        try:
            config = flags.from_json(preset, self.record.config)
        except TypeError as error:  # a field that has gone since
            raise RecordError(f"this record of {self.record.experiment} is of other settings ({error})") from error
        return self.experiment.trainings(config)


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they come, each before those ``<stage>@<step>`` that were kept on its way, by step."""
    names = list(stages)
    first = {name: place for place, name in reversed(list(enumerate(name.split("@")[0] for name in names)))}

    def place(name: str) -> tuple[int, int]:
        stage, _, step = name.partition("@")
        return first[stage], int(step) if step.isdecimal() else -1

    return sorted(names, key=place)


def load_run(
    folder: str | Path,
    experiment: Experiment | None = None,
    *,
    network: nn.Module | Model | None = None,
    layout: Layout | None = None,
) -> FinishedRun:
    """Reads a run folder, one of the gallery, or a training that ``icl_lab.train(..., folder=...)`` has kept.

    Args:
      folder: of the run.
      experiment: that made it; None: the binary of the record's name.
      network: of a training by ``icl_lab.train``, with its ``layout``, where the folder cannot say it (``load``).
      layout: beside it.

    Raises:
      RecordError: if the record cannot be used, or no binary has its name.
    """
    folder = machine.path(folder)
    if not (folder / "record.json").exists():
        problem = f"is a file of {folder.parent}" if folder.is_file() else "holds no record.json"
        raise RecordError(f"folder: {folder} {problem}; allowed is the folder of a finished run")
    record = records.load(folder, arrays=(folder / "arrays.npz").exists())  # a gallery may not keep them
    if experiment is None and record.experiment == own_record.NAME:
        experiment = own_record.experiment_of(record, network, layout)
    if experiment is None:
        try:
            experiment = importlib.import_module(f"experiments.{record.experiment}").EXPERIMENT
        except (ImportError, AttributeError) as error:
            why = machine.in_the_way() or "for one of your own: load_run(folder, EXPERIMENT)"
            problem = f"{record.experiment} is no binary here ({error}); {why}"
            raise RecordError(f"{folder}: {problem}") from error
    if not isinstance(experiment, Experiment):
        raise RecordError(f"experiment must be the EXPERIMENT that made the run, got {experiment!r}")
    if experiment.name != record.experiment:
        raise RecordError(f"{folder} holds a run of {record.experiment}, not of {experiment.name}")
    return FinishedRun(record, experiment)
