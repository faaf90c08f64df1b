"""Fine-tuning as in the paper, and its controls: the rows of one table of metrics (Dai et al. 2022).

Every row compares three readings of a network on the same questions: without demonstrations, after some context, and
fine-tuned in some way. The first row is the paper's; each control changes one of the three. What is fine-tuned in
another way is made to change attention outputs as much as the paper's fine-tuning does, layer by layer, because
similarities depend on size (``matched_update``).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from experiments.dai.analysis import Analysis, Chosen, Subject, choose, jobs_of, joined_jobs, right
from experiments.dai.common import Floats
from experiments.dai.material import encoded, random_context
from experiments.dai.programs import Jobs, Tuned, Weights, at_size, compared, sensitivity, with_weights
from icl_lab.compare import NetworkStates, agreement_where_wrong, recall_to_finetuning, relative_sizes
from icl_lab.models.layers import Params
from icl_lab.prompts.demonstrations import shuffled_labels, wrong_labels
from icl_lab.prompts.encoding import Demonstration, EncodedTask, with_demonstrations
from icl_lab.solvers.finetuning import TUNED, random_update, trained_embeddings, untrained

PAPER = "finetuning"
CONTROLS = (
    "untrained", "trained_embeddings", "text",
    "local", "local_own_rate", "local_same_rate", "full_batch", "random_update", "wrong_task", "shuffled_labels",
    "wrong_labels", "wrong_demonstrations", "random_context",
)  # fmt: skip
"""Other networks, which do the same: untrained ones (Deutch et al. 2024), and one of the same size that was trained on
text without in-context tasks (Shen et al. 2024).

Fine-tuned otherwise: layer by layer; in one step; noise; on another task; on labels that do not belong to their texts.
Layer by layer also at a rate of its own, chosen by the same rule, and at the paper's, as Deutch et al. did: their sizes
are what they are.

