"""Gradient descent with momentum (heavy ball) on the in-context loss, and its best parameters."""

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_number, whole

Floats = NDArray[np.float64]


@named_by_arguments
def heavy_ball(learning_rate: ArrayLike, momentum: ArrayLike, steps: int) -> Learner:
    """K steps of gradient descent with momentum on L(W) = 1/(2N) sum_i |W^T x_i - y_i|^2 from zero; W^T x_q.

    V <- momentum V + dL/dW, W <- W - learning_rate V (Polyak 1964). What Dai et al. 2022 (section 4) write as
    Theta_t = Theta_(t-1) - gamma sum_(i < t) eta^(t-i) grad_i is this with momentum eta and learning rate gamma eta.
    Its first step is plain gradient descent.

    Raises:
      ValueError: for fewer than one step, or rates that are not one number each.
    """
    steps = whole("steps", steps)
    check_number("learning_rate", learning_rate, scalar=True)
    check_number("momentum", momentum, scalar=True)
    rate, eta = jnp.asarray(learning_rate, float), jnp.asarray(momentum, float)

    def predict(prompt: Prompt) -> Array:
        n, d, o = check_prompt(prompt)
        w = velocity = jnp.zeros((d, o), prompt.y.dtype)
        for _ in range(steps):
            velocity = eta * velocity + prompt.x.T @ (prompt.x @ w - prompt.y) / max(n, 1)
            w = w - rate * velocity
        return prompt.x_query @ w

    return predict


@dataclass(frozen=True)
class TunedHeavyBall:
    """Parameters of ``heavy_ball`` and the mean loss that they have over contexts."""

    learning_rate: float
    momentum: float
    loss: float


def heavy_ball_losses(
    eigenvalues: Floats,
    learning_rate: float,
    momentum: float,
    steps: int,
    *,
    context_length: int,
    input_variance: float,
) -> Floats:
    """(B,) losses given the context, exact over task and query: v / 2 sum_d r_K(lambda_d)^2 for a task scale of 1.

    r_0 = 1, u <- momentum u + lambda r / N, r <- r - learning_rate u.

    Args:
      eigenvalues: (B, D) of sum_i x_i x_i^T (``oracle.context_eigenvalues``).
      learning_rate: as ``heavy_ball``.
      momentum: as ``heavy_ball``.
      steps: K.
      context_length: N.
      input_variance: v.
    """
    residual, velocity = np.ones_like(eigenvalues), np.zeros_like(eigenvalues)
    for _ in range(steps):
        velocity = momentum * velocity + eigenvalues * residual / context_length
        residual = residual - learning_rate * velocity
    return input_variance / 2 * np.sum(residual**2, axis=1)


def tune_heavy_ball(eigenvalues: Floats, steps: int, *, context_length: int, input_variance: float) -> TunedHeavyBall:
    """The best learning rate and momentum in [0, 1) for K steps over sampled contexts; arguments as the losses'.

    From the best learning rate without momentum (a bounded scalar search), then both (Nelder and Mead 1965). One step
    has no use for momentum: it comes back as zero.
    """
    from scipy.optimize import minimize, minimize_scalar

    losses = partial(
        heavy_ball_losses, eigenvalues, steps=steps, context_length=context_length, input_variance=input_variance
    )
    bound = 2 * context_length / float(eigenvalues.mean())
    plain = minimize_scalar(
        lambda rate: float(losses(rate, 0.0).mean()), bounds=(0, bound), method="bounded", options={"xatol": 1e-10}
    )
    if steps == 1:
        return TunedHeavyBall(float(plain.x), 0.0, float(plain.fun))

    def mean_loss(values: Floats) -> float:
        rate, momentum = values
        return float(losses(rate, momentum).mean()) if rate > 0 and 0 <= momentum < 1 else np.inf

    simplex = np.array([[plain.x, 0.0], [0.5 * plain.x, 0.0], [0.7 * plain.x, 0.5]])
    best = minimize(
        mean_loss, simplex[0], method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 1e-7, "fatol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    return TunedHeavyBall(float(best.x[0]), float(best.x[1]), float(best.fun))
