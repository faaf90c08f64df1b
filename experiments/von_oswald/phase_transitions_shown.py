"""What ``phase_transitions`` claims and shows: functions of its record."""

from typing import Any

import numpy as np

from experiments.onsets import at_exact_start, half_drop_times
from experiments.panels import described
from experiments.statistics import late
from experiments.von_oswald.panels import drops
from experiments.von_oswald.phase_transitions import LOOKS, LOSS, OF_SET, SET_STEPS, STEPS, Config
from experiments.von_oswald.statistics import late_of_a_short_run
from icl_lab.claims import FAILS, Beside, Quick
from icl_lab.lab import Record, claims_of, from_json, style
from icl_lab.lab.style import Figure


def times(record: Record, heads: int) -> np.ndarray:
    """(M,) steps at which half of the drop is done; infinite if never."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    return half_drop_times(at_exact_start(LOSS(record, heads=heads), zero), STEPS(record), zero, best)


def is_late(record: Record, heads: int) -> np.ndarray:
    """(M,) 1 for members whose half drop comes at least twice as late as the median's."""
    return late(times(record, heads))


def sooner_than_the_block(record: Record) -> np.ndarray:
    """(M,) 1 where two heads drop sooner on fresh tasks than a block with MLP, each in one pair."""
    block = set_times(record, "loss")
    return (times(record, 2)[: block.size] < block[: record.config["members"]]).astype(float)


def set_times(record: Record, name: str) -> np.ndarray:
    """(M,) steps at which half of the drop is done on fresh tasks (``loss``) or on the set (``train_loss``)."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    return half_drop_times(OF_SET(record, loss=name), SET_STEPS(record), zero, best)


def lags(record: Record) -> np.ndarray:
    """(M,) 1 where half of the drop on fresh tasks takes twice as long as on the set; NaN without one on the set."""
    fresh, on_set = set_times(record, "loss"), set_times(record, "train_loss")
    return np.where(np.isfinite(on_set), (fresh >= 2 * on_set).astype(float), np.nan)


def shoots_up(record: Record) -> np.ndarray:
    """(M,) largest loss on fresh tasks over that of predicting zero, from the start of the same member."""
    curves = OF_SET(record, loss="loss")
    return curves.max(axis=1) / curves[:, 0]


_SHARE: dict[str, Any] = {"interval": "wilson", "minimum_members": 50}

claim = claims_of("von_oswald.phase_transitions", "von Oswald et al. 2022, Fig. 15")

CLAIMS = (
    claim(
        "two_heads_sooner",
        "Two heads drop sooner than one (share of pairs of a member with two and one with one, each in one pair; "
        "control: than a block with MLP).",
        lambda record: (times(record, 2) < times(record, 1)).astype(float), at_least=0.5, **_SHARE,
        reason="with equal distributions it is at most a half", headline=1,
        control=sooner_than_the_block,
        quick=Quick(
            0.0, "a bound without slack at lab either; half of one head's members drop within 300 of 1,000 steps"
        ),
    ),
    claim(
        "two_heads_together",
        "Two heads drop together: at most a tenth of the members take twice the median time or longer (share; "
        "control: a training of three quarters of that time).",
        lambda record: is_late(record, 2), at_most=0.1, reason="none of the ten published curves does", **_SHARE,
        published=("none of ten waits", "Fig. 15 centre"),
        control=lambda record: late_of_a_short_run(times(record, 2)),
        beside=Beside(lambda record: is_late(record, 1), "of one head hardly more than a tenth wait in as long a run"),
    ),
    claim(
        "one_head_waits", "One head waits more often than two (difference of the shares of members that wait).",
        lambda record: is_late(record, 1) - is_late(record, 2), at_least=0.0, reason="an ordering", minimum_members=50,
    ),
    # what fails at lab is the same training at paper
    claim(
        "set_shoots_up",
        "On a fixed set of tasks a block with MLP first gets worse on fresh ones (largest loss over the first; "
        "full batch, default rate).",
        shoots_up, at_least=1.1, reason="a tenth is visible on the figure's axis", presets=(), at_lab=FAILS,
        published=("shoots up", "Fig. 15 right"),
    ),
    claim(
        "set_generalises",
        "The block with MLP generalises in the end: its last loss on fresh tasks is near the best GD step's (ratio).",
        lambda record: OF_SET(record, loss="loss")[:, -1] / record.metrics["closed_form"], near=1.0, tolerance=0.1,
        published=("loss about 0.2", "Fig. 15 right"),
        reason="'about .2' in the figure", presets=(), at_lab=FAILS, headline=2,
    ),
    claim(
        "set_lag",
        "Generalisation comes after learning by heart: half of the drop on fresh tasks takes at least twice as many "
        "steps as on the set (share of members).",
        lags, at_least=0.5, interval="wilson", presets=(), at_lab=FAILS,
        reason="the figure shows one such training: more than half of the members must be like it",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Loss of every member by ensemble, and the distribution of the times."""
    config, steps = from_json(Config, record.config), STEPS(record)
    figure, (row,) = style.panels(len(config.heads) + 2, 1)
    *_, of_set, when = row
    ensembles = {}
    for axes, heads, (color, hatch) in zip(row, config.heads, LOOKS):
        curves = at_exact_start(LOSS(record, heads=heads), record.metrics["predict_zero"])
        name = f"{heads} head{'s' * (heads > 1)}"
        axes.plot(steps, curves.T, color=color, alpha=0.2, linewidth=0.6)
        axes.set(title=f"{name}, {config.members} members", ylabel="loss, scaled to one start")
        ensembles[name] = (times(record, heads), color, hatch)
    for name, label, color, dash in (("loss", "fresh tasks", "#D55E00", "-"), ("train_loss", "the set", "0.4", "--")):
        look: dict[str, Any] = {"color": color, "linestyle": dash, "alpha": 0.5, "linewidth": 0.8}
        of_set.plot(SET_STEPS(record), OF_SET(record, loss=name).T, **look)[0].set_label(label)
    of_set.set(title=f"block with MLP, {config.set_tasks} tasks", ylabel="loss")
    for axes in row[:-1]:
        axes.axhline(record.metrics["closed_form"], color="black", linestyle=":", label="best GD step")
        axes.set(xlabel="training step", ylim=(0.15, 0.5))
        axes.legend(loc="upper right")
    drops(when, ensembles, np.geomspace(0.02 * config.steps, config.steps, 25).tolist())
    described(when, 2, title="members that drop, and when")
    return {"phase_transitions": figure}
