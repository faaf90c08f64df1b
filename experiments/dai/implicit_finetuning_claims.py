"""What ``implicit_finetuning`` claims: the paper's findings, each compared with its control.

A statistic has one value a network: the mean over tasks, of a similarity also over the layers where it is defined.
Differences are taken task by task and layer by layer before the mean. A network that does not learn in context has no
value for a similarity. Networks of both position encodings count alike; figures and table show them separately.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.dai.common import encodings
from icl_lab.lab import Claim, NotRun, Record, claims_of

GAIN, SHARE = 0.1, 2 / 3
"""A network learns in context where demonstrations gain at least so much accuracy on this share of tasks (4 of 6)."""
PAPER = "finetuning"


def of_networks(record: Record, name: str, positions: str | None = None) -> np.ndarray:
    """(M, ..) an array of the networks of one position encoding, or of all that were run, one after the other.

    Raises:
      NotRun: where the encoding was not run.
    """
    there = [p for p in encodings(record) if positions in (None, p)]
    if not there:
        raise NotRun(f"networks of {positions} positions")
    return np.concatenate([record[f"{p}/{name}"] for p in there])


def learns_in_context(record: Record, positions: str | None = None) -> np.ndarray:
    """(M,) whether a network learns in context."""
    gain = of_networks(record, "in_context", positions) - of_networks(record, "zero_shot", positions)
    return (gain >= GAIN).mean(1) >= SHARE


def of_row(record: Record, metric: str, row: str = PAPER, positions: str | None = None) -> np.ndarray:
    """(M, 6, ..) a metric in a row of the table.

    Raises:
      NotRun: for a row or an encoding that was not run.
    """
    rows = record.metrics["rows"]
    if row not in rows:
        raise NotRun(f"row {row}")
    return of_networks(record, metric, positions)[:, :, rows.index(row)]


def network_means(values: np.ndarray) -> np.ndarray:
    """(M,) mean of what is defined; NaN where nothing is."""
    flat = np.asarray(values, np.float64).reshape(len(values), values[:1].size)
    defined = ~np.isnan(flat)
    count = defined.sum(1)
    return np.where(count, np.where(defined, flat, 0).sum(1) / np.maximum(count, 1), np.nan)


Values = Callable[[Record], np.ndarray]


def _row(metric: str, row: str = PAPER, above_first: bool = False) -> Values:
    """``above_first``: with rotary positions no score to the query in the first layer depends on demonstrations."""
    return lambda record: of_row(record, metric, row)[..., int(above_first) :]


def _array(name: str) -> Values:
    return lambda record: of_networks(record, name)


_FAILS = (
    "sim_aou_no_more_than_untrained",
    "sim_aou_no_more_than_trained_embeddings",
    "kendall_over_untrained",
)
_NOT_RESOLVED = (
    "context_over_fine_tuning",
    "context_over_fine_tuning_every_set",
    "recall",
    "recall_over_base_rate",
    "recall_over_wrong_task",
    "sim_aou_over_shuffled_labels",
    "sim_aou_over_wrong_labels",
    "sim_aou_raw_local",
    "sim_aou_raw_local_same_rate",
    "sim_am_delta_local",
    "sim_am_delta_local_same_rate",
    "sim_am_rises",
    "sim_am_over_random_update",
    "sim_am_over_wrong_task",
    "sim_am_over_shuffled_labels",
    "sim_am_delta_over_wrong_task",
    "sim_am_delta_over_shuffled_labels",
    "kendall_over_random",
    "kendall_over_random_update",
    "kendall_over_wrong_task",
    "kendall_over_shuffled_labels",
    "order_matters_more_in_context",
)
_AT_LAB = dict.fromkeys(_FAILS, "fails") | dict.fromkeys(_NOT_RESOLVED, "not resolved")
"""Verdicts of the lab record that are not those expected."""


_judged = claims_of(
    "dai.implicit_finetuning", at_lab=_AT_LAB, presets=("lab",), relation=">=", minimum_members=3,
    reason="an ordering, paired by network, task and layer",
)  # fmt: skip


def _claim(
    name: str, where: str, statement: str, of: Values, over: Values | None, expected: float = 0.0, *,
    gated: bool = True, **more: Any,
) -> Claim:  # fmt: skip
    """A metric, less another of the same shape; ``gated``: only of networks that learn in context."""

    def statistic(record: Record) -> np.ndarray:
        values = network_means(of(record) - (over(record) if over else 0))
        return np.where(learns_in_context(record) | (not gated), values, np.nan)

    def control(record: Record) -> np.ndarray:
        return network_means(over(record)) if over else np.full(1, np.nan)

    return _judged(name, where, statement, statistic, expected, control=control if over else None, **more)


_BY_TASK = "an ordering, paired by network and task"
_DAI, _DEUTCH, _SHEN, _LAB = "Dai et al. 2022", "Deutch et al. 2024", "Shen et al. 2024", "this lab"
_BASE = {
    "random_update": "noise of equal norm in place of the update",
    "wrong_task": "fine-tuning on another task's demonstrations",
    "shuffled_labels": "fine-tuning on shuffled labels",
}
_UNTRAINED = {"untrained": "an untrained one", "trained_embeddings": "one with trained embeddings alone"}
_OTHER_CONTEXTS = {
    "wrong_labels": "demonstrations whose labels are all wrong",
    "wrong_demonstrations": "another task's demonstrations",
    "random_context": "a context of random tokens",
}

CLAIMS = (
    _claim("fine_tuning_learns", f"{_DAI}, Table 1",
           "Fine-tuning is more accurate than zero-shot (test questions; set and rate chosen on others).",
           _array("finetuned"), _array("zero_shot"), gated=False, reason=_BY_TASK),
    _claim("context_learns", f"{_DAI}, Table 1", "In-context learning is more accurate than zero-shot.",
           _array("in_context"), _array("zero_shot"), gated=False, reason=_BY_TASK),
    _claim("context_over_fine_tuning", f"{_DAI}, Table 1", "In-context learning is more accurate than fine-tuning.",
           _array("in_context"), _array("finetuned"), gated=False, reason=_BY_TASK),
    _claim("context_over_fine_tuning_every_set", f"{_LAB}, Table 1 without selection",
           "In-context learning is more accurate than fine-tuning as a mean over all sets of demonstrations.",
           _array("by_set/in_context"), _array("by_set/finetuned"), gated=False,
           reason="an ordering, paired by network, task and set"),
    _claim("more_demonstrations", f"{_LAB}, demonstrations",
           "The lead of in-context learning over fine-tuning is larger behind all demonstrations than behind one.",
           lambda r: _lead(r)[..., -1], lambda r: _lead(r)[..., 1], reason=_BY_TASK),
    _claim("recall", f"{_DAI}, Table 2",
           "Of the examples that fine-tuning mends in-context learning mends most (Rec2FTP, no control).",
           _row("recall"), None, 2 / 3, reason="the lowest of the paper's twelve values is .667"),
    _claim("recall_over_base_rate", f"{_DAI}, Table 2, with a control",
           "Rec2FTP is above its base rate, the share of all zero-shot errors that in-context learning mends.",
           _row("recall"), _row("base_rate"), reason=_BY_TASK),
    _claim("recall_over_wrong_task", f"{_DAI}, Table 2, with a control",
           f"Rec2FTP is higher than for {_BASE['wrong_task']}.", _row("recall"), _row("recall", "wrong_task"),
           reason=_BY_TASK),
    _claim("sim_aou_over_random", f"{_DAI}, Table 3", "SimAOU is above that with a random vector.",
           _row("sim_aou"), _row("random")),
    _claim("sim_aou_over_floor", f"{_DAI}, Table 3, with a control",
           "SimAOU is above its floor, what normalising gives to updates that have nothing in common.",
           _row("sim_aou"), _row("floor")),
    _claim("sim_aou_raw", f"{_DEUTCH}, Table 3 without normalising",
           "SimAOU is above zero also of states that are not normalised.", _row("sim_aou_raw"), None),
    *(_claim(f"sim_aou_over_{row}", f"{_DAI}, Table 3, with a control", f"SimAOU is higher than for {what}.",
             _row("sim_aou"), _row("sim_aou", row)) for row, what in _BASE.items()),
    *(_claim(f"sim_aou_over_{row}", f"{_DAI}, Table 3, with a control",
             f"SimAOU is higher than when the context is {what}.", _row("sim_aou"), _row("sim_aou", row))
      for row, what in _OTHER_CONTEXTS.items()),
    *(_claim(f"sim_aou_no_more_than_{row}", f"{_DEUTCH}, untrained baselines",
             f"SimAOU (raw) of the trained network is no higher than of {what}, which cannot learn in context.",
             _row("sim_aou_raw"), _row("sim_aou_raw", row), relation="<=", tolerance=0.07,
             reason="the most by which a trained network of theirs is ahead on a task, CB: .11 against .04")
      for row, what in _UNTRAINED.items()),
    *(_claim(f"{metric}_{row}", _DEUTCH,
             f"Layer-causal gradient descent, {how}, is more like in-context learning than gradient descent "
             f"({'SimAOU, raw' if metric == 'sim_aou_raw' else 'SimAM of differences'}).",
             _row(metric, row), _row(metric))
      for metric in ("sim_aou_raw", "sim_am_delta")
      for row, how in (("local", "at its own learning rate"), ("local_same_rate", "at the same learning rate"))),
    _claim("sim_am_rises", f"{_DAI}, Table 4",
           "SimAM is higher after fine-tuning than before (above the first layer, where it is 1 before).",
           _row("sim_am_after", above_first=True), _row("sim_am_before", above_first=True)),
    *(_claim(f"sim_am_over_{row}", f"{_DAI}, Table 4, with a control",
             f"SimAM after fine-tuning is higher than after {what}.",
             _row("sim_am_after", above_first=True), _row("sim_am_after", row, above_first=True))
      for row, what in _BASE.items()),
    *(_claim(f"sim_am_delta_over_{row}", f"{_DEUTCH}, with a control",
             f"SimAM of differences is higher than for {what}.", _row("sim_am_delta"), _row("sim_am_delta", row))
      for row, what in _BASE.items()),
    _claim("kendall_over_random", f"{_DAI}, Table 5",
           "Attention to the training tokens ranks them as in context more than random weights do (Kendall).",
           _row("kendall"), _row("kendall_random")),
    *(_claim(f"kendall_over_{row}", f"{_DAI}, Table 5, with a control",
             f"Kendall's correlation is higher than for {what}.", _row("kendall"), _row("kendall", row))
      for row, what in (*_BASE.items(), ("untrained", "an untrained network"))),
    _claim("labels_nearer", f"{_SHEN}, answers",
           "Fine-tuning brings the distribution of labels nearer to that in context (Jensen-Shannon from ICL: "
           "zero-shot less fine-tuned).",
           _row("shannon_zero_shot_in_context"), _row("shannon_in_context_tuned"),
           reason=_BY_TASK),
    _claim("order_matters_more_in_context", f"{_SHEN}, order",
           "The order of the demonstrations moves in-context learning more than fine-tuning (log-probability of the "
           "right label, standard deviation over permutations).",
           _array("order/in_context/log_probability"), _array("order/sequential/log_probability"),
           reason=_BY_TASK),
    _claim("full_batch_has_no_order", f"{_DEUTCH}, order",
           "Fine-tuning in one step does not depend on the order of the demonstrations.",
           _array("order/full_batch/log_probability"), None, relation="<=", tolerance=1e-4, gated=False,
           reason="rounding of a sum of float32 gradients in another order, carried through the network"),
)  # fmt: skip


def _lead(record: Record) -> np.ndarray:
    """(M, 6, K) accuracy in context less that after fine-tuning, by number of demonstrations."""
    return of_networks(record, "curve/in_context") - of_networks(record, "curve/finetuned")
