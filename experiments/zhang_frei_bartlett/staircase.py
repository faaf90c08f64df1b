"""Saddle to saddle, one principal component after another, or all at once (Zhang, Singh, Latham & Saxe 2025).

Population gradient flow from small starts, with separate or with merged keys and queries, for the attention of Zhang,
Frei & Bartlett 2023. With H heads of rank one, y_hat = sum_h value_h (beta^T key_h)(query_h^T x_q), there are 2^D fixed
points in function space, and the loss falls in D steps: regression on m principal components in context, m = 1, 2, ..
Levels and final scales of the heads are closed forms; when each plateau ends follows from the initial weights alone.
Merged matrices leave the origin once, after a time ln(1/w) / |Lam^2|_F for a start of size w, and have no second
plateau. With keys and queries of rank R a head learns R components together: plateaus only where R divides m.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator

import numpy as np

from experiments.onsets import crossing
from experiments.settings import Members
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_least, at_most, holds, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The released settings, on the population loss instead of 5,000 prompts."""

    members: int = setting(64, "initialisations, separate and merged", at_least=2)
    context_length: int = setting(31, "N, labelled examples in a prompt", at_least=1)
    spectrum: tuple[float, ...] = setting((0.4, 0.3, 0.2, 0.1), "eigenvalues of the covariance", above=0)
    heads: int = setting(5, "H of separate keys and queries of rank one", at_least=1)
    init_scale: float = setting(0.01, "standard deviation of the start of separate keys and queries", above=0)
    horizon: float = setting(
        1e5, "time of the flow of separate keys and queries; merged matrices: a hundredth", above=0
    )
    merged_heads: int = setting(8, "H of merged matrices", at_least=1)
    merged_scales: tuple[float, ...] = setting(
        (1e-6, 1e-5, 1e-4, 1e-3), "sizes w of the start of merged matrices", above=0
    )
    rank_dimension: int = setting(8, "D of the figure over ranks; eigenvalues fall linearly, trace 1", at_least=2)
    rank_heads: int = setting(9, "H of the figure over ranks", at_least=1)
    ranks: tuple[int, ...] = setting((1, 2, 4, 8), "R of the figure over ranks", at_least=1)
    rank_members: int = setting(13, "initialisations of the figure over ranks", at_least=1)
    rank_scale: float = setting(0.005, "standard deviation of these initialisations", above=0)
    rank_horizon: float = setting(2e5, "time of the flows of the figure over ranks", above=0)
    samples: int = setting(1500, "times at which a flow is read", at_least=10)


