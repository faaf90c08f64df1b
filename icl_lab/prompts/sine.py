"""Sampler of in-context sine regression (von Oswald et al. 2022, section 4.1 and A.7)."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.draws import batch_first, block_shape, centred_uniforms
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_number, check_sizes, is_traced, one_program
from icl_lab.prompts.unfused import unfused


@named_options
def sine_regression(
    *,
    context_length: int,
    input_range: ArrayLike = 10.0,
    amplitude: Sequence[ArrayLike] = (0.1, 0.5),
    phase: Sequence[ArrayLike] = (0.0, math.pi),
    dependent: bool = False,
) -> Sampler:
    """Sampler of tasks y = a sin(x + p), one input and one output (von Oswald et al. 2022, A.7).

    Inputs, the query among them, are U(-r/2, r/2); a and p are uniform on their ranges, drawn once for each task. The
    default amplitudes are those of the released code (the text says up to 5). Numbers may be traced values.

    Args:
      context_length: N, number of context pairs.
      input_range: r.
      amplitude: (lowest, highest) a.
      phase: (lowest, highest) p, in radians.
      dependent: a and p come from one uniform draw u (lowest + (highest - lowest) u, both), so that tasks are a family
        of one parameter: the released code, which draws both from one key.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, 1), y (B, N, 1), x_query (B, 1), target (B, 1), latent ``amplitude`` and
      ``phase`` (B,).

    Raises:
      ValueError: for a context length below 1, an input range that is not positive, or a range that is no ascending
        pair.
    """
    (n,) = check_sizes(context_length=context_length)
    check_number("input_range", input_range, above=0)
    for name, ends in (("amplitude", amplitude), ("phase", phase)):
        for end in ends:
            check_number(name, end)
        if len(ends) != 2 or (not any(map(is_traced, ends)) and not np.all(np.diff(np.asarray(ends, float)) >= 0)):
            raise ValueError(f"{name} must be (lowest, highest), got {tuple(ends)}")

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        blocks, tasks = block_shape(batch)
        uniforms = centred_uniforms(key, (blocks, n + 1 + (1 if dependent else 2), 1, tasks))
        x = jnp.asarray(input_range, jnp.float32) * uniforms[:, : n + 1]  # the query is the last point
        a, p = _between(amplitude, uniforms[:, n + 1]), _between(phase, uniforms[:, -1])  # (blocks, 1, tasks)
        values = _sines(x, a, p)
        parts = (x[:, :n], x[:, n], values[:, :n], values[:, n], a, p)
        x, query, y, target, a, p = (batch_first(part, batch).astype(float) for part in parts)
        return Sample(Prompt(x=x, y=y, x_query=query), target, latent={"amplitude": a[:, 0], "phase": p[:, 0]})

    return sampler


@unfused
def _sines(x: Array, a: Array, p: Array) -> Array:
    """(blocks, P, 1, tasks), (blocks, 1, tasks) twice -> (blocks, P, 1, tasks)."""
    return a[:, None] * jnp.sin(x + p[:, None])


def _between(ends: Sequence[ArrayLike], centred: Array) -> Array:
    low, high = (jnp.asarray(end, jnp.float32) for end in ends)
    return (low + high) / 2 + (high - low) * centred
