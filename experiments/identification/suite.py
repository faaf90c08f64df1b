"""The planted suite: learners whose algorithm is known, on prompts of many sizes and distributions.

Rates and strengths are drawn in units in which the mean eigenvalue of X^T X / N is 1; a rate is so small that no step
is beyond 1.6 over the largest eigenvalue of a typical prompt. Every distribution below was written before the suite
was run. How learners are disturbed: ``disturbances``.
"""

import dataclasses
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab import solvers
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Learner, Prompt, Sampler, gaussian_regression, linear_regression

LAYERS = 5
NETWORK = LinearSelfAttention(layers=LAYERS)
SIZES = tuple((d, n) for d in (2, 5, 10) for n in (5, 10, 20, 40))
INPUTS = ("uniform", "normal", "power law")
NOISE = (0.0, 0.1, 0.5)
DISTURBANCES = ("smooth", "gain", "shrinkage", "tilt", "mixture")
OF_WEIGHTS = ("couplings", "training")
Rng = np.random.Generator
Build = Callable[[Any], Callable[[Prompt], Array]]


@dataclasses.dataclass(frozen=True)
class Law:
    """Training prompts: D, N, distribution of the inputs, and label noise over the size of the labels without it."""

    d: int = 5
    n: int = 10
    inputs: str = "uniform"
    noise: float = 0.0

    @property
    def unit(self) -> float:
        """Mean eigenvalue of X^T X / N."""
        power_law = float((1 / np.arange(1, self.d + 1)).mean())
        return {"uniform": 1 / 12, "normal": 1.0, "power law": power_law}[self.inputs]

    @property
    def label(self) -> float:
        """Standard deviation of the labels, without noise."""
        return (self.d * self.unit) ** 0.5


@lru_cache(64)
def sampler(law: Law) -> Sampler:
    """The prompts of a distribution; tasks are standard normal."""
    noise = law.noise * law.label
    if law.inputs == "power law":
        covariance = np.diag(1 / np.arange(1, law.d + 1)).astype(np.float32)
        return gaussian_regression(context_length=law.n, covariance=covariance, label_noise=noise)
    return linear_regression(context_length=law.n, input_size=law.d, input_law=law.inputs, label_noise=noise)


@cache
def largest(law: Law) -> float:
    """Median of the largest eigenvalue of X^T X / N, in units."""
    rng = np.random.default_rng(0)
    size = (400, law.n, law.d)
    x = rng.uniform(-0.5, 0.5, size) if law.inputs == "uniform" else rng.normal(size=size)
    if law.inputs == "power law":
        x = x / np.arange(1, law.d + 1) ** 0.5
    return float(np.median(np.linalg.svd(x, compute_uv=False)[:, 0] ** 2)) / law.n / law.unit


@dataclasses.dataclass(frozen=True)
class Planted:
    """A learner with a known algorithm, or an outsider.

    Attributes:
      family: its name in ``FAMILIES``; of an outsider its kind.
      inside: it is none of the outsiders.
      build: ``parameters -> batch of prompts -> (B, 1)``, one and the same function for all learners of a program.
      params: what it is given.
      law: the prompts of its training.
      numbers: how many parameters it has.
      disturbance: one of ``DISTURBANCES``, or of ``OF_WEIGHTS`` where it is built as weights.
    """

    family: str
    inside: bool
    build: Build
    params: Any
    law: Law = Law()
    numbers: int = 0
    disturbance: str = "smooth"


def log_uniform(rng: Rng, low: float, high: float, size: int | None = None) -> Any:
    """Log-uniform draws."""
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


@cache
def one_prompt(make: Callable[..., Learner], *static: Any) -> Build:
    """A solver of one prompt as a function of parameters and a batch; the same object for the same arguments."""
    return lambda params: jax.vmap(make(params, *static))


def network(params: Any) -> Callable[[Prompt], Array]:
    """The network that carries every construction: five layers, of which those with zero weights do nothing."""
    return batch_learner(NETWORK, params)


def weights(rates: np.ndarray, gammas: np.ndarray, law: Law) -> dict:
    """GD++ as weights, rates and gammas in units; layers after the last one are zero."""
    filled = [np.concatenate([v, np.zeros(LAYERS - len(v))]) for v in (rates / law.unit, gammas / law.unit / law.n)]
    built = gd_plus_plus_weights(*(jnp.asarray(v) for v in filled), context_length=law.n, input_size=law.d)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), built)


