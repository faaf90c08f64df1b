"""Learners that see the examples one by one, in their order: LMS, leaky LMS, recursive least squares."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_number


@named_by_arguments
def lms(learning_rate: ArrayLike, *, normalised: bool = False) -> Learner:
    """Least mean squares: one step of stochastic gradient descent an example, in their order (Widrow & Hoff 1960).

    W <- W + mu x_i (y_i - W^T x_i)^T from zero.

    Args:
      learning_rate: mu.
      normalised: mu is divided by |x_i|^2 (then 1 fits every example exactly as it comes).

    Raises:
      ValueError: for a learning rate that is not one number.
    """
    check_number("learning_rate", learning_rate, scalar=True)

    def step(w: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        x, y = pair
        size = jnp.where(x @ x > 0, x @ x, 1.0) if normalised else 1.0  # an input of zero changes nothing
        return w + jnp.asarray(learning_rate, w.dtype) / size * x[:, None] * (y - x @ w)[None], None

    return _in_order(step)


@named_by_arguments
def leaky_lms(learning_rate: ArrayLike, leak: ArrayLike) -> Learner:
    """LMS that forgets: before each example W shrinks, W <- (1 - g) W, then W <- W + mu x_i (y_i - W^T x_i)^T.

    Leaky LMS (Haykin, Adaptive Filter Theory), with the error that of the shrunk W. Without a leak this is ``lms``.

    Args:
      learning_rate: mu.
      leak: g in [0, 1].

    Raises:
      ValueError: for a learning rate that is not one number, or a leak that is not one from 0 to 1.
    """
    check_number("learning_rate", learning_rate, scalar=True)
    check_number("leak", leak, at_least=0, at_most=1, scalar=True)

    def step(w: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        x, y = pair
        w = (1 - jnp.asarray(leak, w.dtype)) * w
        return w + jnp.asarray(learning_rate, w.dtype) * x[:, None] * (y - x @ w)[None], None

    return _in_order(step)


@named_by_arguments
def recursive_least_squares(strength: ArrayLike, forgetting: ArrayLike = 1.0) -> Learner:
    """Recursive least squares: minimises sum_i f^(N-i) |W^T x_i - y_i|^2 + lambda f^N |W|^2 (Haykin, ch. 10).

    Without forgetting this is ``ridge``, whatever the order of the examples.

    Args:
      strength: lambda > 0.
      forgetting: f in (0, 1].

    Raises:
      ValueError: for a strength or a factor that is not one such number.
    """
    check_number("strength", strength, above=0, scalar=True)
    check_number("forgetting", forgetting, above=0, at_most=1, scalar=True)

    def predict(prompt: Prompt) -> Array:
        _, d, o = check_prompt(prompt)
        dtype = prompt.x.dtype

        f = jnp.asarray(forgetting, dtype)

        def step(state: tuple[Array, Array], pair: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            (w, p), (x, y) = state, pair
            gain = p @ x / (f + x @ p @ x)
            w = w + gain[:, None] * (y - x @ w)[None]
            return (w, (p - gain[:, None] * (x @ p)[None]) / f), None

        start = (jnp.zeros((d, o), dtype), jnp.eye(d, dtype=dtype) / jnp.asarray(strength, dtype))
        (w, _), _ = jax.lax.scan(step, start, (prompt.x, prompt.y))
        return prompt.x_query @ w

    return predict


def _in_order(step: Callable[[Array, tuple[Array, Array]], tuple[Array, None]]) -> Learner:
    """The learner whose W (D, O) starts at zero and takes a step an example."""

    def predict(prompt: Prompt) -> Array:
        _, d, o = check_prompt(prompt)
        y = prompt.y.astype(jnp.result_type(prompt.x, prompt.y))  # labels may be whole numbers
        w, _ = jax.lax.scan(step, jnp.zeros((d, o), y.dtype), (prompt.x, y))
        return prompt.x_query @ w

    return predict
