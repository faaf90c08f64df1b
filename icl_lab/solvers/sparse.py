"""Least squares with a penalty on the absolute weights, which makes most of them zero."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt, divisor
from icl_lab.prompts.tracing import check_number, check_sizes


@named_by_arguments
def lasso(strength: ArrayLike, sweeps: int = 200) -> Learner:
    """The lasso: minimises 1/(2N) sum_i (y_i - w.x_i)^2 + a |w|_1, output by output (Tibshirani 1996).

    Garg et al. 2022, section 4, compare a transformer trained on sparse tasks with it, at several a. By coordinate
    descent (Friedman et al. 2007): each sweep sets every w_j, in turn, to its best value beside the others,
    soft(b_j - sum_(i != j) S_ji w_i, a) / S_jj, with S = X^T X / N, b = X^T y / N and soft(v, a) = sign(v) (|v| - a)_+.

    Args:
      strength: a > 0, on the *mean* of squared errors (that of ``ridge`` is on the sum).
      sweeps: how many. Where inputs are nearly dependent and a is small, more are needed.

    Raises:
      ValueError: for a strength that is not one number above 0, or less than one sweep.
    """
    check_number("strength (least_squares() is its limit 0)", strength, above=0, scalar=True)
    (sweeps,) = check_sizes(sweeps=sweeps)

    def predict(prompt: Prompt) -> Array:
        check_prompt(prompt, padded=True)
        s, b = (prompt.x.T @ part / divisor(prompt) for part in (prompt.x, prompt.y))  # (D, D), (D, O)
        a = jnp.asarray(strength, b.dtype)

        def one(j: Array, w: Array) -> Array:
            rest = b[j] - s[j] @ w + s[j, j] * w[j]
            best = jnp.sign(rest) * jnp.maximum(jnp.abs(rest) - a, 0) / jnp.where(s[j, j] > 0, s[j, j], 1)
            return w.at[j].set(jnp.where(s[j, j] > 0, best, 0))

        sweep = lambda _, w: jax.lax.fori_loop(0, len(w), one, w)  # noqa: E731
        return prompt.x_query @ jax.lax.fori_loop(0, sweeps, sweep, jnp.zeros_like(b))

    return predict
