"""From one initialisation: gradient flow, population GD, minibatch SGD and Adam (Zhang, Frei & Bartlett 2023, Thm 4.1).

The flow ends at u U11 = Gam^-1 and keeps the balance b = u^2 - |U11|_F^2, so that u ends at |Gam^-1|_F^(1/2). Training
ends at the same product, but at a much smaller u. Two causes, measured separately here:

- Minibatch noise. (u, U11) -> (c u, U11 / c) changes no prediction, so a step of SGD changes b by exactly eta^2
  (|g_r|^2 - |g_K|^2): noise moves b at a rate eta / B times a function of the weights, known in closed form
  (``icl_lab.theory.flows.balance``; at a finite eta, where the weights fluctuate around the optimum,
  ``icl_lab.theory.flows.fluctuations``), measured here over batch sizes and learning rates from the optimum. Two
  consequences: the loss is so curved along u21 (which the flow never moves) at large u, and along u at small u, that
  SGD of a given rate is stable only between two values of u; and among equivalent weights it drifts, from either side,
  to those with the least noise. The same noise leaves the product a few per cent off, in proportion to 1 / B: half the
  batch is trained.
- Adam divides every entry of the gradient by its own size, so its steps are not along the gradient of any loss: it
  breaks the balance on exact population gradients too, at any learning rate; noise adds to it.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett import paths as path_of
from experiments.zhang_frei_bartlett.common import Tasks, block_product, covariance, lsa
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab import Experiment, FlagError, main, setting
from icl_lab.lab.constraints import multiple_of, once
from icl_lab.lab.quantities import Quantity, quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.theory import gradient_flow, optimum
from icl_lab.theory.flows.balance import edge_rate, mean_field, quiet_scale
from icl_lab.theory.flows.fluctuations import optimum_moments, scale_course, stable


@dataclasses.dataclass(frozen=True)
class Config(Tasks):
    """Trainings from Assumption 3.3 (the paper has none), and where batch noise takes weights that are optimal."""

    init_scale: float = setting(0.1, "sigma of the initialisation u = sigma, U11 = sigma Theta Theta^T", above=0)
    batch: int = setting(256, "fresh prompts in a step of SGD and Adam", at_least=1)
    sgd_rate: float = setting(0.02, "rate of SGD and population GD at the start; it falls to zero as a cosine", above=0)
    sgd_steps: int = setting(8000, "steps of SGD and population GD", at_least=1)
    adam_rate: float = setting(0.01, "rate of Adam at the start; it falls to zero as a cosine", above=0)
    adam_steps: int = setting(6000, "steps of Adam", at_least=1)
    measurements: int = setting(80, "measurements of every path", at_least=2)
    flow_time: float = setting(4000.0, "time at which the flow's limit is read", above=0)
    drift_batches: tuple[int, ...] = setting(
        (32, 64, 128, 256, 512, 1024), "batches of the drift from the optimum", at_least=1
    )
    drift_rates: tuple[float, ...] = setting((0.00025, 0.0005, 0.001, 0.002, 0.004), "rates of the drift", above=0)
    drift_time: float = setting(2.0, "flow time of the drift: learning rate times steps", above=0)
    quiet_starts: tuple[float, ...] = setting((0.25, 0.7), "u at the optimum from which SGD drifts for long", above=0)
    quiet_batch: int = setting(128, "batch of the long drift; the rate is that of SGD", at_least=1)
    quiet_steps: int = setting(32_000, "steps of the long drift", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, spectrum=(1.0, 0.5), context_length=4, batch=16, sgd_steps=20, adam_steps=20, measurements=2,
        flow_time=400.0, drift_batches=(16,), drift_rates=(0.01,), drift_time=0.1,
        quiet_starts=(0.5, 1.0), quiet_batch=16, quiet_steps=20,
    ),
    "quick": Config(
        members=2, sgd_steps=1000, adam_steps=1000, measurements=40, drift_batches=(64, 256),
        drift_rates=(0.0005, 0.001, 0.004), drift_time=1.0, quiet_steps=1000,
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


PATHS = ("sgd", "gd", "slow_gd", "adam", "exact_adam", "slow_exact_adam", "mean_field")
COURSE = ("u", "balance", "error", "excess")
TIME = quantity("{path}/time", "time", path=PATHS)
PATH = quantity("{path}/{of}", "member", "time", path=PATHS, of=COURSE)
FLOW_TIME, FLOW = quantity("flow/time", "flow_time"), quantity("flow/{of}", "member", "flow_time", of=COURSE)
GAP, ORDER = quantity("flow/gap", "member"), quantity("order", "member")
DRIFT, PREDICTED = quantity("drift", "member", "batch", "rate"), quantity("drift_predicted", "batch", "rate")
QUIET_TIME, QUIET = quantity("quiet/time", "quiet_time"), quantity("quiet/u", "member", "start", "quiet_time")


def course_of(path: str) -> tuple[Quantity, Quantity]:
    """Times of a path, and what is measured at them; the flow has times of its own."""
    return (FLOW_TIME, FLOW) if path == "flow" else (TIME.at(path=path), PATH.at(path=path))


def trainings(config: Config) -> Table:
    """The same layer by SGD and Adam from one initialisation, and by SGD from weights that are optimal."""
    layer, table = lsa(len(config.spectrum), config.init_scale), {}
    for name, (transformation, rate, steps) in _optimizers(config).items():
        table[name] = path_of.planned(
            config, layer, path_of.scheduled(transformation, steps), keys=member_keys(config), rate=rate,
            batch=config.batch, steps=steps, measure_every=steps // config.measurements,
        )  # fmt: skip
    starts = _optimal_weights(config, np.full(config.members, _flow_scale(config)))
    drift = [round(config.drift_time / rate) for rate in config.drift_rates]
    for i, batch in enumerate(config.drift_batches):
        for j, rate in enumerate(config.drift_rates):
            table[_drift_stage(batch, rate)] = path_of.planned(
                config, layer, optax.sgd, keys=member_keys(config, 100 + len(drift) * i + j), starts=starts, rate=rate,
                batch=batch, steps=drift[j], measure_every=math.gcd(*drift),
            )  # fmt: skip
    us, steps = config.quiet_starts, config.quiet_steps
    table["quiet"] = path_of.planned(
        config, layer, optax.sgd, keys=member_keys(config, 900, config.members * len(us)),
        starts=_optimal_weights(config, np.tile(us, config.members)), rate=config.sgd_rate, batch=config.quiet_batch,
        steps=steps, measure_every=steps // config.measurements,
    )  # fmt: skip
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """All paths from one initialisation for each member; the drift from the optimum over batches and rates."""
    lam, n = covariance(config), config.context_length
    times, paths = _paths(config, fits)
    start, every = path_of.start_of(paths["sgd"]), config.sgd_steps // config.measurements
    flows = _flow(config, {name: times[name] for name in ("gd", "slow_gd")}, start)
    yield ORDER, np.log2(_distance(paths["gd"], flows["gd"]) / _distance(paths["slow_gd"], flows["slow_gd"]))
    rates = _cosine(config.sgd_rate, config.sgd_steps)
    fields = [mean_field(a, u, lam, n, rates, config.batch, every) for a, u in zip(start["u11"], start["u"])]
    paths["mean_field"] = path_of.merged_path(*(np.stack([f[name] for f in fields]) for name in ("product", "u")))
    paths["flow"] = {name: np.concatenate([flows["gd"][name], flows["limit"][name]], axis=1) for name in start}
    times |= {"mean_field": times["sgd"], "flow": np.append(times["gd"], config.flow_time)}
    excess = path_of.excess_losses(paths, config)
    for name, path in paths.items():
        time, course = course_of(name)
        measures = {"u": path["u"], "balance": path_of.balance(path), "error": path_of.product_error(path, config)}
        yield time, times[name]
        yield course, measures | {"excess": excess[name]}
    yield GAP, np.abs(block_product(flows["limit"])[:, 0] - _best(config)).max((1, 2))
    yield from _drifts(config, fits)
    facts = {
        "flow_scale": _flow_scale(config),
        "quiet_scale": quiet_scale(lam, n),
        "edge_rate": float(edge_rate(_flow_scale(config), lam, n)),
        "edge_scale": math.sqrt(edge_rate(1.0, lam, n, config.batch) / config.sgd_rate),
    }
    yield "facts", facts


CONSTRAINTS = (
    *(multiple_of(name, "measurements") for name in ("sgd_steps", "adam_steps", "quiet_steps")),
    once("drift_batches", "drift_rates", "quiet_starts"),
)


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    quiet, starts = quiet_scale(covariance(config), config.context_length), config.quiet_starts
    if len(starts) != 2 or not starts[0] < quiet < starts[1]:
        raise FlagError(
            f"--quiet_starts={','.join(map(str, starts))}: allowed are two values, one below and one above the u of "
            f"least gradient noise, {quiet:.3g}"
        )
    trained = config.sgd_rate * config.sgd_steps
    if config.flow_time <= trained:
        raise FlagError(f"--flow_time={config.flow_time:g}: allowed is more than SGD's rate times steps, {trained:g}")
    for rate in config.drift_rates:
        steps = config.drift_time / rate
        if abs(steps - round(steps)) > 1e-6 * steps:
            raise FlagError(
                f"--drift_rates={rate:g}: allowed is a rate of which --drift_time is a whole number of steps"
            )
    moments = optimum_moments(covariance(config), config.context_length)
    for u, name, rate, batch in (
        (_flow_scale(config), "drift_rates", max(config.drift_rates), min(config.drift_batches)),
        *((u, "sgd_rate", config.sgd_rate, config.quiet_batch) for u in config.quiet_starts),
    ):
        if not stable(moments, u, rate, batch):
            raise FlagError(f"--{name}={rate:g}: allowed are rates at which SGD of batch {batch} stays at u = {u:.3g}")


def _best(config: Tasks) -> np.ndarray:
    return optimum(covariance(config), config.context_length)


def _flow_scale(config: Tasks) -> float:
    """u* = |Gam^-1|_F^(1/2), the limit of the flow."""
    return float(np.linalg.norm(_best(config)) ** 0.5)


def _optimizers(config: Config) -> dict[str, tuple[Callable, float, int]]:
    """Transformation, rate at the start and steps of the trainings from one initialisation."""
    return {
        "sgd": (optax.sgd, config.sgd_rate, config.sgd_steps),
        "adam": (optax.adam, config.adam_rate, config.adam_steps),
    }


def _distance(path: path_of.Path, flow: path_of.Path) -> np.ndarray:
    """(M,) largest distance of an entry of the product to the flow's."""
    return np.abs(block_product(path) - block_product(flow)).max((1, 2, 3))


