"""Logistic regression as in-context learners: labels -1 and +1, the prediction is the logit w.x_q.

Every learner raises ValueError for other labels (0 and 1) where it can see them: not inside ``jit`` or ``vmap``.
"""

import contextlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import backward, cholesky, positive_solve
from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_key, check_number, whole
from icl_lab.solvers.gradient import per_step

STEPS = 64
"""Newton steps to the most probable w."""
FREEDOM = 5
"""Degrees of freedom of the t distribution that ``logistic_bayes`` draws from."""


@named_by_arguments
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


@named_by_arguments
def logistic_map(prior_scale: ArrayLike, steps: int = STEPS) -> Learner:
    """The logit at the most probable w: maximum likelihood with the prior w ~ N(0, s^2 I), by Newton's method.

    Args:
      prior_scale: s > 0; the minimised sum is sum_i log(1 + exp(-y_i w.x_i)) + |w|^2 / (2 s^2).
      steps: Newton steps, damped so that every one descends. A prior of scale 1 needs 8, of scale 10 16, of scale 100
        64 where a hyperplane separates the labels.

    Raises:
      ValueError: for fewer than one step, or a scale that is not one number above 0.
    """
    steps = whole("steps", steps)
    check_number("prior_scale", prior_scale, above=0, scalar=True)

    def predict(prompt: Prompt) -> Array:
        _check_prompt(prompt)
        return jax.vmap(lambda y: prompt.x_query @ _most_probable(prompt.x, y, prior_scale, steps), 1)(prompt.y)

    return predict


@named_by_arguments
def logistic_bayes(key: Array, prior_scale: ArrayLike, draws: int = 20_000) -> Learner:
    """The logit of the posterior predictive probability under the prior w ~ N(0, s^2 I), by importance sampling.

    It is log Z_+ - log Z_-, where Z_+ and Z_- are the evidence of the context together with the query labelled +1 and
    -1. Each is estimated by draws from a multivariate t distribution around the most probable w, whose scale matrix is
    the inverse Hessian there (Geweke 1989; the tails of t are heavier than those of the posterior). The draws are the
    same for every prompt but for that location and scale, and half of them mirror the others. On
    ``icl_lab.prompts.logistic_regression`` no learner has a smaller mean loss.

    The standard error of the logit is at most about sqrt(2 / n) with n from ``effective_draws``. Where n is below 100,
    or below a tenth of ``draws`` if that is less, the estimate is refused: ValueError, or NaN where values are not
    known (inside ``jit`` or ``vmap``).

    Args:
      key: of the draws.
      prior_scale: s > 0.
      draws: how many, an even number.

    Raises:
      ValueError: if the number of draws is not even and positive, or the scale not one number above 0.
    """
    evidence = _evidence(key, prior_scale, draws)
    least = min(100, draws / 10)

    def predict(prompt: Prompt) -> Array:
        logs, effective = evidence(prompt)
        with contextlib.suppress(jax.errors.TracerBoolConversionError):
            if jnp.any(effective < least):
                raise ValueError(
                    f"draws must be raised for this prompt: {draws} are worth {effective.min():.3g} draws "
                    f"from the posterior, allowed is at least {least:g}"
                )
        return jnp.where(effective < least, jnp.nan, logs[:, 0] - logs[:, 1])

    return predict


def effective_draws(key: Array, prior_scale: ArrayLike, draws: int = 20_000) -> Callable[[Prompt], Array]:
    """Effective number of draws (O,) behind a prediction of ``logistic_bayes`` of the same arguments, by prompt.

    (sum_j v_j)^2 / sum_j v_j^2 with v_j the importance weights (Kong 1992), the smaller one of Z_+ and Z_-. Arguments
    and errors as ``logistic_bayes``.
    """
    evidence = _evidence(key, prior_scale, draws)
    return lambda prompt: evidence(prompt)[1]


