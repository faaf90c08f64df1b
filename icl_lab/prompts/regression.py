"""Samplers of in-context regression tasks (von Oswald et al. 2022, section 2 and appendix A.2)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.draws import QUANTILES, batch_first, block_shape, centred_uniforms
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_number, check_sizes, is_traced, one_program, switched_off, whole
from icl_lab.prompts.unfused import unfused

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


@named_options
def linear_regression(
    *,
    context_length: int | tuple[int, int],
    input_size: int,
    output_size: int = 1,
    input_law: str = "uniform",
    input_range: ArrayLike = 1.0,
    task_law: str = "normal",
    task_scale: ArrayLike = 1.0,
    tasks: ArrayLike | None = None,
    label_noise: ArrayLike = 0.0,
    corrupted_labels: ArrayLike = 0,
    examples: ArrayLike | None = None,
    used_inputs: ArrayLike | None = None,
    used_weights: int | None = None,
) -> Sampler:
    """Sampler of linear tasks y = W^T x with W ~ N(0, s^2 I) (von Oswald et al. 2022, section 2).

    Inputs are i.i.d. over tokens and coordinates. With ``r = input_range``: ``uniform`` draws U(-r/2, r/2) (r = 1 is
    the published *code*; r = 2 the published *text*, U(-1, 1)); ``normal``, ``exponential``, ``laplace`` are standard
    distributions times r; ``mixture`` is the out-of-distribution one of appendix A.2: exponential, normal or Laplace
    with probability 1/3 each per task, context and query divided by the Frobenius norm of the *context*, times r.

    Everything but the sizes and the distribution may be a traced value, so a grid over it is just more members.

    Args:
      context_length: N, number of context pairs; or (least, most), a number drawn anew for each task, of contexts that
        are padded with zeros to the most (``Prompt.length``): one compiled program for all lengths.
      input_size: D.
      output_size: O.
      input_law: one of ``INPUT_LAWS``.
      input_range: r.
      task_law: ``normal``, or ``mixture``: the entries of W are exponential, normal or Laplace with probability 1/3
        each per task (out-of-distribution targets of appendix A.2; the paper states no normalisation, none is made).
      task_scale: s, factor on the entries of W.
      tasks: (T, D, O) weights W of a finite pool, of which each prompt takes one at random (Raventós et al. 2023);
        None draws a new W for each prompt. ``solvers.dmmse`` is the Bayes predictor of a pool.
      label_noise: standard deviation of Gaussian noise added to the context labels (never to the target).
      corrupted_labels: how many of the N context labels (chosen without replacement) are replaced by N(0, 1) draws
        (``size_distract`` of the released code, in no figure of the paper).
      examples: how many of the N pairs are there, the same in every task; the context is padded to N. Traced for a
        curriculum.
      used_inputs: how many coordinates of the inputs are not 0, the first ones; None means all. Traced for a curriculum
        (Garg et al. 2022, A.2).
      used_weights: how many entries of each column of W are not 0, drawn anew for each task; None means all (Garg et
        al. 2022, section 4: sparse linear functions).

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, O), x_query (B, D), target (B, O), latent w (B, D, O);
      ``prompt.length`` (B,) where contexts are padded.

    Raises:
      ValueError: for sizes below 1, an unknown distribution of inputs or tasks, a number that is not allowed, or
        corrupted labels of padded contexts, a pool of another shape or beside what says how fresh tasks are drawn.
    """
    ends = context_length if isinstance(context_length, tuple) else (context_length, context_length)
    padded = isinstance(context_length, tuple) or examples is not None
    least, most = (whole("context_length", end) for end in ends)
    d, o = check_sizes(input_size=input_size, output_size=output_size)
    if least > most or (least < most and examples is not None):
        raise ValueError(
            f"context_length must be N, or (least, most) where no examples are given, got {context_length}"
        )
    if input_law not in INPUT_LAWS:
        raise ValueError(f"input_law must be one of {INPUT_LAWS}, got {input_law!r}")
    if task_law not in TASK_LAWS:
        raise ValueError(f"task_law must be one of {TASK_LAWS}, got {task_law!r}")
    check_number("input_range", input_range, above=0)
    check_number("task_scale", task_scale)
    check_number("label_noise", label_noise, at_least=0)
    check_number("corrupted_labels", corrupted_labels, at_least=0, at_most=0 if padded else most)
    given = {"examples": examples, "used_inputs": used_inputs, "used_weights": used_weights}
    for name, value in given.items():
        if value is not None:
            check_number(name, value, at_least=1, at_most=most if name == "examples" else input_size, scalar=True)
    if tasks is not None:
        if np.ndim(tasks) != 3 or np.shape(tasks)[1:] != (d, o) or not np.shape(tasks)[0]:
            raise ValueError(f"tasks must be the weights (T, {d}, {o}) of a pool, got shape {np.shape(tasks)}")
        check_number("tasks", tasks)
        if task_law != "normal" or used_weights is not None:
            raise ValueError("tasks are the weights themselves: allowed is neither task_law nor used_weights beside")
    if not is_traced(corrupted_labels) and np.any(np.asarray(corrupted_labels) % 1):
        raise ValueError(f"corrupted_labels must be a whole number, got {corrupted_labels}")
    n = most

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        draw_key, law_key, noise_key, corrupt_key = jax.random.split(key, 4)
        blocks, in_block = block_shape(batch)
        uniforms = centred_uniforms(draw_key, (blocks, n + 1 + o, d, in_block))
        points, w = uniforms[:, : n + 1], uniforms[:, n + 1 :]  # the query is the last point
        x_law_key, w_law_key = jax.random.split(law_key)
        weights_key, length_key = jax.random.split(key, 6)[4:]  # of six keys the first four are those of four
        w = _of_law(task_law, w, w_law_key) if tasks is None else _of_pool(weights_key, tasks, (blocks, in_block))
        w = jnp.asarray(task_scale, jnp.float32) * w
        if used_weights is not None:
            rank = jnp.argsort(jnp.argsort(jax.random.uniform(weights_key, w.shape), axis=2), axis=2)
            w = jnp.where(rank < used_weights, w, 0)
        points, length = _of_law(input_law, points, x_law_key), None
        if used_inputs is not None:
            points = jnp.where(jnp.arange(d)[None, None, :, None] < used_inputs, points, 0)
        if padded:
            given = jax.random.randint(length_key, (blocks, 1, 1, in_block), least, most + 1)
            given = given if examples is None else jnp.full_like(given, examples)
            place = jnp.arange(n + 1)[None, :, None, None]
            points = jnp.where((place < given) | (place == n), points, 0)
            length = batch_first(given[:, 0, 0], batch)
        if input_law == "mixture":
            points = points / jnp.sqrt(jnp.sum(points[:, :n] ** 2, axis=(1, 2), keepdims=True))
        points = jnp.asarray(input_range, jnp.float32) * points
        clean = _labels(points, w)
        parts = (points[:, :n], points[:, n], clean[:, :n], clean[:, n], w)
        x, x_query, y, target, w = (batch_first(part, batch).astype(float) for part in parts)
        if not switched_off(label_noise):
            y = y + label_noise * jax.random.normal(noise_key, y.shape)
        if not switched_off(corrupted_labels):
            which_key, label_key = jax.random.split(corrupt_key)
            rank = jnp.argsort(jnp.argsort(jax.random.uniform(which_key, (batch, n)), axis=1), axis=1)
            y = jnp.where((rank < corrupted_labels)[:, :, None], jax.random.normal(label_key, y.shape), y)
        if length is not None:  # noise is added to examples alone
            y = jnp.where(jnp.arange(n)[None, :, None] < length[:, None, None], y, 0)
        prompt = Prompt(x=x, y=y, x_query=x_query, length=length)
        return Sample(prompt=prompt, target=target, latent={"w": w.swapaxes(1, 2)})

    return sampler


def _of_pool(key: Array, pool: ArrayLike, tasks: tuple[int, int]) -> Array:
    """(blocks, O, D, tasks) weights of a pool (T, D, O), each with the same chance."""
    pool = jnp.asarray(pool, jnp.float32)
    return jnp.moveaxis(pool[jax.random.randint(key, tasks, 0, len(pool))], 1, -1).swapaxes(1, 2)


@unfused
def _labels(points: Array, w: Array) -> Array:
    """y = W^T x with the task as last axis: (blocks, P, D, tasks), (blocks, O, D, tasks) -> (blocks, P, O, tasks)."""
    terms = [points[:, :, None, i] * w[:, None, :, i] for i in range(points.shape[2])]
    return functools.reduce(jnp.add, terms)


def _of_law(distribution: str, uniforms: Array, key: Array) -> Array:
    """Entries of this distribution from centred uniforms; a mixture takes one of three for each task."""
    if distribution != "mixture":
        return QUANTILES[distribution](uniforms)
    choice = jax.random.randint(key, (uniforms.shape[0], 1, 1, uniforms.shape[3]), 0, 3)
    exponential, normal, laplace = (QUANTILES[name](uniforms) for name in ("exponential", "normal", "laplace"))
    return jnp.where(choice == 0, exponential, jnp.where(choice == 1, normal, laplace))
