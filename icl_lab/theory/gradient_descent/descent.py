"""Local minima of the loss of GD++ over a density of eigenvalues, in float64 whatever the caller's configuration."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from icl_lab.theory.gradient_descent.gd_plus_plus import residual_factor

Floats = NDArray[np.float64]


def descend(start: Floats, box: tuple[float, float], steps: int, nodes: Floats, weights: Floats) -> Floats:
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