After another context: with labels all wrong, of another task, of random tokens."""
SIZE_TOLERANCE = 0.01
"""Relative difference of sizes up to which they are called equal."""
ACCURACIES = ("zero_shot", "in_context", "finetuned")
PAIRS = ("in_context_tuned", "zero_shot_tuned", "zero_shot_in_context")
SIMILARITIES = (
    "sim_aou", "sim_aou_raw", "floor", "random", "sim_aou_inside", "sim_aou_outside", "in_context_inside",
    "finetuned_inside", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall", "kendall_random",
    "in_context_ratio", "finetuned_ratio",
)  # fmt: skip
FROM_SECOND = ("sim_am_before", "sim_am_after", "sim_am_delta", "kendall", "kendall_random")
"""Their means leave out the first layer. Queries there are frozen, so fine-tuning cannot change Kendall's correlation;
and with rotary positions demonstrations cannot change its scores to the query."""
SCORES = (
    "mended", "recall", "base_rate", "lift", "contrast", "agreement", "kappa",
    *(f"accuracy_{name}" for name in ACCURACIES),
)  # fmt: skip
DIVERGENCES = tuple(f"{measure}_{pair}" for pair in PAIRS for measure in ("shannon", "overlap"))
NUMBERS = SCORES + DIVERGENCES


class Elsewhere(NamedTuple):
    """Another task: its demonstrations, and fine-tuning on them at the rate that was chosen there."""

    demonstrations: list[Demonstration]
    jobs: Jobs


class Reading(NamedTuple):
    """What a row compares, on the test questions after one set of demonstrations.

    Attributes:
      params: of the network that was not tuned.
      zero_shot: states (I, ..) of it without demonstrations.
      in_context: after them.
      finetuned: of the fine-tuned network without them.
      queries: of the training tokens, ``Finetuned.queries``.
      rate: of fine-tuning.
      mismatch: (L,) relative difference of the sizes of the changes from those of the paper's fine-tuning.
    """

    params: Params
    zero_shot: NetworkStates
    in_context: NetworkStates
    finetuned: NetworkStates
    queries: Array
    rate: float
    mismatch: Floats


def readings(
    key: Array,
    subject: Subject,
    chosen: Chosen,
    config: Analysis,
    controls: Sequence[str],
    elsewhere: Elsewhere | None = None,
) -> dict[str, Reading]:
    """The rows by name, the paper's first.

    Args:
      key: for what is random in the controls.
      subject: the network and the task.
      chosen: one of its sets.
      config: the analysis.
      controls: of ``CONTROLS``.
      elsewhere: another task, for the controls that need one.
    """
    fresh_key, noise_key, draws_key = jax.random.split(key, 3)
    task, material, jobs = chosen.task, subject.material, jobs_of(chosen.task, chosen.rate)
    zero_shot, in_context = subject.read(None, task, "zero_shot"), subject.read(None, task, "in_context")
    tuned = subject.tuned_once(jobs)
    after = subject.read(tuned.weights, task, "zero_shot")
    sizes = np.asarray(relative_sizes(zero_shot.output, after.output))
    nothing = np.zeros(len(sizes))
    paper = Reading(subject.params, zero_shot, in_context, after, tuned.queries, chosen.rate, nothing)

    def sized(params: Params, weights: Weights) -> tuple[Weights, Floats]:
        scaled, reached = at_size(subject.network, params, weights, task, sizes)
        return scaled, np.asarray(reached) / np.maximum(sizes, np.finfo(np.float32).tiny) - 1

    def base(params: Params) -> Reading:
        of = subject._replace(params=params)
        finetuned = of.tuned_once(jobs)
        weights, mismatch = sized(params, finetuned.weights)
        before, shown = of.read(None, task, "zero_shot"), of.read(None, task, "in_context")
        after = of.read(weights, task, "zero_shot")
        return Reading(params, before, shown, after, finetuned.queries, chosen.rate, mismatch)

    def changed(queries: Array, weights: Weights, mismatch: Floats, rate: float = chosen.rate) -> Reading:
        after = subject.read(weights, task, "zero_shot")
        return paper._replace(finetuned=after, queries=queries, rate=rate, mismatch=mismatch)

    def update(finetuned: Tuned) -> Reading:
        return changed(finetuned.queries, *sized(subject.params, finetuned.weights))

    def local_of_own_size(rate: float) -> Reading:
        finetuned = subject.tuned_once(jobs_of(task, rate), objective="local")
        return changed(finetuned.queries, finetuned.weights, nothing, rate)

    def noise() -> Tuned:
        noisy = _noise(noise_key, subject.params, with_weights(subject.params, tuned.weights))["params"]
        return tuned._replace(weights={name: noisy[name] for name in TUNED})

    def asked(shown: Sequence[Demonstration]) -> EncodedTask:
        return encoded(material, shown, material.test)

    def context(shown: EncodedTask) -> Reading:
        return paper._replace(in_context=subject.read(None, shown, "in_context"))

    fresh = partial(_fresh, fresh_key, subject.network)
    draws, demonstrations = partial(host_generator, draws_key), chosen.demonstrations
    rows: dict[str, Callable[[], Reading]] = {
        "untrained": lambda: base(fresh()),
        "trained_embeddings": lambda: base(trained_embeddings(subject.params, fresh())),
        "text": lambda: base(subject.others["text"]),
        "local": lambda: update(subject.tuned_once(jobs, objective="local")),
        "local_own_rate": lambda: local_of_own_size(choose(subject, config, chosen.number, objective="local").rate),
        "local_same_rate": lambda: local_of_own_size(chosen.rate),
        "full_batch": lambda: update(subject.tuned_once(jobs, sequential=False)),
        "random_update": lambda: update(noise()),
        "shuffled_labels": lambda: update(
            subject.tuned_once(jobs_of(asked(shuffled_labels(draws(0), demonstrations)), chosen.rate))
        ),
        "wrong_labels": lambda: context(asked(wrong_labels(draws(1), demonstrations, material.candidates))),
        "random_context": lambda: context(task._replace(in_context=random_context(draws(2), task, material.strangers))),
    }
    if elsewhere is not None:
        rows["wrong_task"] = lambda: update(subject.tuned_once(elsewhere.jobs))
        rows["wrong_demonstrations"] = lambda: context(asked(elsewhere.demonstrations))
    return {PAPER: paper} | {name: rows[name]() for name in CONTROLS if name in controls}


_noise, _fresh = jax.jit(random_update), jax.jit(untrained, static_argnums=1)


class Measured(NamedTuple):
    """What is measured of a row after one set of demonstrations, for I questions; or after S sets, (S, I, ..).

    Attributes:
      similarities: (I, L) by name.
      divergences: (I,) between the answers in two settings, by name.
      answers: (I, 3) those in the three settings.
      hits: (I, 3) whether they are right.
    """

    similarities: dict[str, Floats]
    divergences: dict[str, Floats]
    answers: np.ndarray
    hits: np.ndarray


def metrics(key: Array, reading: Reading, task: EncodedTask, config: Analysis) -> Measured:
    """All metrics of a row. A layer in which the change is not of the size of the paper's has no similarity."""
    states = reading.zero_shot, reading.in_context, reading.finetuned
    similar, divergent = compared(key, reading.params, *states, reading.queries, task, config.baseline, config.top)
    logits = np.stack([np.asarray(one.candidate_logits) for one in states], axis=1)  # (I, 3, A)
    like = np.abs(reading.mismatch)[None] <= SIZE_TOLERANCE
    similarities = {name: np.where(like, values, np.nan) for name, values in similar.items()}
    divergences = {name: np.asarray(values) for name, values in divergent.items()}
    return Measured(similarities, divergences, logits.argmax(-1), right(logits, task.targets[:, None]))