MAKE: dict[str, Callable[..., Learner]] = {
    "heavy ball": lambda p, steps: solvers.heavy_ball(p[0], p[1], steps),
    "Nesterov": lambda p, steps: solvers.nesterov(p[0], p[1], steps),
    "Chebyshev": lambda p, steps: solvers.chebyshev(p[0], p[1], steps),
    "Newton from covariance": lambda p, steps: solvers.newton(p[0], steps, of="covariance"),
    "ridge": lambda p: solvers.ridge(p[0]),
    "least squares": lambda p: solvers.least_squares(),
    "gradient flow": lambda p: solvers.gradient_flow(p[0]),
    "preconditioned GD": solvers.preconditioned_gradient_descent,
    "centred GD": lambda p, steps: solvers.centred(solvers.gradient_descent(p[0], steps)),
    "centred GD + mean": lambda p, steps: solvers.centred(solvers.gradient_descent(p[0], steps), add_mean=True),
    "centred ridge + mean": lambda p: solvers.centred(solvers.ridge(p[0]), add_mean=True),
    "conjugate gradients": lambda p, steps: solvers.conjugate_gradients(steps),
    "noise-adaptive ridge": lambda p: solvers.noise_adaptive_ridge(p[0] * (p[1] / p[0]) ** jnp.linspace(0, 1, 9)),
    "kernel smoothing": lambda p: solvers.gaussian_smoothing(p[0], p[1]),
    "softmax regression": lambda p: solvers.softmax_regression(p[0], p[1]),
    "LMS": lambda p: solvers.lms(p[0]),
    "normalised LMS": lambda p: solvers.lms(p[0], normalised=True),
    "RLS with forgetting": lambda p: solvers.recursive_least_squares(p[0], p[1]),
    "leaky LMS": lambda p: solvers.leaky_lms(p[0], p[1]),
    "weighted ridge": lambda p: solvers.weighted_ridge(p[0], p[1], p[2]),
    "ridge with an intercept": lambda p: solvers.with_intercept(solvers.ridge(p[0])),
    "least squares with an intercept": lambda p: solvers.with_intercept(solvers.least_squares()),
    "median regression": lambda p: solvers.median_regression(),
    "Huber regression": lambda p: solvers.huber_regression(p[0]),
    "trace-normalised GD": lambda p, steps: solvers.trace_normalised_gradient_descent(p[0], steps),
}
"""Solvers of an array of parameters, by the name that is right for them."""

NAMES = ("GD", "GD++", *MAKE)


