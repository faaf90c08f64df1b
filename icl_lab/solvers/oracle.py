"""Exact losses and best parameters of GD and GD++ of any depth, from the eigenvalues of random contexts alone.

The recursion is ``icl_lab.theory.residual_factor``. Deep solvers are polynomials of high degree of heavy-tailed
eigenvalues: rare contexts carry their loss, and their best parameters move with the number of contexts tuned on.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from icl_lab.prompts.regression import linear_regression
from icl_lab.theory.gradient_descent.gd_plus_plus import eigenvalue_density, residual_factor

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TunedSolver:
    """Parameters of a K-step solver and what they achieve.

    Attributes:
      learning_rates: (K,) eta_k of the mean loss, as ``gradient_descent`` and ``gd_plus_plus`` take them.
      gammas: (K,) gamma_k, on the *sum* over the context.
      loss: mean loss over contexts.
      standard_error: of that mean, over contexts.
    """

    learning_rates: Floats
    gammas: Floats
    loss: float
    standard_error: float


def context_eigenvalues(
    key: Array,
    batch: int,
    *,
    context_length: int,
    input_size: int,
    input_law: str = "uniform",
    input_range: float = 1.0,
) -> Floats:
    """Ascending eigenvalues (B, D) of sum_i x_i x_i^T, in float64, of ``batch`` contexts of ``linear_regression``.

    Figure 13 of von Oswald et al. 2022. Errors as ``linear_regression``.
    """
    x = np.asarray(_inputs(key, input_range, batch, context_length, input_size, input_law), np.float64)
    return np.maximum(np.linalg.eigvalsh(x.swapaxes(1, 2) @ x), 0)


@partial(jax.jit, static_argnums=(2, 3, 4, 5))  # one program: operation by operation they would be forty
def _inputs(key: Array, input_range: Array | float, batch: int, length: int, size: int, distribution: str) -> Array:
    """Inputs (B, N, D) of contexts."""
    draw = linear_regression(context_length=length, input_size=size, input_law=distribution, input_range=input_range)
    return draw(key, batch).prompt.x


def oracle_loss(
    eigenvalues: ArrayLike,
    learning_rates: ArrayLike,
    gammas: ArrayLike,
    *,
    context_length: int,
    input_variance: ArrayLike,
    task_scale: ArrayLike = 1.0,
) -> Floats:
    """Loss of K steps of GD++ (of GD, for gamma = 0) given the context, exact over task and query.

    Args:
      eigenvalues: (B, D) of sum_i x_i x_i^T.
      learning_rates: (K,) eta_k.
      gammas: (K,) gamma_k; the last one has no effect.
      context_length: N.
      input_variance: v, with E[x_q x_q^T] = v I: a centred distribution; may be (B,).
      task_scale: s; may be (B,).

    Returns:
      (B,) losses, infinite where the iteration overflows.

    Raises:
      ValueError: if the shapes are not (B, D), (K,) and (K,), or a variance or scale is neither one number nor (B,).
    """
    spectrum, eta, gamma = (np.asarray(value, np.float64) for value in (eigenvalues, learning_rates, gammas))
    if spectrum.ndim != 2 or eta.ndim != 1 or eta.shape != gamma.shape:
        raise ValueError(f"need (B, D), (K,) and (K,), got {spectrum.shape}, {eta.shape} and {gamma.shape}")
    for name, value in (("input_variance", input_variance), ("task_scale", task_scale)):
        if np.shape(value) not in ((), spectrum.shape[:1]):
            raise ValueError(f"{name} must be one number or ({len(spectrum)},), got {np.shape(value)}")
    with np.errstate(over="ignore", invalid="ignore"):
        residual = residual_factor(spectrum, eta / context_length, gamma)
        loss = np.square(task_scale) * input_variance / 2 * np.sum(residual**2, axis=1)
    return np.where(np.isnan(loss), np.inf, loss)


def tune_gradient_descent(
    eigenvalues: Floats, steps: int, *, held_out: Floats, context_length: int, input_variance: float
) -> TunedSolver:
    """GD with the best learning rate, one for all steps.

    The loss is convex in eta and, by Jensen, not below its value at zero once eta/N >= 2 / (mean eigenvalue): a bounded
    scalar search finds the minimum.

    Args:
      eigenvalues: (B, D), contexts to tune on.
      steps: K.
      held_out: (B', D), contexts on which the returned loss is taken.
      context_length: N.
      input_variance: v.
    """
    from scipy.optimize import minimize_scalar

    unit = eigenvalues.mean()
    nodes, weights = eigenvalue_density(eigenvalues / unit)
    objective = lambda rate: np.sum(weights * (1 - rate * nodes) ** (2 * steps))  # noqa: E731
    rate = minimize_scalar(objective, bounds=(0, 2), method="bounded", options={"xatol": 1e-8}).x
    eta = np.full(steps, rate / unit * context_length)
    return _judged(held_out, eta, np.zeros(steps), context_length=context_length, input_variance=input_variance)


def tune_gd_plus_plus(
    eigenvalues: Floats,
    steps: int,
    *,
    shared: bool,
    held_out: Floats,
    context_length: int,
    input_variance: float,
    starts: int = 16,
    box: tuple[float, float] = (20 / 3, 1 / 3),
    seed: int = 0,
) -> TunedSolver:
    """GD++ with the best eta and gamma, shared by all layers (a looped network) or free in each.

    L-BFGS-B on the logarithm of the loss, in float64, from several starts: the released initialisation (the tuned eta
    of GD, gamma = eta / N^2), then for free layers the shared optimum, then random factors around the one before. Deep
    GD++ is a polynomial of high degree with many local minima, some of which serve only the contexts they were found
    on: odd contexts choose among the minima that even contexts produce, and ``held_out`` judges. ``starts=1`` gives the
    minimum that descent from the released initialisation reaches, which need not be the best (von Oswald et al. 2022,
    section 3 and A.10, where Adam on fresh prompts does the tuning).

    Args:
      eigenvalues: (B, D), contexts to tune on.
      steps: K.
      shared: one (eta, gamma) for all layers, or one each (the last gamma, which has no effect, is then zero).
      held_out: (B', D), contexts on which the returned loss is taken.
      context_length: N.
      input_variance: v.
      starts: number of starts.
      box: largest eta/N and gamma, in units of 1 / (mean eigenvalue); the smallest are zero. The default is eta/N <= 8
        and gamma <= 0.4 where N = D = 10 and inputs are uniform of range 1.
      seed: of the random starts.

    Raises:
      ValueError: for fewer than one start.
    """
    if starts < 1:
        raise ValueError(f"starts must be at least 1, got {starts}")
    setting: Any = {"context_length": context_length, "input_variance": input_variance}
    fitting, choosing = eigenvalues[::2], eigenvalues[1::2]
    unit = fitting.mean()
    nodes, weights = eigenvalue_density(fitting / unit)
    eta = tune_gradient_descent(fitting, steps, held_out=choosing, **setting).learning_rates
    first = [np.stack([eta / context_length, eta / context_length**2]) * unit]  # (2, K): eta_k / N and gamma_k
    if shared:
        first = [first[0][:, :1]]
    elif starts > 1:
        tied = tune_gd_plus_plus(eigenvalues, steps, shared=True, held_out=choosing, starts=2, box=box, **setting)
        first.append(np.stack([tied.learning_rates / context_length, tied.gammas]) * unit)
    rng = np.random.default_rng(seed)
    around = [first[-1] * np.exp(rng.normal(size=first[-1].shape)) for _ in range(starts - len(first))]
    minima = [_descend(start, box, steps, nodes, weights) / unit for start in first + around]
    pairs = [(rates * context_length, gammas if shared else np.append(gammas[:-1], 0)) for rates, gammas in minima]
    losses = [_judged(choosing, *pair, **setting).loss for pair in pairs]
    return _judged(held_out, *pairs[int(np.argmin(losses))], **setting)


def _descend(start: Floats, box: tuple[float, float], steps: int, nodes: Floats, weights: Floats) -> Floats:
    """Local minimum (2, K) of the logarithm of ``sum(weights * r_K(nodes)^2)``, by L-BFGS-B.

    GD++ of von Oswald et al. 2022, A.10; r_K is ``residual_factor``.

    Args:
      start: eta_k / N and gamma_k, (2, K), or (2, 1) where the layers share them. Clipped to the box.
      box: their largest values; the smallest are zero.
      steps: K.
      nodes: (C,) eigenvalues.
      weights: (C,) their weights, which sum to one.
    """
    from scipy.optimize import minimize

    limits = np.broadcast_to(np.array(box)[:, None], start.shape)
    with jax.enable_x64(True):
        density = jnp.asarray(nodes), jnp.asarray(weights)

        def objective(flat: Floats) -> tuple[float, Floats]:
            value, slope = _log_loss(jnp.asarray(flat.reshape(start.shape)), *density, steps)
            if not (np.isfinite(value) and np.all(np.isfinite(slope))):
                return 1e3, np.zeros_like(flat)  # overflow: the line search comes back
            return float(value), np.asarray(slope).ravel()

        minimum = minimize(
            objective,
            np.minimum(start, limits).ravel(),
            jac=True,
            bounds=[(0, limit) for limit in limits.ravel()],
            method="L-BFGS-B",
            options={"maxiter": 1000},
        )
    return np.broadcast_to(minimum.x.reshape(start.shape), (2, steps))


@partial(jax.jit, static_argnames="steps")
def _log_loss(parameters: Array, nodes: Array, weights: Array, steps: int) -> tuple[Array, Array]:
    """Logarithm of the mean of r_K^2 and its gradient with respect to (eta_k / N, gamma_k), (2, K) or (2, 1)."""

    def value(parameters: Array) -> Array:
        rates, gammas = jnp.broadcast_to(parameters, (2, steps))
        return jnp.log(jnp.sum(weights * residual_factor(nodes, rates, gammas) ** 2))

    return jax.value_and_grad(value)(parameters)


def _judged(eigenvalues: Floats, learning_rates: Floats, gammas: Floats, **setting) -> TunedSolver:
    """The solver with its mean loss on these contexts."""
    losses = oracle_loss(eigenvalues, learning_rates, gammas, **setting)
    with np.errstate(invalid="ignore"):
        return TunedSolver(learning_rates, gammas, float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5))
