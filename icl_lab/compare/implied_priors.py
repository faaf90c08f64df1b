"""The prior over tasks that a learner holds, read off its own predictions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from icl_lab.prompts.naming import sizes
from icl_lab.prompts.prompt import Prompt, Sample, Sampler, check_sampler
from icl_lab.prompts.tracing import check_key, whole

Floats = NDArray[np.float64]
Predictive = Callable[[Prompt], tuple[Any, ...]]
"""B prompts of t >= 0 examples -> (mean, variance), each (B, 1), of the next output given its input; or (mean,
variance, weight), each (B, K), of a mixture of K normal distributions."""


class ImpliedPrior(NamedTuple):
    """R roll-outs of n examples in D dimensions, float64."""

    tasks: Floats  # (R, D) least squares of each roll-out
    x: Floats  # (R, n, D)
    y: Floats  # (R, n) drawn from the learner's own predictions


def implied_prior(learner: Predictive, sampler: Sampler, key: Array, rollouts: int) -> ImpliedPrior:
    """Samples of a learner's prior over tasks: least squares on roll-outs of its own predictions (Aswadi et al. 2026).

    From an empty context on, an input is drawn, then an output from what the learner predicts for it; both are
    appended, n times. The product of predictive densities is the joint density of outputs given inputs. So roll-outs of
    the Bayes predictor of *any* prior are prompts of tasks from that prior, exactly and at every n, and a fitted task
    is w + (X^T X)^-1 X^T e: for w ~ N(0, I), noise of variance s^2 and inputs N(0, Sigma) of any Sigma its covariance
    is I + s^2 Sigma^-1 / (n - D - 1), by the mean of an inverse Wishart matrix, for n > D + 1. For other inputs
    E (X^T X)^-1 takes the place of Sigma^-1 / (n - D - 1).

    A point predictor has no prior: with variance 0 every roll-out is its answer to nothing (0 for most), and with the
    variance of the noise alone tasks hardly move from there. Neither is assumed here; a learner says its variance.

    Args:
      learner: B prompts -> (mean, variance), each (B, 1), of the output at the query; or (mean, variance, weight), each
        (B, K), of a mixture of normal distributions. It is asked after 0, 1, .., n - 1 examples, in float64 arrays of
        numpy.
      sampler: draws the inputs: those of its prompts, n of D numbers, with n >= D; their outputs are not used.
      key: of all draws.
      rollouts: R.

    Returns:
      Fitted tasks and roll-outs.

    Raises:
      ValueError: naming the argument: for a point predictor, predictions that are not of these shapes, are not finite
        or no distribution (a variance below 0, weights that do not sum to 1), a sampler of other prompts, or fewer
        examples than inputs.
    """
    rollouts = whole("rollouts", rollouts)
    if not callable(learner):
        raise ValueError(f"learner must be a function of prompts -> (mean, variance), got {learner!r}")
    check_key(key)
    draw, normal, uniform = jax.random.split(key, 3)
    x: Any = np.asarray(_inputs(sampler, draw, rollouts), np.float64)
    n = x.shape[1]
    noise = np.asarray(jax.random.normal(normal, (n, rollouts)), np.float64)
    uniforms = np.asarray(jax.random.uniform(uniform, (n, rollouts)), np.float64)
    y: Any = np.empty((rollouts, n))
    for t in range(n):
        mean, variance, weight = _predicted(learner, Prompt(x[:, :t], y[:, :t, None], x[:, t]))
        part = np.sum(np.cumsum(weight, axis=1)[:, :-1] < uniforms[t][:, None], axis=1)[:, None]
        mean, variance = (np.take_along_axis(moment, part, axis=1)[:, 0] for moment in (mean, variance))
        y[:, t] = mean + np.sqrt(variance) * noise[t]
    gram = np.einsum("rni,rnj->rij", x, x)
    return ImpliedPrior(np.linalg.solve(gram, np.einsum("rni,rn->ri", x, y)[..., None])[..., 0], x, y)


def _inputs(sampler: Any, key: Array, rollouts: int) -> Array:
    """(R, n, D) inputs of drawn prompts."""
    if not callable(sampler):
        raise ValueError(f"sampler must be a function (key, batch) -> Sample, got {sampler!r}")
    drawn: Sample = check_sampler("sampler", sampler, rollouts, parts=("x",))
    shape = np.shape(drawn.prompt.x)
    if len(shape) != 3 or shape[1] < shape[2] or drawn.prompt.length is not None:
        raise ValueError(f"sampler must draw prompts of at least as many examples as inputs, none padded, got {drawn}")
    return sampler(key, rollouts).prompt.x


def _predicted(learner: Predictive, prompts: Prompt) -> tuple[Floats, Floats, Floats]:
    """Mean, variance and weight (B, K) of the parts of a predictive distribution, checked."""
    batch, where = len(prompts.x), f"after {prompts.x.shape[1]} examples"
    allowed = "learner must give (mean, variance), each (B, 1), or (mean, variance, weight), each (B, K)"
    prediction = learner(prompts)
    if not isinstance(prediction, tuple | list) or len(prediction) not in (2, 3):
        raise ValueError(f"{allowed}; a point predictor has no prior; got {sizes(prediction)} {where}")
    parts = [np.asarray(one, np.float64) for one in prediction]
    components = 1 if len(parts) == 2 else max(1, parts[0].size // batch)
    if any(part.shape != (batch, components) for part in parts):
        raise ValueError(f"{allowed}, with B = {batch}; got {', '.join(map(sizes, parts))} {where}")
    mean, variance, weight = parts if len(parts) == 3 else (*parts, np.ones((batch, 1)))
    if not all(np.isfinite(part).all() for part in parts) or variance.min() < 0:
        raise ValueError(f"learner must give finite means and variances of at least 0; {where} it does not")
    if weight.min() < 0 or np.abs(weight.sum(axis=1) - 1).max() > 1e-4:
        raise ValueError(f"learner must give weights that are at least 0 and sum to 1; {where} they do not")
    return mean, variance, weight
