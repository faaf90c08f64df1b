"""Claims of ``landscape``, and what they read off its record."""

from collections.abc import Callable

import numpy as np

from experiments.statistics import Statistic
from experiments.zhang_frei_bartlett.landscape_figures import MIXED, OPTIMUM, SPURIOUS, UNRESOLVED
from icl_lab.lab import NotRun, Record, claims_of


def at_scale(record: Record, scale: float) -> int:
    """Index of a scale of the starts; ``NotRun`` where it is not among them."""
    scales = list(record.config["scales"])
    if scale not in scales:
        raise NotRun(f"scale {scale:g}")
    return scales.index(scale)


def reached(where: int, scale: float) -> Statistic:
    """(M,) whether a start with the two eigenvalues ``pair`` ended there."""
    return lambda record: record["pair/ended"][at_scale(record, scale)] == where


def caught(record: Record) -> np.ndarray:
    """(cells,) whether more than a tenth end at the spurious minimum, scales from .1 on; NaN where it is a saddle."""
    large = np.array(record.config["scales"]) >= 0.1
    parts = []
    for d in record.config["dimensions"]:
        minimum = np.stack([record[f"dimension_{d}/curvature"][:, n - 1] > 0 for n in record.config["lengths"]], -1)
        share = (record[f"dimension_{d}/ended"] == SPURIOUS).mean(axis=-1)[:, large]
        parts.append(np.where(minimum[:, None], share > 0.1, np.nan).ravel())
    if (cells := np.concatenate(parts)).size == 1:
        raise NotRun("more than one cell of starts")
    return cells


