"""The theory of linear attention: many gradient flows in one call, and closed forms without d^2 by d^2 matrices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.timing import Config, Row, row, take_turns
from icl_lab.theory import block_loss, gradient_flow, population_loss, risk
from icl_lab.theory.linear_attention.blocks import block_loss_terms

SPECTRUM = (2.0, 1.5, 1.0, 0.6, 0.3)
CONTEXT_LENGTH = 20
HORIZON = 1000.0
SCALE = 0.1  # of the Gaussian entries that a flow starts from
RTOL, ATOL = 1e-6, 1e-9


def theory(config: Config) -> dict[str, list[Row]]:
    """Flows of all blocks at d = 5, a millisecond row per flow; closed forms, a row per evaluation."""
    return {
        f"gradient flow of all blocks, d = {len(SPECTRUM)}, to time {HORIZON:g}": flows(config),
        "closed forms": closed_forms(config),
    }


def starts(members: int) -> dict[str, np.ndarray]:
    """Dense Gaussian blocks."""
    rng, d = np.random.default_rng(0), len(SPECTRUM)
    shapes = {"u": (members,), "u11": (members, d, d), "u12": (members, d), "u21": (members, d)}
    return {name: SCALE * rng.standard_normal(shape) for name, shape in shapes.items()}


def flows(config: Config) -> list[Row]:
    """Ours in one call, ours one initialisation at a time, and scipy's stiff solver on a jitted gradient."""
    together = starts(config.flows)
    alone = {name: value[: config.plain_flows] for name, value in together.items()}
    covariance = np.diag(SPECTRUM)
    found: dict[str, np.ndarray] = {}

    def ours(name: str, given: dict[str, np.ndarray], each: bool) -> None:
        parts = [{k: v[m : m + 1] for k, v in given.items()} for m in range(len(given["u"]))] if each else [given]
        done = [gradient_flow(part, covariance, CONTEXT_LENGTH, HORIZON, rtol=RTOL, atol=ATOL) for part in parts]
        found[name] = np.concatenate([flow.loss[:, -1] for flow in done])

    def scipy(name: str, given: dict[str, np.ndarray], run: Callable) -> None:
        found[name] = np.array([run({k: v[m] for k, v in given.items()}) for m in range(len(given["u"]))])

    one, loop, plain = "ours, one call", "ours, a call for each flow", "scipy's LSODA, jitted gradient and Jacobian"
    timings = take_turns(
        {
            one: (partial(ours, one, together, False), config.flows),
            loop: (partial(ours, loop, alone, True), config.plain_flows),
            plain: (partial(scipy, plain, alone, _by_scipy(covariance)), config.plain_flows),
        },
        config.flow_rounds,
    )
    count = {one: config.flows, loop: config.plain_flows, plain: config.plain_flows}
    columns: dict[str, Any] = {
        name: {"flows": count[name], "all, seconds": 1e-3 * (timing.ms * count[name] + timing.compile_ms)}
        for name, timing in timings.items()
    }
    columns[one]["loss difference"] = float(np.abs(found[one][: config.plain_flows] - found[plain]).max())
    return [row(name, timing, timings[plain], **columns[name]) for name, timing in timings.items()]


def _by_scipy(covariance: np.ndarray) -> Callable[[dict[str, np.ndarray]], float]:
    """``start -> final loss`` by ``scipy.integrate.solve_ivp`` on the loss as matrices, in float64."""
    from scipy.integrate import solve_ivp

    shapes = {name: value.shape[1:] for name, value in starts(1).items()}
    splits = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1]

    def loss(flat: jax.Array) -> jax.Array:
        parts = jnp.split(flat, splits)
        blocks = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts)}
        return block_loss_terms(
            blocks["u11"], blocks["u"], blocks["u12"], blocks["u21"], jnp.asarray(covariance), CONTEXT_LENGTH
        )

    with jax.enable_x64(True):
        slope, curvature = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))

    def run(start: dict[str, np.ndarray]) -> float:
        flat = np.concatenate([start[name].ravel() for name in shapes])
        with jax.enable_x64(True):
            solution = solve_ivp(
                lambda t, y: -np.asarray(slope(y)), (0.0, HORIZON), flat, method="LSODA",
                jac=lambda t, y: -np.asarray(curvature(y)), t_eval=[HORIZON], rtol=RTOL, atol=ATOL,
            )  # fmt: skip
            return float(loss(solution.y[:, -1]))

    return run


def closed_forms(config: Config) -> list[Row]:
    """Each closed form at a large d, and the loss by vec(A)^T (Lam kron Gam Lam) vec(A) at a d it can be formed at."""
    large, small = config.dimension, config.kronecker_dimension
    rng = np.random.default_rng(1)

    def given(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        root = rng.standard_normal((d, d)) / d**0.5
        return rng.standard_normal((d, d)) / d, root @ root.T + 0.1 * np.eye(d), rng.standard_normal(d) / d**0.5

    (a, lam, v), (a_small, lam_small, _) = given(large), given(small)
    kronecker, whole = f"population loss, Kronecker form, d = {small}", f"population loss, d = {small}"
    contenders = {
        kronecker: (lambda: _kronecker_loss(a_small, lam_small), 1),
        whole: (lambda: population_loss(a_small, lam_small, CONTEXT_LENGTH), 1),
        f"population loss, d = {large}": (lambda: population_loss(a, lam, CONTEXT_LENGTH), 1),
        f"loss of all blocks, d = {large}": (lambda: block_loss(a, 0.5, v, v, lam, CONTEXT_LENGTH), 1),
        f"risk under shifts, d = {large}": (
            lambda: risk(a, test_length=10, covariance=lam, query_covariance=lam @ lam, label_noise=0.5), 1
        ),
    }  # fmt: skip
    timings = take_turns(contenders, config.rounds)
    plain, ours = _kronecker_loss(a_small, lam_small), population_loss(a_small, lam_small, CONTEXT_LENGTH)
    columns: dict[str, Any] = {
        name: {"largest matrix, MB": 8e-6 * (large if f"= {large}" in name else small) ** 2} for name in timings
    }
    columns[kronecker] = {"largest matrix, MB": 8e-6 * small**4}
    columns[whole]["loss difference"] = abs(plain - ours)
    base = {kronecker: timings[kronecker], whole: timings[kronecker]}
    return [row(name, timing, base.get(name), **columns[name]) for name, timing in timings.items()]


def _kronecker_loss(a: np.ndarray, lam: np.ndarray) -> float:
    """The population loss as the quadratic form of vec(A) that the paper's proofs use."""
    n, flat = CONTEXT_LENGTH, a.ravel()
    gam = (1 + 1 / n) * lam + np.trace(lam) / n * np.eye(len(lam))
    quadratic = np.kron(gam @ lam, lam)
    return float(flat @ quadratic @ flat / 2 - np.trace(lam @ lam @ a.T) + np.trace(lam) / 2)
