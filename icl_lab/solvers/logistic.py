"""Logistic regression as in-context learners: labels -1 and +1, the prediction is the logit w.x_q.

Every learner raises ValueError for other labels (0 and 1) where it can see them: not inside ``jit`` or ``vmap``.
"""

import contextlib

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_number
from icl_lab.solvers.gradient import per_step


def logistic_gradient_descent(learning_rate: ArrayLike, steps: int | None = None) -> Learner:
    """GD from W = 0 on the mean logistic loss (1/N) sum_i log(1 + exp(-y_i W^T x_i)), summed over outputs.

    W <- W + (eta_k/N) sum_i x_i (y_i s(-y_i W^T x_i))^T with s the sigmoid. From zero s is 1/2, so that the first step
    is the one of ``gradient_descent`` at half the learning rate; later steps are not linear in the labels (this lab).

    Args:
      learning_rate: eta, a scalar (then ``steps`` counts) or one per step (K,).
      steps: K; may be left out when ``learning_rate`` is (K,).

    Raises:
      ValueError: if the number of steps does not fit the learning rates.
    """
    rates = per_step("learning_rate", learning_rate, steps)

    def predict(prompt: Prompt) -> Array:
        n, d, o = _check_prompt(prompt)
        w = jnp.zeros((d, o), prompt.y.dtype)
        for k in range(rates.shape[0]):
            w = w + rates[k] / max(n, 1) * prompt.x.T @ (prompt.y * jax.nn.sigmoid(-prompt.y * (prompt.x @ w)))
        return prompt.x_query @ w

    return predict


def logistic_map(prior_scale: ArrayLike, steps: int = 64) -> Learner:
    """The logit at the most probable w: maximum likelihood with the prior w ~ N(0, s^2 I), by Newton's method.

    Args:
      prior_scale: s > 0; the minimised sum is sum_i log(1 + exp(-y_i w.x_i)) + |w|^2 / (2 s^2).
      steps: Newton steps, damped so that every one descends. A prior of scale 1 needs 8, of scale 10 16, of scale 100
        64 where a hyperplane separates the labels.

    Raises:
      ValueError: for fewer than one step, or a scale that is not one number above 0.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    check_number("prior_scale", prior_scale, above=0, scalar=True)

    def predict(prompt: Prompt) -> Array:
        _check_prompt(prompt)
        return jax.vmap(lambda y: prompt.x_query @ _most_probable(prompt.x, y, prior_scale, steps), 1)(prompt.y)

    return predict


def logistic_bayes(key: Array, prior_scale: ArrayLike, draws: int = 20_000) -> Learner:
    """The logit of the posterior predictive probability under the prior w ~ N(0, s^2 I), by Monte Carlo.

    p(y = 1 | x_q) = sum_j a_j s(w_j.x_q), s the sigmoid, with w_j from the prior and weights a_j proportional to their
    likelihood prod_i s(y_i w_j.x_i). The w_j are the same for every prompt, and half of them are the negatives of the
    others, as the law is symmetric. On ``icl_lab.prompts.logistic_regression`` no learner has a smaller mean loss. The
    error is that of 1 / sum_j a_j^2 draws from the posterior, a number that falls fast with D and s.

    Args:
      key: of the draws.
      prior_scale: s > 0.
      draws: how many, an even number.

    Raises:
      ValueError: if the number of draws is not even and positive, or the scale not one number above 0.
    """
    if draws < 2 or draws % 2:
        raise ValueError(f"draws must be an even number, at least 2, got {draws}")
    check_number("prior_scale", prior_scale, above=0, scalar=True)

    def predict(prompt: Prompt) -> Array:
        _, d, _ = _check_prompt(prompt)
        half = prior_scale * jax.random.normal(key, (draws // 2, d), prompt.x.dtype)
        w = jnp.concatenate([half, -half])
        log_likelihood = -jax.nn.softplus(-prompt.y[:, :, None] * (prompt.x @ w.T)[:, None]).sum(0)  # (O, draws)
        query = (w @ prompt.x_query)[None]
        yes, no = (jax.nn.logsumexp(log_likelihood - jax.nn.softplus(sign * query), axis=1) for sign in (-1, 1))
        return yes - no

    return predict


def _check_prompt(prompt: Prompt) -> tuple[int, int, int]:
    """``check_prompt``, and the labels where they are known."""
    with contextlib.suppress(jax.errors.TracerBoolConversionError):
        if jnp.any(jnp.abs(prompt.y) != 1):
            raise ValueError("labels must be -1 and +1; from labels 0 and 1 they are 2 * y - 1")
    return check_prompt(prompt)


def _most_probable(x: Array, y: Array, prior_scale: ArrayLike, steps: int) -> Array:
    """(D,) most probable w for inputs (N, D) and one output's labels (N,).

    Along a direction v the third derivative of the loss is at most c = max_i |x_i.v| times the second, which bounds the
    loss by a function whose minimum is at log(1 + c)/c of the Newton step: every step descends, the last ones are whole
    (the generalised self-concordance of Bach 2010, "Self-concordant analysis for logistic regression").
    """
    precision = 1 / jnp.square(jnp.asarray(prior_scale, x.dtype))

    def descend(_: Array, w: Array) -> Array:
        miss = jax.nn.sigmoid(-y * (x @ w))  # probability given to the other label
        hessian = (x.T * (miss * (1 - miss))[None]) @ x + precision * jnp.eye(x.shape[1], dtype=x.dtype)
        step = jnp.linalg.solve(hessian, x.T @ (y * miss) - precision * w)
        c = jnp.abs(x @ step).max(initial=0) + jnp.finfo(x.dtype).tiny
        return w + jnp.log1p(c) / c * step

    return jax.lax.fori_loop(0, steps, descend, jnp.zeros(x.shape[1], x.dtype))
