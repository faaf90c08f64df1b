"""Where gradient flow ends from dense starts: the optimum, or another minimum (this lab).

Zhang, Frei & Bartlett 2023 prove that the population flow from u12 = u21 = 0 ends at the optimum. From dense Gaussian
blocks it need not: u12 u21^T = e_1 e_1^T / g_1, which reads one principal component in context, is stationary, and a
local minimum where its ``spurious_curvature`` is positive: for short prompts. Where it is a saddle, mixed minima can
branch off, which use all entries; their loss is below the spurious one and above the optimum. Near the origin two modes
race: that of the optimum grows at rate |Lam^2|_F, that of the spurious point at lam_1^2. This race decides where a
small start ends: its initial weights predict its end, and the distribution of the starts predicts the share that
reaches the optimum. 2,000 flows in every dimension, over a grid of spectra lam_i ~ i^-p (trace D), scales of the start
and prompt lengths.
"""

import dataclasses
import itertools
import sys
import warnings
from collections.abc import Iterator

import numpy as np

from experiments.settings import Members
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield

CLASSES = ("optimum", "spurious", "mixed", "unresolved")
OPTIMUM, SPURIOUS, MIXED, UNRESOLVED = range(4)
CLOSE = 1e-4  # of what there is to gain: how near its loss an end must be to count as optimum or spurious
REST = 1e-6  # norm of the gradient, and Hessian in units of its largest eigenvalue: what counts as a minimum


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The grid; the paper has no experiment of this kind."""

    members: int = setting(63, "starts in every cell of the grid: 32 cells make 2,016 in every dimension", at_least=2)
    dimensions: tuple[int, ...] = setting((2, 3, 4, 5, 6), "D", at_least=2)
    exponents: tuple[float, ...] = setting((0.0, 0.5, 1.0, 2.0), "p of the spectra lam_i ~ i^-p", at_least=0)
    scales: tuple[float, ...] = setting(
        (0.001, 0.02, 0.1, 0.5), "standard deviation of every entry of a start", above=0
    )
    lengths: tuple[int, ...] = setting((2, 6), "N, labelled examples in a prompt", at_least=1)
    pair: tuple[float, float] = setting((1.5, 0.5), "two eigenvalues, tested with more starts", above=0)
    pair_length: int = setting(6, "N of the pair", at_least=1)
    pair_members: int = setting(400, "starts of the pair at every scale", at_least=2)
    curvature_lengths: int = setting(40, "largest N at which the spurious point is classified", at_least=2)
    horizon: float = setting(1e5, "time at which a flow is judged", above=0)


PRESETS = {
    "smoke": Config(members=2, dimensions=(2,), exponents=(0.0,), scales=(0.1,), lengths=(2,), pair_members=2,
                    curvature_lengths=4, horizon=200.0),
    "quick": Config(members=60, dimensions=(2,), exponents=(0.0, 1.0), scales=(0.001,), pair_members=70),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


CONSTRAINTS = (
    once("dimensions", "exponents", "scales", "lengths"),
    holds(
        "at least the largest of --lengths", "curvature_lengths", "lengths",
        when=lambda c: c.curvature_lengths >= max(c.lengths),
    ),
    holds("two eigenvalues", "pair", when=lambda c: len(c.pair) == 2),
)  # fmt: skip


def spectrum(dimension: int, exponent: float) -> np.ndarray:
    """(D,) lam_i ~ i^-p with trace D."""
    values = np.arange(1.0, dimension + 1) ** -exponent
    return values * dimension / values.sum()


ENDS = quantity(
    "dimension_{dimension}/{of}", "exponent", "scale", "length", "member", dimension="dimensions",
    of=("ended", "above", "told"),
)  # fmt: skip
PREDICTED = quantity("dimension_{dimension}/predicted", "exponent", "scale", "length", dimension="dimensions")
CURVATURE = quantity("dimension_{dimension}/curvature", "exponent", "curvature_length", dimension="dimensions")
PAIR = quantity("pair/{of}", "scale", "pair_member", of=("ended", "above"))

Cell = tuple[np.ndarray, float, int]
"""Covariance, standard deviation of every entry of a start, N."""


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The flows of every dimension in one program; the race's prediction; which spurious points are minima."""
    grid = list(itertools.product(config.exponents, config.scales, config.lengths))
    shape = len(config.exponents), len(config.scales), len(config.lengths)
    with fits.bar("flows", len(config.dimensions) + 1) as advance:
        for done, d in enumerate(config.dimensions):
            cells: list[Cell] = [(np.diag(spectrum(d, p)), s, n) for p, s, n in grid]
            starts = starts_of(cells, config.members, np.random.default_rng((config.seed, d)))
            predicted, thresholds = _race(config, d)
            margins = [
                theory.race_margin({name: blocks[i] for name, blocks in starts.items()}, lam, thresholds.flat[i])
                for i, (lam, *_) in enumerate(cells)
            ]
            ends = ends_of(cells, starts, config.horizon) | {"told": np.stack(margins) > 1}
            yield ENDS.at(dimension=d), {name: value.reshape(*shape, -1) for name, value in ends.items()}
            yield PREDICTED.at(dimension=d), predicted
            yield CURVATURE.at(dimension=d), _curvatures(config, d)
            advance(done + 1, len(config.dimensions) + 1)
        cells = [(np.diag(config.pair), s, config.pair_length) for s in config.scales]
        starts = starts_of(cells, config.pair_members, np.random.default_rng((config.seed, 0)))
        yield PAIR, ends_of(cells, starts, config.horizon)
        advance(len(config.dimensions) + 1, len(config.dimensions) + 1)
    pair_minimum = bool(theory.spurious_curvature(np.diag(config.pair), config.pair_length) > 0)
    yield "facts", {"classes": list(CLASSES), "pair_minimum": pair_minimum}


