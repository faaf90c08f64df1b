"""Shelf, cliff and saddle: the landscape of induction-head learning (Reddy 2023, Figs. 7 and A.4).

Three logits, each inside the next: beta_1 of layer 1, alpha of layer 2, xi of the read-out. The simplified loss and the
exact mean field of the reduced model, over (beta_1, alpha) at several xi, with the gradient flow from the origin on it;
nothing is trained.

- L > N: the origin has a slope, along xi alone. The loss rests on a shelf until the three logits reinforce one another,
  and falls off its end in a time much shorter than the wait. The wait grows with N and as N/L -> 1; for the simplified
  form it is (2 pi)^(1/4) (2N+1)^(3/2) (1 - N/L)^(-1/2) (``icl_lab.theory.cliff_time_limit``). Here this lab differs
  from the paper, whose slow phase goes down to log N, some label of the context, before the cliff: with equal rates of
  the three logits, which the flow has, the shelf ends with less than half of the way from log L to log N gone.
- L = N: the origin is a strict saddle, left after log(1/s) over its rate from a start of size s, towards attention to
  the right label or away from it (both solve the task); from random starts the time is predicted one by one.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.settings import Members
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import above, holds, once, rising
from icl_lab.lab.quantities import Quantity, quantity
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.theory.nested_logits.loss import FORMS

LOSSES: dict[str, Callable[..., Any]] = {"simplified": theory.nested_logit_loss, "mean_field": theory.mean_field_loss}
LEVELS = (0.9, 0.5)
"""Of log N: top and middle of the cliff."""

DIFFERENCE = 1e-3
"""Step of the numerical derivatives at the origin."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Fig. 7 at the paper's N and L; members are random starts at L = N."""

    members: int = setting(200, "random starts at L = N", at_least=1)
    context_length: int = setting(8, "N of the maps", at_least=2)
    labels: int = setting(32, "L of the maps with L > N", at_least=3)
    resolution: int = setting(61, "points along each side of a map", at_least=3)
    read_outs: tuple[float, ...] = setting((1.0, 4.0, 7.0), "xi of the maps over (beta_1, alpha), rising", above=0)
    lengths: tuple[int, ...] = setting((4, 8, 16, 32), "N of the waits, rising", at_least=2)
    factors: tuple[float, ...] = setting((1.125, 1.5, 2.0, 4.0, 16.0), "L / N of the waits, rising", above=1)
    scales: tuple[float, ...] = setting((1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6), "starts at L = N, falling", above=0)
    saddle_lengths: tuple[int, ...] = setting((2, 4, 8), "N of the waits at L = N, with that of the maps", at_least=2)
    start_scale: float = setting(0.01, "standard deviation of the random starts", above=0)


