"""Everything that is measured of one network on one task, where in-context learning is compared with fine-tuning.

What a number goes through: ``material`` has demonstrations and questions, ``analysis.choose`` takes the learning rate
(by the rule of ``rates``), ``controls.readings`` reads the network for every row of the table, ``controls.metrics``
compares the three readings of a row, and ``measured_on_task`` takes means over sets. What runs compiled is in
``programs``, the metrics themselves in ``icl_lab.compare``.

Beyond the paper: which attention outputs carry the answer, and whether two kinds of descent do the same.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai import analysis, controls
from experiments.dai.analysis import Chosen, Subject, present_mean, right
from experiments.dai.common import Floats, stacked
from experiments.dai.controls import CONTROLS, NUMBERS, PAPER, SIMILARITIES, Elsewhere, Reading
from experiments.dai.programs import right_log_probabilities, rows, updates_compared
from experiments.dai.real_text import Files
from icl_lab.compare import NetworkStates, Patch
from icl_lab.lab import setting
from icl_lab.prompts.encoding import EncodedTask

OWN_CONTROLS = tuple(name for name in CONTROLS if name != "text")
"""Those that need no other networks."""


@dataclasses.dataclass(frozen=True)
class Config(Files):
    """The analysis, with its controls."""

    controls: tuple[str, ...] = setting(OWN_CONTROLS, "rows of the table beside the paper's", choices=CONTROLS)
    text_networks: str = setting(
        "",
        "for the row text: folder of a run of dai.pretrain without in-context tasks, of the same seed and sizes",
        path=True,
    )
    counts: tuple[int, ...] = setting((1, 2, 4, 8, 16), "numbers of demonstrations beside 0 and all", at_least=1)
    curve_sets: int = setting(7, "sets of demonstrations that the curve over their number is a mean of", at_least=1)
    orders: int = setting(10, "permutations of the demonstrations", at_least=2)
    normalise: bool = setting(True, "figures over learning rates show SimAOU of normalised states, as in the paper")


def measured_on_task(
    key: Array, subject: Subject, chosen: list[Chosen], elsewhere: list[Elsewhere], config: Config
) -> tuple[dict[str, Any], list[str]]:
    """Everything that is measured of a network on one task, and why numbers are not defined. C rows of the table.

    Accuracies ``zero_shot``, ``in_context``, ``finetuned`` and ``finetuned_free`` (at the rate that is chosen without
    regard to the size of the change), ``chance`` and ``ceiling``; ``by_set`` (S,) with each set; ``curve`` (K + 2,)
    against the number of demonstrations; ``rate`` and ``free_rate`` (S,). Similarities (C, L), numbers (C,), and
    ``retest`` (2, C): of similarities and numbers, each on half of the sets and the other half of the questions.
    ``mismatch`` (C, L), ``row_rate`` (C,); ``path``, over rates; ``carried``, by reading; ``alpha``; ``order``.
    """
    rows_key, metrics_key, order_key = jax.random.split(key, 3)
    by_set: list[dict[str, controls.Measured]] = []
    beside: list[dict[str, Any]] = []
    for s, (one, other) in enumerate(zip(chosen, elsewhere)):
        set_key = jax.random.fold_in(rows_key, s)
        table = controls.readings(set_key, subject, one, config, config.controls, other)
        score_key = jax.random.fold_in(metrics_key, s)
        by_set.append({name: controls.metrics(score_key, reading, one.task, config) for name, reading in table.items()})
        free = subject.tuned_once(analysis.jobs_of(one.task, one.free_rate))
        free_accuracy = analysis.accuracy(subject.read(free.weights, one.task, "zero_shot"), one.task)
        beside.append({
            "finetuned_free": np.array(free_accuracy), "rate": np.array(one.rate), "free_rate": np.array(one.free_rate),
            "mismatch": np.stack([reading.mismatch for reading in table.values()]),
            "row_rate": np.array([reading.rate for reading in table.values()]), "path": one.path,
            "carried": carried(subject, table[PAPER], one.task),
            "alpha": alpha(table[PAPER], table["local"]) if "local" in table else {},
        })  # fmt: skip
    over_sets = stacked(beside)
    rates = {name: over_sets.pop(name) for name in ("rate", "free_rate")}
    mean = jax.tree.map(lambda values: present_mean(values, 0), over_sets)
    mean |= {
        "mismatch": np.abs(over_sets["mismatch"]).max(0),
        "row_rate": np.exp(np.log(over_sets["row_rate"]).mean(0)),
    }
    targets, by_row = chosen[0].task.targets, {name: stacked([one[name] for one in by_set]) for name in by_set[0]}
    whole, undefined = [], []
    for name, row in by_row.items():
        numbers, reasons = controls.numbers_of(row, targets)
        whole.append(numbers)
        undefined += [f"{name} {metric}: {why}" for metric, why in reasons.items()]
    parts = [[retested(row, targets, half) for row in by_row.values()] for half in (0, 1)]
    paper = by_row[PAPER]
    every = {"in_context": paper.hits[..., 1].mean(-1), "finetuned": paper.hits[..., 2].mean(-1)}
    zero_shot = paper.hits[..., 0].mean()
    context, tuned = analysis.accuracies_by_demonstrations(subject, config, config.counts, config.curve_sets)
    classes = len(set(chosen[0].task.candidates.tolist()))
    return {
        "zero_shot": zero_shot, **{name: values.mean() for name, values in every.items()}, "by_set": every, **rates,
        "chance": np.array(1 / classes), "ceiling": np.array(subject.material.ceiling),
        "curve": {
            "in_context": _curve(zero_shot, context, every["in_context"]),
            "finetuned": _curve(zero_shot, tuned, over_sets["finetuned_free"]),
        },
        **{name: np.stack([present_mean(row.similarities[name], (0, 1)) for row in by_row.values()])
           for name in SIMILARITIES},
        **{name: np.array([one[name] for one in whole]) for name in NUMBERS},
        "retest": {name: np.array([[row[name] for row in part] for part in parts]) for name in parts[0][0]},
        **mean, "order": controls.order_metrics(order_key, subject, chosen[0], config.orders),
    }, undefined  # fmt: skip


def carried(subject: Subject, reading: Reading, task: EncodedTask) -> dict[str, dict[str, dict[str, Floats]]]:
    """What attention outputs of another reading do in the zero-shot run: ``accuracy`` and ``log_probability`` of the
    right label that they gain.

    By reading (``in_context``, ``finetuned``, and ``finetuned_sized``, fine-tuning's changes made as large as those of
    the demonstrations, question by question): ``layer`` (L,), put in one layer alone, ``all`` in all at once, which
    gives the whole answer where the last token enters alike (rotary positions), and ``answer``, of that reading itself.
    """
    base = reading.zero_shot

    def scores(read: NetworkStates) -> np.ndarray:
        hits = right(np.asarray(read.candidate_logits), task.targets)
        return np.array([hits.mean(), np.asarray(right_log_probabilities(read.candidate_logits, task)).mean()])

    before = scores(base)

    def gained(change: Any, chosen: Any) -> np.ndarray:
        return scores(subject.read(None, task, "zero_shot", Patch(base.output + change, chosen))) - before

    changes = {name: getattr(reading, name).output - base.output for name in ("in_context", "finetuned")}
    length = {name: np.linalg.norm(change, axis=-1, keepdims=True) for name, change in changes.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        sized = np.nan_to_num(np.asarray(changes["finetuned"]) * (length["in_context"] / length["finetuned"]))
    layers = base.output.shape[1]
    by_reading = {}
    for name, change in (changes | {"finetuned_sized": sized}).items():
        gains = {"layer": np.stack([gained(change, np.arange(layers) == layer) for layer in range(layers)])}
        gains["all"] = gained(change, np.ones(layers, bool))
        if hasattr(reading, name):
            gains["answer"] = scores(getattr(reading, name)) - before
        measures = enumerate(("accuracy", "log_probability"))
        by_reading[name] = {measure: {place: gain[..., m] for place, gain in gains.items()} for m, measure in measures}
    return by_reading


def alpha(reading: Reading, other: Reading) -> dict[str, Floats]:
    """Cosines of what two kinds of fine-tuning change, mean over questions and layers: of attention ``scores`` (alpha
    of Deutch et al. 2024), and of ``outputs``."""
    cosines = updates_compared(reading.zero_shot, reading.finetuned, other.finetuned)
    return {name: present_mean(values, None) for name, values in cosines.items()}


def retested(row: controls.Measured, targets: np.ndarray, half: int) -> dict[str, float]:
    """All metrics of a row on every second set and every second question; with one set the questions alone."""
    sets = slice(half, None, 2) if len(row.hits) > 1 else slice(None)
    part = rows(row, (sets, slice(half, None, 2)))
    numbers, _ = controls.numbers_of(part, targets[half::2])
    layers = {name: controls.counted_layers(values, name) for name, values in part.similarities.items()}
    return numbers | {name: float(present_mean(values, None)) for name, values in layers.items()}


def _curve(zero_shot: float, between: Floats, all_of_them: Floats) -> Floats:
    """(K + 2,) mean over sets of accuracies at no, some and all demonstrations."""
    last = all_of_them[: len(between)].mean()
    return np.array([zero_shot, *between.mean(0), last])