def _paths(config: Config, fits: Fits) -> tuple[dict[str, np.ndarray], dict[str, path_of.Path]]:
    """Times (rates added up) and paths of SGD and Adam: on batches, on exact gradients, and on these more slowly."""
    times, paths = {}, {}
    for name, (transformation, rate, steps) in _optimizers(config).items():
        paths[name] = path_of.blocks_of(fits[name])
        start, (exact, slower) = path_of.start_of(paths[name]), {"sgd": ("gd", 2), "adam": ("exact_adam", 10)}[name]
        for one, one_rate, one_steps in ((exact, rate, steps), (f"slow_{exact}", rate / slower, slower * steps)):
            optimizer, every = path_of.scheduled(transformation, one_steps)(one_rate), one_steps // config.measurements
            paths[one] = path_of.population_path(start, config, optimizer, one_steps, every)
            times[one] = np.append(0.0, np.cumsum(_cosine(one_rate, one_steps)))[::every]
        times[name] = times[exact]
    return times, paths


def _flow(config: Config, times: dict[str, np.ndarray], start: dict[str, np.ndarray]) -> dict[str, path_of.Path]:
    """Gradient flow at the times of other paths, by name, and at ``flow_time``: ``limit``."""
    times = times | {"limit": np.array([config.flow_time])}
    every = np.unique(np.concatenate([*times.values()]))
    merged = {name: start[name] for name in ("u", "u11")}
    lam, n = covariance(config), config.context_length
    solution = gradient_flow(merged, lam, n, every[1:], rtol=1e-8, atol=1e-11).path
    path = {name: np.concatenate([value[:, None], solution[name]], axis=1) for name, value in merged.items()}
    whole = path_of.merged_path(path["u"][..., None, None] * path["u11"], path["u"])
    at = {name: np.searchsorted(every, t) for name, t in times.items()}
    return {name: {block: value[:, index] for block, value in whole.items()} for name, index in at.items()}


