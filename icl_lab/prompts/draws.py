"""Random numbers for whole batches of small tasks, at a fifth of the time of drawing them with ``jax.random``.

A training step of a small network spends most of its time on random numbers. Here they are drawn in the order
``(blocks, rows, columns, tasks of a block)``: the task is the vector axis, so that what is computed from them (labels,
products) is vectorised over tasks too.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from icl_lab.prompts.unfused import unfused

BLOCK = 64  # tasks of a block


def block_shape(batch: int, largest: int = BLOCK) -> tuple[int, int]:
    """(blocks, tasks of a block, at most ``largest``) that hold a batch; the last block may hold surplus tasks."""
    if batch < 1:
        raise ValueError(f"a batch has at least one task, got {batch}")
    tasks = min(batch, largest)
    return -(-batch // tasks), tasks


def batch_first(blocks: Array, batch: int) -> Array:
    """(blocks, ..., tasks) -> (batch, ...), surplus tasks dropped."""
    moved = jnp.moveaxis(blocks, -1, 1)
    return moved.reshape(-1, *moved.shape[2:])[:batch]


def block_last(values: Array, largest: int = BLOCK) -> Array:
    """(batch, ...) -> (blocks, ..., tasks), the inverse of ``batch_first``; surplus tasks are zero."""
    blocks, tasks = block_shape(values.shape[0], largest)
    surplus = blocks * tasks - values.shape[0]
    padded = jnp.pad(values, [(0, surplus)] + [(0, 0)] * (values.ndim - 1)) if surplus else values
    return jnp.moveaxis(padded.reshape(blocks, tasks, *values.shape[1:]), 1, -1)


def centred_uniforms(key: Array, shape: tuple[int, int, int, int]) -> Array:
    """Independent uniform draws in (-1/2, 1/2), symmetric, float32, of shape (blocks, rows, columns, tasks).

    The generator is the counter-based Threefry-2x32 of ``jax.random`` (Salmon et al. 2011), with both words of each
    evaluation used and the rounds unrolled. The key must not be used for anything else.
    """
    blocks, rows, columns, tasks = shape
    half = -(-rows // 2)
    pair = _uniform_pairs(jax.random.key_data(key).ravel()[:2], shape=(blocks, half, columns, tasks))
    return jnp.concatenate([pair.real, pair.imag[:, : rows - half]], axis=1)


@unfused(static=("shape",))
def _uniform_pairs(words: Array, *, shape: tuple[int, ...]) -> Array:
    """Two independent draws as one complex number: two output arrays would make XLA:CPU hash twice, once for each."""
    counts = lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    first, second = threefry(words, jnp.zeros_like(counts), counts)
    return lax.complex(_centred(first), _centred(second))


def _centred(bits: Array) -> Array:
    """22 random bits as the middle of one of 2^22 cells of (-1/2, 1/2).

    The lowest bit of the mantissa is set, not drawn: that is the half cell which keeps -1/2, whose normal quantile is
    infinite, away. (Adding it in floating point does not survive XLA's reassociation of constants.)
    """
    mantissa = (bits >> jnp.uint32(9)) | jnp.uint32(1)
    return lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800000), jnp.float32) - np.float32(1.5)


def threefry(words: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, section 3.3), the hash behind ``jax.random``, unrolled.

    Args:
      words: (2,) uint32 key words.
      x0: uint32 counters, any shape.
      x1: uint32 counters, the same shape.
    """
    keys = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation)))
        x0, x1 = x0 + keys[(group + 1) % 3], x1 + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def normals(key: Array, shape: tuple[int, ...]) -> Array:
    """Independent N(0, 1) draws, float32: at half the time of the quantile function of ``centred_uniforms``.

    Box and Muller 1958: both words of a Threefry evaluation make a pair. The key must not be used for anything else.
    """
    size = math.prod(shape)
    half = -(-size // 2)
    pair = _normal_pairs(jax.random.key_data(key).ravel()[:2], half=half)
    return jnp.concatenate([pair.real, pair.imag[: size - half]]).reshape(shape)


@unfused(static=("half",))
def _normal_pairs(words: Array, *, half: int) -> Array:
    """(half,) pairs of independent draws, as complex numbers for the reason of ``_uniform_pairs``."""
    counts = lax.iota(jnp.uint32, half)
    first, second = threefry(words, jnp.zeros_like(counts), counts)
    radius = jnp.sqrt(-2 * jnp.log(np.float32(0.5) + _centred(first)))
    angle = np.float32(np.pi) * _centred(second)  # half of it, so that series of few terms reach float32 accuracy
    square = angle * angle
    sine, cosine = angle * _series(square, 1, 6), _series(square, 0, 7)
    return lax.complex(radius * (cosine * cosine - sine * sine), radius * (2 * sine * cosine))


def _series(square: Array, odd: int, terms: int) -> Array:
    """Taylor series of cos t (``odd`` = 0) or sin t / t (1) in t^2."""
    value = jnp.zeros_like(square)
    for k in reversed(range(terms)):
        value = value * square + np.float32((-1) ** k / math.factorial(2 * k + odd))
    return value


def _normal(u: Array) -> Array:
    return np.float32(np.sqrt(2.0)) * lax.erf_inv(2 * u)


def _exponential(u: Array) -> Array:
    return -jnp.log(np.float32(0.5) - u)


def _laplace(u: Array) -> Array:
    return -jnp.sign(u) * jnp.log1p(-2 * jnp.abs(u))


QUANTILES = {
    "uniform": lambda u: u,
    "normal": unfused(_normal),
    "exponential": unfused(_exponential),
    "laplace": unfused(_laplace),
}
"""Quantile functions by distribution, of centred uniforms: U(-1/2, 1/2), N(0, 1), standard exponential and Laplace."""
