"""Samplers of linear tasks on Gaussian inputs of any covariance, fixed or drawn anew for each task."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from icl_lab.matrices import spectrum
from icl_lab.prompts.draws import QUANTILES, batch_first, block_shape, centred_uniforms
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_number, check_sizes, is_traced, one_program, switched_off
from icl_lab.prompts.unfused import unfused

VARIANCE_LAWS = ("exponential", "gamma", "uniform", "lognormal", "constant")


@named_options
def gaussian_regression(
    *,
    context_length: int,
    covariance: ArrayLike,
    query_covariance: ArrayLike | None = None,
    task_moment: ArrayLike | None = None,
    task: ArrayLike | None = None,
    label_noise: ArrayLike = 0.0,
    labels: Callable[[Array], Array] | None = None,
) -> Sampler:
    """Sampler of prompts with inputs N(0, Lambda) (Zhang, Frei & Bartlett 2023, Definition 3.1, and its shifts).

    Labels are y_i = <w, x_i> + noise, the target is <w, x_query> without noise, w ~ N(0, task_moment) for each task.
    Everything but the context length may be a traced value.

    Args:
      context_length: N, number of context pairs.
      covariance: (D, D) Lambda of the context's inputs, positive semidefinite.
      query_covariance: (D, D) of the query; None means ``covariance``.
      task_moment: (D, D) E[w w^T]; None means the identity.
      task: (D,) the same w for all tasks, instead of a drawn one.
      label_noise: standard deviation of Gaussian noise added to the context labels (never to the target).
      labels: ``(..., D) -> (...)``, one function of the input for all tasks, instead of <w, x>.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, 1), x_query (B, D), target (B, 1), latent w (B, D, 1), which
      is left out where ``labels`` is given.

    Raises:
      ValueError: for a context length below 1; a matrix that is not square and of size D, not symmetric or not positive
        semidefinite (only its shape is checked where it is traced); a task that is not (D,); or more than one of
        ``task_moment``, ``task`` and ``labels``.
    """
    (n,) = check_sizes(context_length=context_length)
    shape = np.shape(covariance)
    if len(shape) != 2 or shape[0] < 1:
        raise ValueError(f"covariance must be a (D, D) matrix with D at least 1, got shape {shape}")
    d = shape[0]
    if sum(value is not None for value in (task_moment, task, labels)) > 1:
        raise ValueError("only one of task_moment, task and labels can say what the labels are")
    check_number("label_noise", label_noise, at_least=0)
    if task is not None and np.shape(task) != (d,):
        raise ValueError(f"task must have shape ({d},) as the covariance, got {np.shape(task)}")
    root = _root("covariance", covariance, d)
    query_root = root if query_covariance is None else _root("query_covariance", query_covariance, d)
    task_root = None if task_moment is None else _root("task_moment", task_moment, d)

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        draw_key, noise_key = jax.random.split(key)
        blocks, tasks = block_shape(batch)
        drawn = task is None and labels is None
        normal = QUANTILES["normal"](centred_uniforms(draw_key, (blocks, n + 1 + drawn, d, tasks)))
        x, query = _times(root, normal[:, :n]), _times(query_root, normal[:, n : n + 1])
        if labels is not None:
            x, query = (batch_first(part, batch).astype(float) for part in (x, query[:, 0]))
            y, target, latent = labels(x)[..., None], labels(query)[..., None], {}
        else:
            w = normal[:, n + 1 :]
            if task is not None:
                w = jnp.broadcast_to(jnp.asarray(task, jnp.float32)[None, None, :, None], (blocks, 1, d, tasks))
            elif task_root is not None:
                w = _times(task_root, w)
            parts = (x, query[:, 0], _linear_labels(x, w), _linear_labels(query, w)[:, 0], w[:, 0, :, None])
            x, query, y, target, w = (batch_first(part, batch).astype(float) for part in parts)
            latent = {"w": w}
        if not switched_off(label_noise):
            noise = QUANTILES["normal"](centred_uniforms(noise_key, (blocks, n, 1, tasks)))
            y = y + label_noise * batch_first(noise, batch)
        return Sample(prompt=Prompt(x=x, y=y, x_query=query), target=target, latent=latent)

    return sampler


LARGEST_LOGNORMAL = 1.0
"""Normals are quantiles of 22 bits and end at 5.17: up to this shape the third moment of the variances, the largest
that closed forms use, is within 1 % of the distribution's; at 1.5 it is 18 % below it."""