PRESETS = {
    "smoke": Config(
        members=2, spectrum=(0.7, 0.3), heads=2, horizon=3000.0, merged_heads=2, merged_scales=(1e-4, 1e-3),
        rank_dimension=2, rank_heads=2, ranks=(1,), rank_members=1, rank_scale=0.05, rank_horizon=500.0, samples=200,
    ),
    "quick": Config(members=6, rank_dimension=4, rank_heads=5, ranks=(1, 2), rank_members=3, rank_horizon=5e4,
                    samples=600),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

DRAWN = slice(4, None, 5)
"""Readings of the losses that no claim reads, only a figure: every fifth, so that the record is small."""

CONSTRAINTS = (
    once("merged_scales", "ranks"),
    holds(
        "two or more values that fall",
        "spectrum",
        when=lambda c: len(c.spectrum) >= 2 and all(a > b for a, b in itertools.pairwise(c.spectrum)),
    ),
    holds("a head for each component", "heads", "spectrum", when=lambda c: c.heads >= len(c.spectrum)),
    at_least("rank_heads", "rank_dimension"),
    holds("two or more, whose slope is taken", "merged_scales", when=lambda c: len(c.merged_scales) >= 2),
    at_most("ranks", "rank_dimension"),
)

TIMES, LEVELS, LOSS = quantity("times", "time"), quantity("levels", "level"), quantity("loss", "member", "time")
END, REGROWTH = quantity("end", "member"), quantity("regrowth", "member")
TOUCHED = quantity("touched", "member", "plateau")
COMPONENT = quantity(
    "{of}", "member", "component", of=("halves", "order", "scales", "predicted_order", "predicted_halves")
)
MERGED_TIMES = quantity("merged/times", "merged_time")
MERGED_LOSS = quantity("merged/loss", "member", "merged_scale", "merged_time")
MERGED = quantity("merged/{of}", "member", "merged_scale", of=("halves", "regrowth"))
RANK_TIMES, RANK_LEVELS = quantity("ranks/times", "rank_time"), quantity("ranks/levels", "rank_level")
RANK_LOSS = quantity("ranks/loss/{rank}", "rank_member", "rank_time", rank="ranks")


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The flows of all three figures and what the theory says of each."""
    total = 2 + len(config.ranks)
    with fits.bar("flows", total) as advance:
        yield _separate(config)
        advance(1, total)
        yield {"merged": _merged(config)}
        advance(2, total)
        falling = np.arange(config.rank_dimension, 0.0, -1.0)
        covariance = np.diag(falling / falling.sum())
        yield RANK_TIMES, _times(config.rank_horizon, config.samples)
        yield RANK_LEVELS, theory.staircase_levels(covariance, config.context_length)
        for done, rank in enumerate(config.ranks):
            yield RANK_LOSS.at(rank=rank), _of_rank(config, rank, covariance)
            advance(3 + done, total)


def _start(rng: np.random.Generator, scale: float, members: int, heads: int, rank: int, size: int) -> dict:
    shapes = {"value": (members, heads), "key": (members, heads, rank, size), "query": (members, heads, rank, size)}
    return {name: scale * rng.standard_normal(shape) for name, shape in shapes.items()}


def _times(last: float, samples: int) -> np.ndarray:
    return np.geomspace(last * 1e-4, last, samples)


def _separate(config: Config) -> dict[str, np.ndarray]:
    """Flows of rank one: loss, when half of each component is learned, how near each plateau is touched, scales."""
    covariance, n = np.diag(config.spectrum), config.context_length
    size, times = len(config.spectrum), _times(config.horizon, config.samples)
    start = _start(np.random.default_rng((config.seed, 1)), config.init_scale, config.members, config.heads, 1, size)
    flow = theory.gradient_flow(start, covariance, n, times, atol=1e-4 * config.init_scale**2)
    value, key, query = (flow.path[name] for name in ("value", "key", "query"))
    g = np.diag(theory.gamma(covariance, n))
    shares = value[..., None] * key[..., 0, :] * query[..., 0, :] * g  # (M, S, H, D) share of a component in a head
    learned = np.moveaxis(shares.sum(axis=2), 1, 2)  # (M, D, S)
    halves = _crossing(times, learned - 0.5)
    order = np.argsort(halves, axis=1)
    levels = theory.staircase_levels(covariance, n)
    gains = np.diff(levels)  # of each component, negative
    ends = np.sort(halves, axis=1)
    touched = np.empty((config.members, size - 1))
    for m in range(1, size):  # where the flow is slowest between two drops
        between = (times > ends[:, m - 1, None]) & (times < ends[:, m, None])
        slowest = np.where(between, flow.gradient, np.inf).argmin(axis=1)
        resting = np.take_along_axis(flow.loss, slowest[:, None], axis=1)[:, 0]
        level = levels[0] + np.take(gains, order[:, :m]).sum(axis=1)
        touched[:, m - 1] = np.where(between.any(axis=1), np.abs(resting - level), np.nan)
    owner = shares[:, -1].argmax(axis=1)  # (M, D) head that holds each component
    scales = np.abs(np.take_along_axis(value[:, -1], owner, axis=1))
    predicted = [
        theory.escape_times(start["value"][m], start["key"][m, :, 0], start["query"][m, :, 0], covariance, n)
        for m in range(config.members)
    ]
    return {
        "times": times[DRAWN],
        "levels": levels,
        "loss": flow.loss[:, DRAWN],
        "halves": ends,
        "order": order,
        "touched": touched / (levels[0] - levels[-1]),
        "regrowth": _regrowth(times, flow, ends[:, 0], levels[-1] + 1e-3 * (levels[0] - levels[-1])),
        "end": (flow.loss[:, -1] - levels[-1]) / (levels[0] - levels[-1]),
        "scales": scales / theory.head_scales(covariance, n),
        "predicted_order": np.array([components for components, _ in predicted]),
        "predicted_halves": np.array([halves for _, halves in predicted]),
    }


def _regrowth(times: np.ndarray, flow: theory.Flow, after: np.ndarray, until: float) -> np.ndarray:
    """(M,) largest factor by which the gradient grows again, from a time until the loss is near its end.

    One where the flow only slows down; a second drop after a plateau makes it large.
    """
    counted = (times > after[:, None]) & (flow.loss > until)
    slowest = np.minimum.accumulate(np.where(counted, flow.gradient, np.inf), axis=1)
    return np.where(counted, flow.gradient / slowest, 1.0).max(axis=1)


def _crossing(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(...) first time at which values (..., S) reach 0, between samples linearly; NaN where never."""
    found = crossing(values, times, 0.0)
    return np.where(np.isfinite(found), found, np.nan)


def _merged(config: Config) -> dict[str, np.ndarray]:
    """Merged flows from the same directions at every size: loss, and the time at which half is gained."""
    covariance, n = np.diag(config.spectrum), config.context_length
    size, heads, members = len(config.spectrum), config.merged_heads, config.members
    rng = np.random.default_rng((config.seed, 2))
    unit = {"u": rng.standard_normal((members, heads)), "u11": rng.standard_normal((members, heads, size, size))}
    best, zero = (theory.principal_components_loss(covariance, n, m) for m in (size, 0))
    by_scale = []
    times = np.linspace(0, config.horizon / 100, config.samples + 1)[1:]
    for w in config.merged_scales:
        start = {name: w * value for name, value in unit.items()}
        flow = theory.gradient_flow(start, covariance, n, times, atol=1e-4 * w)
        halves = _crossing(times, (zero + best) / 2 - flow.loss)
        regrowth = _regrowth(times, flow, halves, best + 1e-3 * (zero - best))
        by_scale.append({"loss": flow.loss[:, DRAWN], "halves": halves, "regrowth": regrowth})
    return {"times": times[DRAWN]} | {name: np.stack([one[name] for one in by_scale], axis=1) for name in by_scale[0]}


def _of_rank(config: Config, rank: int, covariance: np.ndarray) -> np.ndarray:
    """Loss (M, S) of heads of a rank."""
    times = _times(config.rank_horizon, config.samples)
    rng = np.random.default_rng((config.seed, 3, rank))
    start = _start(rng, config.rank_scale, config.rank_members, config.rank_heads, rank, config.rank_dimension)
    flow = theory.gradient_flow(
        start, covariance, config.context_length, times, solver="explicit", atol=1e-4 * config.rank_scale**2,
        max_steps=2_000_000,
    )  # fmt: skip
    return flow.loss


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.staircase", __doc__, PRESETS, measured,
    (TIMES, LEVELS, LOSS, END, REGROWTH, TOUCHED, COMPONENT, MERGED_TIMES, MERGED_LOSS, MERGED, RANK_TIMES,
     RANK_LEVELS, RANK_LOSS), constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
