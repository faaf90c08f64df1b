"""Ridge regression and least squares as in-context learners."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import positive_solve, pseudo_inverse
from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_number


@named_by_arguments
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
        n, d, _ = check_prompt(prompt, padded=True)
        x, eye = prompt.x, jnp.eye(min(n, d), dtype=prompt.x.dtype)
        if n < d:  # X^T X has a null space, in which a small lambda would multiply rounding errors
            return prompt.x_query @ x.T @ positive_solve(x @ x.T + strength * eye, prompt.y)
        return prompt.x_query @ positive_solve(x.T @ x + strength * eye, x.T @ prompt.y)

    return predict


@named_by_arguments
def weighted_ridge(strength: ArrayLike, slope: ArrayLike = 0.0, bend: ArrayLike = 0.0) -> Learner:
    """Ridge regression whose examples weigh by their place.

    W = (sum_i c_i x_i x_i^T + lambda I)^-1 sum_i c_i x_i y_i^T, with c_i in proportion to exp(slope t_i + bend t_i^2)
    and of mean 1, where t_i = (i - 1)/(N - 1) - 1/2 runs from -1/2 to 1/2.

    Without slope and bend this is ``ridge``. Without bend it is ``recursive_least_squares`` with forgetting factor
    f = exp(-slope / (N - 1)) and a strength of lambda m / f^N, where m is the mean of f^(N - i) over the examples.

    Args:
      strength: lambda > 0, on the sum of squared errors.
      slope: above 0 where late examples weigh more.
      bend: above 0 where those at both ends do.

    Raises:
      ValueError: for a strength that is not one number above 0, or a slope or bend that is not one number.
    """
    check_number("strength", strength, above=0, scalar=True)
    check_number("slope", slope, scalar=True)
    check_number("bend", bend, scalar=True)

    def predict(prompt: Prompt) -> Array:
        n, _, _ = check_prompt(prompt)
        if n == 0:
            return jnp.zeros(prompt.y.shape[1], prompt.y.dtype)
        place = jnp.arange(n) / max(n - 1, 1) - 0.5
        root = jnp.sqrt(n * jax.nn.softmax(slope * place + bend * place**2)).astype(prompt.x.dtype)[:, None]
        return ridge(strength)(replace(prompt, x=root * prompt.x, y=root * prompt.y))

    return predict


@named_by_arguments
def least_squares() -> Learner:
    """Least squares; the solution of smallest norm where the context does not determine W (N < D)."""

    def predict(prompt: Prompt) -> Array:
        check_prompt(prompt, padded=True)
        return prompt.x_query @ pseudo_inverse(prompt.x) @ prompt.y

    return predict
