"""Mean errors of learners that take one example after the other: LMS, normalised LMS, and LMS with momentum.

Examples are independent, x ~ N(0, I_D), y = w.x + s e, and after each example the task may walk, w <- w + sqrt(q) xi.
With d = w - S the error of the state, e_t = E |d|^2 after t examples; it starts at E |w|^2 = D, and the error of the
prediction for a new query, over that of predicting zero, is e_t / D. LMS at the rate b has

    e_(t+1) = (1 - 2 b + b^2 (D + 2)) e_t + b^2 s^2 D + q D,

because E |x|^2 x x^T = (D + 2) I. Dividing keys and values by |x| makes that

    e_(t+1) = (1 - (2 b - b^2) / D) e_t + b^2 s^2 / (D - 2) + q D,

because E x x^T / |x|^2 = I / D and E |x|^-2 = 1 / (D - 2). (All of this: this lab.)
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.theory.arguments import check_length, check_noise

Floats = NDArray[np.float64]


def lms_errors(
    input_size: int, rates: ArrayLike, *, label_noise: float = 0.0, walk: float = 0.0, normalised: bool = False,
    momentum: float = 0.0,
) -> Floats:  # fmt: skip
    """(N + 1,) e_t of LMS, before any example and after each.

    With momentum, m <- mu m + b x (y - x.S), S <- S + m, the error follows ``momentum_map``.

    Args:
      input_size: D; with noise and normalised keys at least 3.
      rates: (N,) b of every example.
      label_noise: s.
      walk: q, variance of a step of the task.
      normalised: keys and values are divided by |x|.
      momentum: mu, 0 where keys are normalised.

    Raises:
      ValueError: naming the argument that is not allowed.
    """
    d, b = input_size, np.asarray(rates, np.float64)
    if b.ndim != 1 or not b.size or not np.isfinite(b).all():
        raise ValueError(f"rates must be finite, one an example (N,), got shape {b.shape}")
    _check(input_size, label_noise, walk)
    if normalised:
        if momentum:
            raise ValueError(f"momentum must be 0 where keys are normalised, got {momentum}")
        if label_noise and d < 3:
            raise ValueError(f"input_size must be at least 3 with noise and normalised keys, got {d}")
        factors = 1 - (2 * b - b**2) / d
        added = (b * label_noise) ** 2 / max(d - 2, 1) + walk * d
        errors = [float(d)]
        for factor, more in zip(factors, added):
            errors.append(factor * errors[-1] + more)
        return np.array(errors)
    moments, errors = np.array([d, 0.0, 0.0]), [float(d)]
    for rate in b:
        noise = (rate * label_noise) ** 2 * d
        moments = momentum_map(d, rate, momentum) @ moments + np.array([noise + walk * d, -noise, noise])
        errors.append(moments[0])
    return np.array(errors)


def momentum_map(input_size: int, rate: float, momentum: float) -> Floats:
    """(3, 3) what one noiseless example makes of (E |d|^2, E d.m, E |m|^2) in LMS with momentum.

    m' = mu m + b x x.d and d' = d - m', so that with c = D + 2

        E |m'|^2 = mu^2 E |m|^2 + 2 mu b E d.m + b^2 c E |d|^2,   E d.m' = mu E d.m + b E |d|^2.

    Its spectral radius is least at mu = 0 and b = 1/c, where it is 1 - 1/c: momentum gains nothing on independent
    isotropic examples, which a test finds on a grid.

    Args:
      input_size: D.
      rate: b.
      momentum: mu.

    Raises:
      ValueError: for D < 1, or numbers that are not finite.
    """
    check_length(input_size, "input_size")
    if not (math.isfinite(rate) and math.isfinite(momentum)):
        raise ValueError(f"rate and momentum must be finite, got {rate} and {momentum}")
    size = np.array([rate**2 * (input_size + 2), 2 * momentum * rate, momentum**2])  # E |m'|^2
    cross = np.array([rate, momentum, 0.0])  # E d.m'
    return np.stack([np.array([1.0, 0.0, 0.0]) - 2 * cross + size, cross - size, size])


def best_lms_rates(input_size: int, examples: int, *, label_noise: float = 0.0, walk: float = 0.0) -> Floats:
    """(N,) the rates of least error after every example: b_t = e_t / ((D + 2) e_t + D s^2).

    Without noise that is 1/(D + 2) throughout, and e_N / D = (1 - 1/(D + 2))^N without a walk.

    Args:
      input_size: D.
      examples: N.
      label_noise: s.
      walk: q, variance of a step of the task.

    Raises:
      ValueError: naming the argument that is not allowed.
    """
    _check(input_size, label_noise, walk)
    check_length(examples, "examples")
    d, error, rates = input_size, float(input_size), []
    for _ in range(examples):
        rates.append(error / ((d + 2) * error + d * label_noise**2))
        error = (1 - rates[-1]) * error + walk * d
    return np.array(rates)


def tracking(input_size: int, label_noise: float, walk: float) -> tuple[float, float]:
    """The best constant rate for a walking task, and the error e at which it settles.

    b* = (-c q + sqrt(c^2 q^2 + 4 s^2 q)) / (2 s^2), c = D + 2, and e = D (b^2 s^2 + q) / (2 b - c b^2).

    Args:
      input_size: D.
      label_noise: s; 0 gives the limit b* = 1/c.
      walk: q above 0, variance of a step of the task.

    Raises:
      ValueError: naming the argument that is not allowed.
    """
    _check(input_size, label_noise, walk)
    if not walk > 0:
        raise ValueError(f"walk must be a variance above 0, got {walk}")
    c, s, q = input_size + 2, label_noise**2, walk
    rate = 2 * q / (c * q + math.sqrt((c * q) ** 2 + 4 * s * q))  # the same, without a difference of near numbers
    return rate, input_size * (rate**2 * s + q) / (2 * rate - c * rate**2)


def _check(input_size: int, label_noise: float, walk: float) -> None:
    check_length(input_size, "input_size")
    check_noise(label_noise)
    if not (walk >= 0 and math.isfinite(walk)):
        raise ValueError(f"walk must be a variance, a finite number >= 0, got {walk}")
