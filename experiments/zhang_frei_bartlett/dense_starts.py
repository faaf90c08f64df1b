"""Dense initial weights of usual size: which flows reach the optimum, and what SGD and Adam do (this lab).

``landscape`` follows the flow from small starts. Here the eigenvalues are those of the other binaries, and the standard
deviation of every entry goes up to 1/sqrt(D), as in a usual initialisation. The map shows the share of flows that end
at the optimum over scale and prompt length; the spurious point (see ``landscape``) is a minimum for N <= 5 at these
eigenvalues. Then SGD and Adam train on fresh prompts at such a length: from the spurious minimum itself, all other
entries at a hundredth, and from the dense starts of the largest scale, each paired with the flow from the same start. A
training counts as at the optimum where its exact loss is nearer to the optimal than to the spurious one.
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import numpy as np
import optax

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett import paths
from experiments.zhang_frei_bartlett.common import Tasks, covariance, lsa
from experiments.zhang_frei_bartlett.landscape import CLASSES, Cell, ends_of, starts_of
from icl_lab import theory
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield

OPTIMIZERS = {"sgd": optax.sgd, "adam": optax.adam}
STARTS = ("spurious", "dense")
STAGES = {f"{name}_{start}": (name, start) for name in OPTIMIZERS for start in STARTS}
SHIFT = 0.01
"""Standard deviation of what is added to the spurious minimum."""


@dataclasses.dataclass(frozen=True)
class Config(Tasks):
    """The map, and trainings at one prompt length; the paper has no experiment of this kind."""

    members: int = setting(16, "trainings of each kind", at_least=2)
    context_length: int = setting(5, "N of the trainings, at which the spurious point is a minimum", at_least=1)
    scales: tuple[float, ...] = setting((0.02, 0.1, 0.2, 0.447), "standard deviations of the entries, rising", above=0)
    lengths: tuple[int, ...] = setting((2, 5, 10, 20, 40), "N of the map, rising", at_least=1)
    starts: int = setting(50, "flows in every cell of the map", at_least=2)
    horizon: float = setting(1e5, "time at which a flow is judged", above=0)
    batch: int = setting(256, "fresh prompts in a step", at_least=1)
    steps: int = setting(4000, "training steps, a multiple of measurements", at_least=1)
    sgd_rate: float = setting(0.01, "rate of SGD at the start; it falls to zero as a cosine", above=0)
    adam_rate: float = setting(0.01, "rate of Adam at the start; it falls to zero as a cosine", above=0)
    measurements: int = setting(40, "measurements of every path", at_least=2)


PRESETS = {
    "smoke": Config(members=2, spectrum=(1.0, 0.5), context_length=2, scales=(0.1, 0.5), lengths=(2, 4), starts=2,
                    horizon=100.0, batch=8, steps=4, measurements=2),
    "quick": Config(members=2, scales=(0.1, 0.447), lengths=(5, 20), starts=10, batch=64, steps=400),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


CONSTRAINTS = (
    rising("scales", "lengths", fewest=2),
    multiple_of("steps", "measurements"),
    holds(
        "N at which the spurious point is a minimum", "context_length",
        when=lambda c: theory.spurious_curvature(covariance(c), c.context_length) > 0,
    ),
)  # fmt: skip


STEPS, FLOW = quantity("steps", "step"), quantity("flow", "member")
ENDED = quantity("ended", "length", "scale", "start")
LOSS = quantity("{optimizer}_{start}", "member", "step", optimizer=tuple(OPTIMIZERS), start=STARTS)


def trainings(config: Config) -> Table:
    """The same layer by each optimizer from each kind of start."""
    layer, rates = lsa(len(config.spectrum), max(config.scales)), {"sgd": config.sgd_rate, "adam": config.adam_rate}
    starts = {"spurious": _spurious(config), "dense": {name: blocks[0] for name, blocks in _dense(config).items()}}
    weights = {start: jax.vmap(linear_attention_weights)(**blocks) for start, blocks in starts.items()}
    return {
        stage: paths.planned(
            config, layer, paths.scheduled(OPTIMIZERS[name], config.steps), keys=member_keys(config), rate=rates[name],
            starts=weights[start], batch=config.batch, steps=config.steps,
            measure_every=config.steps // config.measurements,
        )
        for stage, (name, start) in STAGES.items()
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The map by flows; the trainings, and the flows from their dense starts."""
    lam, n, every = covariance(config), config.context_length, config.steps // config.measurements
    cells: list[Cell] = [(lam, scale, length) for length in config.lengths for scale in config.scales]
    with fits.bar("map", 1) as advance:
        starts = starts_of(cells, config.starts, np.random.default_rng((config.seed, 0)))
        ends = ends_of(cells, starts, config.horizon)
        advance(1, 1)
    yield ENDED, ends["ended"].reshape(len(config.lengths), len(config.scales), config.starts)
    yield FLOW, ends_of([_cell(config)], _dense(config), config.horizon)["ended"][0]
    best, spurious = theory.optimal_loss(lam, n), theory.spurious_loss(lam, n)
    for stage, (name, start) in STAGES.items():
        excess = paths.excess_losses({stage: paths.blocks_of(fits[stage])}, config)[stage]
        yield LOSS.at(optimizer=name, start=start), ((excess + 1) * best - best) / (spurious - best)
    yield STEPS, every * np.arange(config.measurements + 1)
    yield "facts", {"classes": list(CLASSES)}


def _cell(config: Config) -> Cell:
    return covariance(config), config.scales[-1], config.context_length


def _dense(config: Config) -> dict[str, np.ndarray]:
    """Blocks (1, M, ...) of the largest scale."""
    return starts_of([_cell(config)], config.members, np.random.default_rng((config.seed, 1)))


def _spurious(config: Config) -> dict[str, np.ndarray]:
    """Blocks (M, ...) next to the spurious minimum."""
    u11, u, u12, u21 = theory.spurious_point(covariance(config), config.context_length)
    rng = np.random.default_rng((config.seed, 2))
    point = {"u11": u11, "u": np.asarray(u), "u12": u12, "u21": u21}
    return {name: b + SHIFT * rng.standard_normal((config.members, *np.shape(b))) for name, b in point.items()}


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.dense_starts", __doc__, PRESETS, measured, (STEPS, FLOW, ENDED, LOSS), trainings=trainings,
    constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
