"""Optimizers that draw random numbers: each member draws its own."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxprs_in_params

Tree = Any
STREAM = 0x6E6F6973
"""Of a member's key: what its optimizer draws is apart from its initial parameters."""
DRAWS = {"random_bits", "random_gamma", "rng_bit_generator", "rng_uniform", "threefry2x32"}
"""Operations of JAX that draw random numbers."""


def of_member(state: Tree, key: Array) -> Tree:
    """The first state of an optimizer with the key of a member in every key that it holds.

    The seed of the optimizer counts as well: other seeds are other noise. A state without typed keys is as it was.
    """
    words = jax.random.bits(jax.random.fold_in(key, STREAM), (2,)) if any(map(is_key, jax.tree.leaves(state))) else ()

    def own(leaf: Any) -> Any:
        if not is_key(leaf):
            return leaf
        keys = leaf.ravel()
        for word in words:
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, word)
        return keys.reshape(leaf.shape)

    return jax.tree.map(own, state)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a typed key, or several."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def differ(constants: Sequence[Any], again: Sequence[Any]) -> bool:
    """Whether a program has other constants when it is made again: those that numpy draws meanwhile."""
    if len(constants) != len(again):
        return True
    for one, other in zip(constants, again):
        compared = not any(is_key(value) or isinstance(value, jax.core.Tracer) for value in (one, other))
        if compared and not np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True):
            return True
    return False


def same_for_all(program: Any, of_members: Sequence[bool]) -> bool:
    """Whether a program draws random numbers by a key that does not come from arguments that members have of their own.

    Args:
      program: of ``jax.make_jaxpr``.
      of_members: for each of its arguments.
    """
    return _draws_alike(program.jaxpr, of_members)


def _draws_alike(jaxpr: Any, of_members: Sequence[bool]) -> bool:
    own = {id(variable) for variable, is_own in zip(jaxpr.invars, of_members) if is_own}
    for step in jaxpr.eqns:
        inputs = [id(variable) in own for variable in step.invars]
        if step.primitive.name in DRAWS and not any(inputs):
            return True
        for inner in jaxprs_in_params(step.params):
            # an inner program's arguments are the last of the operation's; what chooses a branch stands before them
            if _draws_alike(inner, inputs[len(inputs) - len(inner.invars) :]):
                return True
        own |= {id(variable) for variable in step.outvars if any(inputs)}
    return False
