"""The attentions that a network may have (``ATTENTIONS``). A head is: pattern = f(queries, keys), pattern @ values."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.online import delta_of_grams, delta_pattern, mesa_of_grams, mesa_pattern
from icl_lab.prompts.tracing import is_traced
from icl_lab.prompts.unfused import unfused

MAX_UNROLLED_KEYS = 64


def linear_pattern(queries: Array, keys: Array) -> Array:
    """Pattern of linear self-attention: raw scores, no softmax, no 1/sqrt(K), no 1/N.

    (T, K), (N, K) -> (T, N). von Oswald et al. 2022, eq. 2 (the 1/N of gradient descent sits in the projection P).
    """
    return queries @ keys.T


def softmax_pattern(queries: Array, keys: Array) -> Array:
    """Pattern of softmax attention, scores divided by sqrt(K) (the released code of von Oswald et al. 2022, A.9).

    (T, K), (N, K) -> (T, N); rows sum to one.
    """
    return jax.nn.softmax(scaled_scores(queries, keys), axis=-1)


def scaled_scores(queries: Array, keys: Array) -> Array:
    """Scores of softmax attention, q.k / sqrt(K): (T, K), (N, K) -> (T, N)."""
    return queries @ keys.T / jnp.sqrt(jnp.asarray(keys.shape[-1], keys.dtype))


@jax.custom_vjp
def softmax_of_scores(scores: Array) -> Array:
    """Softmax over the keys of a batch of tasks: (blocks, T, N, tasks) -> the same shape. Reverse mode only.

    Reductions over few keys are unrolled: XLA:CPU gives its own to a library, which computes them on one core.
    """
    weights = _exp(scores, _over_keys(scores, name="max"))
    return weights / _over_keys(weights, name="sum")


@unfused
def _exp(scores: Array, largest: Array) -> Array:
    return jnp.exp(scores - largest)


@unfused(static=("name",))
def _over_keys(*factors: Array, name: str) -> Array:
    """Sum or maximum of the factors' product over the keys, axis 2, which is kept."""
    keys = factors[0].shape[2]
    if keys > MAX_UNROLLED_KEYS:
        return getattr(functools.reduce(jnp.multiply, factors), name)(2, keepdims=True)
    products = [functools.reduce(jnp.multiply, [x[:, :, k : k + 1] for x in factors]) for k in range(keys)]
    return functools.reduce({"sum": jnp.add, "max": jnp.maximum}[name], products)


softmax_of_scores.defvjp(
    lambda scores: (softmax_of_scores(scores),) * 2, lambda p, d: (p * (d - _over_keys(p, d, name="sum")),)
)


class Attention(NamedTuple):
    """An attention in its two forms, which must be the same function, and what a network may do with it.

    Attributes:
      pattern: of one task, (T, K) queries, (N, K) keys -> (T, N): the plain form.
      of_scores: the pattern of a batch of tasks from their scores q.k, (blocks, T, N, tasks) -> the same shape: the
        form that ``batch_learner``, and so training, use. None where there is none (of an attention that is no
        function of the scores): they refuse it.
      of_grams: the same where the pattern also depends on k.k of the keys, (blocks, N, N, tasks), the second argument;
        beside ``of_scores`` it is not used.
      scaled: the scores that ``of_scores`` takes are divided by sqrt(K).
      normalised: the rows of a pattern are positive and sum to one, so that shares of attention may be kept.
      gram: the pattern is the scores themselves, unscaled, so that (q K^T) V may be computed as q (K^T V).
    """

    pattern: Callable[[Array, Array], Array]
    of_scores: Callable[[Array], Array] | None = None
    scaled: bool = False
    normalised: bool = False
    gram: bool = False
    of_grams: Callable[[Array, Array], Array] | None = None


def delta_attention(
    *, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0, momentum: ArrayLike = 0.0, normalised: bool = False
) -> Attention:
    """The delta rule over the keys in their order (``online.delta_pattern``), an entry for ``ATTENTIONS``.

    Without gates and momentum it is DeltaNet, whose rate is in the size of its keys: W_k^T W_q = b I is LMS.

    Args:
      rates: b, one number or (N,).
      gates: a, one number or (N,).
      momentum: mu.
      normalised: keys and values are divided by the size of the key.
    """
    options: dict[str, Any] = {"rates": rates, "gates": gates, "momentum": momentum, "normalised": normalised}
    return Attention(functools.partial(delta_pattern, **options), of_grams=functools.partial(delta_of_grams, **options))


def mesa_attention(strength: ArrayLike, *, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0) -> Attention:
    """Ridge regression on the keys, weighted by their rates and gates (``online.mesa_pattern``).

    Args:
      strength: lambda above 0.
      rates: b, one number or (N,).
      gates: a, one number or (N,).
    """
    options: dict[str, Any] = {"strength": strength, "rates": rates, "gates": gates}
    return Attention(functools.partial(mesa_pattern, **options), of_grams=functools.partial(mesa_of_grams, **options))


