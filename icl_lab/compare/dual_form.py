"""Attention as a weight update: the dual form of gradient descent, and what it says of an attention head.

Row-vector convention, the transpose of Dai et al. 2022: tokens are rows, k = x W_k, and a query q reads a matrix W of
shape (K, V) as q @ W. One head, one prompt. Which of the tokens that are seen belong to the demonstrations is a mask,
because the tokens before them (the one that begins the prompt) belong to the zero-shot part. A bias is a row of the
weights, with a one appended to every x.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.attention import fast_weight_matrix, linear_pattern, scaled_scores
from icl_lab.prompts.tracing import is_traced

Loss = Callable[[Array, Array], Array]
"""outputs (B, O), targets (B, ...) -> scalar."""


def recorded_descent(
    loss: Loss, w0: Array, inputs: Array, targets: Array, learning_rate: ArrayLike
) -> tuple[Array, Array]:
    """Gradient descent of a linear layer, F(x) = x W, which records what every step adds.

    The error of an input is e = -learning_rate * dL/dF(x) **at the time of its step**: sequential descent moves W
    between the inputs, and errors recomputed with the last W give another matrix. With them W = W0 + sum x_i^T e_i,
    whatever the loss, also one that couples the inputs of a step. Dai et al. 2022, dual form of a linear layer (Irie et
    al. 2022).

    Args:
      loss: of the outputs of one step, (B, O), and their targets; any differentiable function to a scalar.
      w0: (D, O) the layer at the start.
      inputs: (S, B, D) inputs of each of the S steps. One example a step (B = 1) is sequential descent, the same
        inputs at every step full-batch descent.
      targets: (S, B, ...).
      learning_rate: a scalar, or one a step (S,).

    Returns:
      (D, O) the layer after the last step, and (S, B, O) errors.

    Raises:
      ValueError: for shapes that do not fit.
    """
    rates = jnp.asarray(learning_rate, w0.dtype)
    if inputs.ndim != 3 or w0.ndim != 2 or inputs.shape[2] != w0.shape[0]:
        raise ValueError(f"inputs must be (S, B, D) for w0 (D, O), got {inputs.shape} and {w0.shape}")
    if targets.shape[:2] != inputs.shape[:2]:
        raise ValueError(f"targets must begin with the {inputs.shape[:2]} of inputs, got {targets.shape}")
    if rates.shape not in ((), inputs.shape[:1]):
        raise ValueError(f"learning_rate must be a scalar or one a step {inputs.shape[:1]}, got {rates.shape}")

    def step(weights: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x, target, rate = now
        errors = -rate * jax.grad(loss)(x @ weights, target)
        return weights + fast_weight_matrix(x, errors), errors

    return jax.lax.scan(step, w0, (inputs, targets, jnp.broadcast_to(rates, inputs.shape[:1])))


def dual_form(w0: Array, inputs: Array, errors: Array, queries: Array) -> Array:
    """Predictions of a layer that learned by gradient descent, without its weights: W0, and linear attention.

    F(q) = q W0 + sum_i (q . x_i) e_i: attention from q to the training inputs as keys, with their errors as values.
    Exact for the errors of ``recorded_descent``. Dai et al. 2022, dual form of a linear layer.

    Args:
      w0: (D, O) the layer at the start.
      inputs: (N, D) all training inputs, in any order, those of repeated steps repeated; leading axes are flattened.
      errors: (N, O) theirs, with the same leading axes.
      queries: (T, D).

    Returns:
      (T, O).

    Raises:
      ValueError: for shapes that do not fit.
    """
    if inputs.shape[:-1] != errors.shape[:-1] or inputs.ndim < 2:
        raise ValueError(f"errors must be one for each of the inputs {inputs.shape}, got {errors.shape}")
    if w0.shape != (inputs.shape[-1], errors.shape[-1]) or queries.shape[-1:] != w0.shape[:1]:
        raise ValueError(
            f"w0 must be (D, O) for inputs {inputs.shape}, errors {errors.shape} and queries {queries.shape}, "
            f"got {w0.shape}"
        )
    keys, values = inputs.reshape(-1, w0.shape[0]), errors.reshape(-1, w0.shape[1])
    return queries @ w0 + linear_pattern(queries, keys) @ values


def relaxed_decomposition(keys: Array, values: Array, demonstrations: Array) -> tuple[Array, Array]:
    """Relaxed attention (no softmax, no 1/sqrt(K)) as W_ZSL + dW_ICL: what a query would read, and the update.

    ``linear_pattern(q, keys) @ values == q @ (w_zsl + dw_icl)`` with dW_ICL = sum over demonstration tokens of k^T v, a
    sum of outer products of "inputs" k = x W_k and "meta-gradients" v = x W_v. It does not depend on q, and its rank is
    at most the number of demonstration tokens, of channels of a key or of a value, whichever is least: with more tokens
    than channels a head is bounded by its own size, and the rank says nothing. Dai et al. 2022,
    relaxed linear attention.

    Args:
      keys: (N, K) of all tokens that the query sees.
      values: (N, V).
      demonstrations: (N,) True for the tokens of the demonstrations.

    Returns:
      w_zsl (K, V), dw_icl (K, V).

    Raises:
      ValueError: for shapes that do not fit.
    """
    _check_tokens(keys, values, demonstrations)
    chosen = demonstrations[:, None]
    return tuple(fast_weight_matrix(keys, jnp.where(part, values, 0)) for part in (~chosen, chosen))  # type: ignore[return-value]


def update_rank(update: ArrayLike, tolerance: float = 1e-10) -> Array:
    """Number of singular values above ``tolerance`` times the largest; 0 for a matrix of zeros. (..., K, V) -> (...).

    In float32 the tolerance must be above its rounding, about 1e-5.

    Raises:
      ValueError: for a tolerance outside [0, 1), or what is not a matrix.
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be in [0, 1), got {tolerance}")
    matrix = jnp.asarray(update)
    if matrix.ndim < 2 or not matrix.size:
        raise ValueError(f"update must be a matrix (K, V), got shape {matrix.shape}")
    singular = jnp.linalg.svd(matrix, compute_uv=False)
    return (singular > tolerance * singular[..., :1]).sum(-1)