@named_options
def random_covariance_regression(
    *,
    context_length: int,
    input_size: int,
    law: str = "exponential",
    shape: ArrayLike = 1.0,
    scale: ArrayLike = 1.0,
) -> Sampler:
    """Sampler of prompts whose inputs, query included, are N(0, diag(lambda)), with lambda drawn anew for each task.

    Zhang, Frei & Bartlett 2023, section 4.3. The lambda_i are independent, ``scale`` times a distribution:
    ``exponential`` Exp(1), ``gamma`` Gamma(shape, 1), ``uniform`` U(0, 1), ``lognormal`` exp(shape N(0, 1)),
    ``constant`` 1. w is N(0, I), labels are <w, x>. Everything but the sizes and ``law`` may be a traced value.

    Args:
      context_length: N, number of context pairs.
      input_size: D.
      law: one of ``VARIANCE_LAWS``.
      shape: of the gamma and lognormal distributions, positive, a number or (D,); the others have none. Of the
        lognormal one at most ``LARGEST_LOGNORMAL``.
      scale: factor on the variances, positive; a number, or (D,) one for each coordinate.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, 1), x_query (B, D), target (B, 1), latent w (B, D, 1) and
      variances (B, D).

    Raises:
      ValueError: for sizes below 1, an unknown ``law``, or a shape or scale that is not allowed or not of this size.
    """
    n, d = check_sizes(context_length=context_length, input_size=input_size)
    if law not in VARIANCE_LAWS:
        raise ValueError(f"law must be one of {VARIANCE_LAWS}, got {law!r}")
    for name, value in {"shape": shape, "scale": scale}.items():
        check_number(name, value, above=0)
        if np.shape(value) not in ((), (input_size,)):
            raise ValueError(f"{name} must be a number or have shape ({input_size},), got shape {np.shape(value)}")
    if law == "lognormal" and not is_traced(shape) and np.max(shape) > LARGEST_LOGNORMAL:
        raise ValueError(f"shape of a lognormal law must be at most {LARGEST_LOGNORMAL:g}, got {shape}")
    shape = jnp.asarray(shape, jnp.float32).reshape(1, 1, -1, 1)  # (D,) or one for all, before the tasks' axis

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        draw_key, gamma_key = jax.random.split(key)
        blocks, tasks = block_shape(batch)
        uniforms = centred_uniforms(draw_key, (blocks, n + 3, d, tasks))
        normal = QUANTILES["normal"](uniforms[:, : n + 2])
        if law == "gamma":
            lam = jax.random.gamma(gamma_key, shape, (blocks, 1, d, tasks))
        else:
            lam = _variances(law, uniforms[:, n + 2 :], shape)
        lam = jnp.asarray(scale, jnp.float32).reshape(1, 1, -1, 1) * lam
        points, w = _scaled(normal[:, : n + 1], lam), normal[:, n + 1 :]
        clean = _linear_labels(points, w)
        parts = (points[:, :n], points[:, n], clean[:, :n], clean[:, n], w[:, 0, :, None], lam[:, 0])
        x, query, y, target, w, lam = (batch_first(part, batch).astype(float) for part in parts)
        return Sample(Prompt(x=x, y=y, x_query=query), target, latent={"w": w, "variances": lam})

    return sampler


def _variances(distribution: str, uniforms: Array, shape: ArrayLike) -> Array:
    """Draws of a distribution of variances from centred uniforms, by its quantile function."""
    if distribution == "exponential":
        return QUANTILES["exponential"](uniforms)
    if distribution == "uniform":
        return uniforms + 0.5
    if distribution == "lognormal":
        return jnp.exp(shape * QUANTILES["normal"](uniforms))
    return jnp.ones_like(uniforms)


@unfused
def _scaled(points: Array, variances: Array) -> Array:
    """(blocks, P, D, tasks), (blocks, 1, D, tasks) -> (blocks, P, D, tasks) of these variances."""
    return jnp.sqrt(variances) * points


@unfused
def _linear_labels(points: Array, w: Array) -> Array:
    """<w, x> with the task as last axis: (blocks, P, D, tasks), (blocks, 1, D, tasks) -> (blocks, P, 1, tasks)."""
    return (points * w).sum(2, keepdims=True)


def _times(root: np.ndarray | Array, points: Array) -> Array:
    """Matrix times every input: (D, D) or a diagonal (D,), (blocks, P, D, tasks) -> (blocks, P, D, tasks)."""
    root = jnp.asarray(root, jnp.float32)
    if root.ndim == 1:
        return root[None, None, :, None] * points
    blocks, rows, d, tasks = points.shape
    roots = jnp.broadcast_to(root, (blocks * rows, d, d))  # one library product a block and row
    product = lax.dot_general(roots, points.reshape(blocks * rows, d, tasks), (((2,), (1,)), ((0,), (0,))))
    return product.reshape(points.shape)


def _root(name: str, matrix: ArrayLike, d: int) -> np.ndarray | Array:
    """Symmetric root of a covariance; of a diagonal one its diagonal. A traced one is not looked at.

    Raises:
      ValueError: where it is none.
    """
    if np.shape(matrix) != (d, d):
        raise ValueError(f"{name} must be a square matrix of size {d}, got shape {np.shape(matrix)}")
    if is_traced(matrix):
        squares, basis = spectrum(matrix)
        return (basis * jnp.sqrt(jnp.maximum(squares, 0))[None]) @ basis.T
    full = np.asarray(matrix, np.float64)
    if not np.abs(full - full.T).max() <= 1e-6 * np.abs(full).max():
        raise ValueError(f"{name} must be symmetric, got {matrix}")
    values, vectors = np.linalg.eigh(full)
    if not values[0] >= -1e-6 * np.abs(values).max():
        raise ValueError(f"{name} must be positive semidefinite, got smallest eigenvalue {values[0]:.3g}")
    if np.array_equal(full, np.diag(np.diag(full))):
        return np.sqrt(np.maximum(np.diag(full), 0))
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
