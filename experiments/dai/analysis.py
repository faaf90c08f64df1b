"""In-context learning against fine-tuning on the same demonstrations, of one network on one task (Dai et al. 2022).

The learning rate of fine-tuning is chosen on development questions (``experiments.dai.rates``), for every set of
demonstrations; everything else is measured on test questions and is a mean over all sets: none is selected.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from experiments.dai.common import RANDOM, Floats, Networks, OfNetworks
from experiments.dai.material import Material, encoded, toy_material
from experiments.dai.programs import (
    Jobs,
    Tuned,
    Weights,
    compared,
    finetuned,
    own_weights,
    right_log_probabilities,
    rows,
    states,
)
from experiments.dai.rates import chosen_rate, rms_over_layers
from icl_lab.compare import NetworkStates, Patch, relative_sizes
from icl_lab.compare.implicit_finetuning import BASELINES
from icl_lab.compare.network_states import POSITIONS as READ_AT
from icl_lab.lab.constraints import once, rising
from icl_lab.lab.flags import setting
from icl_lab.models import LanguageModel
from icl_lab.models.layers import Params
from icl_lab.prompts.encoding import Demonstration, EncodedTask, with_demonstrations
from icl_lab.prompts.text_tasks import HELD_OUT

RATES = tuple(float(f"{digit}e{power}") for power in (-4, -3, -2, -1) for digit in range(1, 10))
"""The paper's grid."""
SMALL_RATES = tuple(float(f"{digit}e{power}") for power in (-3, -2, -1, 0, 1) for digit in (1, 2, 5))
"""Three rates a decade, and larger ones, which a small network needs too."""


@dataclasses.dataclass(frozen=True)
class Analysis(OfNetworks):
    """Sizes of the analysis; defaults are the paper's."""

    demonstrations: int = setting(32, "N", at_least=2)
    seeds: int = setting(7, "sets of demonstrations, over which everything is a mean", at_least=1)
    rates: tuple[float, ...] = setting(RATES, "learning rates of fine-tuning, rising; one is chosen for a set", above=0)
    development_queries: int = setting(2000, "development questions, on which rates are chosen", at_least=1)
    test_queries: int = setting(2000, "test questions, on which everything else is measured", at_least=2)
    jobs_at_once: int = setting(18, "fine-tunings in one program", at_least=1)
    prompts_at_once: int = setting(100, "questions in one batch", at_least=1)
    top: int = setting(10, "likeliest tokens whose overlap is counted", at_least=1)
    position: str = setting(
        "paper", "paper: states at the query's last token; code: after it, as released", choices=READ_AT
    )
    baseline: str = setting("gaussian", "random vector of SimAOU's baseline; the code's is uniform", choices=BASELINES)


SMALL: dict[str, Any] = {
    "demonstrations": 12, "rates": SMALL_RATES, "development_queries": 100, "test_queries": 100,
}  # fmt: skip
"""The analysis of a network that was pre-trained at lab."""
FEW: dict[str, Any] = {
    "members": 1, "positions": ("rotary",), "demonstrations": 12, "seeds": 1, "rates": (0.01, 0.1, 1.0, 10.0),
    "development_queries": 25, "test_queries": 25, "jobs_at_once": 4, "prompts_at_once": 25,
}  # fmt: skip
"""A small part of the analysis, of one such network."""
SMALLEST: dict[str, Any] = {
    "networks": RANDOM, "members": 1, "positions": ("rotary",), "demonstrations": 2, "seeds": 1, "rates": (0.01,),
    "development_queries": 2, "test_queries": 2, "jobs_at_once": 1, "prompts_at_once": 2,
}  # fmt: skip


CONSTRAINTS = (once("positions"), rising("rates"))


class Subject(NamedTuple):
    """A network, what it is asked in one task, and how much of it in one program.

    ``others`` are networks of its size that do the same, by the name of a row of the table.
    """

    network: LanguageModel
    params: Params
    material: Material
    jobs_at_once: int
    prompts_at_once: int
    position: str = "paper"
    others: Mapping[str, Params] = {}

    def tuned(self, jobs: Jobs, **how: Any) -> Iterator[tuple[Tuned, int]]:
        """``programs.finetuned`` of the network."""
        return finetuned(self.network, self.params, jobs, self.jobs_at_once, **how)

    def tuned_once(self, jobs: Jobs, **how: Any) -> Tuned:
        """The network fine-tuned by a single job, without a leading axis."""
        return rows(next(finetuned(self.network, self.params, jobs, 1, **how))[0], 0)

    def read(self, weights: Weights | None, task: EncodedTask, setting: str, patch: Patch | None = None) -> Any:
        """``programs.states`` of the network with these weights, of one (without a leading axis) or None: its own."""
        batched = own_weights(self.params) if weights is None else rows(weights, None)
        return rows(self.read_all(batched, task, setting, patch), 0)

    def read_all(self, weights: Weights, task: EncodedTask, setting: str, patch: Patch | None = None) -> NetworkStates:
        """Of F networks."""
        at_once = min(self.prompts_at_once, len(task.targets))
        return states(self.network, self.params, weights, task, setting, self.position, at_once, patch)


def subjects(
    key: Array, network: Networks, config: Analysis, others: Mapping[str, Params] | None = None
) -> list[Subject]:
    """One network (``networks.one_network``) with every held-out task."""
    sizes: dict[str, Any] = {
        "seeds": range(1, config.seeds + 1), "demonstrations": config.demonstrations,
        "development": config.development_queries, "test": config.test_queries,
    }  # fmt: skip
    how = (config.jobs_at_once, config.prompts_at_once, config.position, others or {})
    by_task = []
    for t, task_key in enumerate(jax.random.split(key, len(HELD_OUT))):
        material = toy_material(task_key, network.languages, rows(network.tasks, t), **sizes)
        by_task.append(Subject(network.module, network.params, material, *how))
    return by_task


