"""What ``softmax`` claims and shows: functions of its record."""

from functools import partial

import numpy as np

from experiments.statistics import Statistic, among, last, of_record
from experiments.von_oswald import shifts
from experiments.von_oswald.panels import member_lines
from experiments.von_oswald.softmax import CURVE, FINAL, MAPS, SHIFTED, STEPS, Config
from experiments.von_oswald.statistics import early, off_diagonal, over
from icl_lab.claims import NOT_RESOLVED, Quick
from icl_lab.lab import Record, claims_of, from_json, style
from icl_lab.lab.style import Figure


def _excess(heads: int) -> Statistic:
    """(M,) final loss above that of the best GD step, relative."""
    return lambda record: over(FINAL.at(heads=heads), "trained", "gd")(record) - 1


def maps_off_diagonal(record: Record, summed: bool) -> np.ndarray:
    """(M,) root mean square off the input diagonal over its mean size, of the two heads' sum or of each (mean)."""
    maps, d = MAPS(record, heads=2), record.config["input_size"]
    maps = maps.sum(axis=1, keepdims=True) if summed else maps
    return off_diagonal(maps[..., :d, :d]).mean(axis=1)


def past_plateau(record: Record, heads: int) -> np.ndarray:
    """(M,) whether a member has left the first plateau: 9/10 of the way from predicting zero to where its kind ends.

    That is the loss of GD on centred inputs for two heads; for one, which ends far above, the smallest of the members'.
    """
    loss, zero = FINAL(record, heads=heads, learner="trained"), CURVE(record, heads=heads, metric="loss")[:, 0]
    end = record.metrics["centred"] if heads > 1 else loss.min()
    return loss < 0.1 * zero + 0.9 * end


def gap_closed(record: Record) -> np.ndarray:
    """(M,) share of the excess that the second head takes away, member by member, where both have left the plateau."""
    both = past_plateau(record, 1) & past_plateau(record, 2)
    return np.where(both, 1 - _excess(2)(record) / _excess(1)(record), np.nan)


def gap_to_another(record: Record) -> np.ndarray:
    """(M,) the same share with the next of the members with one head that have left the plateau, for two heads."""
    past, excess = past_plateau(record, 1), _excess(1)(record)
    closed = np.full(excess.shape, np.nan)
    closed[past] = 1 - np.roll(excess[past], 1) / excess[past]
    return closed


@of_record
def past_plateau_early(record: Record, heads: int) -> np.ndarray:
    """(M,) 1 for members that have left the plateau after a twentieth of the steps."""
    loss = CURVE.at(heads=heads, metric="loss")
    end = record.metrics["centred"] if heads > 1 else FINAL(record, heads=heads, learner="trained").min()
    return (early(loss, 0.05)(record) < 0.1 * early(loss)(record) + 0.9 * end).astype(float)


def over_centred(record: Record) -> np.ndarray:
    """(M,) loss of two heads over that of the best GD step on centred inputs, by way of GD on the same tasks."""
    over_gd = over(FINAL.at(heads=2), "trained", "gd")(record)
    return over_gd * (record.metrics["closed_form"] / record.metrics["centred"])


def _cosine(heads: int) -> Statistic:
    """(M,) last sensitivity cosine with the best GD step."""
    return last(CURVE.at(heads=heads, metric="gd_sensitivity_cosine"))


_FIGURE = "von Oswald et al. 2022, Fig. 12"
_past = partial(among, partial(past_plateau, heads=2))
"""Of members whose two heads have left the plateau; NaN for the others."""

claim = claims_of("von_oswald.softmax")