class SoftmaxParts(NamedTuple):
    """The exact parts of a softmax head, for every query.

    Attributes:
      mass: (T,) a, the softmax mass on the demonstrations.
      zero_shot: (T, V) the output of the same head and query without the demonstrations.
      demonstrations: (T, V) its output on the demonstrations alone.
    """

    mass: Array
    zero_shot: Array
    demonstrations: Array

    def output(self) -> Array:
        """The head's output, (1 - a) zero_shot + a demonstrations: (T, V)."""
        return (1 - self.mass[:, None]) * self.zero_shot + self.mass[:, None] * self.demonstrations


def softmax_decomposition(
    queries: Array, keys: Array, values: Array, demonstrations: Array, visible: Array | None = None
) -> SoftmaxParts:
    """A softmax head as a mixture of its zero-shot output and attention to the demonstrations: exact (this lab).

    F_ICL(q) = (1 - a) F_ZSL(q) + a Attn_demonstrations(q) for the same q, keys and values. Demonstrations shrink the
    zero-shot part, which the relaxed form does not have. In a network queries, keys and values are the same with and
    without demonstrations in the first layer alone, and only if the positions are; above it this F_ZSL is the head's
    output on what it now reads, not that of the zero-shot run.

    Args:
      queries: (T, K).
      keys: (N, K).
      values: (N, V).
      demonstrations: (N,) True for the tokens of the demonstrations.
      visible: (T, N) True where a query may look (causal attention), None for everywhere. A part of which a query sees
        no token is 0, with mass 0; each query must see one token at least, which is checked outside of jit.

    Raises:
      ValueError: for shapes that do not fit, or a query that sees nothing.
    """
    _check_tokens(keys, values, demonstrations)
    if queries.ndim != 2 or queries.shape[1] != keys.shape[1]:
        raise ValueError(f"queries must be (T, K) for keys {keys.shape}, got {queries.shape}")
    scores = scaled_scores(queries, keys)
    if visible is None:
        visible = jnp.ones(scores.shape, bool)
    if visible.shape != scores.shape:
        raise ValueError(f"visible must be (T, N) = {scores.shape}, got {visible.shape}")
    if not is_traced(visible) and not visible.any(axis=1).all():
        raise ValueError("visible must leave each query one token at least")
    parts = [visible & ~demonstrations[None], visible & demonstrations[None]]
    zero_shot, alone = (_attended(scores, part) @ values for part in parts)
    of_parts = [jax.nn.logsumexp(jnp.where(part, scores, -jnp.inf), axis=1) for part in parts]
    return SoftmaxParts(jax.nn.sigmoid(of_parts[1] - of_parts[0]), zero_shot, alone)


