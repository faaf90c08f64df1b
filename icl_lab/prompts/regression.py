"""Samplers of in-context regression tasks (von Oswald et al. 2022, section 2 and appendix A.2)."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.prompt import Prompt, Sample, Sampler

INPUT_LAWS = ("uniform", "normal", "exponential", "laplace", "mixture")
TASK_LAWS = ("normal", "mixture")


def input_variance(input_law: str, input_range: float = 1.0) -> float:
    """Second moment E[x_i^2] of one input coordinate (the ``sigma^2`` of every formula of the first paper).

    ``uniform``: r^2/12; ``normal``: r^2; ``exponential``: 2 r^2 (not centred); ``laplace``: 2 r^2.

    Raises:
      ValueError: for ``mixture``, whose coordinates are normalised by the whole context.
    """
    moments = {"uniform": 1 / 12, "normal": 1.0, "exponential": 2.0, "laplace": 2.0}
    if input_law not in moments:
        raise ValueError(f"no coordinate-wise second moment for input_law={input_law!r}; known: {sorted(moments)}")
    return moments[input_law] * input_range**2


def linear_regression(
    *,
    context_length: int,
    input_size: int,
    output_size: int = 1,
    input_law: str = "uniform",
    input_range: ArrayLike = 1.0,
    task_law: str = "normal",
    task_scale: ArrayLike = 1.0,
    label_noise: ArrayLike = 0.0,
    corrupted_labels: ArrayLike = 0,
) -> Sampler:
    """Sampler of linear tasks y = W^T x with W ~ N(0, s^2 I) (von Oswald et al. 2022, section 2).

    Inputs are i.i.d. over tokens and coordinates. With ``r = input_range``: ``uniform`` draws U(-r/2, r/2) (r = 1 is
    the published *code*; r = 2 the published *text*, U(-1, 1)); ``normal``, ``exponential``, ``laplace`` are standard
    laws times r; ``mixture`` is the out-of-distribution law of appendix A.2: exponential, normal or Laplace with
    probability 1/3 each per task, context and query divided by the Frobenius norm of the *context*, times r.

    Everything but the sizes and the law may be a traced value, so a grid over it is just more members.

    Args:
      context_length: N, number of context pairs.
      input_size: D.
      output_size: O.
      input_law: one of ``INPUT_LAWS``.
      input_range: r.
      task_law: ``normal``, or ``mixture``: the entries of W are exponential, normal or Laplace with probability 1/3 each
        per task (the out-of-distribution targets of appendix A.2; the paper states no normalisation, none is applied).
      task_scale: s, factor on the entries of W.
      label_noise: standard deviation of Gaussian noise added to the context labels (never to the target).
      corrupted_labels: how many of the N context labels (chosen without replacement) are replaced by N(0, 1) draws
        (``size_distract`` of the released code, in no figure of the paper).

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, O), x_query (B, D), target (B, O), latent w (B, D, O).

    Raises:
      ValueError: for sizes below 1 or an unknown input law.
    """
    sizes = {"context_length": context_length, "input_size": input_size, "output_size": output_size}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if input_law not in INPUT_LAWS:
        raise ValueError(f"input_law must be one of {INPUT_LAWS}, got {input_law!r}")
    if task_law not in TASK_LAWS:
        raise ValueError(f"task_law must be one of {TASK_LAWS}, got {task_law!r}")
    n, d, o = context_length, input_size, output_size

    def sampler(key: Array, batch: int) -> Sample:
        w_key, x_key, noise_key, corrupt_key = jax.random.split(key, 4)
        w = task_scale * (_mixture if task_law == "mixture" else _normal)(w_key, (batch, d, o))
        points = input_range * _inputs(x_key, input_law, (batch, n + 1, d))  # the query is the last point
        x, x_query = points[:, :n], points[:, n]
        clean = jnp.einsum("bnd,bdo->bno", x, w)
        y = clean
        if not _is_zero(label_noise):
            y = y + label_noise * _flat(jax.random.normal, noise_key, y.shape)
        if not _is_zero(corrupted_labels):
            which_key, label_key = jax.random.split(corrupt_key)
            rank = jnp.argsort(jnp.argsort(jax.random.uniform(which_key, (batch, n)), axis=1), axis=1)
            y = jnp.where((rank < corrupted_labels)[:, :, None], _flat(jax.random.normal, label_key, y.shape), y)
        target = jnp.einsum("bd,bdo->bo", x_query, w)
        return Sample(prompt=Prompt(x=x, y=y, x_query=x_query), target=target, latent={"w": w})

    return sampler


def _flat(draw, key: Array, shape: tuple[int, ...]) -> Array:
    """Draws one flat array and reshapes: on CPU less than half the time of drawing the odd shape directly."""
    return draw(key, (math.prod(shape),)).reshape(shape)


def _is_zero(value: ArrayLike) -> bool:
    """True for a Python 0, so that what is switched off costs nothing; a traced value is kept."""
    return isinstance(value, int | float) and value == 0


def _inputs(key: Array, law: str, shape: tuple[int, int, int]) -> Array:
    """Inputs of unit range, (B, N + 1, D)."""
    if law == "uniform":
        return _flat(jax.random.uniform, key, shape) - 0.5
    if law == "normal":
        return _flat(jax.random.normal, key, shape)
    if law == "exponential":
        return _flat(jax.random.exponential, key, shape)
    if law == "laplace":
        return _flat(jax.random.laplace, key, shape)
    points = _mixture(key, shape)
    norm = jnp.sqrt(jnp.sum(points[:, :-1] ** 2, axis=(1, 2), keepdims=True))
    return points / norm


def _normal(key: Array, shape: tuple[int, ...]) -> Array:
    return _flat(jax.random.normal, key, shape)


def _mixture(key: Array, shape: tuple[int, int, int]) -> Array:
    """Standard exponential, normal or Laplace entries, one law for each of the shape[0] tasks."""
    law_key, *keys = jax.random.split(key, 4)
    which = jax.random.randint(law_key, (shape[0],), 0, 3)[:, None, None]
    draws = (jax.random.exponential, jax.random.normal, jax.random.laplace)
    exponential, normal, laplace = (_flat(draw, k, shape) for draw, k in zip(draws, keys))
    return jnp.where(which == 0, exponential, jnp.where(which == 1, normal, laplace))
