"""Out-of-distribution prompts of Garg et al. 2022: samplers of linear tasks whose inputs or query are moved.

Labels and target follow the moved inputs, y_i + W^T (x_i' - x_i), so that noise on the labels stays what it was. Each
takes a sampler whose samples say their task, latent ``w`` (B, D, O), and gives another.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.prompts.prompt import Prompt, Sample, Sampler


def context_in_an_orthant(sampler: Sampler) -> Sampler:
    """The context's inputs all lie in one orthant, drawn anew for each prompt; the query lies anywhere.

    x_i' = s |x_i| with signs s drawn once a prompt (Garg et al. 2022, "different orthants").
    """

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        batch, _, d = prompt.x.shape
        signs = jax.random.rademacher(key, (batch, 1, d), prompt.x.dtype)
        return signs * jnp.abs(prompt.x), prompt.x_query

    return _moved(sampler, moved)


def in_a_subspace(sampler: Sampler, size: int) -> Sampler:
    """Inputs and query projected on a random subspace of this dimension, drawn anew for each prompt.

    Uniform over subspaces; the inputs are not scaled up for what they lose (Garg et al. 2022, "half subspace").

    Raises:
      ValueError: for a size below 1, or above D when it draws.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        batch, _, d = prompt.x.shape
        if size > d:
            raise ValueError(f"size must be at most D = {d}, got {size}")
        basis = jnp.linalg.qr(jax.random.normal(key, (batch, d, size), prompt.x.dtype))[0]
        return _projected(basis, prompt.x), _projected(basis, prompt.x_query[:, None])[:, 0]

    return _moved(sampler, moved)


def with_orthogonal_query(sampler: Sampler) -> Sampler:
    """The query is the part of its draw that is orthogonal to the context (Garg et al. 2022, "orthogonal query").

    Raises:
      ValueError: when it draws, for contexts with N >= D, which leave nothing orthogonal.
    """

    def moved(key: Array, prompt: Prompt) -> tuple[Array, Array]:
        _, n, d = prompt.x.shape
        if n >= d:
            raise ValueError(f"nothing is orthogonal to a context of N = {n} inputs in D = {d}: allowed is N < D")
        basis = jnp.linalg.qr(prompt.x.swapaxes(1, 2))[0]
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
        return Sample(Prompt(x=x, y=y, x_query=query), target, sample.latent)

    return draw


def _projected(basis: Array, points: Array) -> Array:
    """Orthogonal projection on a subspace: (B, D, k) orthonormal columns, (B, P, D) -> (B, P, D)."""
    return jnp.einsum("bdk,bpk->bpd", basis, jnp.einsum("bdk,bpd->bpk", basis, points))
