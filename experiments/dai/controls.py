"""Fine-tuning as in the paper, and its controls: the rows of one table of metrics (Dai et al. 2022).

Every row compares three readings of a network on the same questions: without demonstrations, behind some context, and
fine-tuned in some way. The first row is the paper's; each control changes one of the three.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from experiments.dai.analysis import (
    Analysis,
    Chosen,
    Floats,
    Subject,
    best_rates,
    candidate_logits,
    jobs_of,
    joined_jobs,
    right,
)
from experiments.dai.material import encoded, random_context
from experiments.dai.programs import (
    Jobs,
    Tuned,
    Weights,
    compared,
    own_weights,
    rows,
    sensitivity,
    states,
    with_weights,
)
from icl_lab.compare import NetworkStates, agreement_where_wrong, recall_to_finetuning
from icl_lab.prompts.demonstrations import shuffled_labels, wrong_labels
from icl_lab.prompts.encoding import Demonstration, EncodedTask, with_demonstrations
from icl_lab.solvers.finetuning import TUNED, random_update, trained_embeddings, untrained

PAPER = "finetuning"
BASES = ("untrained", "trained_embeddings")
"""Other networks, which do the same (Deutch et al. 2024)."""
UPDATES = ("local", "local_same_rate", "full_batch", "random_update", "wrong_task", "shuffled_labels")
"""Fine-tuned otherwise: layer by layer, at its own best rate or the paper's; in one step, at its own best rate; noise
of equal size; on another task; on labels that do not belong to their texts."""
CONTEXTS = ("wrong_labels", "wrong_demonstrations", "random_context")
"""Behind another context: with labels all wrong, of another task, of random tokens."""
CONTROLS = BASES + UPDATES + CONTEXTS
ACCURACIES = ("zero_shot", "in_context", "finetuned")
PAIRS = ("in_context_tuned", "zero_shot_tuned", "zero_shot_in_context")
SIMILARITIES = (
    "sim_aou", "sim_aou_raw", "floor", "random", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall",
    "kendall_random", "in_context_ratio", "finetuned_ratio",
)  # fmt: skip
NUMBERS = (
    "recall", "base_rate", "lift", "contrast", "agreement", "kappa", *(f"accuracy_{name}" for name in ACCURACIES),
    *(f"{measure}_{pair}" for pair in PAIRS for measure in ("shannon", "overlap")),
)  # fmt: skip


class Elsewhere(NamedTuple):
    """What was chosen of another task: its demonstrations, and fine-tuning on them."""

    demonstrations: list[Demonstration]
    jobs: Jobs


class Row(NamedTuple):
    """What a row of the table is of: a network, its fine-tuning (without a leading axis), the task with the context."""

    subject: Subject
    tuned: Tuned
    task: EncodedTask


class Reading(NamedTuple):
    """States on the first questions, and logits of the candidates on all of them."""

    states: NetworkStates
    logits: Floats


def table_rows(
    key: Array,
    subject: Subject,
    chosen: Chosen,
    config: Analysis,
    controls: Sequence[str],
    elsewhere: Elsewhere | None = None,
) -> dict[str, Row]:
    """The rows by name, the paper's first.

    Args:
      key: for what is random in the controls.
      subject: the network and the task.
      chosen: of it.
      config: the analysis.
      controls: of ``CONTROLS``.
      elsewhere: another task, for the controls that need one.
    """
    fresh_key, noise_key, draws_key = jax.random.split(key, 3)
    task, rate, material = chosen.task, chosen.rate, subject.material
    demonstrations = material.sets[chosen.best]
    tuned = _tuned(subject, jobs_of(task, rate))

    def base(trained: bool) -> Row:
        fresh = untrained(fresh_key, subject.network)
        network = subject._replace(params=trained_embeddings(subject.params, fresh) if trained else fresh)
        return Row(network, _tuned(network, jobs_of(task, rate)), task)

    def own_rate(**how) -> Tuned:
        searched = encoded(material, demonstrations, material.development)
        best, _ = best_rates(subject, [jobs_of(task, config.rates)], config.rates, searched, **how)
        return _tuned(subject, jobs_of(task, best), **how)

    def noise() -> Tuned:
        after = with_weights(subject.params, tuned.weights)
        noisy = jax.jit(random_update)(noise_key, subject.params, after)["params"]
        return tuned._replace(weights={name: noisy[name] for name in TUNED})

    def shuffled() -> Tuned:
        return _tuned(subject, jobs_of(context(shuffled_labels(host_generator(draws_key, 0), demonstrations)), rate))

    def context(shown: Sequence[Demonstration]) -> EncodedTask:
        return encoded(material, shown, material.test)

    updates: dict[str, Callable[[], Tuned]] = {
        "local": lambda: own_rate(objective="local"),
        "local_same_rate": lambda: _tuned(subject, jobs_of(task, rate), objective="local"),
        "full_batch": lambda: own_rate(sequential=False),
        "random_update": noise,
        "shuffled_labels": shuffled,
    }
    contexts: dict[str, Callable[[], EncodedTask]] = {
        "wrong_labels": lambda: context(
            wrong_labels(host_generator(draws_key, 1), demonstrations, material.candidates)
        ),
        "random_context": lambda: task._replace(
            in_context=random_context(host_generator(draws_key, 2), task, material.strangers)
        ),
    }
    if elsewhere is not None:
        updates["wrong_task"] = lambda: _tuned(subject, elsewhere.jobs)
        contexts["wrong_demonstrations"] = lambda: context(elsewhere.demonstrations)
    found = {PAPER: Row(subject, tuned, task)}
    found |= {name: base(trained=name == "trained_embeddings") for name in BASES if name in controls}
    found |= {name: Row(subject, updates[name](), task) for name in UPDATES if name in controls}
    return found | {name: Row(subject, tuned, contexts[name]()) for name in CONTEXTS if name in controls}


def _tuned(subject: Subject, jobs: Jobs, **how) -> Tuned:
    """The network fine-tuned by the first job."""
    return rows(next(subject.finetuned(jobs, **how))[0], 0)


class Measured(NamedTuple):
    """What is measured of a row: similarities (I, L) on the first questions; one number each: scores, accuracies and
    answers; and why what is not defined is not, by name."""

    similarities: dict[str, Floats]
    numbers: dict[str, float]
    undefined: dict[str, str]


def row_metrics(key: Array, row: Row, config: Analysis) -> Measured:
    """All metrics of a row."""
    subject, targets = row.subject, row.task.targets
    own = rows(own_weights(subject.params), 0)
    readings = [
        reading(subject, weights, row.task, setting, config)
        for weights, setting in ((own, "zero_shot"), (own, "in_context"), (row.tuned.weights, "zero_shot"))
    ]
    similar, answered = compared(
        key, *(one.states for one in readings), row.tuned.queries, first_questions(row.task, config.state_queries),
        config.baseline, config.top,
    )  # fmt: skip
    hits = [right(one.logits, targets) for one in readings]
    said = [one.logits.argmax(-1) for one in readings]
    scores = recall_to_finetuning(hits[0], hits[2], hits[1])
    scores |= agreement_where_wrong(targets, said[0], said[2], said[1])
    numbers = {name: score.value for name, score in scores.items()}
    numbers |= {f"accuracy_{name}": float(hit.mean()) for name, hit in zip(ACCURACIES, hits)}
    numbers |= {name: float(values.mean()) for name, values in answered.items()}
    found = {name: np.asarray(values) for name, values in similar.items()}
    undefined = {name: score.reason for name, score in scores.items() if score.reason}
    for name, values in found.items():
        layers = np.flatnonzero(np.isnan(values).all(0))
        if layers.size:
            what = "score to the query's tokens" if name.startswith("sim_am") else "attention output"
            undefined[name] = f"no {what} changed in layers {', '.join(map(str, layers + 1))}"
    return Measured(found, numbers, undefined)


def reading(subject: Subject, weights: Weights, task: EncodedTask, setting: str, config: Analysis) -> Reading:
    """What a network with these weights computes for the questions of a task."""
    few = first_questions(task, config.state_queries)
    found = states(subject.network, subject.params, weights, few, setting, config.position)
    logits = candidate_logits(subject, rows(weights, None), [task], setting)
    return Reading(found, logits[0, 0])


def host_generator(key: Array, use: int = 0) -> np.random.Generator:
    """A generator of numpy that this key starts; uses of one key have different ones."""
    return np.random.default_rng([use, *np.asarray(jax.random.key_data(key)).tolist()])


def first_questions(task: EncodedTask, count: int) -> EncodedTask:
    """The task with its first questions alone."""
    asked = ("in_context", "zero_shot", "query_lengths", "targets")
    return task._replace(**{name: getattr(task, name)[:count] for name in asked})


def by_rate(key: Array, subject: Subject, chosen: Chosen, config: Analysis) -> dict[str, Floats]:
    """Similarities after fine-tuning at every rate: (R, L) means over questions by name."""
    task = first_questions(chosen.task, config.state_queries)
    own = rows(own_weights(subject.params), 0)
    read = lambda weights, setting: states(  # noqa: E731
        subject.network, subject.params, weights, task, setting, config.position
    )
    zero_shot, in_context = read(own, "zero_shot"), read(own, "in_context")
    found = []
    for part, count in subject.finetuned(jobs_of(task, config.rates)):
        for i in range(count):
            one = rows(part, i)
            tuned = read(one.weights, "zero_shot")
            similar, _ = compared(key, zero_shot, in_context, tuned, one.queries, task, config.baseline, config.top)
            found.append({name: present_mean(values, 0) for name, values in similar.items()})
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def order_metrics(
    key: Array, subject: Subject, chosen: Chosen, config: Analysis, orders: int
) -> dict[str, dict[str, Floats]]:
    """Sensitivity to the order of the demonstrations on the first questions: numbers by learner, then by measure."""
    task = first_questions(chosen.task, config.state_queries)
    generator = host_generator(key)
    permuted = [with_demonstrations(task, generator.permutation(len(task.examples)).tolist()) for _ in range(orders)]
    own = own_weights(subject.params)
    logits = {"in_context": candidate_logits(subject, own, permuted, "in_context")[0]}
    for name, sequential in (("sequential", True), ("full_batch", False)):
        jobs = joined_jobs([jobs_of(one, chosen.rate) for one in permuted])
        parts = subject.finetuned(jobs, sequential=sequential)
        found = [candidate_logits(subject, part.weights, [task], "zero_shot")[:own, 0] for part, own in parts]
        logits[name] = np.concatenate(found)
    return {
        name: {measure: np.asarray(value, np.float64) for measure, value in sensitivity(each, task).items()}
        for name, each in logits.items()
    }


def present_mean(values: ArrayLike, axis: int | None) -> Floats:
    """Mean of the values that are defined; NaN where none is."""
    values = np.asarray(values, np.float64)
    defined = ~np.isnan(values)
    count = defined.sum(axis)
    return np.where(count, np.where(defined, values, 0).sum(axis) / np.maximum(count, 1), np.nan)