PRESETS = {
    "smoke": Config(
        members=4, context_length=2, labels=4, resolution=5, read_outs=(1.0, 4.0), lengths=(2, 3), factors=(2.0, 4.0),
        scales=(1e-1, 1e-2), saddle_lengths=(2,),
    ),
    "quick": Config(members=50, resolution=41, lengths=(4, 8), factors=(1.125, 2.0, 4.0), scales=(1e-1, 1e-2, 1e-3),
        saddle_lengths=(4, 8),
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


def _of_form(name: str, *axes: str) -> Quantity:
    return quantity(f"{{form}}/{name}", *axes, form=tuple(FORMS))


BETA_1, ALPHA, PLANE = quantity("beta_1", "beta_1"), quantity("alpha", "alpha"), quantity("plane", "plane")
WAIT_LIMIT, WAIT_LABELS = (quantity(name, "length", "factor") for name in ("wait_limit", "wait_labels"))
PLANE_MAP = _of_form("plane_map", "plane_xi", "plane_alpha")
MAP = _of_form("map", "read_out", "alpha", "beta_1")
EQUAL_MAP = _of_form("equal_map", "read_out", "alpha", "beta_1")
EQUAL_PATHS = _of_form("equal_paths", "start", "time", "parameter")
PATH = _of_form("path", "time", "parameter")
LENGTHS_LOSS = _of_form("lengths_loss", "length", "time")
LOSS = _of_form("loss", "time")
TIMES = _of_form("times", "time")
WAIT = _of_form("wait", "level", "length", "factor")
SADDLE_SLOPE = _of_form("saddle_slope", "saddle_length", "parameter")
SADDLE_RATE_ERROR = _of_form("saddle_rate_error", "saddle_length")
RATE = _of_form("rate", "saddle_length")
ESCAPE = _of_form("escape", "saddle_length", "direction", "scale")
SLOPE = _of_form("slope", "setting", "parameter")
SLOPE_ERROR = _of_form("slope_error", "setting")
RANDOM = _of_form("random", "member")
RANDOM_PREDICTED = _of_form("random_predicted", "member")
RANDOM_ALONG = _of_form("random_along", "member")


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Maps, paths, waits and escapes of both forms."""
    with fits.bar("forms", len(FORMS)) as advance:
        for i, form in enumerate(FORMS):
            yield {form: _maps(config, form) | _paths(config, form) | _waits(config, form) | _saddle(config, form)}
            advance(i + 1, len(FORMS))
    n, labels = _cells(config)
    yield WAIT_LIMIT, theory.cliff_time_limit(n, labels).reshape(len(config.lengths), -1)
    yield WAIT_LABELS, labels.reshape(len(config.lengths), -1)
    yield _axes(config)


def _axes(config: Config) -> dict[str, np.ndarray]:
    """Where the maps are: beta_1 and alpha of those at fixed xi; alpha and xi of the plane beta_1 = 0."""
    points = config.resolution
    return {
        "beta_1": np.linspace(-1.0, 7.0, points),
        "alpha": np.linspace(-1.0, 9.0, points),
        "plane": np.linspace(-4.0, 4.0, points),
    }


def _maps(config: Config, form: str) -> dict[str, np.ndarray]:
    axes, loss, n = _axes(config), LOSSES[form], config.context_length
    grid = (axes["beta_1"][None], axes["alpha"][:, None])
    maps = {
        name: np.stack([loss(*grid, xi, context_length=n, labels=labels) for xi in config.read_outs])
        for name, labels in (("map", config.labels), ("equal_map", n))
    }
    plane = axes["plane"]
    return maps | {"plane_map": loss(0.0, plane[None], plane[:, None], context_length=n, labels=n)}


def _paths(config: Config, form: str) -> dict[str, np.ndarray]:
    """Flows from the origin at L > N, that of the maps and of every N at L = 4N; from around the origin at L = N."""
    n, lengths = config.context_length, np.array(config.lengths)
    around = np.array([(0.0, 0.3, 0.3), (0.0, -0.3, -0.3), (0.0, 1.2, -1.0), (0.0, -1.0, 1.2)])
    starts = np.concatenate([around, np.zeros((1 + len(lengths), 3))])
    sizes = np.concatenate([[n] * len(around), [n], lengths])
    labels = np.concatenate([[n] * len(around), [config.labels], 4 * lengths])
    times = np.concatenate([[0.0], np.geomspace(1.0, 4000.0, 400)])
    flow = theory.nested_logit_flow(starts, times, context_length=sizes, labels=labels, form=form)
    k = len(around)
    return {
        "times": times,
        "path": flow.path[k],
        "loss": flow.loss[k],
        "lengths_loss": flow.loss[k + 1 :],
        "equal_paths": flow.path[:k],
    }


def _cells(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """(cells,) N and L of the waits."""
    n, labels = np.array([(n, math.ceil(factor * n)) for n in config.lengths for factor in config.factors]).T
    return n, labels


def _waits(config: Config, form: str) -> dict[str, np.ndarray]:
    """Times at which the flow from the origin passes the levels, and the slope at the origin by differences."""
    n, labels = _cells(config)
    times = theory.escape_time(
        np.zeros(3), np.repeat(LEVELS, len(n)) * np.log(np.tile(n, len(LEVELS))),
        context_length=np.tile(n, len(LEVELS)), labels=np.tile(labels, len(LEVELS)), form=form,
    )  # fmt: skip
    times = times.reshape(len(LEVELS), len(config.lengths), -1)
    slopes = np.array([_derivatives(form, *cell)[0] for cell in zip(n, labels)])
    closed = np.array([theory.nested_logit_gradient(*cell)[2] for cell in zip(n, labels)])
    return {"wait": times, "slope": slopes, "slope_error": slopes[:, 2] / closed - 1}


def _saddle(config: Config, form: str) -> dict[str, np.ndarray]:
    """At L = N: rate and slope of the origin by differences, escapes from small starts, and from random ones."""
    lengths, scales = np.array(config.saddle_lengths), np.array(config.scales)
    measured = [_derivatives(form, n, n) for n in lengths]
    rates = -np.array([theory.nested_logit_hessian(n, n, form)[1, 2] for n in lengths])
    context_lengths = np.repeat(lengths, 2 * len(scales))
    signed = np.tile(np.concatenate([scales, -scales]), len(lengths))
    starts = np.stack([0 * signed, signed, signed], axis=1)
    times = theory.cliff_time(starts, context_length=context_lengths, labels=context_lengths, form=form)
    times = times.reshape(len(lengths), 2, -1)  # towards the right label, away from it
    n = config.context_length
    drawn = np.asarray(jax.random.normal(jax.random.key(config.seed), (config.members, 3)), np.float64)
    drawn = config.start_scale * drawn
    along = drawn[:, 1:].mean(axis=1)
    index = list(lengths).index(n)
    last = np.where(along > 0, times[index, 0, -1], times[index, 1, -1])
    return {
        "saddle_slope": np.array([gradient for gradient, _ in measured]),
        "saddle_rate_error": np.array([-mixed for _, mixed in measured]) / rates - 1,
        "rate": rates,
        "escape": times,
        "random": theory.cliff_time(drawn, context_length=n, labels=n, form=form),
        "random_predicted": last + np.log(scales[-1] / np.abs(along)) / rates[index],
        "random_along": along,
    }


def _derivatives(form: str, n: int, labels: int) -> tuple[np.ndarray, float]:
    """(3,) gradient and the alpha-xi entry of the Hessian at the origin, by central differences of the loss."""
    steps = DIFFERENCE * np.concatenate([np.eye(3), -np.eye(3)])
    corners = DIFFERENCE * np.array([(0, 1, 1), (0, -1, -1), (0, 1, -1), (0, -1, 1)])
    points = np.concatenate([steps, corners])
    losses = LOSSES[form](*points.T, context_length=int(n), labels=int(labels))
    gradient = (losses[:3] - losses[3:6]) / (2 * DIFFERENCE)
    return gradient, float(losses[6] + losses[7] - losses[8] - losses[9]) / (4 * DIFFERENCE**2)


def _labels_differ(config: Config) -> bool:
    """Whether every N has another number of labels at each factor."""
    counts = [[math.ceil(factor * n) for factor in config.factors] for n in config.lengths]
    return all(len(set(row)) == len(row) for row in counts)


EXPERIMENT = Experiment(
    "reddy.landscape", __doc__, PRESETS, measured,
    (
        BETA_1, ALPHA, PLANE, WAIT_LIMIT, WAIT_LABELS, PLANE_MAP, MAP, EQUAL_MAP, EQUAL_PATHS, PATH, LENGTHS_LOSS, LOSS,
        TIMES, WAIT, SADDLE_SLOPE, SADDLE_RATE_ERROR, RATE, ESCAPE, SLOPE, SLOPE_ERROR, RANDOM, RANDOM_PREDICTED,
        RANDOM_ALONG,
    ),
    constraints=(
        above("labels", "context_length"),
        rising("read_outs", "lengths", "factors", fewest=2),
        holds("at least 2 values that fall", "scales",
              when=lambda c: len(c.scales) > 1 and list(c.scales) == sorted(set(c.scales), reverse=True)),
        once("saddle_lengths"),
        holds("values with --context_length among them", "saddle_lengths", "context_length",
              when=lambda c: c.context_length in c.saddle_lengths),
        holds("factors that give each N different numbers of labels", "factors", "lengths", when=_labels_differ),
    ),
    effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
