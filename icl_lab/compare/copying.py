"""Does the first layer copy? By what its output depends on, and by where its heads look (separate tokens)."""

from typing import cast

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.inspection import Trace
from icl_lab.models.learner import traced
from icl_lab.models.transformer import Transformer
from icl_lab.prompts.layouts import Layout
from icl_lab.prompts.prompt import Prompt


def copying_sensitivities(
    network: Transformer, params: dict, prompts: Prompt, layout: Layout, *, released: bool = False
) -> dict[str, Array]:
    """How much a token after the first layer depends on itself, on the next token and on the others.

    With t_k the sum of the channels of token k in ``Trace.residual[1]``, g_kj = E_tasks d t_k / d e_j over the D
    content channels of token j before the first layer: a signed mean over tasks, then its norm. Means over the tokens
    k = 0, .., 2N - 2 of

        own = |g_kk|,   next = |g_k,k+1|,   other = mean over context tokens j not in {k, k + 1} of |g_kj|.

    Where the layer does nothing, own is sqrt(D): the residual stream. von Oswald et al. 2022, Fig. 5 right.

    Args:
      network: the stack.
      params: its parameters, learned or hand-built.
      prompts: B prompts, every leaf with a leading batch axis, of at least two context pairs.
      layout: ``separate_layout(...)``.
      released: other as the released code has it, sum over j != k of |g_kj| / (2N - 1): with the next token among the
        others, so that copying raises it.

    Returns:
      Scalars by ``own``, ``next``, ``other``.

    Raises:
      ValueError: for fewer than two context pairs, which leave no other token.
    """
    n, d = prompts.x.shape[1:]
    if n < 2:
        raise ValueError(f"copying sensitivities need at least two context pairs, got {n}")
    tokens = jax.vmap(layout.encode)(prompts)  # (B, 2N + 1, E)

    def mean_sums(shift: Array) -> Array:
        """(T,) mean over tasks of t_k, all tasks' tokens moved alike: its derivative is the signed mean."""

        def sums(one: Array) -> Array:
            _, trace = cast(tuple[Array, Trace], network.apply(params, one + shift))
            return trace.residual[1].sum(-1)

        return jax.vmap(sums)(tokens).mean(0)

    gradients = jax.jacrev(mean_sums)(jnp.zeros_like(tokens[0]))[: 2 * n - 1, : 2 * n, :d]  # tokens k, j, channels
    norms = jnp.sqrt((gradients**2).sum(-1))
    own, following = (jnp.diagonal(norms, offset).mean() for offset in (0, 1))
    rest = norms.sum(1).mean() - own
    other = rest / (2 * n - 1) if released else (rest - following) / (2 * n - 2)
    return {"own": own, "next": following, "other": other}


def copy_shares(network: Transformer, params: dict, prompts: Prompt, layout: Layout) -> dict[str, Array]:
    """Share of attention that tokens of the first layer give to the token after them: is it a copy head?

    ``labels``: what x_j gives to y_j, mean over tasks and j = 1, .., N; ``inputs``: what y_j gives to x_{j+1}, over
    j < N. A head that looks for the next token by position has both; gradient descent needs the first. Shares are of
    the absolute values in a row; chance is 1 / 2N. This lab, for the head of Proposition 3 of von Oswald et al. 2022:
    the previous-token head of an induction circuit, which looks forward here.

    Args:
      network: the stack.
      params: its parameters, learned or hand-built.
      prompts: B prompts with a leading batch axis.
      layout: ``separate_layout(...)``.

    Returns:
      (H,) by ``labels``, ``inputs``; the second is NaN for one context pair.

    Raises:
      ValueError: for a network whose query is among the keys.
    """
    if network.query_as_key:
        raise ValueError("copy_shares are those of context tokens: query_as_key must be False")
    pattern = jnp.abs(_first_attention(network, params, prompts, layout))[:, :, :-1]  # (B, H, 2N, 2N)
    following = jnp.diagonal(pattern, 1, axis1=2, axis2=3) / pattern.sum(3)[..., :-1]  # (B, H, 2N - 1)
    return {"labels": following[..., ::2].mean((0, 2)), "inputs": following[..., 1::2].mean((0, 2))}


def mean_attention(network: Transformer, params: dict, prompts: Prompt, layout: Layout) -> Array:
    """Attention patterns of the first layer, mean over the B prompts: (H, 2N + 1 tokens, 2N context tokens)."""
    return _first_attention(network, params, prompts, layout).mean(0)


def _first_attention(network: Transformer, params: dict, prompts: Prompt, layout: Layout) -> Array:
    run = traced(network, params, layout)
    return jax.vmap(lambda prompt: run(prompt)[1].attention[0])(prompts)
