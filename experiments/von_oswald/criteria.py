"""When a training has gone far enough for a claim about where it ends."""

import numpy as np

from icl_lab.claims import Criterion
from icl_lab.lab import Record
from icl_lab.lab.quantities import Quantity


def settled(*curves: Quantity) -> Criterion:
    """The median member's curves (M, R) change by less than 2 % between the last two fifths of the training."""

    def reached(record: Record) -> bool:
        changes = []
        for values in (one(record) for one in curves):
            fifth = values.shape[1] // 5
            before, last = (values[:, at].mean(axis=1) for at in (slice(-2 * fifth, -fifth), slice(-fifth, None)))
            changes.append(abs(np.median(last / before) - 1))
        return max(changes) < 0.02

    what = " and ".join(one.name.format(**one.bound) for one in curves)
    return Criterion(f"{what} changes by less than 2 % between the last two fifths of the training", reached)
