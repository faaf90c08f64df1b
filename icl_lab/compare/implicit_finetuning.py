"""Does in-context learning do to a network what fine-tuning does? Similarities of hidden states and of attention.

Dai et al. 2022 (tables of the final version), with the corrections of Deutch et al. 2024. Every function takes one
example and layer, or any leading axes (examples, layers). A cosine with a vector of zeros is NaN, not 0: a zero update
has no direction. With ``released`` it is 0, as in the released code, which adds 1e-20 to the denominator. The compared
states must come from one compiled program: otherwise a zero update is a rounding error, which has a direction.
``icl_lab.compare.scores`` takes means with intervals, and says why a mean is NaN.
"""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.matrices import singular

RELEASED_EPSILON = 1e-20
BASELINES = ("gaussian", "uniform")


def update_similarity(
    zero_shot: Array, in_context: Array, finetuned: Array, *, normalised: bool = True, released: bool = False
) -> Array:
    """SimAOU: cosine of what demonstrations and what fine-tuning add to the attention output at the last token.

    cos(h_ICL - h_ZSL, h_FT - h_ZSL) of the attention block's output after its projection. Normalised, each h is
    divided by its norm first, as in the paper; the cosine is then positive even of updates that have nothing in common,
    see ``update_similarity_floor``. Dai et al. 2022, Table 3; not normalised: Deutch et al. 2024.

    Args:
      zero_shot: (..., E) h_ZSL.
      in_context: (..., E) h_ICL.
      finetuned: (..., E) h_FT.
      normalised: the paper's.
      released: the code's, see above.

    Returns:
      (...) in [-1, 1]; NaN where an update (normalised: or an h) is zero.

    Raises:
      ValueError: for shapes that differ.
    """
    learned, tuned = _updates(zero_shot, in_context, finetuned, normalised, released)
    return _cosine(learned, tuned, released)


def update_similarity_floor(zero_shot: Array, in_context: Array, finetuned: Array, *, normalised: bool = True) -> Array:
    """The part of SimAOU that the zero-shot direction alone accounts for, cos(u_ICL, h_ZSL) cos(u_FT, h_ZSL).

    With u = h - h_ZSL split along and across h_ZSL, it is the whole of SimAOU where the two parts across have nothing
    in common, whatever their sizes (this lab). Normalised it is never negative: (1/2) sqrt((1 - c)(1 - c')) with c the
    cosine of h_ICL, c' of h_FT, and h_ZSL, because normalising shrinks the zero-shot part of both.
    ``orthogonal_noise_floor`` is the case of updates orthogonal to h_ZSL.

    Args:
      zero_shot: (..., E).
      in_context: (..., E).
      finetuned: (..., E).
      normalised: as in ``update_similarity``.

    Returns:
      (...); NaN as there.

    Raises:
      ValueError: for shapes that differ.
    """
    learned, tuned = _updates(zero_shot, in_context, finetuned, normalised, released=False)
    return _cosine(learned, zero_shot) * _cosine(tuned, zero_shot)


def orthogonal_noise_floor(in_context_ratio: Array, finetuned_ratio: Array) -> Array:
    """Normalised SimAOU of two updates orthogonal to h_ZSL and to each other: (1/2) sqrt((1 - s)(1 - s')).

    s = 1 / sqrt(1 + rho^2) with rho = |u| / |h_ZSL|. 1/4 at rho^2 = 3 for both (Deutch et al. 2024), 1/2 in
    the limit; 0 if not normalised. Two norms that differ, and this form of it, are this lab's.

    Args:
      in_context_ratio: (...) rho of the demonstrations, not negative.
      finetuned_ratio: (...) rho of fine-tuning, not negative.

    Returns:
      (...) in [0, 1/2].
    """
    shrink, other = ((1 + jnp.square(ratio)) ** -0.5 for ratio in (in_context_ratio, finetuned_ratio))
    return 0.5 * jnp.sqrt((1 - shrink) * (1 - other))


def label_directions(embedding: Array, scale: Array, candidates: Array) -> Array:
    """Directions of the residual stream that decide among labels: differences of the candidates' rows of the read-out.

    After the last LayerNorm, whose scale is part of them, an update along these moves the candidates' logits against
    each other; what raises them all is across (this lab).

    Args:
      embedding: (V, E) whose rows make the logits.
      scale: (E,) of the last LayerNorm.
      candidates: (A,) tokens; repeated ones add nothing.

    Returns:
      (A - 1, E).
    """
    rows = embedding[candidates] * scale[None]
    return rows[1:] - rows[:1]


def within_span(vectors: Array, directions: Array) -> Array:
    """The part of vectors (..., E) in the span of directions (A, E), which need not be independent."""
    basis, values, _ = singular(directions.T)
    basis = jnp.where((values > 1e-5 * values[0])[None], basis, 0)
    return (vectors @ basis) @ basis.T


def random_update_similarity(
    key: Array, zero_shot: Array, in_context: Array, *, baseline: str = "gaussian", normalised: bool = True
) -> Array:
    """SimAOU against a random vector instead of fine-tuning: cos(h_ICL - h_ZSL, r), the paper's "random" row.

    Args:
      key: for r, one for each of the leading axes.
      zero_shot: (..., E).
      in_context: (..., E).
      baseline: ``gaussian``, or the code's ``uniform`` on [0, 1), which is not centred: similar to whatever update
        has a mean over its channels.
      normalised: as in ``update_similarity``.

    Returns:
      (...).

    Raises:
      ValueError: for another baseline, or shapes that differ.
    """
    if baseline not in BASELINES:
        raise ValueError(f"baseline must be one of {BASELINES}, got {baseline!r}")
    learned = jnp.asarray(_updates(zero_shot, in_context, in_context, normalised, released=False)[0])
    draw = jax.random.normal if baseline == "gaussian" else jax.random.uniform
    return _cosine(learned, draw(key, learned.shape, learned.dtype))


