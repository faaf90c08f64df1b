"""Learners that are no spectral filter: Bayesian mixtures, similarity to the query; and centring."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import cholesky, positive_solve
from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, ShapeError, check_prompt
from icl_lab.prompts.tracing import check_number


@named_by_arguments
def noise_adaptive_ridge(strengths: Array) -> Learner:
    """Ridge regression averaged over strengths, each weighted by how well it explains the labels, output by output.

    Weights are p(y | X, lambda) with a flat prior over ``strengths`` and the scale of the labels integrated out
    (Jeffreys): det(C)^(-1/2) (y^T C^-1 y)^(-N/2), C = X X^T / lambda + I. The Bayes predictor where the ratio of noise
    to task variance is one of them, and unknown. Predictions scale with the labels but are not additive in them.

    Args:
      strengths: (J,) lambdas above 0, on the *sum* of squared errors, as in ``ridge``.

    Raises:
      ValueError: for strengths that are not above 0, or none.
    """
    check_number("strengths", strengths, above=0)

    def predict(prompt: Prompt) -> Array:
        n, _, _ = check_prompt(prompt)

        def at(strength: Array) -> tuple[Array, Array]:
            w, fit, log_det = _posterior(prompt, strength)
            tiny = jnp.finfo(fit.dtype).tiny
            return prompt.x_query @ w, -0.5 * log_det - 0.5 * n * jnp.log(jnp.maximum(fit, tiny))

        predictions, evidence = jax.vmap(at)(jnp.asarray(strengths, jnp.result_type(prompt.x, float)))  # (J, O) each
        return jnp.sum(jax.nn.softmax(evidence, axis=0) * predictions, axis=0)

    return predict


def _posterior(prompt: Prompt, strength: ArrayLike) -> tuple[Array, Array, Array]:
    """(D, O) ridge's W, (O,) y^T C^-1 y and log det C, where C = X X^T / lambda + I.

    By the smaller of the two Gram matrices, and y^T C^-1 y as a sum of squares or a form that cancels nothing: with a
    small lambda rounding errors would decide otherwise.
    """
    n, d, _ = check_prompt(prompt)
    x, y, eye = prompt.x, prompt.y, jnp.eye(min(n, d), dtype=prompt.x.dtype)
    gram = (x @ x.T if n <= d else x.T @ x) + strength * eye
    log_det = 2 * jnp.log(jnp.diagonal(cholesky(gram / strength))).sum()
    if n <= d:
        a = positive_solve(gram, y)
        return x.T @ a, jnp.sum(strength * y * a, axis=0), log_det
    w = positive_solve(gram, x.T @ y)
    return w, jnp.sum((y - x @ w) ** 2, axis=0) + strength * jnp.sum(w**2, axis=0), log_det


@named_by_arguments
def dmmse(tasks: Array, noise_variance: ArrayLike) -> Learner:
    """The Bayes predictor over a given, finite set of tasks: sum_t p_t W_t^T x_q (discrete MMSE, Raventos et al. 2023).

    p_t is proportional to exp(-sum_i |y_i - W_t^T x_i|^2 / (2 sigma^2)).

    Args:
      tasks: (T, D, O) the W_t.
      noise_variance: sigma^2 above 0.

    Raises:
      ValueError: for tasks that are no (T, D, O), or a variance that is not above 0.
      ShapeError: when it predicts, for tasks of another D or O.
    """
    _check_tasks(tasks, noise_variance)

    def predict(prompt: Prompt) -> Array:
        weights = jax.nn.softmax(-_misses(prompt, tasks) / (2 * noise_variance))
        return jnp.einsum("t,tdo,d->o", weights, tasks, prompt.x_query)

    return predict


def _check_tasks(tasks: Array, noise_variance: ArrayLike) -> None:
    check_number("tasks", tasks)
    if len(np.shape(tasks)) != 3 or not len(tasks):
        raise ValueError(f"tasks must be (T, D, O), got {np.shape(tasks)}")
    check_number("noise_variance", noise_variance, above=0, scalar=True)


def _misses(prompt: Prompt, tasks: Array) -> Array:
    """(T,) sum_i |y_i - W_t^T x_i|^2 of every task."""
    _, d, o = check_prompt(prompt)
    if np.shape(tasks)[1:] != (d, o):  # one output would be broadcast over several
        raise ShapeError(f"tasks must be (T, D, O) = (T, {d}, {o}) for this prompt, got {np.shape(tasks)}")
    return jnp.sum((prompt.y[None] - jnp.einsum("nd,tdo->tno", prompt.x, tasks)) ** 2, axis=(1, 2))


@named_by_arguments
def dmmse_or_ridge(tasks: Array, noise_variance: ArrayLike, strength: ArrayLike, log_odds: ArrayLike = 0.0) -> Learner:
    """The Bayes predictor where a task is one of a given set, or drawn from N(0, sigma^2 / lambda I).

    It is p dMMSE + (1 - p) ridge, with p the posterior of the set by the evidence of the labels: log p/(1 - p) is
    log mean_t N(y | X W_t, sigma^2 I) - log N(y | 0, sigma^2 (I + X X^T / lambda)) + log odds. Networks trained on few
    tasks move between the two predictors (Raventos et al. 2023), as such a mixture describes (Wurgaft et al. 2025).

    Args:
      tasks: (T, D, O) the W_t.
      noise_variance: sigma^2 above 0.
      strength: lambda above 0, on the *sum* of squared errors, as in ``ridge``.
      log_odds: log of the set's prior odds; minus infinity is ``ridge``, infinity is ``dmmse``.

    Raises:
      ValueError: as ``dmmse``, or for a strength that is not above 0.
      ShapeError: when it predicts, for tasks of another D or O.
    """
    _check_tasks(tasks, noise_variance)
    check_number("strength", strength, above=0, scalar=True)

    def predict(prompt: Prompt) -> Array:
        w, fit, log_det = _posterior(prompt, strength)
        of_set = jax.nn.logsumexp(-_misses(prompt, tasks) / (2 * noise_variance)) - jnp.log(len(tasks))
        of_all = -fit.sum() / (2 * noise_variance) - prompt.y.shape[1] / 2 * log_det
        p = jax.nn.sigmoid(of_set - of_all + log_odds)
        return p * dmmse(tasks, noise_variance)(prompt) + (1 - p) * (prompt.x_query @ w)

    return predict


@named_by_arguments
def softmax_regression(sharpness: ArrayLike, amplitude: ArrayLike = 1.0) -> Learner:
    """sum over heads of c_h sum_i softmax_i(b_h x_i.x_q) y_i: what a layer of softmax attention computes.

    Args:
      sharpness: b, a scalar for one head or (H,).
      amplitude: c, of either sign, like ``sharpness``.

    Raises:
      ValueError: for what is no number.
    """
    check_number("sharpness", sharpness)
    check_number("amplitude", amplitude)
    b, c = jnp.broadcast_arrays(jnp.atleast_1d(jnp.asarray(sharpness, float)), jnp.asarray(amplitude, float))

    def predict(prompt: Prompt) -> Array:
        check_prompt(prompt)
        weights = jax.nn.softmax(b[:, None] * (prompt.x @ prompt.x_query)[None], axis=1)  # (H, N)
        return c @ weights @ prompt.y

    return predict


@named_by_arguments
def gaussian_smoothing(bandwidth: ArrayLike, amplitude: ArrayLike = 1.0) -> Learner:
    """c sum_i k_i y_i / sum_i k_i with k_i = exp(-|x_i - x_q|^2 / (2 h^2)) (Nadaraya 1964; Watson 1964).

    Args:
      bandwidth: h > 0.
      amplitude: c, 1 in the references.

    Raises:
      ValueError: for a bandwidth that is not one number above 0.
    """
    check_number("bandwidth", bandwidth, above=0, scalar=True)
    check_number("amplitude", amplitude, scalar=True)

    def predict(prompt: Prompt) -> Array:
        check_prompt(prompt)
        distances = jnp.sum((prompt.x - prompt.x_query[None]) ** 2, axis=1)
        scale = jnp.asarray(amplitude, jnp.result_type(prompt.y, float))  # labels may be whole numbers
        return scale * (jax.nn.softmax(-distances / (2 * bandwidth**2)) @ prompt.y)

    return predict


@named_by_arguments
def centred(learner: Learner, *, add_mean: bool = False) -> Learner:
    """A learner on centred inputs and labels of the context; the query stays as it is.

    ``centred(gradient_descent(eta, 1))`` is what two heads of softmax attention compute where they are not sharp:
    (eta/N) sum_i (x_i - mean x).x_q (y_i - mean y).

    Args:
      learner: what is given the centred prompt.
      add_mean: the mean of the labels is added to its prediction.
    """

    return _centred(learner, add_mean=add_mean, query=False)


@named_by_arguments
def with_intercept(learner: Learner) -> Learner:
    """A learner with an intercept that is not penalised: on centred inputs, labels and query, plus the mean label.

    ``with_intercept(ridge(lambda))`` minimises sum_i |y_i - W^T x_i - a|^2 + lambda |W|^2 over W and a (Hastie,
    Tibshirani & Friedman 2009, section 3.4.1); the same for ``least_squares()``. Unlike in ``centred`` the mean input
    of the context is taken off the query too.

    Args:
      learner: what is given the centred prompt.
    """
    return _centred(learner, add_mean=True, query=True)


def _centred(learner: Learner, *, add_mean: bool, query: bool) -> Learner:
    if not callable(learner):
        raise ValueError(f"learner must be a function Prompt -> prediction, got {learner!r}")

    def predict(prompt: Prompt) -> Array:
        n, _, _ = check_prompt(prompt)
        mean, middle = prompt.y.sum(0) / max(n, 1), prompt.x.sum(0) / max(n, 1)  # of no examples: 0
        at = prompt.x_query - middle if query else prompt.x_query
        prediction = learner(replace(prompt, x=prompt.x - middle[None], y=prompt.y - mean[None], x_query=at))
        return prediction + mean if add_mean else prediction

    return predict
