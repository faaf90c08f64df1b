"""Families of spectral filters, by their residual factor r(l) = 1 - l h(l); eigenvalues and rates in units.

Formulas are those of the solvers of the same names (``icl_lab.solvers``), on one eigenvalue.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import FILTER, Family, Key, Model, Parameter, filter_family, filtered, of_filters
from icl_lab.identify.probes import Battery

RATE = Parameter("learning_rate", 1e-3, 10.0, eigenvalue=-1)
GAMMA = Parameter("gamma", 1e-4, 3.0, eigenvalue=-1, examples=-1)
MOMENTUM = Parameter("momentum", 1e-3, 0.98)


def gd(l: Floats, steps: int, *rates: Floats) -> Floats:  # noqa: E741
    """(1 - e l)^K, or with a rate a step prod_k (1 - e_k l)."""
    if len(rates) == 1:
        return (1 - (1 - rates[0] * l) ** steps) / l
    return (1 - np.prod([1 - e * l for e in rates], axis=0)) / l


def heavy_ball(l: Floats, steps: int, e: Floats, m: Floats) -> Floats:  # noqa: E741
    """Repeats u <- m u + l r, r <- r - e u."""
    r, u = np.ones_like(l), np.zeros_like(l)
    for _ in range(steps):
        u = m * u + l * r
        r = r - e * u
    return (1 - r) / l


def nesterov(l: Floats, steps: int, e: Floats, m: Floats) -> Floats:  # noqa: E741
    """Repeats a = r + m (r - before), r <- a (1 - e l)."""
    before = r = np.ones_like(l)
    for _ in range(steps):
        before, r = r, (r + m * (r - before)) * (1 - e * l)
    return (1 - r) / l


def chebyshev(l: Floats, steps: int, high: Floats, ratio: Floats) -> Floats:  # noqa: E741
    """T_K((b + a - 2 l) / (b - a)) / T_K((b + a) / (b - a)), a = ratio b, by the recurrence of T_K."""
    values = []
    for z in (1 - 2 * (l / high - ratio) / (1 - ratio), (1 + ratio) / (1 - ratio)):
        before, now = np.ones_like(z), z
        for _ in range(steps - 1):
            before, now = now, 2 * z * now - before
        values.append(now)
    return (1 - values[0] / values[1]) / l


def gd_plus_plus(l: Floats, steps: int, *numbers: Floats) -> Floats:  # noqa: E741
    """The recurrence of ``icl_lab.theory.residual_factor``; shared (e, g), or e_1 .. e_K and g_1 .. g_(K - 1)."""
    separate = len(numbers) > 2
    r, seen = np.ones_like(l), l
    for k in range(steps):
        e, g = (numbers[k], numbers[steps + k] if k < steps - 1 else 0.0) if separate else numbers
        r, seen = r * (1 - e * seen), seen * (1 - g * seen) ** 2
    return (1 - r) / l


def newton(l: Floats, steps: int, a: Floats) -> Floats:  # noqa: E741
    """From a I: (1 - a l)^(2^K)."""
    return (1 - (1 - a * l) ** 2**steps) / l


def newton_covariance(l: Floats, steps: int, a: Floats) -> Floats:  # noqa: E741
    """From a S: (1 - a l^2)^(2^K)."""
    return (1 - (1 - a * l**2) ** 2**steps) / l


def newton_normalised(l: Floats, steps: int, a: Floats) -> Floats:  # noqa: E741
    """From a S / l_max^2: h depends on the largest eigenvalue of the context."""
    return newton_covariance(l, steps, a / l.max(-1, keepdims=True) ** 2)


def ridge(l: Floats, steps: int, k: Floats) -> Floats:  # noqa: E741
    """Residual factor k / (l + k)."""
    return 1 / (l + k)


def flow(l: Floats, steps: int, t: Floats) -> Floats:  # noqa: E741
    """exp(-t l)."""
    return -np.expm1(-t * l) / l


def least_squares(l: Floats, steps: int) -> Floats:  # noqa: E741
    """Residual factor 0."""
    return 1 / l


def _own(name: str, response, steps: int, parameters: tuple[Parameter, ...], gammas: int) -> Model:
    """A model whose steps have parameters of their own, started from shared ones and from one step fewer.

    Any polynomial without a constant term is l h(l) of such rates (of real roots), also a multiple of one.
    """

    ramps = [np.exp(power * np.linspace(-1, 1, steps)) for power in (0.05, 0.5, -0.5)]

    def warm(fitted: Mapping[Key, Floats]) -> Sequence[Floats]:
        starts = []
        if (name, steps, False) in fitted:
            shared = fitted[name, steps, False]
            starts += [np.concatenate([shared[0] * ramp, np.full(gammas, shared[-1])]) for ramp in ramps]
        before = fitted.get((name, steps - 1, True), fitted.get((name, 1, False)) if steps == 2 else None)
        if before is not None:
            e, g = np.split(before, [steps - 1])
            for small in (0.05 * e.mean(), 0.3 * e.mean()):
                more = [1e-2] * (gammas > 0)
                starts += [np.concatenate([[small], e, more, g]), np.concatenate([e, [small], g, more])]
        return starts

    return Model(
        name, steps, parameters, filtered(response, steps), own=True, starts=24 if steps >= 3 else 12, warm=warm,
        scaled=True,
    )  # fmt: skip


def trace_normalised(theta: Floats, on: Battery, *, steps: int) -> Floats:
    """GD with rates over the mean squared input of the context: h depends on the trace, so it is no filter."""
    size = (on.x**2).mean((1, 2))
    h = gd(on.plain.eigenvalues[None], steps, theta[:, :1, None] / np.where(size > 0, size, 1)[None, :, None])
    return (on.plain.weights @ h[..., None])[..., 0]


def _from_gd(fitted: Mapping[Key, Floats], steps: int) -> Sequence[Floats]:
    """Shared GD with a little of the second parameter."""
    shared = fitted.get(("GD", steps, False))
    return [] if shared is None else [np.array([shared[0], second]) for second in (3e-3, 0.1, 0.5)]


def _one_step(name: str) -> Model:
    """A single step, which is that of GD and holds any gain."""
    return dataclasses.replace(filter_family(name, [RATE], gd, steps=(1,)).models[0], scaled=True)


def _stepwise(name: str, response, second: Parameter, steps: Sequence[int]) -> Family:
    """GD with one more number; its single step is that of GD."""
    more = filter_family(name, [RATE, second], response, steps=steps, warm=_from_gd)
    return of_filters(name, (_one_step(name), *more.models))


def _gd_family() -> Family:
    shared = filter_family("GD", [RATE], gd, steps=(2, 3, 4, 5, 6, 7, 8, 10, 12, 16)).models
    separate = tuple(_own("GD", gd, k, (RATE,) * k, 0) for k in (2, 3, 4, 5))
    return of_filters("GD", (_one_step("GD"), *shared, *separate), ("Newton", "heavy ball", "Chebyshev"))


def _real_roots(theta: Floats) -> tuple[str, ...]:
    """Two shared steps of GD++ are four steps of GD where e >= 27 g / 4: then all roots of r are real and positive."""
    return ("GD",) if theta[0] >= 27 / 4 * theta[1] else ()


def _gdpp_family() -> Family:
    shared = _stepwise("GD++", gd_plus_plus, GAMMA, (2, 3, 4, 5, 6, 8, 10, 12)).models
    shared = tuple(dataclasses.replace(one, also=_real_roots) if one.steps == 2 else one for one in shared)
    separate = tuple(_own("GD++", gd_plus_plus, k, (RATE,) * k + (GAMMA,) * (k - 1), k - 1) for k in (2, 3, 4, 5))
    return of_filters("GD++", shared + separate, ("GD",))


def _chebyshev_family() -> Family:
    high = Parameter("high", 0.05, 1e3, eigenvalue=1)
    ratio = Parameter("low over high", 1e-3, 0.98)
    more = filter_family("Chebyshev", [high, ratio], chebyshev, steps=(2, 3, 4, 5, 6, 8, 10)).models
    return of_filters("Chebyshev", (_one_step("Chebyshev"), *more))


MOMENTUM_STEPS = (2, 3, 4, 5, 6, 8, 10)
TIME = Parameter("time", 1e-3, 1e3, eigenvalue=-1)
STRENGTH = Parameter("strength", 1e-4, 1e3, eigenvalue=1, examples=1)
START = Parameter("start", 1e-3, 2.0, eigenvalue=-1)
START_COVARIANCE = Parameter("start", 1e-4, 2.0, eigenvalue=-2)

FILTERS = (
    _gd_family(),
    _gdpp_family(),
    filter_family("ridge", [STRENGTH], ridge, contains=["least squares"]),
    filter_family("least squares", [], least_squares),
    filter_family("gradient flow", [TIME], flow, contains=["least squares"]),
    _stepwise("heavy ball", heavy_ball, MOMENTUM, MOMENTUM_STEPS),
    _stepwise("Nesterov", nesterov, MOMENTUM, MOMENTUM_STEPS),
    _chebyshev_family(),
    filter_family("Newton", [START], newton, steps=(1, 2, 3, 4, 5, 6)),
    filter_family("Newton from covariance", [START_COVARIANCE], newton_covariance, steps=(1, 2, 3, 4, 5, 6)),
    filter_family(
        "normalised Newton", [Parameter("start", 0.05, 2.0)], newton_normalised, steps=(1, 2, 3, 4, 5, 6, 8),
        contains=["least squares"],
    ),
    Family(
        "trace-normalised GD",
        tuple(
            Model("trace-normalised GD", k, (Parameter("learning_rate", 1e-3, 10.0),),
                  functools.partial(trace_normalised, steps=k), scaled=k == 1)
            for k in (1, 2, 3, 4, 5, 6, 8, 10)
        ),
        FILTER, ("centred_rotation",),
    ),
)  # fmt: skip
