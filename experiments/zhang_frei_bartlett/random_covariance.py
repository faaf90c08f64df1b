"""Linear attention trained on random covariances stays at a floor (Zhang, Frei & Bartlett 2023, section 4.3).

Every prompt has its own diag(lambda), lambda_i from one distribution, and the layer learns diag(E lambda_i^2 / gam_i),
the best single A (Theorem 4.5). No single A serves all prompts: as N and M grow the normalised error tends to
1 - m2^2/(m1 m3) (this lab), where least squares has 0 from M = D on. At variances c times as large the floor of Exp(1)
is 1/3, 25.33 and 387 for c = 1, 4, 9, where predicting zero has c. The paper states E[y_hat | x_q, w] = <w, x_q>/3 in
the limit. But the query shares the prompt's covariance, so a large query is evidence of large variances: the factor of
coordinate i is (|x_qi|/sqrt 2 + 1/2)/3, and the slope of y_hat on y is 2/3; 1/3 is right for a query whose covariance
is drawn apart. Floors are computed exactly from the learned A, because samples with heavy tails converge slowly; at
finite M the network itself is sampled too.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, mean_in_chunks, paired_losses
from experiments.zhang_frei_bartlett.common import Setting, planned, predictions, product
from icl_lab.constructions import linear_attention_blocks
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import VARIANCE_LAWS, Sampler, random_covariance_regression
from icl_lab.prompts.gaussian import LARGEST_LOGNORMAL
from icl_lab.solvers import least_squares
from icl_lab.theory.linear_attention import random_covariance as theory

BINS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # of |x| of one coordinate of the query
SCALED = "scaled"  # Exp(1) times the spectrum: coordinates that are not identically distributed


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """The theorem's setting at a small size; the paper trains no linear attention."""

    context_length: int = setting(40, "N, labelled examples in a training prompt", at_least=1)
    spectrum: tuple[float, ...] = setting(
        (2.0, 1.5, 1.0, 0.6, 0.3), "factors of the variances in the training 'scaled'; their number is D", above=0
    )
    laws: tuple[str, ...] = setting(
        ("exponential", "gamma", "uniform", "lognormal"), "distributions of the variances", choices=VARIANCE_LAWS
    )
    shapes: tuple[float, ...] = setting(
        (1.0, 2.0, 1.0, 0.5), "shape of each distribution (gamma and lognormal)", above=0
    )
    scales: tuple[float, ...] = setting((1.0, 4.0, 9.0), "c, factors of the test prompts' Exp(1) variances", above=0)
    test_lengths: tuple[int, ...] = setting((10, 40, 160), "M, labelled examples in a test prompt", at_least=1)
    risk_tasks: int = setting(200_000, "prompts for each risk of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, spectrum=(2.0, 1.0), eval_tasks=32, steps=20, measure_every=10, batch=16,
        laws=("exponential",), shapes=(1.0,), test_lengths=(3, 8), risk_tasks=64,
    ),
    "quick": Config(
        members=6, context_length=20, eval_tasks=500, steps=1500, measure_every=500, batch=128,
        laws=("exponential", "uniform"), shapes=(1.0, 1.0), test_lengths=(10, 80), risk_tasks=30_000,
    ),
    "lab": Config(steps=5000, measure_every=500),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    once("laws", "test_lengths", "scales"),
    as_long_as("laws", "shapes"),
    holds(
        f"at most {LARGEST_LOGNORMAL:g} for lognormal",
        "shapes",
        when=lambda c: all(s <= LARGEST_LOGNORMAL for name, s in zip(c.laws, c.shapes) if name == "lognormal"),
    ),
    holds("a list with exponential, which the paper treats", "laws", when=lambda c: "exponential" in c.laws),
)

SLOPES, BY_BIN = ("slope", "slope_independent"), ("factor", "variance")
TRAINED: dict[str, Any] = {"training": lambda config: (*config["laws"], SCALED)}
EDGES, LEAST_SQUARES = quantity("bins", "edge"), quantity("least_squares", "member", "length")
PRODUCT = quantity("{training}/product", "member", "row", "column", **TRAINED)
LAYER = quantity("{training}/{of}", "member", **TRAINED, of=("u", "excess", "floor"))
RISK = quantity("{training}/risk", "member", "length", "{training}_scale", training="laws")
SLOPE = quantity("exponential/{query}", "member", query=SLOPES)
FACTOR = quantity("exponential/{of}", "member", "bin", of=BY_BIN)


def trainings(config: Config) -> Table:
    """The same layer under every distribution of the variances."""
    return {
        name: planned(config, member_keys(config, stream), sampler=tasks(config, name))
        for stream, name in enumerate((*config.laws, SCALED))
    }


def variances(config: Config, name: str) -> dict[str, Any]:
    """Distribution, shape and scale of the variances of one training."""
    if name == SCALED:
        return {"law": "exponential", "scale": np.asarray(config.spectrum)}
    return {"law": name, "shape": config.shapes[config.laws.index(name)]}


