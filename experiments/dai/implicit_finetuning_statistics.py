"""What the claims of ``implicit_finetuning`` read off its record: one value a network, task or layer; and controls."""

import numpy as np

from experiments.dai.by_encoding import Values, less, of_encoding, of_networks
from experiments.dai.controls import PAPER, counted_layers
from experiments.dai.controls_figures import of_row
from experiments.dai.implicit_finetuning import ALPHA, BOTH, CARRIED, CURVE, PATH_BY_LAYER
from icl_lab.lab import NotRun, Record
from icl_lab.lab.quantities import Quantity

ANSWER = CARRIED.at(reading="in_context", place="answer")
"""What demonstrations gain."""
EMBEDDINGS = "trained_embeddings"
"""Row of networks that cannot learn in context (Deutch et al. 2024). Compared without normalising, which alone gives
any two updates something in common."""
OTHER_CONTEXT = "wrong_demonstrations"
"""Row of contexts of another task, after which in-context learning does something else than fine-tuning."""


def in_row(metric: str, row: str = PAPER) -> Values:
    """(M, 6) or (M, 6, L) a metric in a row of the table; without ``row`` of the paper's fine-tuning."""
    return lambda record, encoding: of_row(record, metric, row, encoding)


@of_encoding
def recall(record: Record, encoding: str, metric: str, row: str = PAPER, over: str | None = None) -> np.ndarray:
    """(M,) mean over the examples that fine-tuning mends, of all tasks; of a task where it mends few little counts."""
    mended = of_row(record, "mended", row, encoding)
    values = of_row(record, metric, row, encoding) - (of_row(record, over, row, encoding) if over else 0)
    with np.errstate(invalid="ignore"):
        return np.where(mended > 0, mended * values, 0).sum(1) / mended.sum(1)


@of_encoding
def shared(record: Record, encoding: str, gained: Quantity) -> np.ndarray:
    """(M,) accuracy gained by attention outputs put into the zero-shot run, as a share of what demonstrations gain.

    Gains are means over tasks first; where they are of single layers, of the best.
    """
    whole = of_networks(record, ANSWER.at(measure="accuracy"), encoding).mean(1)
    gains = of_networks(record, gained, encoding).mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a network that gains nothing fails the gate
        return (gains.max(-1) if gains.ndim > 1 else gains) / whole


def along_labels(record: Record, encoding: str) -> np.ndarray:
    """(M, 6, L) what the directions of the labels alone add to SimAOU (raw): the shares are of squared lengths."""
    in_context, finetuned, cosine = (
        of_row(record, f"{name}_inside", PAPER, encoding) for name in ("in_context", "finetuned", "sim_aou")
    )
    return np.sqrt(in_context * finetuned) * cosine


def sim_am_at_largest_rate(record: Record, encoding: str) -> np.ndarray:
    """(M, 6, L - 1) SimAM after fine-tuning at the largest rate of the grid, on development questions."""
    by_rate = of_networks(record, PATH_BY_LAYER.at(metric="sim_am_after"), encoding)
    return counted_layers(by_rate[:, :, -1], "sim_am_after")


def not_carried(record: Record, encoding: str) -> np.ndarray:
    """(M,) largest difference over tasks between the answer and what the outputs of all layers give."""
    of_all = CARRIED.at(reading="in_context", measure="log_probability", place="all")
    both = (of_networks(record, one, encoding) for one in (of_all, ANSWER.at(measure="log_probability")))
    return np.abs(np.subtract(*both)).max(1)


@of_encoding
def alpha(record: Record, encoding: str, changed: str) -> np.ndarray:
    """(M, 6) cosine of what the two descents change in attention scores or outputs."""
    if "local" not in record.metrics["rows"]:
        raise NotRun("row local")
    return of_networks(record, ALPHA.at(changed=changed), encoding)


@of_encoding
def lead(record: Record, encoding: str, place: int) -> np.ndarray:
    """(M, 6) accuracy in context less that after fine-tuning, at a number of demonstrations."""
    return np.subtract(*(of_networks(record, CURVE.at(learner=name), encoding) for name in BOTH))[..., place]


def cannot_learn(metric: str, over: Values) -> Values:
    """A control: the metric of networks that cannot learn in context, over that which the claim compares with."""
    return less(in_row(metric, EMBEDDINGS), over)
