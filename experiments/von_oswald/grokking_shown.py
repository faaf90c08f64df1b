"""What ``grokking`` claims and shows: functions of its record."""

from collections.abc import Callable

import numpy as np

from experiments.onsets import half_drop_times
from experiments.statistics import Statistic
from experiments.von_oswald.grokking import LOSS, STEPS, cells
from icl_lab.claims import FAILS
from icl_lab.lab import Record, claims_of, style
from icl_lab.lab.style import Figure


def late(record: Record, name: str) -> np.ndarray:
    """(M,) whether half of the drop on fresh tasks takes twice the steps of that on the set; False without one."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    fresh, own = (
        half_drop_times(np.nan_to_num(LOSS(record, cell=name, loss=curve), nan=zero), STEPS(record), zero, best)
        for curve in ("loss", "train_loss")
    )
    return np.isfinite(fresh) & (fresh >= 2 * own)


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
        headline=1, published=("drops late to about 0.2", "Fig. 15 right, one training"),
    ),
    claim(
        "late_and_up", f"Most get worse on fresh tasks first and then generalise late {_GRID}.",
        _most(lambda record, name: late(record, name) & shoots_up(record, name)), at_least=0.5,
        reason="most is more than half", headline=2,
        published=("shoots up, drops later to about 0.2", "Fig. 15 right, one training"),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One row a batch size, one column a learning rate."""
    config = record.config
    figure, axes = style.panels(len(config["rates"]), len(config["batches"]))
    for at, (name, (batch, rate)) in zip(axes.flat, cells(config).items()):
        for curve, label, colour, dash in (("loss", "fresh tasks", "#D55E00", "-"), ("train_loss", "set", "0.4", "--")):
            losses = LOSS(record, cell=name, loss=curve)
            lines = at.plot(STEPS(record), losses.T, color=colour, linestyle=dash, linewidth=0.8)
            lines[0].set_label(label)
        at.axhline(record.metrics["closed_form"], color="black", linestyle=":")
        at.set_title(f"batch {batch}, rate {rate:g}")
        at.set_ylim(0.1, 0.8)
        at.set_xlabel("training step")
        at.set_ylabel("loss")
    axes.flat[0].legend()
    return {"grokking": figure}