def fine_tuning_update(x: Array, w_k: Array, w_v: Array, dw_k: Array, dw_v: Array) -> dict[str, Array]:
    """What fine-tuning of keys and values does to relaxed attention, in the form of dW_ICL: dW_FT and its terms.

    F_FT(q) = q (W_ZSL + dW_FT), W_ZSL = (x W_k)^T (x W_v), and with the changed weights expanded (this lab; the form is
    that of Dai et al. 2022, fine-tuning in the same form)

        dW_FT = (x W_k)^T (x dW_v) + (x dW_k)^T (x W_v) + (x dW_k)^T (x dW_v).

    For the same x: in a network whose lower layers were tuned too, it is exact for the first layer alone.

    Args:
      x: (N, E) tokens that the query sees.
      w_k: (E, K) before fine-tuning.
      w_v: (E, V) before.
      dw_k: (E, K) what fine-tuning added.
      dw_v: (E, V).

    Returns:
      ``values``, ``keys`` and ``both``, the three terms, and ``total``, their sum dW_FT; each (K, V).

    Raises:
      ValueError: for shapes that do not fit.
    """
    if w_k.shape != dw_k.shape or w_v.shape != dw_v.shape:
        raise ValueError(f"dw_k and dw_v must have shapes {w_k.shape} and {w_v.shape}, got {dw_k.shape}, {dw_v.shape}")
    if x.ndim != 2 or any(w.ndim != 2 or w.shape[0] != x.shape[1] for w in (w_k, w_v)):
        raise ValueError(f"x must be (N, E) for w_k and w_v (E, ..), got {x.shape}, {w_k.shape} and {w_v.shape}")
    terms = {
        "values": fast_weight_matrix(x @ w_k, x @ dw_v),
        "keys": fast_weight_matrix(x @ dw_k, x @ w_v),
        "both": fast_weight_matrix(x @ dw_k, x @ dw_v),
    }
    return terms | {"total": terms["values"] + terms["keys"] + terms["both"]}


def relaxation_distance(softmax: Array, relaxed: Array) -> dict[str, Array]:
    """How far relaxed attention is from the softmax head that it stands for, one number for each query (this lab).

    ``relative_error`` |relaxed - softmax| / |softmax|; ``cosine`` of the two; and ``scaled_error``, the relative error
    at the scale of relaxed that fits best, sqrt(1 - cosine^2): relaxed attention is a sum and softmax a mean, and the
    first number is mostly this difference. NaN where an output is zero, which has no direction.

    Args:
      softmax: (..., V) outputs of the head.
      relaxed: (..., V).

    Returns:
      Arrays (...) by the three names.

    Raises:
      ValueError: for shapes that differ.
    """
    if softmax.shape != relaxed.shape or not softmax.ndim:
        raise ValueError(
            f"softmax and relaxed must be outputs of one shape (.., V), got {softmax.shape}, {relaxed.shape}"
        )
    true, other = (jnp.linalg.norm(part, axis=-1) for part in (softmax, relaxed))
    cosine = jnp.clip((softmax * relaxed).sum(-1) / (true * other), -1, 1)
    error = jnp.linalg.norm(relaxed - softmax, axis=-1) / true
    return {"relative_error": error, "cosine": cosine, "scaled_error": jnp.sqrt(1 - cosine**2)}


def _check_tokens(keys: Array, values: Array, demonstrations: Array) -> None:
    if keys.ndim != 2 or values.ndim != 2 or keys.shape[0] != values.shape[0]:
        raise ValueError(f"keys and values must be (N, K) and (N, V), got {keys.shape} and {values.shape}")
    if demonstrations.shape != keys.shape[:1] or demonstrations.dtype != bool:
        raise ValueError(
            f"demonstrations must be a mask ({keys.shape[0]},) of bool, "
            f"got {demonstrations.shape} of {demonstrations.dtype}"
        )


def _attended(scores: Array, seen: Array) -> Array:
    """(T, N) softmax over the tokens that are seen; zeros where none is."""
    highest = jnp.max(jnp.where(seen, scores, -jnp.inf), axis=1, keepdims=True)
    shifted = jnp.where(seen, jnp.exp(scores - jnp.where(jnp.isfinite(highest), highest, 0)), 0)
    total = shifted.sum(1, keepdims=True)
    return shifted / jnp.where(total > 0, total, 1)
