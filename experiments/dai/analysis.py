"""In-context learning against fine-tuning on the same demonstrations, of one network on one task (Dai et al. 2022).

The set of demonstrations is chosen by in-context accuracy, the learning rate by fine-tuned accuracy, both on
development questions. Reported accuracies are those on test questions.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from experiments.dai.material import Material, encoded, prompts, toy_material
from experiments.dai.networks import RANDOM, Networks, OfNetworks
from experiments.dai.programs import Jobs, Tuned, Weights, answers, finetuned, own_weights, rows
from experiments.settings import check_each_once
from icl_lab.compare.implicit_finetuning import BASELINES
from icl_lab.compare.network_states import POSITIONS as READ_AT
from icl_lab.lab.flags import FlagError, setting
from icl_lab.models import LanguageModel
from icl_lab.models.transformer import Params
from icl_lab.prompts.encoding import EncodedTask, with_demonstrations
from icl_lab.prompts.text_tasks import HELD_OUT

Floats = NDArray[np.floating]
RATES = tuple(float(f"{digit}e{power}") for power in (-4, -3, -2, -1) for digit in range(1, 10))
"""The paper's grid."""
LARGER = tuple(float(f"{digit}e{power}") for power in (0, 1) for digit in range(1, 10))
"""Larger rates, which a small network needs too."""


@dataclasses.dataclass(frozen=True)
class Analysis(OfNetworks):
    """Sizes of the analysis; defaults are the paper's."""

    demonstrations: int = setting(32, "N", at_least=2)
    seeds: int = setting(7, "sets of demonstrations, of which the best on development questions is taken", at_least=1)
    rates: tuple[float, ...] = setting(
        RATES, "learning rates of fine-tuning, of which the best is taken likewise", above=0
    )
    development_queries: int = setting(2000, "development questions: sets and rates are chosen on them", at_least=1)
    test_queries: int = setting(2000, "test questions: accuracies are measured on them", at_least=1)
    state_queries: int = setting(100, "of these, questions on which similarities are measured", at_least=1)
    jobs_at_once: int = setting(18, "fine-tunings in one program", at_least=1)
    prompts_at_once: int = setting(40, "prompts in one program", at_least=1)
    top: int = setting(10, "likeliest tokens whose overlap is counted", at_least=1)
    position: str = setting(
        "paper", "paper: states at the query's last token; code: behind it, as released", choices=READ_AT
    )
    baseline: str = setting("gaussian", "random vector of SimAOU's baseline; the code's is uniform", choices=BASELINES)


SMALL: dict[str, Any] = {
    "demonstrations": 12, "rates": RATES + LARGER, "development_queries": 100, "test_queries": 200,
    "prompts_at_once": 50,
}  # fmt: skip
"""The analysis of a network that was pre-trained at lab."""
FEW: dict[str, Any] = {
    "members": 1, "positions": ("rotary",), "demonstrations": 12, "seeds": 1, "rates": (0.01, 0.1, 1.0, 10.0),
    "development_queries": 25, "test_queries": 50, "state_queries": 25, "jobs_at_once": 4, "prompts_at_once": 25,
}  # fmt: skip
"""A small part of the analysis, of one such network."""
SMALLEST: dict[str, Any] = {
    "networks": RANDOM, "members": 1, "positions": ("rotary",), "demonstrations": 2, "seeds": 1, "rates": (0.01,),
    "development_queries": 2, "test_queries": 2, "state_queries": 2, "jobs_at_once": 1, "prompts_at_once": 2,
}  # fmt: skip


def check(config: Analysis) -> None:
    """Raises FlagError where fields do not fit together; the networks are looked for by ``check_networks``."""
    check_each_once("positions", config.positions)
    check_each_once("rates", config.rates)
    if config.state_queries > config.test_queries:
        raise FlagError(
            f"--state_queries={config.state_queries}: allowed is at most --test_queries={config.test_queries}"
        )


class Subject(NamedTuple):
    """A network, what it is asked in one task, and how much of it in one program."""

    network: LanguageModel
    params: Params
    material: Material
    jobs_at_once: int
    prompts_at_once: int

    def finetuned(self, jobs: Jobs, **how: Any) -> Iterator[tuple[Tuned, int]]:
        """``programs.finetuned`` of the network."""
        return finetuned(self.network, self.params, jobs, self.jobs_at_once, **how)


def subjects(key: Array, networks: Networks, config: Analysis) -> list[Subject]:
    """One network with every held-out task."""
    sizes: dict[str, Any] = {
        "seeds": range(1, config.seeds + 1), "demonstrations": config.demonstrations,
        "development": config.development_queries, "test": config.test_queries,
    }  # fmt: skip
    at_once = (config.jobs_at_once, config.prompts_at_once)
    found = []
    for t, of_task in enumerate(jax.random.split(key, len(HELD_OUT))):
        material = toy_material(of_task, networks.languages, rows(networks.tasks, t), **sizes)
        found.append(Subject(networks.module, networks.params, material, *at_once))
    return found


class Chosen(NamedTuple):
    """What was chosen on development questions. S sets of demonstrations, R rates.

    Attributes:
      best: index of the set.
      rates: (S,) learning rate for each set.
      tasks: S of them, with the test questions.
      zero_shot: accuracies on test questions; without demonstrations
      in_context: (S,) behind each set.
      finetuned: (S,) after fine-tuning on each.
      by_rate: (R,) accuracy on development questions after fine-tuning on the best set.
    """

    best: int
    rates: Floats
    tasks: list[EncodedTask]
    zero_shot: float
    in_context: Floats
    finetuned: Floats
    by_rate: Floats

    @property
    def task(self) -> EncodedTask:
        """With the best set."""
        return self.tasks[self.best]

    @property
    def rate(self) -> float:
        """That of the best set."""
        return float(self.rates[self.best])


