"""Answers compared as distributions: overlap, divergence, and what the order of demonstrations does to them."""

import jax
import jax.numpy as jnp
from jax import Array


def top_overlap(a: Array, b: Array, k: int) -> Array:
    """Share of the k likeliest tokens of a that are among the k likeliest of b (Shen et al. 2024, token overlap).

    Args:
      a: (..., V) logits.
      b: (..., V).
      k: how many.

    Returns:
      (...) in [0, 1].

    Raises:
      ValueError: for shapes that differ, or k outside [1, V].
    """
    _check(a, b)
    if not 1 <= k <= a.shape[-1]:
        raise ValueError(f"k must be from 1 to the {a.shape[-1]} tokens, got {k}")
    of_a, of_b = (jax.lax.top_k(logits, k)[1] for logits in (a, b))
    return (of_a[..., :, None] == of_b[..., None, :]).sum((-2, -1)) / k


def jensen_shannon(a: Array, b: Array) -> Array:
    """Jensen-Shannon divergence of two answers, in nats: (1/2) KL(p | m) + (1/2) KL(q | m), m = (p + q) / 2.

    Args:
      a: (..., A) logits of p.
      b: (..., A) logits of q.

    Returns:
      (...) in [0, log 2].

    Raises:
      ValueError: for shapes that differ.
    """
    _check(a, b)
    p, q = (jax.nn.log_softmax(logits, axis=-1) for logits in (a, b))
    middle = jnp.logaddexp(p, q) - jnp.log(2.0)
    finite = lambda one: jnp.where(jnp.isfinite(one), one - middle, 0)  # noqa: E731 an answer that is never given adds 0
    of_p, of_q = ((jnp.exp(one) * finite(one)).sum(-1) for one in (p, q))
    return 0.5 * (of_p + of_q)


def order_sensitivity(candidate_logits: Array, targets: Array) -> dict[str, Array]:
    """How much an answer depends on the order of the demonstrations, which full-batch fine-tuning's does not.

    Standard deviations over P orders (divided by P): ``log_probability`` of the right answer among the candidates, mean
    over queries, and ``accuracy`` over queries. Shen et al. 2024 compare the two learners by it.

    Args:
      candidate_logits: (P, I, A).
      targets: (I,) index of the right answer.

    Returns:
      Scalars by the two names.

    Raises:
      ValueError: for shapes that do not fit, or fewer than two orders.
    """
    if candidate_logits.ndim != 3 or len(candidate_logits) < 2 or targets.shape != candidate_logits.shape[1:2]:
        raise ValueError(
            "candidate_logits must be (P, I, A) of at least two orders, and targets (I,), "
            f"got {candidate_logits.shape} and {targets.shape}"
        )
    rows = jnp.arange(len(targets))
    right = jax.nn.log_softmax(candidate_logits, axis=-1)[:, rows, targets]  # (P, I)
    hits = jnp.argmax(candidate_logits, axis=-1) == targets[None]
    return {"log_probability": right.std(0).mean(), "accuracy": hits.mean(1).std()}


def _check(a: Array, b: Array) -> None:
    if a.shape != b.shape or not a.ndim or not a.shape[-1]:
        raise ValueError(f"a and b must have one shape (.., V), got {a.shape} and {b.shape}")