def _curvatures(config: Config, dimension: int) -> np.ndarray:
    """(exponents, lengths) curvature at the spurious point, from N = 1 on."""
    lengths = range(1, config.curvature_lengths + 1)
    covariances = [np.diag(spectrum(dimension, p)) for p in config.exponents]
    return np.array([[theory.spurious_curvature(lam, n) for n in lengths] for lam in covariances])


def starts_of(cells: list[Cell], members: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Blocks (cells, M, ...) of dense starts."""
    d, sizes = len(cells[0][0]), np.array([s for _, s, _ in cells])
    return {
        name: rng.standard_normal((len(cells), members, *axes)) * sizes.reshape(-1, 1, *(1,) * len(axes))
        for name, axes in (("u", ()), ("u11", (d, d)), ("u12", (d,)), ("u21", (d,)))
    }


def ends_of(cells: list[Cell], starts: dict[str, np.ndarray], horizon: float) -> dict[str, np.ndarray]:
    """Ends (cells, M) of the flows from these starts: ``ended``, index into ``CLASSES``, and ``above``.

    ``above`` is the loss less the spurious one, of what there is to gain.
    """
    members = starts["u"].shape[1]
    start = {name: blocks.reshape(-1, *blocks.shape[2:]) for name, blocks in starts.items()}
    covariances = np.repeat([lam for lam, _, _ in cells], members, axis=0)
    with warnings.catch_warnings():  # what still rests at a saddle is counted as unresolved
        warnings.simplefilter("ignore", theory.StableManifoldWarning)
        flow = theory.gradient_flow(start, covariances, np.repeat([n for _, _, n in cells], members), horizon)
    rests = (flow.gradient[:, -1] < REST) & (flow.curvature[:, 0] > -REST * flow.curvature[:, 1])
    loss, minimum = (v.reshape(len(cells), members) for v in (flow.loss[:, -1], rests))
    best, spurious, zero = (
        np.array([loss_of(lam, n) for lam, _, n in cells])[:, None]
        for loss_of in (theory.optimal_loss, theory.spurious_loss, lambda lam, _: np.trace(lam) / 2)
    )
    near = [np.abs(loss - level) < CLOSE * (zero - best) for level in (best, spurious)]
    ended = np.where(near[0], OPTIMUM, np.where(near[1], SPURIOUS, np.where(minimum, MIXED, UNRESOLVED)))
    return {"ended": ended, "above": (loss - spurious) / (zero - best)}


def _race(config: Config, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """(exponents, scales, lengths) probability that a start reaches the optimum, and threshold of the race."""
    cells = list(itertools.product(config.exponents, config.lengths))
    covariances = np.stack([np.diag(spectrum(dimension, p)) for p, _ in cells])
    thresholds = theory.race_threshold(covariances, np.array([n for _, n in cells]), horizon=config.horizon)
    scales, shape = np.array(config.scales), (len(config.exponents), len(config.lengths))
    probabilities = [theory.race_probability(scales, c, lam) for c, lam in zip(thresholds, covariances)]
    predicted = np.reshape(probabilities, (*shape, len(scales))).swapaxes(1, 2)
    return predicted, np.broadcast_to(thresholds.reshape(shape)[:, None], predicted.shape)


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.landscape", __doc__, PRESETS, measured, (ENDS, PREDICTED, CURVATURE, PAIR),
    constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