def attention_similarity(in_context: Array, other: Array, *, released: bool = False) -> Array:
    """SimAM: cosine of the last token's attention scores to the query's tokens, mean over heads.

    cos(m_ICL, m_ZSL) before fine-tuning and cos(m_ICL, m_FT) after it; m are scores q.k / sqrt(K) before the softmax,
    without mask, of the query's tokens alone. Padding with zeros changes nothing. Dai et al. 2022, Table 4.

    Args:
      in_context: (..., H, T) m_ICL, the demonstrations' columns dropped.
      other: (..., H, T) m_ZSL or m_FT.
      released: the code's, see above.

    Returns:
      (...) in [-1, 1]; NaN where the scores of a head are all zero.

    Raises:
      ValueError: for shapes that differ.
    """
    _check(heads=True, in_context=in_context, other=other)
    return _cosine(in_context, other, released).mean(-1)


def attention_update_similarity(
    zero_shot: Array, in_context: Array, finetuned: Array, *, released: bool = False
) -> Array:
    """SimAM of differences: cos(m_ICL - m_ZSL, m_FT - m_ZSL), mean over heads.

    Plain SimAM is dominated by m_ZSL, which both have, and falls with the size of the update whatever its direction.
    Deutch et al. 2024.

    Args:
      zero_shot: (..., H, T).
      in_context: (..., H, T).
      finetuned: (..., H, T).
      released: the code's, see above.

    Returns:
      (...); NaN where the scores of a head did not change.

    Raises:
      ValueError: for shapes that differ.
    """
    _check(heads=True, zero_shot=zero_shot, in_context=in_context, finetuned=finetuned)
    return _cosine(in_context - zero_shot, finetuned - zero_shot, released).mean(-1)


def finetuned_token_scores(training_queries: Array, query: Array) -> Array:
    """How much the last token of a query example "attends" to the tokens of fine-tuning: q . q', summed over heads.

    Not keys but attention query vectors of the training tokens, recorded at the step that trains them. Its counterpart
    in context are the last token's scores to the demonstrations' tokens, summed over heads. Dai et al. 2022, Table 5.

    Args:
      training_queries: (..., N, H, K) without the tokens that begin or end an example.
      query: (..., H, K) of the last token, in the fine-tuned network.

    Returns:
      (..., N).

    Raises:
      ValueError: for shapes that do not fit.
    """
    if query.ndim < 2 or training_queries.ndim < 3 or training_queries.shape[-2:] != query.shape[-2:]:
        raise ValueError(
            f"training_queries must be (..., N, H, K) for query (..., H, K), "
            f"got {training_queries.shape} and {query.shape}"
        )
    return jnp.einsum("...nhk,...hk->...n", training_queries, query)


def kendall(a: Array, b: Array, *, released: bool = False) -> Array:
    """Kendall's rank correlation, (concordant - discordant) / (N (N - 1) / 2) pairs. Dai et al. 2022, Table 5.

    The paper's is tau-a, where a tie counts as neither; the code's is tau-b, which leaves ties out of the number of
    pairs. Without ties they are the same.

    Args:
      a: (..., N).
      b: (..., N).
      released: tau-b; NaN where all of a or of b are tied.

    Returns:
      (...) in [-1, 1].

    Raises:
      ValueError: for shapes that differ, or N below 2: no pair.
    """
    _check(heads=False, a=a, b=b)
    n = a.shape[-1]
    if n < 2:
        raise ValueError(f"a and b must have at least 2 entries to have a pair, got {n}")
    order_a, order_b = (jnp.sign(v[..., :, None] - v[..., None, :]) for v in (a, b))
    difference = (order_a * order_b).sum((-2, -1))
    if released:
        return difference / jnp.sqrt(jnp.abs(order_a).sum((-2, -1)) * jnp.abs(order_b).sum((-2, -1)))
    return difference / (n * (n - 1))


def _updates(
    zero_shot: Array, in_context: Array, finetuned: Array, normalised: bool, released: bool
) -> tuple[Array, Array]:
    _check(heads=False, zero_shot=zero_shot, in_context=in_context, finetuned=finetuned)
    states = (zero_shot, in_context, finetuned)
    if normalised:
        added = RELEASED_EPSILON if released else 0
        states = tuple(h / (jnp.linalg.norm(h, axis=-1, keepdims=True) + added) for h in states)
    return states[1] - states[0], states[2] - states[0]


def _cosine(a: Array, b: Array, released: bool = False) -> Array:
    added = RELEASED_EPSILON if released else 0
    return (a * b).sum(-1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1) + added)


def _check(*, heads: bool, **arrays: Array) -> None:
    shapes = [array.shape for array in arrays.values()]
    if len(set(shapes)) > 1 or len(shapes[0]) < 1 + heads or not shapes[0][-1]:
        raise ValueError(
            f"{', '.join(arrays)} must have one shape {'(..., H, T)' if heads else '(..., E)'}, got {shapes}"
        )
