"""What ``landscape`` claims and shows: functions of its record."""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.panels import described, intervals
from experiments.statistics import Statistic, of_record, place_of
from experiments.zhang_frei_bartlett.landscape import CURVATURE, ENDS, MIXED, OPTIMUM, PAIR, PREDICTED, SPURIOUS
from icl_lab.claims import Quick
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Axes, Figure, panels, viridis

ENDED, ABOVE, TOLD = (ENDS.at(of=of) for of in ("ended", "above", "told"))
MARKERS, DASHES = ("o", "s", "^", "D", "v"), ("-", "--", "-.", ":", (0, (5, 1)))


def every(record: Record, quantity: Quantity) -> np.ndarray:
    """(D, exponents, ...) the arrays of all dimensions."""
    return np.stack([quantity(record, dimension=d) for d in record.config["dimensions"]])


def minima(record: Record) -> np.ndarray:
    """(D, exponents, lengths) whether the spurious point is a minimum."""
    return every(record, CURVATURE)[:, :, np.array(record.config["lengths"]) - 1] > 0


def at_scale(record: Record, scale: float | None) -> int:
    """Index of a scale of the starts, None for the smallest; ``NotRun`` where it is not among them."""
    scale = min(record.config["scales"]) if scale is None else scale
    return place_of(record, "scales", scale, f"scale {scale:g}")


def reached(where: int, scale: float) -> Statistic:
    """(M,) whether a start with the two eigenvalues ``pair`` ended there."""
    return lambda record: PAIR(record, of="ended")[at_scale(record, scale)] == where


@of_record
def caught(record: Record, minimum: bool = True) -> np.ndarray:
    """(cells,) whether more than a tenth end at the spurious point, scales from .1 on; NaN where it is no ``minimum``.

    Not ``minimum``: NaN where it is one.
    """
    large = np.array(record.config["scales"]) >= 0.1
    share = (every(record, ENDED) == SPURIOUS).mean(axis=-1)[:, :, large]
    cells = np.where((minima(record) == minimum)[:, :, None], share > 0.1, np.nan).ravel()
    if cells.size == 1:
        raise NotRun("more than one cell of starts")
    return cells


