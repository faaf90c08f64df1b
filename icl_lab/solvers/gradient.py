"""Gradient descent on the in-context loss, and GD++ (von Oswald et al. 2022, Prop. 1 and A.10)."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, ShapeError, check_prompt, divisor
from icl_lab.prompts.tracing import check_number, whole


@named_by_arguments
def gradient_descent(learning_rate: ArrayLike, steps: int | None = None, w0: Array | None = None) -> Learner:
    """GD on L(W) = 1/(2N) sum_i |W^T x_i - y_i|^2 from W0; the prediction is W^T x_q.

    W <- W - (eta_k/N) sum_i x_i (W^T x_i - y_i)^T (von Oswald et al. 2022, eq. 3 and 4).

    Args:
      learning_rate: eta, a scalar (then ``steps`` counts) or one per step (K,).
      steps: K; may be left out when ``learning_rate`` is (K,).
      w0: (D, O) start, None for zero.

    Raises:
      ValueError: if the number of steps does not fit the learning rates.
      ShapeError: when it predicts, for a start of another shape.
    """
    rates = per_step("learning_rate", learning_rate, steps)

    def predict(prompt: Prompt) -> Array:
        _, d, o = check_prompt(prompt, padded=True)
        w = jnp.zeros((d, o), prompt.y.dtype) if w0 is None else w0
        if w.shape != (d, o):  # (D, 1) or (D,) would be broadcast
            raise ShapeError(f"w0 must be (D, O) = ({d}, {o}) for this prompt, got {w.shape}")
        count = divisor(prompt)
        for k in range(rates.shape[0]):
            gradient = prompt.x.T @ (prompt.x @ w - prompt.y) / count
            w = w - rates[k] * gradient
        return prompt.x_query @ w

    return predict


@named_by_arguments
def averaging() -> Learner:
    """The mean of y_i x_i^T over the examples as W^T: unbiased where inputs have covariance I (Garg et al. 2022, 3.1).

    The same as one step of gradient descent from 0 at the learning rate 1.
    """
    return gradient_descent(1.0, steps=1)


@named_by_arguments
def trace_normalised_gradient_descent(learning_rate: ArrayLike, steps: int | None = None) -> Learner:
    """``gradient_descent`` with rates divided by the mean squared input of the prompt, tr(X^T X / N) / D.

    Predictions do not change when all inputs of a prompt are multiplied by one number: the step size is that of
    normalised LMS (Widrow & Hoff 1960), of the whole context at once.

    Args:
      learning_rate: eta, a scalar (then ``steps`` counts) or one per step (K,); a fixed share of the largest stable
        rate where the spectrum has a fixed form.
      steps: K; may be left out when ``learning_rate`` is (K,).

    Raises:
      ValueError: if the number of steps does not fit the learning rates.
    """
    rates = per_step("learning_rate", learning_rate, steps)

    def predict(prompt: Prompt) -> Array:
        n, d, _ = check_prompt(prompt)
        size = jnp.sum(prompt.x**2) / max(n * d, 1)
        return gradient_descent(rates / jnp.where(size > 0, size, 1))(prompt)

    return predict


@named_by_arguments
def gd_plus_plus(learning_rates: ArrayLike, gammas: ArrayLike, steps: int | None = None) -> Learner:
    """GD++: each step also transforms every input, context and query, x_j <- x_j - gamma_k sum_i (x_i.x_j) x_i.

    Residuals r_j = y_j - W^T x_j move with the inputs of *before* the step: r_j <- r_j - (eta_k/N) sum_i r_i (x_i.x_j),
    and the prediction is what the query has accumulated (von Oswald et al. 2022, section 3 and A.10).

    Args:
      learning_rates: eta, scalar or (K,).
      gammas: gamma, scalar or (K,).
      steps: K; may be left out when either is (K,).

    Raises:
      ValueError: if the number of steps does not fit.
    """
    check_number("learning_rates", learning_rates)
    check_number("gammas", gammas)
    given = [jnp.asarray(value, float) for value in (learning_rates, gammas)]
    lengths = [value.shape[0] for value in given if value.ndim == 1]
    steps = steps if steps is not None or not lengths else max(lengths)
    eta, gamma = (per_step(name, value, steps) for name, value in zip(("learning_rates", "gammas"), given))

    def predict(prompt: Prompt) -> Array:
        n, _, o = check_prompt(prompt)
        x, residual, query = prompt.x, prompt.y, prompt.x_query
        prediction = jnp.zeros((o,), prompt.y.dtype)
        for k in range(eta.shape[0]):
            gram, overlap = x @ x.T, x @ query  # (N, N), (N,)
            step = eta[k] / max(n, 1)
            prediction = prediction + step * overlap @ residual
            residual = residual - step * gram @ residual
            x, query = x - gamma[k] * gram @ x, query - gamma[k] * overlap @ x
        return prediction

    return predict


def per_step(name: str, value: ArrayLike, steps: int | None) -> Array:
    """(K,) values from a scalar and a number of steps, or from one value per step."""
    check_number(name, value)
    value = jnp.asarray(value, float)
    if steps is not None or value.ndim == 0:
        steps = whole("steps" if steps is not None else f"steps (of a scalar {name})", steps)
    if value.ndim == 0:
        return jnp.full((steps,), value)
    if value.ndim != 1 or value.shape[0] < 1 or (steps is not None and steps != value.shape[0]):
        raise ValueError(f"{name} must be a scalar or have one value per step ({steps}), got shape {value.shape}")
    return value
