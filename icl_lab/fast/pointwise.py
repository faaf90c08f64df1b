"""Arithmetic of tokens one by one, with the task as last axis: clipped sums, GELU, LayerNorm.

Arrays are (blocks, tokens, channels, tasks), as in ``tasks_last``, and for the same reason each function has its
gradient written beside it: reverse mode only.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.layers import LAYER_NORM_EPSILON
from icl_lab.prompts.unfused import unfused


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def add(x: Array, update: Array, clip: float) -> Array:
    """x + update, clipped to [-clip, clip]; 0 means no clip. The slope at the bounds is 0."""
    return clipped(x + update, clip)


def clipped(x: Array, clip: float) -> Array:
    """x clipped to [-clip, clip]; 0 means no clip."""
    return jnp.clip(x, -clip, clip) if clip else x


def _add_fwd(x, update, clip):
    out = add(x, update, clip)
    return out, out if clip else None


def _add_bwd(clip, out, d):
    d = inside(out, d, clip=clip) if clip else d
    return d, d


@unfused(static=("clip",))
def inside(out: Array, d: Array, *, clip: float) -> Array:
    """Cotangent of the clip, whose slope is read off the clipped value."""
    return jnp.where(jnp.abs(out) < clip, d, 0)


add.defvjp(_add_fwd, _add_bwd)


@jax.custom_vjp
def gelu(x: Array, bias: Array) -> Array:
    """GELU (tanh approximation) of x + bias: (s, T, F, t), (F,) -> (s, T, F, t)."""
    return _gelu(x, bias)


@unfused
def _gelu(x: Array, bias: Array) -> Array:
    return jax.nn.gelu(x + _channels(bias))


@unfused
def _gelu_bwd(x: Array, bias: Array, d: Array) -> Array:
    _, pull = jax.vjp(jax.nn.gelu, x + _channels(bias))
    return pull(d)[0]


gelu.defvjp(
    lambda x, bias: (gelu(x, bias), (x, bias)),
    lambda residual, d: (through := _gelu_bwd(*residual, d), _channel_sums(through)),
)


@jax.custom_vjp
def add_bias(x: Array, bias: Array) -> Array:
    """x + bias on every token: (s, T, E, t), (E,) -> (s, T, E, t)."""
    return x + _channels(bias)


add_bias.defvjp(lambda x, bias: (add_bias(x, bias), None), lambda _, d: (d, _channel_sums(d)))


@jax.custom_vjp
def layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    """Channels of mean 0 and variance 1, scaled and shifted: (s, T, E, t), (E,), (E,) -> (s, T, E, t)."""
    return _layer_norm(x, scale, offset)


@unfused
def _layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    unit, _ = _unit(x)
    return unit * _channels(scale) + _channels(offset)


def _unit(x: Array) -> tuple[Array, Array]:
    centred = x - x.mean(2, keepdims=True)
    inverse = 1 / jnp.sqrt((centred**2).mean(2, keepdims=True) + LAYER_NORM_EPSILON)
    return centred * inverse, inverse


@unfused
def _layer_norm_bwd(x: Array, scale: Array, d: Array) -> Array:
    unit, inverse = _unit(x)
    d = d * _channels(scale)
    return inverse * (d - d.mean(2, keepdims=True) - unit * (unit * d).mean(2, keepdims=True))


layer_norm.defvjp(
    lambda x, scale, offset: (layer_norm(x, scale, offset), (x, scale)),
    lambda residual, d: (_layer_norm_bwd(*residual, d), _channel_sums(_unit(residual[0])[0] * d), _channel_sums(d)),
)


def _channels(v: Array) -> Array:
    return v[None, None, :, None]


@unfused
def _channel_sums(x: Array) -> Array:
    return x.sum((0, 1, 3))
