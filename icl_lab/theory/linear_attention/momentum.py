"""Closed forms of linear self-attention with momentum, or any fixed mixer of earlier values, on linear regression.

The tasks are those of ``theory.gradient_descent.one_step``: y = w^T x with w ~ N(0, s^2 I), centred i.i.d. inputs of
variance v and kurtosis k, one output. The momentum attention is that of Dai et al. 2022, section 4; the results are
this lab's.
"""

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.gradient_descent.one_step import Floats


def mixer_penalty(
    mixing: ArrayLike, value_weights: ArrayLike, *, input_variance: float, task_scale: float = 1.0
) -> Floats:
    """What a fixed mixer adds to the loss of one layer of linear self-attention on joint tokens, whatever its weights.

    The query's token (x_q, 0) reads f + m with f linear in x_q and m = sum_i mixing_i e_i.b, where e_i = (x_i, y_i) and
    b is the label column of W_v W_p. Under x_q -> -x_q the distribution stays, f and the target change their sign and
    m does not: the cross terms vanish, and as the tokens e_i are uncorrelated with variances v, .., v, D v s^2,

        L(mixed) - L(plain) = (1/2) sum_i mixing_i^2 (v |b_x|^2 + D v s^2 b_y^2) >= 0.

    A mixer is weight decay on the values: it never helps the loss, and as A -> c A, B -> B / c leaves f alone, it can
    be escaped only as c goes to infinity. For momentum the sum of squares is eta^2 (1 - eta^2N) / (1 - eta^2).

    Args:
      mixing: (N,) weights of the context's values in the query's row.
      value_weights: (.., D + 1) b, the inputs' part first.
      input_variance: v.
      task_scale: s.

    Returns:
      (..) float64, what is added to half the mean squared error.
    """
    b = np.asarray(value_weights, np.float64)
    power = np.sum(np.asarray(mixing, np.float64) ** 2)
    label = (b.shape[-1] - 1) * task_scale**2 * b[..., -1] ** 2
    return input_variance / 2 * power * (np.sum(b[..., :-1] ** 2, axis=-1) + label)


def mixed_step_optimum(
    pairs: ArrayLike, *, input_size: int, input_variance: float, kurtosis: float = 1.8, task_scale: float = 1.0
) -> tuple[float, float]:
    """Best rate, and its loss, of a step that pairs labels with inputs by weights: rate sum_ij H_ij y_i x_j.x_q.

    H = I / N is one step of gradient descent (``one_step_optimum``). H = diag(c) weighs the demonstrations: it costs
    what a context of (sum c)^2 / sum c^2 pairs would. Weights off the diagonal, of labels with inputs of other pairs,
    are noise. With M = sum_ij H_ij x_i x_j^T, E[M] = v tr(H) I and

        E|M|^2 = D v^2 [(tr H)^2 + (D + k - 2) sum_i H_ii^2 + sum_(i /= j) (D H_ij^2 + H_ij H_ji)],

    the rate is tr(H) D v / E|M|^2 and L = (s^2 v / 2) (D - (tr(H) D v)^2 / E|M|^2).

    Args:
      pairs: H, (N, N): label i with input j.
      input_size: D.
      input_variance: v.
      kurtosis: k.
      task_scale: s.

    Raises:
      ValueError: for weights that are not (N, N), or pair no label with its own input (a trace of zero).
    """
    h = np.asarray(pairs, np.float64)
    if h.ndim != 2 or h.shape[0] != h.shape[1] or not np.trace(h):
        raise ValueError(f"pairs must be (N, N) with a trace that is not zero, got shape {h.shape}")
    d, diagonal = input_size, np.diag(h)
    others = h - np.diag(diagonal)
    square = diagonal.sum() ** 2 + (d + kurtosis - 2) * np.sum(diagonal**2) + np.sum(d * others**2 + others * others.T)
    rate = diagonal.sum() / (input_variance * square)
    loss = task_scale**2 * d * input_variance / 2 * (1 - diagonal.sum() ** 2 / square)
    return float(rate), float(loss)


def copied_pairs(mixing: ArrayLike) -> Floats:
    """Labels paired with the inputs that a mixer brings to them, of tokens x_1, y_1, x_2, .., y_N, x_q.

    A first layer with values (x, 0) adds to the token of y_i its mixer's weights of x_1, .., x_i; a second layer that
    takes one step of gradient descent then pairs label i with input j by H_ij = mixing[2i - 1, 2j - 2] (``pairs`` of
    ``mixed_step_optimum``). A shift by one token gives the identity: a step of gradient descent. Momentum gives
    eta^(2(i - j) + 1): its past is noise.

    Args:
      mixing: (2N + 1, 2N) weights of the context's values in every token's row.

    Returns:
      (N, N).

    Raises:
      ValueError: for another shape.
    """
    weights = np.asarray(mixing, np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] + 1 or weights.shape[1] % 2:
        raise ValueError(f"mixing must be (2N + 1, 2N), got {weights.shape}")
    return weights[1:-1:2, ::2]