def pooled(found: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Statistic:
    """(flows,) of all dimensions, ``found(ended, is the spurious point a minimum)`` of each cell, joined."""

    def statistic(record: Record) -> np.ndarray:
        lengths, parts = record.config["lengths"], []
        for d in record.config["dimensions"]:
            curvature = record[f"dimension_{d}/curvature"]
            minimum = np.stack([curvature[:, n - 1] > 0 for n in lengths], axis=-1)[:, None, :, None]
            ended = record[f"dimension_{d}/ended"]
            parts.append(found(ended, np.broadcast_to(minimum, ended.shape)).ravel())
        return np.concatenate(parts)

    return statistic


def race_told(scale: float | None = None) -> Statistic:
    """(flows,) whether the race out of the origin predicts the end of a start of a scale, None for the smallest."""

    def statistic(record: Record) -> np.ndarray:
        one = at_scale(record, min(record.config["scales"]) if scale is None else scale)
        names = [f"dimension_{d}" for d in record.config["dimensions"]]
        told = [(record[f"{name}/told"] == (record[f"{name}/ended"] == OPTIMUM))[:, one] for name in names]
        return np.concatenate([cell.ravel() for cell in told])

    return statistic


def race_error(record: Record) -> np.ndarray:
    """(flows,) whether a start of the smallest scale reached the optimum, less the predicted probability."""
    first, parts = int(np.argmin(record.config["scales"])), []
    for d in record.config["dimensions"]:
        reached = record[f"dimension_{d}/ended"][:, first] == OPTIMUM
        parts.append((reached - record[f"dimension_{d}/predicted"][:, first, :, None]).ravel())
    return np.concatenate(parts)


def race_shares(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Share of the starts of the smallest scale that reached the optimum, and the predicted one, in every cell."""
    first, names = int(np.argmin(record.config["scales"])), record.config["dimensions"]
    reached = [(record[f"dimension_{d}/ended"][:, first] == OPTIMUM).mean(axis=-1).ravel() for d in names]
    return np.concatenate(reached), np.concatenate(
        [record[f"dimension_{d}/predicted"][:, first].ravel() for d in names]
    )


def race_spread(record: Record) -> np.ndarray:
    """(cells,) squared difference of the shares less the binomial variance of the observed one."""
    share, predicted = race_shares(record)
    if share.size < 2:
        raise NotRun("second cell of the grid")
    return (share - predicted) ** 2 - predicted * (1 - predicted) / record.config["members"]


def flat_less_steep(scale: float | None = None) -> Statistic:
    """(flows,) reached the optimum: flat less steepest spectrum, shortest prompts, all D; scale as ``race_told``."""

    def statistic(record: Record) -> np.ndarray:
        config = record.config
        one, length = (
            at_scale(record, min(config["scales"]) if scale is None else scale),
            int(np.argmin(config["lengths"])),
        )
        flat, steep = int(np.argmin(config["exponents"])), int(np.argmax(config["exponents"]))
        ended = [record[f"dimension_{d}/ended"][:, one, length] == OPTIMUM for d in config["dimensions"]]
        return np.concatenate([cell[flat].astype(float) - cell[steep] for cell in ended])

    return statistic


def above_spurious(where: int) -> Statistic:
    """(flows,) loss at the end less the closed-form spurious one, of what there is to gain; NaN for other ends."""

    def statistic(record: Record) -> np.ndarray:
        cells = [record[name] for name in (*(f"dimension_{d}" for d in record.config["dimensions"]), "pair")]
        return np.concatenate([np.where(cell["ended"] == where, cell["above"], np.nan).ravel() for cell in cells])

    return statistic


def highest_mixed(record: Record) -> np.ndarray:
    """(1,) the largest of these at a mixed minimum; (0,) where no flow ends at one."""
    found = above_spurious(MIXED)(record)
    return np.sort(found[~np.isnan(found)])[-1:]


_claim = claims_of("zhang_frei_bartlett.landscape", unit="flow")
_LAB = "this lab"

CLAIMS = (
    *(
        _claim(
            f"pair_{scale:g}", _LAB,
            f"Lam = diag(1.5, .5), N = 6, dense starts of scale {scale:g}: the share at the spurious minimum is that "
            "of the race out of the origin (control: the share that ends at a mixed minimum).",
            reached(SPURIOUS, scale), share, 0.08, interval="wilson", control=reached(MIXED, scale),
            reason="the interval of 400 starts is .05 to either side; what the race leaves out is 1 % at .02",
        )
        for scale, share in ((0.001, 0.487), (0.02, 0.492))  # 1 - race_probability, threshold .998
    ),
    _claim(
        "spurious_loss", _LAB,
        "Ends at the spurious minimum have its closed-form loss (distance, of what there is to gain).",
        lambda record: np.abs(above_spurious(SPURIOUS)(record)), 0.0, 1e-6, relation="<=",
        reason="the flow converges to 1e-6 in the weights, quadratically in the loss; an end counts from 1e-4 on",
        kind="identity",
    ),
    _claim(
        "only_minima", _LAB,
        "No start ends at a spurious point that is a saddle by its closed-form curvature (share; control: where it is "
        "a minimum).",
        pooled(lambda ended, minimum: np.where(minimum, np.nan, ended == SPURIOUS)), 0.01, 0.0, relation="<=",
        interval="wilson", control=pooled(lambda ended, minimum: np.where(minimum, ended == SPURIOUS, np.nan)),
        reason="none is expected; a slow escape may leave a few at the horizon", kind="identity",
    ),
    _claim(
        "minima_attract", _LAB,
        "Where the spurious point is a minimum more than a tenth of the dense starts of scale .1 and more end in it "
        "(share of cells of D, spectrum, scale and N).",
        caught, 0.9, 0.0, relation=">=", interval="wilson", unit="cell",
        reason="all are expected to; the interval needs 37 of 37",
    ),
    _claim(
        "nowhere_else", _LAB,
        "Where the spurious point is a minimum, every start ends there or at the optimum (share at mixed minima; "
        "control: where it is a saddle).",
        pooled(lambda ended, minimum: np.where(minimum, ended == MIXED, np.nan)), 0.01, 0.0, relation="<=",
        interval="wilson", control=pooled(lambda ended, minimum: np.where(minimum, np.nan, ended == MIXED)),
        reason="none is expected: mixed minima branch off where the spurious point turns into a saddle",
    ),
    _claim(
        "mixed", _LAB,
        "Mixed minima lie below the spurious point (loss less the spurious one, of what there is to gain; the largest "
        "of all flows that end at one: those of one covariance end at the same).",
        highest_mixed, 0.0, 0.0, relation="<=", interval="exact",
        reason="an ordering: the flow reaches them from the neighbourhood of the spurious point, downhill",
    ),
    _claim(
        "resolved", _LAB,
        "Every start ends at a minimum: the optimum, the spurious point, or a point with a vanishing gradient and a "
        "positive semidefinite Hessian (share of the others).",
        pooled(lambda ended, _: ended == UNRESOLVED), 0.01, 0.0, relation="<=", interval="wilson",
        reason="none is expected; a slow mode may leave a few on their way at the horizon", kind="identity",
    ),
    _claim(
        "race", _LAB,
        "At the smallest scale the share that reaches the optimum is that of the race out of the origin (mean "
        "difference over all D, spectra and N).",
        race_error, 0.0, 0.03, reason="the race is exact as the scale goes to zero; .001 is not zero",
    ),
    _claim(
        "race_cells", _LAB,
        "That holds in every cell (mean over D, spectra and N of the squared difference of shares, less the variance "
        "that the number of starts explains; control: squared differences from one half).",
        race_spread, 0.0, 0.0025, unit="cell", reason="a root mean square of .05",
        control=lambda record: (race_shares(record)[0] - 0.5) ** 2,
    ),
    _claim(
        "race_each", _LAB,
        "At the smallest scale the race out of the origin, computed from the initial weights, predicts where each "
        "start ends (share).",
        race_told(), 0.98, 0.0, relation=">=", interval="wilson",
        reason="the threshold is known to 2 %, which leaves less than 1 % of starts undecided",
    ),
    _claim(
        "race_ends", _LAB,
        "The race decides small starts only: at scale .5 it predicts fewer than nine of ten ends (control: at .02).",
        race_told(0.5), 0.9, 0.0, relation="<=", interval="wilson", control=race_told(0.02),
        reason="a start of that size is no longer in the linear regime near the origin",
    ),
    _claim(
        "flat_is_safer", _LAB,
        "A small start reaches the optimum more often under a flat spectrum than under the steepest, where the two "
        "modes grow at nearly one rate (difference of shares, shortest prompts, over all D).",
        flat_less_steep(), 0.0, 0.0, relation=">=", reason="an ordering",
    ),
    _claim(
        "flat_is_no_safer", _LAB,
        "At scale .5 the flat spectrum reaches it less often: there is no race, and more minima (the same difference).",
        flat_less_steep(0.5), 0.0, 0.0, relation="<=", reason="an ordering, the reverse one",
    ),
)  # fmt: skip