def parameters(name: str, rng: Rng, law: Law, i: int) -> tuple[Any, ...]:
    """Parameters of a solver, and numbers of steps, as ``MAKE`` takes them; the latter depend on the draw i."""
    unit, largest_rate = law.unit, 1.6 / largest(law)  # the largest rate of a step, in units
    draw = lambda low, high: float(log_uniform(rng, low, high))  # noqa: E731
    signed = lambda low, high: float(rng.choice([-1.0, 1.0])) * draw(low, high)  # noqa: E731
    rate = lambda low, high: draw(low, min(high, max(largest_rate, 1.5 * low))) / unit  # noqa: E731
    ridge = lambda: draw(3e-3, 3.0) * unit * law.n  # noqa: E731

    def matrix() -> np.ndarray:
        turn = rng.normal(size=(law.d, law.d))
        turn = (turn + turn.T) / np.linalg.norm(turn + turn.T) * law.d**0.5
        values, vectors = np.linalg.eigh(turn * draw(0.05, 1.0))
        return rate(0.1, 0.8) * vectors @ np.diag(np.exp(values - max(values.max() - 1, 0))) @ vectors.T

    def chebyshev() -> list[float]:
        high = draw(0.8, 1.6) * largest(law) * unit
        return [draw(0.02, 0.5) * high, high]

    def adaptive() -> list[float]:
        low = draw(1e-3, 0.3) * unit * law.n
        return [low, low * draw(1, 1e3)]

    few, some = 2 + i % 5, 1 + i % 4
    drawn: dict[str, Callable[[], tuple[Any, ...]]] = {
        "heavy ball": lambda: ([rate(0.1, 0.8), draw(0.03, 0.8)], few),
        "Nesterov": lambda: ([rate(0.1, 0.8), draw(0.03, 0.8)], few),
        "Chebyshev": lambda: (chebyshev(), few),
        "Newton from covariance": lambda: ([draw(0.125, 1.25) / (largest(law) * unit) ** 2], some),
        "ridge": lambda: ([ridge()],),
        "least squares": lambda: ([],),
        "gradient flow": lambda: ([draw(0.1, 10.0) / unit],),
        "preconditioned GD": lambda: (matrix(), 1 + i % 2),
        "centred GD": lambda: ([rate(0.1, 0.8)], some),
        "centred GD + mean": lambda: ([rate(0.1, 0.8)], some),
        "centred ridge + mean": lambda: ([ridge()],),
        "conjugate gradients": lambda: ([], min(some, law.d)),
        "noise-adaptive ridge": lambda: (adaptive(),),
        "kernel smoothing": lambda: ([draw(0.5, 5.0) * unit**0.5, 1.0],),
        "softmax regression": lambda: ([draw(0.05, 5.0) / unit, signed(0.3, 3.0)],),
        "LMS": lambda: ([draw(0.01, min(0.2, 1 / law.d)) / unit],),
        "normalised LMS": lambda: ([draw(0.1, 1.5)],),
        "RLS with forgetting": lambda: ([draw(0.03, 10.0) * unit, 1 - draw(0.01, min(0.4, 1 / law.d))],),
        "leaky LMS": lambda: ([draw(0.02, min(0.2, 1 / law.d)) / unit, draw(3e-3, 0.3)],),
        "weighted ridge": lambda: ([ridge(), signed(0.05, 4.0), signed(0.05, 6.0)],),
        "ridge with an intercept": lambda: ([ridge()],),
        "least squares with an intercept": lambda: ([],),
        "median regression": lambda: ([],),
        "Huber regression": lambda: ([draw(0.03, 1.0) * law.label],),
        "trace-normalised GD": lambda: ([rate(0.1, 0.8) * unit], some),
    }
    return drawn[name]()


def solver(name: str, rng: Rng, law: Law, i: int, disturbance: str = "smooth") -> Planted:
    """One draw of a family that is built as a solver."""
    params, *static = parameters(name, rng, law, i)
    params = np.asarray(params, np.float32)
    numbers = law.d * (law.d + 1) // 2 if params.ndim == 2 else params.size
    return Planted(name, True, one_prompt(MAKE[name], *static), params, law, numbers, disturbance)


def as_weights(name: str, rng: Rng, law: Law, i: int, disturbance: str) -> Planted:
    """GD, or GD++: odd draws have parameters of their own in every step."""
    both, odd = name == "GD++", i % 2
    steps = int(rng.integers(1 + both, LAYERS + 1))
    low, high = (0.1, 1.0) if both else (0.03, 1.2)
    rates = log_uniform(rng, low, max(min(high, 1.6 / largest(law)), 1.5 * low), steps if odd else 1) * np.ones(steps)
    gammas = both * log_uniform(rng, 0.005, min(0.3, 0.8 / largest(law)), steps if odd else 1) * np.ones(steps)
    numbers = (1 + both) * (steps if odd else 1)
    return Planted(name, True, network, weights(rates, gammas, law), law, numbers, disturbance)


def planted(seed: int, draws: int) -> list[Planted]:
    """Of every family so many draws of its parameters, one family after the other.

    Twelve draws of a family have each size once, and each distribution, noise and disturbance equally often (as far as
    that goes); robust regressions have noisy labels in ten of twelve. Their order is random, by family and seed.
    """
    learners = []
    for place, name in enumerate(NAMES):
        rng = np.random.default_rng([seed, place])
        sizes, inputs, noises, disturbances = (rng.permutation(len(SIZES)) for _ in range(4))
        noise = (
            (NOISE[0], *NOISE[1:], *NOISE[1:], NOISE[2]) if name in ("median regression", "Huber regression") else NOISE
        )
        allowed = (*OF_WEIGHTS, *DISTURBANCES) if name in ("GD", "GD++") else DISTURBANCES
        for i in range(draws):
            k = i % len(SIZES)
            law = Law(*SIZES[int(sizes[k])], INPUTS[inputs[k] % len(INPUTS)], noise[noises[k] % len(noise)])
            make = as_weights if name in ("GD", "GD++") else solver
            learners.append(
                make(name, np.random.default_rng([seed, place, i]), law, i, allowed[disturbances[k] % len(allowed)])
            )
    return learners