CLAIMS = (
    claim(
        "one_head_above",
        "One softmax head stays clearly above the best GD step (relative excess of the loss, median; control: two "
        "heads).",
        _excess(1), at_least=0.1, control=_excess(2), where="von Oswald et al. 2022, Fig. 11", interval="median",
        reason="ten times the width of a line on the figure's axis", headline=1,
        quick=Quick(0.0, "a bound without slack at lab either; a shorter training only adds to it"),
    ),
    claim(
        "gap_closed",
        "Of members that have left the plateau, with one head and with two, the second head closes more than half of "
        "the gap between one head and the best GD step (share of the excess; control: another member with one head).",
        gap_closed, at_least=0.5, control=gap_to_another, where="von Oswald et al. 2022, Figs. 11 and 12",
        reason="'much smaller' in the text is read as less than half",
    ),
    claim(
        "two_heads_cosine",
        "The sensitivities of two heads (off the plateau) and of the best GD step have cosine at least .9 (control: "
        "one head).",
        _past(_cosine(2)), at_least=0.9, where=_FIGURE,
        reason="'good' on an axis that ends at 1, where one head lies far below", control=_cosine(1),
    ),
    claim(
        "two_heads_not_gd", "Two softmax heads are not the GD step: cosine at most .99.", _past(_cosine(2)),
        at_most=0.99, where=_FIGURE,
        reason="one linear head reaches .999 (von_oswald.one_step.cosine)",
    ),
    claim(
        "sum_is_diagonal",
        "The sum of their scaled heads is diagonal on the inputs: root mean square off the diagonal at most .05 of "
        "its mean size (control: each head by itself).",
        _past(lambda record: maps_off_diagonal(record, summed=True)), at_most=0.05, where=_FIGURE,
        reason="as for the linear layer's weight maps",
        control=_past(lambda record: maps_off_diagonal(record, summed=False)),
    ),
    claim(
        "two_heads_centred",
        "Two heads reach the best GD step on centred inputs, loss .2185 (ratio; control: on inputs as they are).",
        _past(over_centred), near=1.0, tolerance=0.02, where="this lab (closed form)", headline=2,
        control=_past(over(FINAL.at(heads=2), "trained", "gd")),
        reason="2 % is a third of what tells centred from plain inputs (5.9 %); logits of finite size act at second "
        "order",
    ),
    claim(
        "past_plateau",
        "Most members with two heads have left the plateau at the last step (share with 9/10 of the drop done; "
        "control: after a twentieth of the steps).",
        lambda record: past_plateau(record, 2).astype(float), at_least=0.5,
        where="this lab", interval="wilson", reason="most is more than half", control=past_plateau_early(2),
    ),
    claim(
        "past_plateau_1",
        "Most members with one head have left the plateau at the last step (share with 9/10 of the drop to the lowest "
        "loss of them done; control: after a twentieth of the steps).",
        lambda record: past_plateau(record, 1).astype(float), at_least=0.5, at_lab=NOT_RESOLVED, at_paper=NOT_RESOLVED,
        where="this lab", interval="wilson", reason="most is more than half; written after the records",
        control=past_plateau_early(1),
    ),
)  # fmt: skip


_GD = style.LEARNERS["gd"] | {"marker": ""}
_BLUE = style.LEARNERS["trained"]["color"]


def _apart(axes: style.Axes, x: np.ndarray, members: np.ndarray, off: np.ndarray) -> None:
    """Members of (M, X) that have left the plateau, and those that are still on it."""
    groups = ((off, _BLUE, "-", "left the plateau"), (~off, "0.4", "-.", "still on the plateau"))
    for keep, color, dash, label in groups:
        if keep.any():
            member_lines(axes, x, members[keep], color=color, linestyle=dash, label=label)


def figures(record: Record) -> dict[str, Figure]:
    """By number of heads, members on and off the plateau apart: loss and agreement over training, losses under shifts.

    And the heads' scaled maps.
    """
    config = from_json(Config, record.config)
    columns = config.columns() if "shift_tasks" in record.config else {}  # that of paper is older than the shifts
    figure, axes = style.panels(2 + len(columns), len(config.heads))
    for (loss, agreement, *row), heads in zip(axes, config.heads):
        title, part = f"{heads} head{'s' * (heads > 1)}", CURVE(record, heads=heads)
        off, gd = past_plateau(record, heads), record.metrics["closed_form"]
        _apart(loss, STEPS(record), part["loss"] / part["gd_loss"] * gd, off)
        loss.axhline(gd, **_GD)
        loss.axhline(record.metrics["centred"], **style.THEORY, label="GD on centred inputs")
        loss.set(title=f"{title}, loss", xlabel="training step", ylabel="loss")
        _apart(agreement, STEPS(record), part["gd_sensitivity_cosine"], off)
        agreement.set(title=f"{title}, cosine with GD", xlabel="training step", ylim=(-0.05, 1.05))
        agreement.set_ylabel("cosine of the sensitivities")
        for shifted, (column, scales) in zip(row, columns.items()):
            losses = SHIFTED[column](record, heads=heads)
            _apart(shifted, np.array(scales), losses["trained"], off)
            shifted.plot(scales, np.median(losses["gd"], axis=0), **_GD)
            shifted.axvline(1.0, color="0.6", linewidth=0.8)
            shifted.set(title=f"{title}, {shifts.COLUMNS[column][0]}", yscale="log", ylabel="loss")
            shifted.set_xlabel(r"scale $\alpha$ of the shift")
        loss.legend()
    most = max(config.heads)
    maps = MAPS(record, heads=most)[0]
    shown = [*maps, maps.sum(axis=0)]
    heat, (row,) = style.panels(len(shown), 1, shape=0.74)
    limit = max(float(np.abs(m[: config.input_size, : config.input_size]).max()) for m in shown)
    titles = [f"head {h + 1}, scaled" for h in range(most)] + ["sum of the heads"]
    for axis, one, title in zip(row, shown, titles):
        image = style.heat_map(axis, one, limit, title)
    heat.colorbar(image, ax=list(row), shrink=0.8, label=style.BARRED)
    return {"softmax": figure, "heads": heat}