ATTENTIONS: dict[str, Attention] = {
    "linear": Attention(linear_pattern, lambda scores: scores, gram=True),
    "softmax": Attention(softmax_pattern, softmax_of_scores, scaled=True, normalised=True),
    "delta": delta_attention(),
    "normalised delta": delta_attention(normalised=True),
    "mesa": mesa_attention(1.0),
}
"""What ``Transformer(attention=...)`` names. A new attention is one more entry."""


UNSEEN = -1e30
"""Score of a key that a token does not see, for attention whose rows sum to one."""


def seen_pattern(kind: Attention, queries: Array, keys: Array, seen: Array) -> Array:
    """The pattern of tokens that see only some keys, zero where they do not: (T, K), (N, K), (T, N) bool -> (T, N).

    Rows that sum to one do so over what is seen; a token that sees no key has a row of zeros. By the attention's form
    for batches, so by reverse mode only.

    Raises:
      ValueError: for an attention without such a form.
    """
    scores = queries @ keys.T * (keys.shape[1] ** -0.5 if kind.scaled else 1.0)
    return seen_of_scores(kind, scores[None, :, :, None], seen[None, :, :, None])[0, :, :, 0]


def seen_of_scores(kind: Attention, scores: Array, seen: Array) -> Array:
    """The same of scores of a batch of tasks: (blocks, T, N, tasks), ``seen`` broadcastable to it."""
    if kind.of_scores is None:
        raise ValueError("an attention without of_scores sees all keys: no causal network and no padded context")
    pattern = kind.of_scores(jnp.where(seen, scores, UNSEEN) if kind.normalised else scores)
    return jnp.where(seen, pattern, 0)


def fast_weight_matrix(keys: Array, values: Array) -> Array:
    """The matrix that linear attention writes, sum_j k_j v_j^T; a query q reads it out as q @ W.

    (N, K), (N, V) -> (K, V). The fast-weight reading of linear attention (Schlag et al. 2021, eq. 4; von Oswald et al.
    2022, section 2): ``linear_pattern(q, k) @ v == q @ fast_weight_matrix(k, v)``.
    """
    return jnp.einsum("nk,nv->kv", keys, values)


def momentum_pattern(tokens: int, eta: ArrayLike, *, keys: int | None = None, normalised: bool = False) -> Array:
    """The Toeplitz form of momentum, eta^(t-i) where i < t and 0 elsewhere.

    Added to a pattern it makes attention with momentum,
    out_t = sum_i pattern_ti v_i + sum_(i < t) eta^(t-i) v_i, for any pattern, linear or softmax (Dai et al. 2022,
    momentum-based attention; the paper does not give eta). Gradient descent with momentum as the paper writes it,
    Theta_t = Theta_(t-1) - gamma sum_(i < t) eta^(t-i) grad_i, is heavy ball at the learning rate gamma eta. The
    analogy is one of form: momentum on the outer products k_i^T v_i that linear attention writes would be read by the
    query, but this sum of values depends on no query and no key, so it is no weight matrix W with out = q W (this lab).

    A row sums to eta (1 - eta^n) / (1 - eta) with n the tokens before it. Normalised, it is multiplied by
    (1 - eta) / eta, sums to 1 - eta^n, and has a limit as eta goes to 0 which is not zero but a shift by one token.

    Args:
      tokens: T.
      eta: a scalar in [0, 1), fixed or learned (one a head: the sigmoid of a parameter, under ``vmap`` over heads).
      keys: N, the first tokens, that have values; None for all.
      normalised: weights (1 - eta) eta^(t-i-1).

    Returns:
      (T, N).

    Raises:
      ValueError: for fewer tokens or keys than 1, or eta that is no scalar in [0, 1) (its size outside of jit).
    """
    value, lag = jnp.asarray(eta, float if isinstance(eta, int) else None), _lag(tokens, keys)
    if value.shape or (not is_traced(value) and not 0 <= float(value) < 1):
        raise ValueError(f"eta must be a scalar in [0, 1), got {eta}")
    powers = value ** jnp.maximum(lag - normalised, 0)
    return jnp.where(lag > 0, (1 - value) * powers if normalised else powers, 0)


def recent_pattern(tokens: int, window: int, *, keys: int | None = None) -> Array:
    """Mean of the last ``window`` values before each token: the local mixer that momentum is judged against.

    1 / window where 0 < t - i <= window, 0 elsewhere, (T, N); a window of 1 is a shift by one token. It has no decay
    and costs the same; values before the first token count as zeros, as they do in momentum.

    Raises:
      ValueError: for fewer tokens or keys, or a window, below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    lag = _lag(tokens, keys)
    return jnp.where((lag > 0) & (lag <= window), 1 / window, 0.0)


def _lag(tokens: int, keys: int | None) -> np.ndarray:
    """(T, N) t - i."""
    keys = tokens if keys is None else keys
    if not 1 <= keys <= tokens:
        raise ValueError(f"tokens must be at least 1 and keys in [1, tokens], got tokens={tokens}, keys={keys}")
    return np.arange(tokens)[:, None] - np.arange(keys)[None]
