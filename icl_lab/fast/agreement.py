"""Whether the plain and the fast form of a network are one function, asked where a part of it is a user's own."""

import functools
import operator
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from icl_lab.prompts.layouts import Layout
from icl_lab.prompts.prompt import Prompt

TOLERANCE = 1e-3
"""Largest difference, relative to the largest prediction. Rounding in float32 is 6e-8 of a term, which some hundred
terms in a few layers add up to 1e-5; a wrong axis or factor changes predictions by a tenth or more."""
HASTE = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
_agreed: set[Hashable] = set()


def ours(function: Any) -> bool:
    """Whether a function or class is of this library, whose tests compare its forms."""
    return getattr(function, "__module__", "").startswith("icl_lab.")


def check_forms(
    what: str,
    identity: Hashable,
    network: nn.Module,
    layout: Layout,
    prompts: Prompt,
    plain: Callable[[dict, Prompt], Array],
    fast: Callable[[dict, Prompt], Array],
    several: int,
) -> None:
    """Compares the forms on random prompts and weights, one prompt alone and among several, once for an identity.

    It computes where it is called, also while a program is traced.

    Args:
      what: the parts that are not of this library, for the message.
      identity: of the network, with all that may be replaced behind its back.
      network: whose ``init`` says which weights there are.
      layout: how prompts become tokens.
      prompts: B prompts, of which only shapes matter.
      plain: ``(params, one prompt) -> prediction``.
      fast: ``(params, B prompts) -> predictions``.
      several: prompts of a batch, more than one block of them.

    Raises:
      ValueError: naming the parts, the layout and the difference, where predictions differ by more than ``TOLERANCE``.
    """
    dtype = jnp.promote_types(prompts.x.dtype, jnp.float32)
    shapes = prompts.x.shape[1:], prompts.y.shape[2]
    if (identity, shapes, dtype) in _agreed:
        return
    rng = np.random.default_rng(0)
    drawn: Any = lambda part: rng.normal(size=(several, *part.shape[1:])).astype(dtype)  # noqa: E731
    many = Prompt(drawn(prompts.x), drawn(prompts.y), drawn(prompts.x_query))
    chosen = np.array([0, 1, several - 1])  # in the first block and in the last
    few, one, first = (jax.tree.map(operator.itemgetter(rows), many) for rows in (chosen, slice(1), 0))
    tokens = jax.eval_shape(layout.encode, first)
    shaped = jax.eval_shape(network.init, jax.eval_shape(lambda: jax.random.key(0)), tokens)
    params = jax.tree.map(
        lambda leaf: (rng.normal(size=leaf.shape) / max([1, *leaf.shape[-2:-1]]) ** 0.5).astype(dtype), shaped
    )

    @functools.partial(jax.jit, compiler_options=HASTE if jax.default_backend() == "cpu" else {})
    def both(size: float) -> tuple[Array, Array, Array]:
        scaled = jax.tree.map(lambda leaf: size * leaf, params)
        return jax.vmap(functools.partial(plain, scaled))(few), fast(scaled, many)[chosen], fast(scaled, one)

    with jax.ensure_compile_time_eval(), jax.default_matmul_precision("highest"):
        for halvings in range(12):  # large weights show most, but amplify rounding layer by layer
            expected, among, alone = map(np.asarray, both(0.5**halvings))
            if np.abs(expected).max() < 10:
                break
    largest = np.abs(expected).max()
    differences = {"several prompts": np.abs(among - expected).max(), "one prompt": np.abs(alone - expected[:1]).max()}
    for batch, difference in differences.items():
        if not difference <= TOLERANCE * largest:
            raise ValueError(
                f"{what}: the plain form and the form for batches, which training uses, disagree "
                f"({layout.encode.__qualname__.split('.')[0]}, batch of {batch}): predictions of up to {largest:.2g} "
                f"differ by {difference:.2g}; of_scores takes (blocks, T, N, tasks), where keys are axis 2"
            )
    _agreed.add((identity, shapes, dtype))
