"""What a finite training set costs: the excess loss of the minimiser over B tasks, to first order in 1/B."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree


def overfitting_coefficient(
    losses: Callable[[Any, Any], Array], params: Any, samples: Any, *, rank_tolerance: float = 1e-6
) -> float:
    """c = tr(H^+ V) / 2: the minimiser of the loss over B tasks has the loss L* - c/B on them, L* + c/B on all others.

    H is the Hessian of the population loss at its minimum and V the covariance of one task's gradient there; symmetries
    of the parameters are null directions of both and drop out with the pseudo-inverse. For least squares with P
    parameters and noise of variance s^2 on half the squared error it is P s^2 / 2. Takeuchi 1976 (information
    criterion under a wrong model); the application is this lab's (von Oswald et al. 2022, A.12, Fig. 16).

    Args:
      losses: ``(params, samples) -> (B,)`` loss of every task.
      params: a minimum of the population loss.
      samples: tasks that stand for the population, leading axis B; B should be 100 times the number of parameters.
      rank_tolerance: eigenvalues of H below this share of the largest count as zero.

    Returns:
      c, in units of the loss times tasks.

    Raises:
      ValueError: if H has an eigenvalue that is clearly negative: the parameters are no minimum.
    """
    flat, unravel = ravel_pytree(params)

    def one(p: Array, sample: Any) -> Array:
        return losses(unravel(p), jax.tree.map(lambda leaf: leaf[None], sample))[0]

    hessian = np.asarray(jax.jit(jax.hessian(lambda p: losses(unravel(p), samples).mean()))(flat), np.float64)
    gradients = np.asarray(jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0)))(flat, samples), np.float64)
    covariance = np.atleast_2d(np.cov(gradients, rowvar=False, bias=True))
    values, vectors = np.linalg.eigh(hessian)
    if values.min() < -0.1 * values.max():
        raise ValueError(f"the parameters are no minimum: the Hessian has eigenvalues {values.min()} to {values.max()}")
    kept = values > rank_tolerance * values.max()
    projected = np.einsum("pi,pq,qi->i", vectors[:, kept], covariance, vectors[:, kept])
    return float((projected / values[kept]).sum() / 2)