def numbers_of(row: Measured, targets: np.ndarray) -> tuple[dict[str, float], dict[str, str]]:
    """``NUMBERS`` of a row after S sets, all counted alike; and why a number or a similarity is not defined, by name.

    ``mended`` is the share of questions that fine-tuning alone corrects.
    """
    hits, answers = row.hits.reshape(-1, 3), row.answers.reshape(-1, 3)
    zero_shot, in_context, finetuned = hits.T
    base, context, tuned = answers.T
    expected = np.tile(np.asarray(targets, answers.dtype), len(row.hits))
    by_name = recall_to_finetuning(zero_shot, finetuned, in_context)
    by_name |= agreement_where_wrong(expected, base, tuned, context)
    numbers = {name: score.value for name, score in by_name.items()}
    numbers["mended"] = float((finetuned & ~zero_shot).mean())
    numbers |= {f"accuracy_{name}": float(hit.mean()) for name, hit in zip(ACCURACIES, hits.T)}
    numbers |= {name: float(values.mean()) for name, values in row.divergences.items()}
    undefined = {name: score.reason for name, score in by_name.items() if score.reason}
    for name, values in row.similarities.items():
        layers = np.flatnonzero(np.isnan(values).all((0, 1)))
        if layers.size and not name.startswith("kendall"):  # which has no value in the first layer
            undefined[name] = f"nothing changed in layers {', '.join(map(str, layers + 1))}"
    return numbers, undefined


def counted_layers(values: np.ndarray, metric: str) -> np.ndarray:
    """(.., L) a metric in the layers that its means are over: all, or all but the first (``FROM_SECOND``)."""
    return values[..., int(metric in FROM_SECOND) :]


def host_generator(key: Array, use: int = 0) -> np.random.Generator:
    """A generator of numpy that this key starts; uses of one key have different ones."""
    return np.random.default_rng([use, *np.asarray(jax.random.key_data(key)).tolist()])


def order_metrics(key: Array, subject: Subject, chosen: Chosen, orders: int) -> dict[str, dict[str, Floats]]:
    """Sensitivity to the order of the demonstrations of a set: numbers by learner, then by measure."""
    task, generator = chosen.task, host_generator(key)
    permuted = [with_demonstrations(task, generator.permutation(len(task.examples)).tolist()) for _ in range(orders)]
    by_learner = {"in_context": np.stack([subject.read(None, one, "in_context").candidate_logits for one in permuted])}
    jobs = joined_jobs([jobs_of(one, chosen.rate) for one in permuted])
    for name, sequential in (("sequential", True), ("full_batch", False)):
        parts = subject.tuned(jobs, sequential=sequential)
        read = [subject.read_all(part.weights, task, "zero_shot").candidate_logits[:valid] for part, valid in parts]
        by_learner[name] = np.concatenate(read)
    return {
        name: {measure: np.asarray(value, np.float64) for measure, value in sensitivity(logits, task).items()}
        for name, logits in by_learner.items()
    }
