"""Closed forms of in-context linear regression: one step of gradient descent.

Setting (von Oswald et al. 2022, section 2): y = w^T x + noise with w ~ N(0, s^2 I_D); inputs i.i.d. over tokens and
coordinates, centred, with variance v = E[x_i^2] and kurtosis k = E[x_i^4] / v^2; query drawn like the context. The loss
is half the mean squared error of one output; with O outputs, summed, it is O times as large.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.prompts.tracing import check_number

Floats = NDArray[np.float64] | np.float64


def input_kurtosis(input_law: str) -> float:
    """Kurtosis E[x_i^4] / E[x_i^2]^2 of one coordinate of a centred input distribution, whatever its range.

    Raises:
      ValueError: for a distribution that is not centred (``exponential``) or not coordinate-wise (``mixture``).
    """
    kurtosis = {"uniform": 1.8, "normal": 3.0, "laplace": 6.0}
    if input_law not in kurtosis:
        raise ValueError(f"no kurtosis for input_law={input_law!r}; centred laws: {sorted(kurtosis)}")
    return kurtosis[input_law]


def one_step_loss(
    learning_rate: ArrayLike,
    *,
    context_length: int,
    input_size: int,
    input_variance: ArrayLike,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
    label_noise: ArrayLike = 0.0,
) -> Floats:
    """Population loss of one step of gradient descent from zero, as a function of its learning rate.

    With M = sum_i x_i x_i^T the error is (w^T (I - eta/N M) - eta/N sum_i noise_i x_i^T) x_q, and E[M] = N v I,
    E[M^2] = N v^2 (N + D + k - 2) I, so that with c = eta v

        L = (s^2 D v / 2) [1 - 2 c + c^2 (N + D + k - 2) / N] + (D v / 2) c^2 noise^2 / (N v).

    The step is that of von Oswald et al. 2022, Proposition 1; for uniform inputs N + D + k - 2 = N + D - 0.2.

    Args:
      learning_rate: eta of the mean loss 1/(2N) sum_i (w^T x_i - y_i)^2.
      context_length: N.
      input_size: D.
      input_variance: v, of the data on which the loss is taken.
      kurtosis: k (uniform 1.8).
      task_scale: s.
      label_noise: standard deviation of the noise on the context labels (not on the target).

    Returns:
      float64 loss; all array arguments broadcast.

    Raises:
      ValueError: for sizes below 1 or a variance that is not positive.
    """
    _check(context_length, input_size, input_variance)
    variance, scale, noise = _floats(input_variance), _floats(task_scale), _floats(label_noise)
    c = _floats(learning_rate) * variance
    bias = 1 - 2 * c + c**2 * (context_length + input_size + kurtosis - 2) / context_length
    return input_size * variance / 2 * (scale**2 * bias + c**2 * noise**2 / (context_length * variance))


def one_step_optimum(
    *,
    context_length: int,
    input_size: int,
    input_variance: ArrayLike,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
    label_noise: ArrayLike = 0.0,
) -> tuple[Floats, Floats]:
    """Best learning rate of one step of gradient descent and its population loss: (eta*, L*).

    eta* v = N / (N + D + k - 2 + noise^2 / (s^2 v)) and L* = (s^2 D v / 2)(1 - eta* v), the minimum of
    ``one_step_loss`` (von Oswald et al. 2022, where eta is found by line search); arguments and errors as there.
    """
    _check(context_length, input_size, input_variance)
    check_number("task_scale", task_scale, above=0)
    check_number("label_noise", label_noise, at_least=0)
    variance, scale = _floats(input_variance), _floats(task_scale)
    ratio = _floats(label_noise) ** 2 / (scale**2 * variance)
    c = context_length / (context_length + input_size + kurtosis - 2 + ratio)
    return c / variance, scale**2 * input_size * variance / 2 * (1 - c)


def centred_step_optimum(
    *,
    context_length: int,
    input_size: int,
    input_variance: ArrayLike,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
) -> tuple[Floats, Floats]:
    """Best learning rate and loss of one GD step on centred inputs x_i - mean x: what two small softmax heads compute.

    With S = sum_i (x_i - mean x)(x_i - mean x)^T the prediction is eta/N x_q^T S w, and for i.i.d. coordinates
    E[S] = (N - 1) v I, E[S^2] = (N - 1) v^2 (N + D + (k - 3)(N - 1)/N) I, so that

        L* = (s^2 D v / 2) [1 - (N - 1) / (N + D + (k - 3)(N - 1)/N)]   (this lab).

    Softmax attention with small logits z_i has the pattern (1 + z_i - mean z) / N; the labels' constant part cancels
    between two heads of opposite value weight (von Oswald et al. 2022, A.9).

    Args:
      context_length: N, at least 2.
      input_size: D.
      input_variance: v.
      kurtosis: k (uniform 1.8).
      task_scale: s.

    Returns:
      eta* and L*, float64.

    Raises:
      ValueError: for N below 2, D below 1 or a variance that is not positive.
    """
    _check(context_length - 1, input_size, input_variance)
    n, d, v = context_length, input_size, _floats(input_variance)
    spread = n + d + (kurtosis - 3) * (n - 1) / n
    return n / (v * spread), _floats(task_scale) ** 2 * d * v / 2 * (1 - (n - 1) / spread)


def one_step_loss_out_of_distribution(
    input_scale: ArrayLike,
    *,
    context_length: int,
    input_size: int,
    input_variance: float,
    kurtosis: float = 1.8,
    task_scale: ArrayLike = 1.0,
) -> Floats:
    """Loss of the step that is best in training, on inputs ``input_scale`` and tasks ``task_scale`` times as large.

    The learning rate stays at eta* of the training distribution (variance v, task scale 1), so that with c = eta* v

        L(a) = (s^2 D v a^2 / 2) [1 - 2 c a^2 + c^2 a^4 (N + D + k - 2) / N]

    (von Oswald et al. 2022, figures 2 and 6: "larger inputs", "larger targets"). Errors as ``one_step_loss``.
    """
    sizes = {"context_length": context_length, "input_size": input_size, "kurtosis": kurtosis}
    best, _ = one_step_optimum(**sizes, input_variance=input_variance)  # type: ignore[arg-type]
    variance = input_variance * _floats(input_scale) ** 2
    return one_step_loss(best, **sizes, input_variance=variance, task_scale=task_scale)  # type: ignore[arg-type]


def _floats(value: ArrayLike) -> Floats:
    return np.asarray(value, np.float64)


def _check(context_length: int, input_size: int, input_variance: ArrayLike) -> None:
    if context_length < 1 or input_size < 1:
        raise ValueError(f"context_length and input_size must be at least 1, got {context_length} and {input_size}")
    check_number("input_variance", input_variance, above=0)
