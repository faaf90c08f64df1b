"""Gradient descent in function space: kernel smoothing and its iteration (von Oswald et al. 2022, Prop. 2 and A.8).

And nearest neighbours, whose kernel depends on the other inputs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, check_prompt
from icl_lab.prompts.tracing import check_sizes
from icl_lab.solvers.gradient import per_step

Features = Callable[[Array], Array]
"""m: an input (D,) -> (F,)."""

Kernel = Callable[[Array, Array], Array]
"""k: two inputs (D,), (D,) -> a number."""


def feature_kernel(features: Features) -> Kernel:
    """The kernel k(x, x') = m(x).m(x') of a feature map (von Oswald et al. 2022, A.8)."""
    _check_callable("features", features)
    return lambda a, b: features(a) @ features(b)


def _check_callable(name: str, given: Any) -> None:
    if not callable(given):
        raise ValueError(f"{name} must be a function of inputs (D,), got {given!r}")


@named_by_arguments
def kernel_smoothing(kernel: Kernel, learning_rate: ArrayLike) -> Learner:
    """Kernel smoothing: prediction (eta/N) sum_i y_i k(x_i, x_q) (von Oswald et al. 2022, Prop. 2 and A.8).

    With k = m.m it is one step of gradient descent from W = 0 on 1/(2N) sum_i |W m(x_i) - y_i|^2, and what a layer of
    linear self-attention computes after the features m. Of a trained layer kernel and values depend on inputs and
    labels together: ``icl_lab.models.kernels.kernel_form``.

    Args:
      kernel: k, for instance a ``feature_kernel``.
      learning_rate: eta, a scalar.
    """
    return functional_gradient_descent(kernel, learning_rate, steps=1)


@named_by_arguments
def nearest_neighbours(count: int = 3) -> Learner:
    """The mean label of the examples whose inputs are nearest to the query, by Euclidean distance; 0 without examples.

    Garg et al. 2022, section 3.1, with three neighbours.

    Args:
      count: how many examples; all where the context has fewer.

    Raises:
      ValueError: for a count below 1.
    """
    (count,) = check_sizes(count=count)

    def predict(prompt: Prompt) -> Array:
        n, _, o = check_prompt(prompt)
        if n == 0:
            return jnp.zeros((o,), prompt.y.dtype)
        distances = jnp.sum((prompt.x - prompt.x_query[None]) ** 2, axis=1)
        _, nearest = jax.lax.top_k(-distances, min(count, n))
        return prompt.y[nearest].mean(0)

    return predict


@named_by_arguments
def functional_gradient_descent(kernel: Kernel, learning_rates: ArrayLike, steps: int | None = None) -> Learner:
    """Gradient descent in function space: f <- f - (eta_k/N) sum_i (f(x_i) - y_i) k(x_i, .) from 0; predicts f(x_q).

    The residuals r_i = y_i - f(x_i) of the context move by r <- r - (eta_k/N) K r, the prediction by
    (eta_k/N) sum_i r_i k(x_i, x_q). With k = m.m it is gradient descent on the last layer W of W m(x) (von Oswald et
    al. 2022, A.8).

    Args:
      kernel: k, for instance a ``feature_kernel``.
      learning_rates: eta, a scalar (then ``steps`` counts) or one per step (K,).
      steps: K; may be left out when ``learning_rates`` is (K,).

    Raises:
      ValueError: if the number of steps does not fit the learning rates.
    """
    _check_callable("kernel", kernel)
    rates = per_step("learning_rates", learning_rates, steps)
    with_all = jax.vmap(kernel, (None, 0))

    def predict(prompt: Prompt) -> Array:
        n, _, o = check_prompt(prompt)
        overlap = with_all(prompt.x_query, prompt.x)  # (N,)
        gram = jax.vmap(with_all, (0, None))(prompt.x, prompt.x)  # (N, N), dropped by the compiler after one step
        residual, prediction = prompt.y, jnp.zeros((o,), prompt.y.dtype)
        for rate in rates:
            prediction = prediction + rate / max(n, 1) * overlap @ residual
            residual = residual - rate / max(n, 1) * gram @ residual
        return prediction

    return predict