class Chosen(NamedTuple):
    """One set of demonstrations, and what development questions say of it. R rates.

    Attributes:
      number: of the set.
      demonstrations: of it.
      task: with the test questions.
      rate: the smallest as good as the best, among those that change no more than in-context learning.
      free_rate: the best of all.
      path: (R,) or (R, L) by name, what is measured over the whole grid.
    """

    number: int
    demonstrations: list[Demonstration]
    task: EncodedTask
    rate: float
    free_rate: float
    path: dict[str, Floats]


def choose(
    subject: Subject, config: Analysis, s: int, key: Array | None = None, count: int | None = None, **how: Any
) -> Chosen:
    """Chooses the learning rate for set ``s``, or for its first demonstrations.

    Args:
      subject: the network and the task.
      config: the analysis.
      s: index of the set.
      key: for the random baselines; without it similarities over the grid are left out.
      count: of demonstrations, None for all.
      how: of fine-tuning, as in ``finetune``.
    """
    material = subject.material
    task, searched = (encoded(material, material.sets[s], split) for split in (material.test, material.development))
    shown = searched if count is None else with_demonstrations(searched, range(count))
    zero_shot, in_context = subject.read(None, searched, "zero_shot"), subject.read(None, shown, "in_context")
    most = rms_over_layers(relative_sizes(zero_shot.output, in_context.output))
    by_rate: list[dict[str, Floats]] = []
    for part, valid in subject.tuned(jobs_of(searched, config.rates, count), **how):
        read = subject.read_all(part.weights, searched, "zero_shot")
        logs = np.asarray(right_log_probabilities(read.candidate_logits, searched))
        hits = right(np.asarray(read.candidate_logits), searched.targets)
        for i in range(valid):
            scores = {"logs": logs[i], "accuracy": hits[i].mean(),
                   "size": rms_over_layers(relative_sizes(zero_shot.output, read.output[i]))}  # fmt: skip
            if key is not None:
                similar, _ = compared(
                    key, subject.params, zero_shot, in_context, rows(read, i), part.queries[i], searched,
                    config.baseline, config.top,
                )  # fmt: skip
                scores |= {name: present_mean(values, 0) for name, values in similar.items()}
            by_rate.append(scores)
    path = {name: np.stack([one[name] for one in by_rate]) for name in by_rate[0]}
    choice = chosen_rate(path["logs"], path["size"], float(most))
    path["log_probability"] = path.pop("logs").mean(1)
    return Chosen(s, material.sets[s], task, config.rates[choice.rate], config.rates[choice.free], path)


def accuracies_by_demonstrations(
    subject: Subject, config: Analysis, counts: Sequence[int], sets: int
) -> tuple[Floats, Floats]:
    """(S, K) accuracies on test questions after the first demonstrations of the first sets, and of fine-tuning on
    them at the best rate for their number, whatever it changes."""
    context, tuned = np.empty((2, sets, len(counts)))
    for s in range(sets):
        for k, count in enumerate(counts):
            chosen = choose(subject, config, s, count=count)
            shorter = with_demonstrations(chosen.task, range(count))
            context[s, k] = accuracy(subject.read(None, shorter, "in_context"), chosen.task)
            after = subject.tuned_once(jobs_of(chosen.task, chosen.free_rate, count))
            tuned[s, k] = accuracy(subject.read(after.weights, chosen.task, "zero_shot"), chosen.task)
    return context, tuned


def accuracy(read: NetworkStates, task: EncodedTask) -> float:
    """Share of the questions that are answered right."""
    return float(right(np.asarray(read.candidate_logits), task.targets).mean())


def right(logits: Floats, targets: ArrayLike) -> NDArray[np.bool_]:
    """Whether the likeliest of (.., A) is the target; a network that diverged is wrong."""
    return np.isfinite(logits).all(-1) & (logits.argmax(-1) == np.asarray(targets))


def jobs_of(task: EncodedTask, rates: ArrayLike, first: int | None = None) -> Jobs:
    """Fine-tuning on the demonstrations of a task, or the first of them, at each of some rates."""
    grid, count = np.atleast_1d(np.asarray(rates, np.float32)), len(task.examples)
    taken = np.arange(count) < (count if first is None else first)
    examples, lengths = (np.repeat(leaf[None], len(grid), axis=0) for leaf in (task.examples, task.example_lengths))
    return Jobs(examples, lengths, np.where(taken[None], grid[:, None], np.float32(0)))


def joined_jobs(parts: Sequence[Jobs]) -> Jobs:
    """Fine-tunings of one number of examples, which are padded to the longest."""
    longest = max(part.examples.shape[-1] for part in parts)
    pad = lambda tokens: np.pad(tokens, ((0, 0), (0, 0), (0, longest - tokens.shape[-1])))  # noqa: E731
    return Jobs(
        np.concatenate([pad(part.examples) for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.rates for part in parts]),
    )


def present_mean(values: ArrayLike, axis: int | tuple[int, ...] | None) -> Floats:
    """Mean of the values that are defined; NaN where none is."""
    values = np.asarray(values, np.float64)
    defined = ~np.isnan(values)
    count = defined.sum(axis)
    return np.where(count, np.where(defined, values, 0).sum(axis) / np.maximum(count, 1), np.nan)
