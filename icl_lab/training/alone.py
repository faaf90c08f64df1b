"""Whether a model answers every prompt by itself: what it predicts for one may depend on no other of its batch."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.prompts import Prompt
from icl_lab.prompts.prompt import ShapeError
from icl_lab.training import effort, programs
from icl_lab.training.model import Model

Tree = Any
PROMPTS = 8
"""Prompts that are asked alone, together and in another order."""
TOLERANCE = 1e-3
"""Allowed difference, relative to the spread of the predictions, which a softmax, a mean or a norm over the wrong axis
changes by a tenth or more."""
ROUNDING = 8
"""Times as far as a change of the prompts by two roundings moves predictions, they may differ too."""
_ASKED: collections.OrderedDict[tuple[int, int], Model] = collections.OrderedDict()  # which it keeps alive


class _Answers(NamedTuple):
    """Predictions for P prompts, (P, K) each."""

    alone: Array
    together: Array
    reordered: Array  # of the batch in another order, put back
    moved: Array  # of prompts that are changed by two roundings


def check_alone(
    model: Model, params: Callable[[Array, Tree], Tree], prompts: Callable[[Array, Tree], Prompt], setting: Tree = None
) -> None:
    """Asks a model once for a few prompts alone, together and in another order, with its parameters and random ones.

    Random parameters show what those at the start may hide, as a head of zeros does, which predicts the same of all
    prompts. All runs as one small program.

    Args:
      model: what is asked; a model that was asked before is not asked again.
      params: ``(key, setting) -> parameters``.
      prompts: ``(key, setting) -> B prompts``, of which the first ``PROMPTS`` are asked.
      setting: pytree of arrays.

    Raises:
      ValueError: naming the model, where predictions for a prompt differ; with both.
      ShapeError: for predictions without an axis of prompts.
    """
    identity = id(model.init), id(model.predict)
    if identity in _ASKED:
        return

    def answers(key: Array, setting: Tree, random: Tree, rounding: Array) -> _Answers:
        of_init, of_prompts = jax.random.split(key)
        first = params(of_init, setting)
        few = jax.tree.map(lambda part: part[:PROMPTS], prompts(of_prompts, setting))
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, jax.tree.map(_real_or_first, random, first))
        return jax.lax.map(lambda which: _answers(model, which[0], few, rounding), (both, np.arange(2)))

    key = jax.random.key(0)
    arguments = key, setting, _random(jax.eval_shape(params, key, setting)), np.float32(0)
    traced = jax.jit(answers).trace(*arguments)
    program = programs.compiled(traced, effort.of("little"))
    found = jax.device_get(program(*arguments[:3], _rounding(str(traced.jaxpr))))
    for which, where in enumerate(("its parameters", "random parameters")):
        _judge(model, _Answers(*(part[which] for part in found)), where)
    _ASKED[identity] = model
    while len(_ASKED) > programs.MOST:
        _ASKED.popitem(last=False)


def _judge(model: Model, found: _Answers, where: str) -> None:
    """Raises ValueError where predictions alone, together and in another order differ by more than rounding."""
    count = len(found.together)
    others = ((found.alone, ("alone", f"among {count}")), (found.reordered, ("reordered", "as drawn")))
    finite = all(np.isfinite(part).all() for part in found)
    if finite:
        values = np.stack(found[:3])
        spread = np.ptp(values, axis=(0, 1))  # (K,), of each output by itself: one may be far larger than another
        moved = np.abs(found.moved - found.together).max()
        allowed = TOLERANCE * spread + ROUNDING * max(moved, np.finfo(np.float32).eps * np.abs(values).max())
    for other, words in others:
        if finite:
            excess = np.abs(other - found.together) - allowed
        else:  # NaN of one prompt alone, as of its standard deviation, is another answer; divergence is told elsewhere
            excess = np.not_equal(np.isfinite(other), np.isfinite(found.together)) - 0.5
        if excess.max() > 0:
            at = np.unravel_index(excess.argmax(), excess.shape)
            raise ValueError(
                f"network {model.name}: its prediction for one prompt depends on the others of the batch; it is "
                f"{other[at]:.3g} {words[0]} and {found.together[at]:.3g} {words[1]} (at {where}); allowed is a Model "
                "that predicts each prompt from that prompt alone, without a sum, mean, norm or softmax over axis 0"
            )


def _answers(model: Model, params: Tree, prompts: Prompt, rounding: Array) -> _Answers:
    count = len(prompts.x)
    order = np.roll(np.arange(count)[::-1], 3)

    def flat(batch: Prompt) -> Array:
        size, leaves = len(batch.x), jax.tree.leaves(model.predict(params, batch))
        if wrong := [leaf.shape for leaf in leaves if leaf.shape[:1] != (size,)]:
            raise ShapeError(f"network {model.name} must predict (B, O) for B prompts, got {wrong[0]} for {size}")
        return jnp.concatenate([leaf.reshape(size, -1).astype(jnp.float32) for leaf in leaves], axis=1)

    moved = jax.tree.map(lambda leaf: _moved(leaf, rounding), prompts)
    batches = jax.tree.map(
        lambda *parts: jnp.stack(parts), prompts, jax.tree.map(lambda part: part[order], prompts), moved
    )
    together, reordered, changed = jax.lax.map(flat, batches)
    alone = jax.lax.map(lambda one: flat(jax.tree.map(lambda part: part[None], one))[0], prompts)
    return _Answers(alone, together, reordered[np.argsort(order)], changed)


def _moved(leaf: Array, rounding: Array) -> Array:
    """Real numbers moved by two roundings, up and down by turns."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    signs = (-1.0) ** np.arange(leaf.size).reshape(leaf.shape)
    return leaf * (1 + 2 * rounding * signs).astype(leaf.dtype)


def _rounding(program: str) -> np.float32:
    """The rounding of the coarsest real numbers in a program's text."""
    kinds = {"bf16[": jnp.bfloat16, "f16[": jnp.float16}
    coarse = [jnp.finfo(kind).eps for word, kind in kinds.items() if word in program]
    return np.float32(max([jnp.finfo(np.float32).eps, *coarse]))


def _random(shapes: Tree) -> Tree:
    """Normal draws of these shapes, divided by the square root of a matrix's inputs; 0 for what is no real number."""
    rng = np.random.default_rng(0)

    def drawn(leaf: Any) -> np.ndarray:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return np.zeros(())
        return (rng.normal(size=leaf.shape) / max([1, *leaf.shape[-2:-1]]) ** 0.5).astype(leaf.dtype)

    return jax.tree.map(drawn, shapes)


def _real_or_first(random: Array, first: Array) -> Array:
    """Random numbers for real parameters; what else there is stays."""
    return random if jnp.issubdtype(first.dtype, jnp.floating) else first
