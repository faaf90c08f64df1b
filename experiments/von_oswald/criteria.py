"""When a training has gone far enough for a claim about where it ends."""

import numpy as np

from icl_lab.claims import Criterion
from icl_lab.lab.quantities import Quantity


def change(curves: np.ndarray) -> float:
    """Relative change of the median member's curve, of (M, R), between the last two fifths of the training."""
    fifth = curves.shape[1] // 5
    before, last = (curves[:, at].mean(axis=1) for at in (slice(-2 * fifth, -fifth), slice(-fifth, None)))
    return float(abs(np.median(last / before) - 1))


def settled(*curves: Quantity) -> Criterion:
    """The median member's curves (M, R) change by less than 2 % between the last two fifths of the training."""
    what = " and ".join(one.name.format(**one.bound) for one in curves)
    return Criterion(
        f"{what} changes by less than 2 % between the last two fifths of the training",
        lambda record: max(change(one(record)) for one in curves) < 0.02,
    )
