"""Closed forms of in-context linear regression with separate tokens: a copy head, then one step of gradient descent.

Tokens x_1, y_1, x_2, .., y_N, x_q, the label in the last content channel (von Oswald et al. 2022, section 5). A head
that gives every token the last content channel of the next one makes x_j the pair (x_j, y_j), and y_j the pair
(y_j, x_{j+1,D}), with a key in channel D. A linear layer that then takes one step of gradient descent adds

    x_qD sum_{j < N} y_j x_{j+1,D}

to what it should predict. It has mean zero and acts as noise: the layer does best with a smaller rate in that channel.
"""

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.gradient_descent.one_step import Floats, one_step_loss


def copy_everything_loss(
    learning_rate: ArrayLike,
    label_rate: ArrayLike,
    *,
    context_length: int,
    input_size: int,
    input_variance: ArrayLike,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
) -> Floats:
    """Population loss of one step of gradient descent after a head that copies the next token for every token.

    With S = sum_j y_j x_jD + sum_{j < N} y_j x_{j+1,D} the weight of channel D is (label_rate / N) S, and
    E[S^2] = s^2 v^2 (N (N + D + k - 2) + D (N - 1)): y_N, whose next token is the query, copies nothing. With
    c = learning_rate v, b = label_rate v and M = N + D + k - 2

        L = (s^2 v / 2) [(D - 1)(1 - 2 c + c^2 M / N) + 1 - 2 b + b^2 (M / N + D (N - 1) / N^2)]

    (this lab; the task distribution is that of ``icl_lab.theory.gradient_descent.one_step``).

    Args:
      learning_rate: eta of the channels of x_1, .., x_{D-1}.
      label_rate: eta of channel D, which the labels share.
      context_length: N.
      input_size: D.
      input_variance: v.
      kurtosis: k (uniform 1.8).
      task_scale: s.

    Returns:
      float64 loss; all array arguments broadcast.

    Raises:
      ValueError: as ``one_step_loss``.
    """
    settings = {"context_length": context_length, "input_size": input_size, "input_variance": input_variance}
    clean, shared = (
        one_step_loss(rate, **settings, kurtosis=kurtosis, task_scale=task_scale)  # type: ignore[arg-type]
        for rate in (learning_rate, label_rate)
    )
    variance = np.asarray(input_variance, np.float64)
    b = np.asarray(label_rate, np.float64) * variance
    copied = np.asarray(task_scale, np.float64) ** 2 * variance / 2 * b**2 * _copied(context_length, input_size)
    return clean * (1 - 1 / input_size) + shared / input_size + copied


def copy_everything_optimum(
    *,
    context_length: int,
    input_size: int,
    input_variance: ArrayLike,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """Best rates after a head that copies everything, and their loss: (learning_rate, label_rate, L).

    learning_rate v = N / (N + D + k - 2), as without copying, label_rate v = N / (N + D + k - 2 + D (N - 1) / N), the
    minimum of ``copy_everything_loss``; arguments and errors as there. For N = D = 10 and U(-.5, .5) it is .2128, 3.2 %
    above the best step of gradient descent.
    """
    settings = {"context_length": context_length, "input_size": input_size, "input_variance": input_variance}
    variance = np.asarray(input_variance, np.float64)
    inverse = (context_length + input_size + kurtosis - 2) / context_length
    rates = 1 / inverse / variance, 1 / (inverse + _copied(context_length, input_size)) / variance
    loss = copy_everything_loss(*rates, **settings, kurtosis=kurtosis, task_scale=task_scale)  # type: ignore[arg-type]
    return *rates, loss


def _copied(context_length: int, input_size: int) -> float:
    """E[(sum_{j < N} y_j x_{j+1,D})^2] in units of s^2 v^2 N^2."""
    return input_size * (context_length - 1) / context_length**2