def _evidence(key: Array, prior_scale: ArrayLike, draws: int) -> Callable[[Prompt], tuple[Array, Array]]:
    """By prompt (O, 2) log Z_+ and log Z_-, up to the same constant, and (O,) effective draws."""
    check_key(key)
    draws = whole("draws", draws, at_least=2)
    if draws % 2:
        raise ValueError(f"draws must be an even number, at least 2, got {draws}")
    check_number("prior_scale", prior_scale, above=0, scalar=True)

    def of_prompt(prompt: Prompt) -> tuple[Array, Array]:
        _, d, o = _check_prompt(prompt)
        normal, chi = (
            jax.random.normal(k, (draws // 2, m), prompt.x.dtype) for k, m in zip(jax.random.split(key), (d, FREEDOM))
        )
        half = normal * jnp.sqrt(FREEDOM / jnp.square(chi).sum(1, keepdims=True))
        z = jnp.concatenate([half, -half])
        log_t = -(FREEDOM + d) / 2 * jnp.log1p(jnp.square(z).sum(1) / FREEDOM)
        x = jnp.concatenate([prompt.x, prompt.x_query[None]])

        def log_weights(y: Array) -> Array:
            mode, root = _laplace(x, y, prior_scale)
            w = mode[None] + backward(root, z.T).T
            log_prior = -jnp.square(w / prior_scale).sum(1) / 2
            return log_prior - jax.nn.softplus(-y[None] * (w @ x.T)).sum(1) - log_t - jnp.log(jnp.diagonal(root)).sum()

        labels = jnp.stack([jnp.concatenate([prompt.y, jnp.full((1, o), sign, prompt.y.dtype)]) for sign in (1, -1)])
        v = jax.vmap(jax.vmap(log_weights))(labels.transpose(2, 0, 1))  # (O, 2, draws)
        logs = jax.nn.logsumexp(v, axis=2)
        return logs, jnp.exp(2 * logs - jax.nn.logsumexp(2 * v, axis=2)).min(1)

    return of_prompt


def _check_prompt(prompt: Prompt) -> tuple[int, int, int]:
    """``check_prompt``, and the labels where they are known."""
    sizes = check_prompt(prompt)
    with contextlib.suppress(jax.errors.TracerBoolConversionError):
        if jnp.any(jnp.abs(prompt.y) != 1):
            raise ValueError("labels must be -1 and +1; from labels 0 and 1 they are 2 * y - 1")
    return sizes


def _most_probable(x: Array, y: Array, prior_scale: ArrayLike, steps: int) -> Array:
    """(D,) most probable w for inputs (N, D) and one output's labels (N,).

    Along a direction v the third derivative of the loss is at most c = max_i |x_i.v| times the second, which bounds the
    loss by a function whose minimum is at log(1 + c)/c of the Newton step: every step descends, the last ones are whole
    (the generalised self-concordance of Bach 2010, "Self-concordant analysis for logistic regression").
    """

    def descend(_: Array, w: Array) -> Array:
        slope, hessian = _slope(x, y, w, prior_scale)
        step = positive_solve(hessian, slope)
        c = jnp.abs(x @ step).max(initial=jnp.finfo(x.dtype).eps)  # 1 / c^2, of its derivative, stays finite
        return w + jnp.log1p(c) / c * step

    return jax.lax.fori_loop(0, steps, descend, jnp.zeros(x.shape[1], x.dtype))


def _slope(x: Array, y: Array, w: Array, prior_scale: ArrayLike) -> tuple[Array, Array]:
    """(D,) the gradient of the log posterior at w, and (D, D) its Hessian with the sign changed."""
    precision = 1 / jnp.square(jnp.asarray(prior_scale, x.dtype))
    miss = jax.nn.sigmoid(-y * (x @ w))  # probability given to the other label
    hessian = (x.T * (miss * (1 - miss))[None]) @ x + precision * jnp.eye(x.shape[1], dtype=x.dtype)
    return x.T @ (y * miss) - precision * w, hessian


def _laplace(x: Array, y: Array, prior_scale: ArrayLike) -> tuple[Array, Array]:
    """(D,) the most probable w, and (D, D) the Cholesky factor of the Hessian there."""
    mode = jax.lax.stop_gradient(_most_probable(x, y, prior_scale, STEPS))
    slope, hessian = _slope(x, y, mode, prior_scale)
    mode = mode + positive_solve(jax.lax.stop_gradient(hessian), slope)  # whose derivative is the mode's
    return mode, cholesky(_slope(x, y, mode, prior_scale)[1])
