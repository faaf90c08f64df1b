"""Sampler of in-context logistic regression, which von Oswald et al. 2022 name as future work (this lab)."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.draws import QUANTILES, batch_first, block_shape, centred_uniforms
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_number, check_sizes, one_program
from icl_lab.prompts.unfused import unfused


@named_options
def logistic_regression(
    *, context_length: int, input_size: int, input_range: ArrayLike = 1.0, task_scale: ArrayLike = 1.0
) -> Sampler:
    """Sampler of tasks w ~ N(0, s^2 I) whose labels are +1 with probability 1 / (1 + exp(-w.x)), else -1.

    With labels -1 and +1 the mean logistic loss over the context, (1/N) sum_i log(1 + exp(-y_i w.x_i)), has at w = 0
    the gradient -(1/2N) sum_i y_i x_i: a token (x, y) carries what the first step of gradient descent needs, and a
    layer of linear self-attention can take it. Inputs, the query among them, are U(-r/2, r/2) in every coordinate.
    Range and scale may be traced values.

    Args:
      context_length: N, number of context pairs.
      input_size: D.
      input_range: r.
      task_scale: s.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, 1) and target (B, 1) of entries -1 and +1, x_query (B, D),
      latent ``w`` (B, D, 1) and ``probability`` (B, 1) of the query's label being +1.

    Raises:
      ValueError: for sizes below 1, or a range or scale that is not allowed.
    """
    n, d = check_sizes(context_length=context_length, input_size=input_size)
    check_number("input_range", input_range, above=0)
    check_number("task_scale", task_scale)

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        blocks, tasks = block_shape(batch)
        uniforms = centred_uniforms(key, (blocks, n + 2, d + 1, tasks))
        points = jnp.asarray(input_range, jnp.float32) * uniforms[:, : n + 1, :d]  # the query is the last point
        w = jnp.asarray(task_scale, jnp.float32) * QUANTILES["normal"](uniforms[:, n + 1, :d])
        above_half = _probabilities_above_half(points, w)
        labels = jnp.where(uniforms[:, : n + 1, d] < above_half, 1.0, -1.0)[:, :, None]
        parts = (points[:, :n], labels[:, :n], points[:, n], labels[:, n], w[:, :, None], above_half[:, n, None] + 0.5)
        x, y, query, target, w, probability = (batch_first(part, batch).astype(float) for part in parts)
        return Sample(Prompt(x=x, y=y, x_query=query), target, latent={"w": w, "probability": probability})

    return sampler


@unfused
def _probabilities_above_half(points: Array, w: Array) -> Array:
    """P(y = 1 | x) - 1/2 = tanh(w.x / 2) / 2: (blocks, P, D, tasks), (blocks, D, tasks) -> (blocks, P, tasks)."""
    return jnp.tanh((points * w[:, None]).sum(2) / 2) / 2
