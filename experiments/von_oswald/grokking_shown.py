"""What ``grokking`` claims and shows: functions of its record."""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.onsets import half_drop_times
from experiments.panels import SERIES, described
from experiments.statistics import Statistic
from experiments.von_oswald.grokking import LOSS, STEPS, cells
from icl_lab.claims import FAILS
from icl_lab.lab import Record, claims_of, style
from icl_lab.lab.style import Figure


def drop_times(record: Record, name: str) -> list[np.ndarray]:
    """Two (M,): step at half of the drop on fresh tasks, and on the set; infinite without one."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    return [
        half_drop_times(LOSS(record, cell=name, loss=curve), STEPS(record), zero, best)
        for curve in ("loss", "train_loss")
    ]


def late(record: Record, name: str) -> np.ndarray:
    """(M,) whether half of the drop on fresh tasks takes twice the steps of that on the set; False without one."""
    fresh, on_set = drop_times(record, name)
    return np.isfinite(fresh) & (fresh >= 2 * on_set)


def shoots_up(record: Record, name: str) -> np.ndarray:
    """(M,) whether the loss on fresh tasks ever exceeds that of predicting zero by a tenth."""
    return LOSS(record, cell=name, loss="loss").max(axis=1) > 1.1 * record.metrics["predict_zero"]


def _most(of: Callable[[Record, str], np.ndarray]) -> Statistic:
    """(M,) which members do it in the cell of the grid where most do.

    The cell is chosen by the members that are then counted, which errs towards the paper: if one in two members did it
    in every one of nine cells, the interval would lie above a half nine times in a hundred, not two or three.
    """
    return lambda record: max((of(record, name).astype(float) for name in cells(record.config)), key=np.mean)


_GRID = "at some batch size and learning rate of the grid (share of the members in the cell where most do)"

# the verdicts at lab were entered after the record, as first found
claim = claims_of(
    "von_oswald.grokking", "von Oswald et al. 2022, Fig. 15", {"late": FAILS, "late_and_up": FAILS},
    presets=("lab",), interval="wilson",
)  # fmt: skip

CLAIMS = (
    claim(
        "late", f"Most members generalise late {_GRID}.", _most(late), at_least=0.5, reason="most is more than half",
        headline=1, published=("drops late to about 0.2", "Fig. 15 right"),
    ),
    claim(
        "late_and_up", f"Most get worse on fresh tasks first and then generalise late {_GRID}.",
        _most(lambda record, name: late(record, name) & shoots_up(record, name)), at_least=0.5,
        reason="most is more than half", headline=2,
        published=("shoots up, drops later to about 0.2", "Fig. 15 right"),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """When fresh tasks are learned against when the set is, a marker a member; the member that learns its set last."""
    batches, rates = record.config["batches"], record.config["rates"]
    figure, ((ratios, example),) = style.panels(2)
    slowest: tuple[float, Any, str] = (-1.0, 0, "")
    for name, (batch, rate) in cells(record.config).items():
        fresh, on_set = drop_times(record, name)
        reached = np.flatnonzero(np.isfinite(fresh) & np.isfinite(on_set))
        i, j = batches.index(batch), rates.index(rate)
        at = j + 0.3 * (i - (len(batches) - 1) / 2) + 0.02 * (reached - (len(on_set) - 1) / 2)
        label = None if j else f"batch {batch:,}"
        look = SERIES[i % len(SERIES)] | {"linestyle": "", "fillstyle": "none", "label": label}
        ratios.plot(at, fresh[reached] / on_set[reached], **look)
        slowest = max([slowest, *((float(on_set[member]), member, name) for member in reached)])
    ratios.axhline(2, **style.THEORY)
    ratios.annotate("late: twice the steps", (0.02, 2.05), xycoords=("axes fraction", "data"))
    ratios.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    ratios.set(
        title="when fresh tasks are learned", xlabel="learning rate", ylabel="steps to half the drop, fresh / set"
    )
    ratios.set_ylim(0, 2.4)
    ratios.legend()
    _, member, name = slowest
    for curve, label, colour, dash in (("loss", "fresh tasks", "#D55E00", "-"), ("train_loss", "set", "0.2", "--")):
        if name:
            losses = LOSS(record, cell=name, loss=curve)[member]
            example.plot(STEPS(record), losses, color=colour, linestyle=dash, label=label)
    example.axhline(record.metrics["closed_form"], color="black", linestyle=":", label="best GD step")
    described(example, title="the slowest member", xlabel="training step", ylabel="loss")
    return {"grokking": figure}