def pooled(found: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Statistic:
    """(flows,) of all dimensions, ``found(ended, is the spurious point a minimum)`` of each cell, joined."""
    return lambda record: found(every(record, ENDED), minima(record)[:, :, None, :, None]).ravel()


def told(record: Record) -> np.ndarray:
    """(D, exponents, scales, lengths, M) whether the race out of the origin predicts the end of a start."""
    return every(record, TOLD) == (every(record, ENDED) == OPTIMUM)


def race_told(scale: float | None = None) -> Statistic:
    """(flows,) whether the race out of the origin predicts the end of a start of a scale, None for the smallest."""
    return lambda record: told(record)[:, :, at_scale(record, scale)].ravel()


def starts_of_scale(record: Record, scale: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(cells, M) whether starts of a scale (None: the smallest) reached the optimum; (cells,) probability predicted."""
    place = at_scale(record, scale)
    ended, predicted = every(record, ENDED)[:, :, place], every(record, PREDICTED)[:, :, place]
    return (ended == OPTIMUM).reshape(predicted.size, -1), predicted.ravel()


@of_record
def race_error(record: Record, scale: float | None = None) -> np.ndarray:
    """(flows,) whether a start of a scale reached the optimum, less the predicted probability."""
    reached, predicted = starts_of_scale(record, scale)
    return (reached - predicted[:, None]).ravel()


def race_spread(record: Record) -> np.ndarray:
    """(cells,) squared difference of the shares less the binomial variance of the observed one."""
    reached, predicted = starts_of_scale(record)
    if predicted.size < 2:
        raise NotRun("second cell of the grid")
    share = reached.mean(axis=1)
    return (share - predicted) ** 2 - predicted * (1 - predicted) / record.config["members"]


@of_record
def flat_less_steep(record: Record, scale: float | None = None) -> np.ndarray:
    """(flows,) reached the optimum: flat less steepest spectrum, shortest prompts, all D; scale as ``race_told``."""
    one, shortest = at_scale(record, scale), int(np.argmin(record.config["lengths"]))
    flat, steep = (int(index_of(record.config["exponents"])) for index_of in (np.argmin, np.argmax))
    ended = (every(record, ENDED)[:, :, one, shortest] == OPTIMUM).astype(float)
    return (ended[:, flat] - ended[:, steep]).ravel()


@of_record
def above_spurious(record: Record, where: int) -> np.ndarray:
    """(flows,) loss at the end less the closed-form spurious one, of what there is to gain; NaN for other ends."""
    pair = np.where(PAIR(record, of="ended") == where, PAIR(record, of="above"), np.nan)
    grid = np.where(every(record, ENDED) == where, every(record, ABOVE), np.nan)
    return np.concatenate([grid.ravel(), pair.ravel()])


def highest_mixed(record: Record) -> np.ndarray:
    """(1,) the largest of these at a mixed minimum; (0,) where no flow ends at one."""
    excess = above_spurious(MIXED)(record)
    return np.sort(excess[~np.isnan(excess)])[-1:]


claim = claims_of("zhang_frei_bartlett.landscape", "this lab", unit="flow")

CLAIMS = (
    *(
        claim(
            f"pair_{scale:g}",
            f"Lam = diag(1.5, .5), N = 6, dense starts of scale {scale:g}: the share at the spurious minimum is that "
            "of the race out of the origin (control: the share that ends at a mixed minimum).",
            reached(SPURIOUS, scale), near=share, tolerance=0.08, interval="wilson", control=reached(MIXED, scale),
            reason="the interval of 400 starts is .05 to either side; what the race leaves out is 1 % at .02",
        )
        for scale, share in ((0.001, 0.487), (0.02, 0.492))  # 1 - race_probability, threshold .998
    ),
    claim(
        "spurious_loss", "Ends at the spurious minimum have its closed-form loss (distance, of what there is to gain).",
        lambda record: np.abs(above_spurious(SPURIOUS)(record)), at_most=0.0, tolerance=1e-6, kind="identity",
        reason="the flow converges to 1e-6 in the weights, quadratically in the loss; an end counts from 1e-4 on",
    ),
    claim(
        "only_minima",
        "No start ends at a spurious point that is a saddle by its closed-form curvature (share; control: where it is "
        "a minimum).",
        pooled(lambda ended, minimum: np.where(minimum, np.nan, ended == SPURIOUS)), at_most=0.01, kind="identity",
        interval="wilson", control=pooled(lambda ended, minimum: np.where(minimum, ended == SPURIOUS, np.nan)),
        reason="none is expected; a slow escape may leave a few at the horizon",
    ),
    claim(
        "minima_attract",
        "Where the spurious point is a minimum more than a tenth of the dense starts of scale .1 and more end in it "
        "(share of cells of D, spectrum, scale and N; control: where it is a saddle).",
        caught(), at_least=0.9, interval="wilson", unit="cell", control=caught(minimum=False),
        reason="all are expected to; the interval needs 37 of 37", headline=1,
    ),
    claim(
        "nowhere_else",
        "Where the spurious point is a minimum, every start ends there or at the optimum (share at mixed minima; "
        "control: where it is a saddle).",
        pooled(lambda ended, minimum: np.where(minimum, ended == MIXED, np.nan)), at_most=0.01, interval="wilson",
        control=pooled(lambda ended, minimum: np.where(minimum, np.nan, ended == MIXED)),
        reason="none is expected: mixed minima branch off where the spurious point turns into a saddle",
    ),
    claim(
        "mixed",
        "Mixed minima lie below the spurious point (loss less the spurious one, of what there is to gain; the largest "
        "of all flows that end at one: those of one covariance end at the same).",
        highest_mixed, at_most=0.0, interval="exact",
        reason="an ordering: the flow reaches them from the neighbourhood of the spurious point, downhill",
    ),
    claim(
        "resolved",
        "Every start ends at a minimum: the optimum, the spurious point, or a point with a vanishing gradient and a "
        "positive semidefinite Hessian (share of the others).",
        pooled(lambda ended, _: ended > MIXED), at_most=0.01, kind="identity", interval="wilson",
        reason="none is expected; a slow mode may leave a few on their way at the horizon",
    ),
    claim(
        "race",
        "At the smallest scale the share that reaches the optimum is that of the race out of the origin (mean "
        "difference over all D, spectra and N; control: at scale .5).",
        race_error(), near=0.0, tolerance=0.03, reason="the race is exact as the scale goes to zero; .001 is not zero",
        headline=2, control=race_error(0.5),
        quick=Quick(0.09, "240 starts at the smallest scale for 2,520: a tenth of them may be told wrongly"),
    ),
    claim(
        "race_cells",
        "That holds in every cell (mean over D, spectra and N of the squared difference of shares, less the variance "
        "that the number of starts explains; control: squared differences from one half).",
        race_spread, near=0.0, tolerance=0.0025, unit="cell",
        control=lambda record: (starts_of_scale(record)[0].mean(axis=1) - 0.5) ** 2,
        reason="a root mean square of .05",
    ),
    claim(
        "race_each",
        "At the smallest scale the race out of the origin, computed from the initial weights, predicts where each "
        "start ends (share; control: at scale .5).",
        race_told(), at_least=0.98, interval="wilson", control=race_told(0.5),
        reason="the threshold is known to 2 %, which leaves less than 1 % of starts undecided",
    ),
    claim(
        "race_ends",
        "The race decides small starts only: at scale .5 it predicts fewer than nine of ten ends (control: at .02).",
        race_told(0.5), at_most=0.9, interval="wilson", control=race_told(0.02),
        reason="a start of that size is no longer in the linear regime near the origin",
    ),
    claim(
        "flat_is_safer",
        "A small start reaches the optimum more often under a flat spectrum than under the steepest, where the two "
        "modes grow at nearly one rate (difference of shares, shortest prompts, over all D; control: at scale .5).",
        flat_less_steep(), at_least=0.0, control=flat_less_steep(0.5), reason="an ordering",
    ),
    claim(
        "flat_is_no_safer",
        "At scale .5 the flat spectrum reaches it less often: there is no race, and more minima (the same difference; "
        "control: a small start).",
        flat_less_steep(0.5), at_most=0.0, control=flat_less_steep(), reason="an ordering, the reverse one",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Shares that reach the optimum over D; which spurious points are minima, and where the others lead."""
    scales, lengths = record.config["scales"], record.config["lengths"]
    ends, shortest = sorted({int(np.argmin(scales)), int(np.argmax(scales))}), int(np.argmin(lengths))
    figure, ((*shares, race),) = panels(len(ends) + 1)
    for axes, scale in zip(shares, ends):
        _shares(axes, record, scale, shortest)
        axes.set_title(f"scale {scales[scale]:g}, N = {lengths[shortest]}")
    figure.legend(*shares[0].get_legend_handles_labels())
    race.plot(scales, told(record).mean((0, 1, 3, 4)), color="black", marker="o")
    race.set(xscale="log", ylim=(-0.03, 1.03), xlabel="scale of the start", ylabel="share of starts, all D and N")
    race.set_title("ends that the race predicts")
    points, ((longest, mixed, at_optimum, pair),) = panels(4, 1, shape=0.72)
    up_to = np.apply_along_axis(longest_minimum, -1, every(record, CURVATURE))
    _over_dimensions(longest, record, up_to, "largest N", "where the spurious point is a minimum")
    at = int(np.argmax(lengths))
    share = (every(record, ENDED)[..., at, :] == MIXED).mean(axis=(2, 3))  # all scales together
    _over_dimensions(mixed, record, share, "share of starts", f"starts that end in mixed minima, N = {lengths[at]}")
    _reached(at_optimum, record)
    _pair(pair, record)
    return {"landscape": figure, "minima": points}


def _looks(record: Record) -> list[dict[str, Any]]:
    """Looks and labels of the spectra."""
    exponents = record.config["exponents"]
    labels = [rf"$\lambda_i \propto i^{{-{p:g}}}$" if p else r"equal $\lambda_i$" for p in exponents]
    return [
        {"color": shade, "marker": MARKERS[i % 5], "linestyle": DASHES[i % 5], "label": label}
        for i, (shade, label) in enumerate(zip(viridis(len(exponents)), labels))
    ]


def _shares(axes: Axes, record: Record, scale: int, length: int) -> None:
    """Share of starts that reach the optimum, with Wilson intervals, over D; the race's prediction as lines."""
    d, ended = np.array(record.config["dimensions"]), every(record, ENDED)[:, :, scale, length]
    for i, look in enumerate(_looks(record)):
        at_optimum, at = [cell == OPTIMUM for cell in ended[:, i]], d + 0.1 * (i - 1.5)
        intervals(axes, at, at_optimum, wilson_interval, "starts", **look | {"linestyle": "", "capsize": 0})
        predicted = every(record, PREDICTED)[:, i, scale, length]
        axes.plot(d, predicted, linestyle=look["linestyle"], color=look["color"], linewidth=0.8)
    axes.plot([], [], color="0.5", linewidth=0.8, label="predicted by the race")
    axes.set(xticks=d, ylim=(-0.03, 1.03), xlabel="dimension D", ylabel="share at the optimum")


def _over_dimensions(axes: Axes, record: Record, values: np.ndarray, label: str, title: str) -> None:
    """Values (D, exponents) over D."""
    d = record.config["dimensions"]
    for of_spectrum, look in zip(values.T, _looks(record)):
        axes.plot(d, of_spectrum, **look)
    described(axes, xticks=d, xlabel="dimension D", ylabel=label, title=title)


def longest_minimum(curvature: np.ndarray) -> int:
    """The largest N, from 1, up to which the curvature (lengths,) at the spurious point is positive; 0 for none."""
    positive = curvature > 0
    return len(positive) if positive.all() else int(np.argmin(positive))


def _reached(axes: Axes, record: Record) -> None:
    """Share of starts that end at the optimum under the flat and the steepest spectrum."""
    scales, ended = record.config["scales"], every(record, ENDED) == OPTIMUM
    shortest, looks = int(np.argmin(record.config["lengths"])), _looks(record)
    for i in (0, len(looks) - 1):
        axes.plot(scales, ended[:, i, :, shortest].mean(axis=(0, 2)), **looks[i])
    axes.set(xscale="log", ylim=(-0.03, 1.03), xlabel="scale of the start", ylabel="share of starts, all D")
    described(axes, title=f"starts that end at the optimum, N = {record.config['lengths'][shortest]}")


def _pair(axes: Axes, record: Record) -> None:
    """Where the starts with the two eigenvalues ``pair`` end, over their scale."""
    scales, ended = record.config["scales"], PAIR(record, of="ended")
    places = (("optimum", "#0072B2", ""), ("spurious minimum", "#D55E00", "//"), ("elsewhere", "#777777", ".."))
    left = np.zeros(len(scales))
    for where, (label, color, hatch) in enumerate(places):
        share = (np.minimum(ended, MIXED) == where).mean(axis=1)
        axes.barh(range(len(scales)), share, left=left, color=color, hatch=hatch, label=label, alpha=0.8, height=0.6)
        left += share
    axes.set_yticks(range(len(scales)), [f"{s:g}" for s in scales])
    axes.grid(False)
    eigenvalues = ", ".join(f"{value:g}" for value in record.config["pair"])
    title = rf"$\Lambda$ = diag({eigenvalues}), N = {record.config['pair_length']}, {ended.shape[1]} starts"
    described(axes, title=title, xlabel="share of starts", ylabel="scale of the start")