def choose(subject: Subject, config: Analysis) -> Chosen:
    """Searches the set of demonstrations and the learning rate, as the paper does, but apart from the test."""
    material = subject.material
    searched, tasks = (
        [encoded(material, one, split) for one in material.sets] for split in (material.development, material.test)
    )
    rates, grid = best_rates(subject, [jobs_of(task, config.rates) for task in searched], config.rates, searched[0])
    best = int(in_context_accuracy(subject, searched).argmax())
    return Chosen(
        best, rates, tasks,
        zero_shot=float(accuracy(subject, own_weights(subject.params), tasks[:1], "zero_shot")[0, 0]),
        in_context=in_context_accuracy(subject, tasks),
        finetuned=finetuned_accuracy(subject, joined_jobs([jobs_of(*one) for one in zip(tasks, rates)]), tasks[0]),
        by_rate=grid[best],
    )  # fmt: skip


def best_rates(
    subject: Subject, jobs: Sequence[Jobs], rates: Sequence[float], questions: EncodedTask, **how
) -> tuple[Floats, Floats]:
    """(S,) the first of the best learning rates for each of S grids of R jobs, and (S, R) accuracies on questions."""
    grid = finetuned_accuracy(subject, joined_jobs(jobs), questions, **how).reshape(len(jobs), len(rates))
    return np.asarray(rates, np.float32)[grid.argmax(1)], grid


def accuracies_by_demonstrations(
    subject: Subject, chosen: Chosen, config: Analysis, counts: Sequence[int], sets: int
) -> tuple[Floats, Floats]:
    """(S, K) accuracies on test questions behind the first demonstrations of the first sets, and of fine-tuning on
    them at a rate chosen for their number."""
    material = subject.material
    context, tuned = np.empty((2, sets, len(counts)))
    for s, task in enumerate(chosen.tasks[:sets]):
        shorter = [with_demonstrations(task, range(count)) for count in counts]
        context[s] = in_context_accuracy(subject, shorter, task.in_context.shape[1])
        searched = encoded(material, material.sets[s], material.development)
        rates, _ = best_rates(subject, [jobs_of(task, config.rates, count) for count in counts], config.rates, searched)
        jobs = joined_jobs([jobs_of(task, rate, count) for rate, count in zip(rates, counts)])
        tuned[s] = finetuned_accuracy(subject, jobs, task)
    return context, tuned


def in_context_accuracy(subject: Subject, tasks: Sequence[EncodedTask], length: int | None = None) -> Floats:
    """Accuracy behind the demonstrations of each of S tasks with as many questions: (S,)."""
    return accuracy(subject, own_weights(subject.params), tasks, "in_context", length)[0]


def finetuned_accuracy(subject: Subject, jobs: Jobs, questions: EncodedTask, **how) -> Floats:
    """(F,) accuracy of the network fine-tuned by every job, on the questions of a task."""
    parts = subject.finetuned(jobs, **how)
    return np.concatenate([accuracy(subject, one.weights, [questions], "zero_shot")[:own, 0] for one, own in parts])


def accuracy(
    subject: Subject, weights: Weights, tasks: Sequence[EncodedTask], setting: str, length: int | None = None
) -> Floats:
    """(F, S) of F fine-tuned networks on the questions of S tasks."""
    logits = candidate_logits(subject, weights, tasks, setting, length)
    return right(logits, np.stack([task.targets for task in tasks])).mean(-1)


def candidate_logits(
    subject: Subject, weights: Weights, tasks: Sequence[EncodedTask], setting: str, length: int | None = None
) -> Floats:
    """(F, S, I, A) of F fine-tuned networks behind the I questions of each of S tasks, prompts padded to a length."""
    asked = prompts(tasks, setting, length)
    candidates, size = tasks[0].candidates, subject.prompts_at_once
    logits = answers(subject.network, subject.params, weights, asked, candidates, size)
    return logits.reshape(len(logits), len(tasks), -1, logits.shape[-1])


def right(logits: Floats, targets: ArrayLike) -> NDArray[np.bool_]:
    """Whether the likeliest of (.., A) is the target; a network that diverged is wrong."""
    return np.isfinite(logits).all(-1) & (logits.argmax(-1) == np.asarray(targets))


def jobs_of(task: EncodedTask, rates: ArrayLike, first: int | None = None) -> Jobs:
    """Fine-tuning on the demonstrations of a task, or the first of them, at each of some rates."""
    each, count = np.atleast_1d(np.asarray(rates, np.float32)), len(task.examples)
    taken = np.arange(count) < (count if first is None else first)
    examples, lengths = (np.repeat(leaf[None], len(each), axis=0) for leaf in (task.examples, task.example_lengths))
    return Jobs(examples, lengths, np.where(taken[None], each[:, None], np.float32(0)))


def joined_jobs(parts: Sequence[Jobs]) -> Jobs:
    """Fine-tunings of one number of examples, which are padded to the longest."""
    longest = max(part.examples.shape[-1] for part in parts)
    pad = lambda tokens: np.pad(tokens, ((0, 0), (0, 0), (0, longest - tokens.shape[-1])))  # noqa: E731
    return Jobs(
        np.concatenate([pad(part.examples) for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.rates for part in parts]),
    )