def _cosine(rate: float, steps: int) -> np.ndarray:
    """Learning rate of every step."""
    return rate * (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2


def _drift_stage(batch: int, rate: float) -> str:
    return f"drift_{batch}_{rate:g}"


def _optimal_weights(config: Config, scales: Any) -> dict:
    """Optimal weights (M, ...) of the layer with these u (M,)."""
    best = _best(config)
    return jax.vmap(lambda u: linear_attention_weights(best / u, u))(jnp.asarray(scales, float))


def _drifts(config: Config, fits: Fits) -> Iterator[Yield]:
    """The balance at the drift time from the flow's limit, measured and predicted; u over the long drift.

    That is the u of the optimal weights whose balance SGD has reached. It is computed from the balance, which does not
    fluctuate with the product; the layer's own u does.
    """
    cells = [(batch, rate) for batch in config.drift_batches for rate in config.drift_rates]
    paths = [path_of.blocks_of(fits[_drift_stage(*cell)]) for cell in cells]
    shape = len(config.drift_batches), len(config.drift_rates)
    yield DRIFT, np.stack([path_of.balance(path)[:, -1] for path in paths], axis=1).reshape(-1, *shape)
    u, lam, squares = _flow_scale(config), covariance(config), (_best(config) ** 2).sum()
    ends = np.array(
        [scale_course([config.drift_time], u, lam, config.context_length, rate, batch)[0] for batch, rate in cells]
    )
    yield PREDICTED, (ends**2 - squares / ends**2).reshape(shape)
    b = path_of.balance(path_of.blocks_of(fits["quiet"])).reshape(config.members, len(config.quiet_starts), -1)
    every = config.quiet_steps // config.measurements
    yield QUIET_TIME, config.sgd_rate * every * np.arange(config.measurements + 1)
    yield QUIET, np.sqrt((b + np.sqrt(b**2 + 4 * squares)) / 2)


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.gradient_flow", __doc__, PRESETS, measured,
    (TIME, PATH, FLOW_TIME, FLOW, GAP, ORDER, DRIFT, PREDICTED, QUIET_TIME, QUIET), trainings=trainings,
    constraints=CONSTRAINTS, check=check,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
