"""Samplers of linear tasks whose inputs or query are moved: correlated contexts, and the shifts of Garg et al. 2022.

Labels and target follow the moved inputs, y_i + W^T (x_i' - x_i), so that noise on the labels stays what it was. Each
takes a sampler whose samples say their task, latent ``w`` (B, D, O), and gives another.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import orthonormal
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_number, check_sizes


@named_options
def correlated_context(sampler: Sampler, correlation: ArrayLike) -> Sampler:
    """The context's inputs are a stationary autoregression; the query stays independent of them.

    x_1' = x_1, x_(i+1)' = c x_i' + sqrt(1 - c^2) x_(i+1). Independent inputs of mean 0 and covariance Lambda get
    E x_i' x_j'^T = c^|i-j| Lambda, as in Letey et al. 2026.

    Args:
      sampler: of independent inputs of mean 0.
      correlation: c in [-1, 1], fixed or traced; 0 leaves the inputs as they are, 1 makes them all alike.

    Raises:
      ValueError: for a correlation that is not one such number.
    """
    check_number("correlation", correlation, at_least=-1, at_most=1, scalar=True)

    def moved(_: Array, prompt: Prompt) -> tuple[Array, Array]:
        n, c = prompt.x.shape[1], jnp.asarray(correlation, prompt.x.dtype)
        lag = np.subtract.outer(np.arange(n), np.arange(n))
        fresh = jnp.where(np.arange(n) > 0, jnp.sqrt(1 - c**2), 1)  # the first input is no innovation
        mixing = jnp.where(lag >= 0, c ** np.maximum(lag, 0) * fresh[None], 0)
        return jnp.einsum("ij,bjd->bid", mixing, prompt.x), prompt.x_query

    return _moved(sampler, moved)


@named_options
def context_in_an_orthant(sampler: Sampler) -> Sampler:
    """The context's inputs all lie in one orthant, drawn anew for each prompt; the query lies anywhere.

    x_i' = s |x_i| with signs s drawn once a prompt (Garg et al. 2022, ``random_quadrants`` of the released code).
    """

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        batch, _, d = prompt.x.shape
        signs = jax.random.rademacher(key, (batch, 1, d), prompt.x.dtype)
        return signs * jnp.abs(prompt.x), prompt.x_query

    return _moved(sampler, moved)


@named_options
def in_a_subspace(sampler: Sampler, size: int, rescaled: bool = False) -> Sampler:
    """Inputs and query projected on a random subspace of this dimension, drawn anew for each prompt.

    Uniform over subspaces (Garg et al. 2022, ``half_subspace`` of the released code, where ``size`` is D/2, one
    subspace serves a whole evaluation, and inputs are rescaled).

    Args:
      sampler: what is moved.
      size: dimension of the subspace.
      rescaled: inputs are multiplied by sqrt(D / size), which gives isotropic ones their mean square back.

    Raises:
      ValueError: for a size below 1, or above D when it draws.
    """
    (size,) = check_sizes(size=size)

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        batch, _, d = prompt.x.shape
        if size > d:
            raise ValueError(f"size must be at most D = {d}, got {size}")
        basis = jax.vmap(orthonormal)(jax.random.normal(key, (batch, d, size), prompt.x.dtype))
        factor = (d / size) ** 0.5 if rescaled else 1.0
        return factor * _projected(basis, prompt.x), factor * _projected(basis, prompt.x_query[:, None])[:, 0]

    return _moved(sampler, moved)


@named_options
def with_orthogonal_query(sampler: Sampler) -> Sampler:
    """The query is the part of its draw that is orthogonal to the context.

    Garg et al. 2022, ``orthogonal_train_test`` of the released code, which also gives the query its length back; at
    isotropic inputs errors over that of predicting 0 are the same for both.

    Raises:
      ValueError: when it draws, for contexts with N >= D, which leave nothing orthogonal.
    """

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        _, n, d = prompt.x.shape
        if n >= d:
            raise ValueError(f"nothing is orthogonal to a context of N = {n} inputs in D = {d}: allowed is N < D")
        basis = jax.vmap(orthonormal)(prompt.x.swapaxes(1, 2))
        return prompt.x, prompt.x_query - _projected(basis, prompt.x_query[:, None])[:, 0]

    return _moved(sampler, moved)


def _moved(sampler: Sampler, move: Callable[[Array, Prompt], tuple[Array, Array]]) -> Sampler:
    """A sampler whose context inputs and query are ``move(key, prompts)``, with the labels that belong to them."""

    def draw(key: Array, batch: int) -> Sample:
        sample_key, move_key = jax.random.split(key)
        sample = sampler(sample_key, batch)
        prompt, w = sample.prompt, sample.latent["w"]
        x, query = move(move_key, prompt)
        y = prompt.y + jnp.einsum("bnd,bdo->bno", x - prompt.x, w)
        target = sample.target + jnp.einsum("bd,bdo->bo", query - prompt.x_query, w)
        return replace(sample, prompt=replace(prompt, x=x, y=y, x_query=query), target=target)

    return draw


def _projected(basis: Array, points: Array) -> Array:
    """Orthogonal projection on a subspace: (B, D, k) orthonormal columns, (B, P, D) -> (B, P, D)."""
    return jnp.einsum("bdk,bpk->bpd", basis, jnp.einsum("bdk,bpd->bpk", basis, points))
