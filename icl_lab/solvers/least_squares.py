"""Ridge regression and least squares as in-context learners."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_number
from icl_lab.solvers.positive import positive_solve


def ridge(strength: ArrayLike) -> Learner:
    """Ridge regression W = (X^T X + lambda I)^-1 X^T Y, prediction W^T x_q.

    With lambda = noise variance / task variance this is the Bayes predictor of noisy linear regression with a Gaussian
    task prior (von Oswald et al. 2022, section 2; Zhang, Frei & Bartlett 2023, section 1). NaN where rounding makes the
    matrix singular: lambda below about 1e-7 times its largest eigenvalue in float32, beside dependent inputs.

    Args:
      strength: lambda > 0, on the *sum* of squared errors (not the mean).

    Raises:
      ValueError: for several strengths, or one of 0 or below: with fewer examples than inputs its answer is made of
        rounding errors (``least_squares`` is the limit).
    """
    check_number("strength (least_squares() is its limit 0)", strength, above=0, scalar=True)

    def predict(prompt: Prompt) -> Array:
        n, d, _ = check_prompt(prompt)
        x, eye = prompt.x, jnp.eye(min(n, d), dtype=prompt.x.dtype)
        if n < d:  # X^T X has a null space, in which a small lambda would multiply rounding errors
            return prompt.x_query @ x.T @ positive_solve(x @ x.T + strength * eye, prompt.y)
        return prompt.x_query @ positive_solve(x.T @ x + strength * eye, x.T @ prompt.y)

    return predict


def least_squares() -> Learner:
    """Least squares; the solution of smallest norm where the context does not determine W (N < D)."""

    def predict(prompt: Prompt) -> Array:
        check_prompt(prompt)
        return prompt.x_query @ jnp.linalg.pinv(prompt.x) @ prompt.y

    return predict
