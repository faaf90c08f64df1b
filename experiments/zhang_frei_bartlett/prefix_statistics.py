"""What claims of ``nonlinear_transformer`` read off a record, pooled over the training lengths.

An error is that of the final query after M examples over that of predicting zero.
"""

from collections.abc import Callable

import numpy as np

from experiments.statistics import Statistic
from experiments.zhang_frei_bartlett.nonlinear_transformer import ERROR, LEAST_SQUARES
from experiments.zhang_frei_bartlett.prefixes import TRAINED, linear_attention_error, tests_of
from icl_lab.lab import Record


def own_test(covariance: str) -> str:
    """The test on the covariance of a training."""
    return "identity" if covariance == "identity" else "exp_1"


def pooled(of_length: Callable[[Record, int], np.ndarray]) -> Statistic:
    """(M,) mean over the training lengths of a statistic of one of them."""
    return lambda record: np.mean([of_length(record, n) for n in record.config["lengths"]], axis=0)


def error(record: Record, n: int, covariance: str, test: str, positions: str = "with") -> np.ndarray:
    """(M,) error after as many examples as in training, M = N."""
    return ERROR(record, covariance=covariance, length=n, positions=positions, test=test)[:, n].astype(float)


def above(covariance: str, test: str, other: str, other_test: str, positions: str = "with") -> Statistic:
    """(M,) log10 of an error at M = N over that of another network or test: a ratio's mean, whichever is larger."""
    return pooled(
        lambda r, n: np.log10(error(r, n, covariance, test, positions) / error(r, n, other, other_test, positions))
    )


def above_linear(covariance: str, test: str, test_length: str | None = None) -> Statistic:
    """(M,) the same over the exact error of linear attention at its optimum for the same training.

    ``test_length``: not at M = N, but at the length that the configuration gives this name.
    """

    def of_length(record: Record, n: int) -> np.ndarray:
        scales = TRAINED[covariance], tests_of(record.config["scales"])[test]
        m = n if test_length is None else record.config[test_length]
        exact = linear_attention_error(scales[0], n, scales[1], m, record.config["input_size"])
        errors = ERROR(record, covariance=covariance, length=n, positions="with", test=test).astype(float)
        return np.log10(errors[:, m] / exact)

    return pooled(of_length)


def linear_error(record: Record, n: int) -> np.ndarray:
    """() error of linear attention at its optimum for N examples of identity covariance, at M = N."""
    identity = TRAINED["identity"]
    return np.asarray(linear_attention_error(identity, n, identity, n, record.config["input_size"]))


def least_squares_above(test: str, other_test: str) -> Statistic:
    """(M,) log10 of the error of least squares on one test over that on another, mean over 0 <= M < D examples."""

    def below_d(record: Record, name: str) -> np.ndarray:
        return LEAST_SQUARES[0](record, test=name)[:, : record.config["input_size"]].astype(float)

    return lambda record: np.log10(below_d(record, test) / below_d(record, other_test)).mean(axis=1)


def rise(covariance: str, test: str, positions: str = "with") -> Statistic:
    """(M,) log10 of the mean error at N < M <= 2N over that at M = N."""

    def of_length(record: Record, n: int) -> np.ndarray:
        errors = ERROR(record, covariance=covariance, length=n, positions=positions, test=test).astype(float)
        return np.log10(errors[:, n + 1 : 2 * n + 1].mean(axis=1) / errors[:, n])

    return pooled(of_length)