def tasks(config: Config, name: str, **changes: Any) -> Sampler:
    """The task distribution of one training, with changes (a length, a scale)."""
    sizes = {"context_length": config.context_length, "input_size": len(config.spectrum)}
    return random_covariance_regression(**sizes | variances(config, name) | changes)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Exact risks of the learned A, and the network's on prompts of every length."""
    n, d = config.context_length, len(config.spectrum)
    loss, risk = theory.random_covariance_loss, theory.random_covariance_risk
    yield EDGES, np.array(BINS)
    yield LEAST_SQUARES, _least_squares(config)
    for stream, name in enumerate(fits):
        params = fits[name].params
        moments = theory.variance_moments(input_size=d, **variances(config, name))
        a, power = np.asarray(product(params), np.float64), moments[0].sum()
        best = theory.random_covariance_optimum(moments, n)
        yield PRODUCT.at(training=name), a
        layer = {
            "u": np.asarray(linear_attention_blocks(params)["u"]),
            "excess": loss(a, moments, n) / loss(best, moments, n) - 1,
            "floor": risk(a, moments, math.inf) / power,
        }
        yield LAYER.at(training=name), layer
        exact = {
            "moments": moments.tolist(),
            "optimum": np.diag(best).tolist(),
            "floor": float(risk(best, moments, math.inf) / power),
            "failure_law": float(theory.failure_law(moments).mean()),
            "u": theory.random_covariance_scale(moments, n),
        }
        yield "facts", {name: exact}
        if name != SCALED:
            yield RISK.at(training=name), _risks(config, name, params, 900 + stream) / power
        if name == "exponential":
            response = _conditional(config, tasks(config, name), params, member_keys(config, 950))
            yield SLOPE, {one: response[one] for one in SLOPES}
            yield FACTOR, {one: response[one] for one in BY_BIN}


def _risks(config: Config, name: str, params: dict, stream: int) -> np.ndarray:
    """(M, lengths, scales) mean squared errors of the network; only Exp(1) is tested at every scale."""
    scales = np.asarray(config.scales if name == "exponential" else (1.0,))
    learners = lambda params: {"trained": partial(predictions, params)}  # noqa: E731
    keys = member_keys(config, stream)

    def of_length(length: int) -> np.ndarray:
        scaled = lambda scale: tasks(config, name, context_length=length, scale=scale)  # noqa: E731
        return 2 * paired_losses(learners, scaled, params, keys, config.risk_tasks, scales)["trained"]

    return np.stack([of_length(length) for length in config.test_lengths], axis=1)


def _least_squares(config: Config) -> np.ndarray:
    """(M, lengths) error of least squares on Exp(1), normalised; each member has its own prompts."""
    d, keys, errors = len(config.spectrum), member_keys(config, 940), []
    learners = lambda _: {"least_squares": jax.vmap(least_squares())}  # noqa: E731
    for length in config.test_lengths:
        sampler = always(random_covariance_regression(context_length=length, input_size=d))
        losses = paired_losses(learners, sampler, jnp.zeros(config.members), keys, config.eval_tasks)
        errors.append(2 * losses["least_squares"] / d)
    return np.stack(errors, axis=1)


def _conditional(config: Config, sampler: Sampler, params: dict, keys: Array) -> dict[str, np.ndarray]:
    """How the prediction depends on query and task: its slope on the answer, and its factor at each size of x_qi.

    E[y_hat | x_q, w] = sum_i f_i w_i x_qi, so that E[y_hat w_i x_qi] / E[(w_i x_qi)^2] over a bin of |x_qi| is the
    factor there. Subtracting slope times y from y_hat, and adding the slope, has the same mean and less noise.

    Returns:
      (M,) ``slope`` and ``slope_independent`` (query with a covariance of its own), (M, bins) ``factor``, and
      (M, bins) ``variance``, E[lambda_i | x_qi] averaged alike.
    """
    chunk = min(10_000, config.risk_tasks)

    def sums(params: dict, key: Array, tasks: int) -> dict[str, Array]:
        samples = sampler(key, tasks)
        prompt, w = samples.prompt, samples.latent["w"][..., 0]
        own, other = prompt.x_query, jnp.roll(prompt.x_query, 1, axis=0)  # the query of another prompt
        seen, other_seen = (predictions(params, replace(prompt, x_query=query))[:, 0] for query in (own, other))
        parts, size = w * own, jnp.abs(own)[..., None]
        y, other_y = parts.sum(axis=1), (w * other).sum(axis=1)
        low, high = (jnp.array(edges)[None, None] for edges in (BINS[:-1], BINS[1:]))
        inside = ((size >= low) & (size < high)).astype(parts.dtype)
        summed = {
            "cross": seen[:, None] * parts,
            "answer": y[:, None] * parts,
            "power": parts**2,
            "variance": parts**2 * (size[..., 0] / 2**0.5 + 0.5),
        }
        totals = {"own_cross": seen @ y, "own_power": y @ y}
        totals |= {"other_cross": other_seen @ other_y, "other_power": other_y @ other_y}
        totals |= {name: jnp.einsum("bd,bdk->k", value, inside) for name, value in summed.items()}
        return {name: value * (chunk / tasks) for name, value in totals.items()}  # as of a whole chunk

    @jax.jit
    def everything(params: dict, keys: Array) -> dict[str, Array]:
        one = lambda pk: mean_in_chunks(partial(sums, pk[0]), pk[1], config.risk_tasks, chunk)  # noqa: E731
        return jax.lax.map(one, (params, keys))

    s = {name: np.asarray(value, np.float64) for name, value in everything(params, keys).items()}
    slope = s["own_cross"] / s["own_power"]
    return {
        "slope": slope,
        "slope_independent": s["other_cross"] / s["other_power"],
        "factor": (s["cross"] - slope[:, None] * s["answer"]) / s["power"] + slope[:, None],
        "variance": s["variance"] / s["power"],
    }


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.random_covariance", __doc__, PRESETS, measured,
    (EDGES, LEAST_SQUARES, PRODUCT, LAYER, RISK, SLOPE, FACTOR), trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
