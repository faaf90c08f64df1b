"""What claims of ``random_covariance`` read off a record. Errors are over that of predicting 0."""

import math

import numpy as np

from experiments.statistics import Statistic, of_record, place_of
from experiments.zhang_frei_bartlett.random_covariance import EDGES, FACTOR, LAYER, LEAST_SQUARES, PRODUCT, RISK, SLOPE
from icl_lab.lab import NotRun, Record
from icl_lab.theory import optimum, random_covariance_risk


def best_risk(record: Record, name: str, length: float, c: float = 1.0) -> float:
    """Normalised risk of the best A on prompts of this length with variances c times as large."""
    moments = np.array(record.metrics[name]["moments"]) * np.array([[c], [c**2], [c**3]])
    best = np.diag(record.metrics[name]["optimum"])
    return float(random_covariance_risk(best, moments, length)) / moments[0].sum()


def to_the_limit(record: Record) -> float:
    """1/3 over a* = N/(3N + D + 5): by how much the best A of Exp(1) prompts grows from N to infinity."""
    return 1 / 3 / record.metrics["exponential"]["optimum"][0]


def of_one_covariance(record: Record, name: str) -> np.ndarray:
    """(D,) the diagonal of the best A where every prompt has the covariance E Lambda: what the control is about."""
    mean_variances = np.array(record.metrics[name]["moments"])[0]
    return np.diagonal(optimum(np.diag(mean_variances), record.config["context_length"]))


def risk_of_one_covariance(record: Record, name: str, length: float) -> float:
    """Normalised risk of that A on prompts of this length, whose covariances are random."""
    moments = np.array(record.metrics[name]["moments"])
    return float(random_covariance_risk(np.diag(of_one_covariance(record, name)), moments, length)) / moments[0].sum()


def learned_diagonal(record: Record, name: str) -> np.ndarray:
    """(M, D) the diagonal of A."""
    return np.diagonal(PRODUCT(record, training=name), axis1=1, axis2=2)


@of_record
def diagonal_ratio(record: Record, name: str, one_covariance: bool = False) -> np.ndarray:
    """(M,) mean over i of A_ii over its closed form (control: over that of one covariance)."""
    learned = learned_diagonal(record, name)  # not there where the law was not trained
    best = of_one_covariance(record, name) if one_covariance else np.array(record.metrics[name]["optimum"])
    return (learned / best).mean(axis=1)


@of_record
def floor_ratio(record: Record, name: str, one_covariance: bool = False) -> np.ndarray:
    """(M,) limit M -> infinity of the learned A's risk over the closed form's (control: of the A of one covariance)."""
    learned = LAYER(record, training=name, of="floor")
    floor = risk_of_one_covariance(record, name, math.inf) if one_covariance else learned
    return floor / record.metrics[name]["floor"]


@of_record
def off_diagonal(record: Record, name: str) -> np.ndarray:
    """(M,) Frobenius norm of what is learned off the diagonal over that of the closed form."""
    a = PRODUCT(record, training=name)
    off = np.where(np.eye(a.shape[1], dtype=bool), 0, a)
    return np.linalg.norm(off, axis=(1, 2)) / np.linalg.norm(record.metrics[name]["optimum"])


@of_record
def longest_risk(record: Record, c: float) -> np.ndarray:
    """(M,) the normalised risk under Exp(1) at the largest test length and the scale c."""
    longest, scale = int(np.argmax(record.config["test_lengths"])), place_of(record, "scales", c, f"scale {c:g}")
    return RISK(record, training="exponential")[:, longest, scale] / c


def least_squares_error(record: Record) -> np.ndarray:
    """(M,) error of least squares on the longest prompts, normalised."""
    return LEAST_SQUARES(record)[:, int(np.argmax(record.config["test_lengths"]))]


@of_record
def sampled_ratio(record: Record, name: str, one_covariance: bool = False) -> np.ndarray:
    """(M,) the network's risk over the closed form's (control: of the A of one covariance), mean over test lengths."""
    if name not in record.config["laws"]:
        raise NotRun(name)
    risk_at = risk_of_one_covariance if one_covariance else best_risk
    exact = [risk_at(record, name, m) for m in record.config["test_lengths"]]
    return (RISK(record, training=name)[:, :, 0] / np.array(exact)).mean(axis=1)


@of_record
def limit_risk(record: Record, c: float, one_covariance: bool = False) -> np.ndarray:
    """(M,) limit N, M -> infinity of the risk per coordinate on c Exp(1) of A = a I, a the mean learned diagonal.

    a is taken to N = infinity by the exact ratio of the two best A. Control: 1 for a, which one covariance would teach.
    """
    diagonal = learned_diagonal(record, "exponential").mean(axis=1)
    learned = np.ones(1) if one_covariance else diagonal * to_the_limit(record)
    a = learned[:, None, None] * np.eye(1)
    moments = np.array([[1.0], [2.0], [6.0]]) * np.array([[c], [c**2], [c**3]])
    return random_covariance_risk(a, moments, math.inf)


def slope_of(query: str) -> Statistic:
    """(M,) slope of the prediction on the answer, taken to N = infinity."""
    return lambda record: SLOPE(record, query=query) * to_the_limit(record)


@of_record
def factor_ratio(record: Record, low: float, any_size: bool = False) -> np.ndarray:
    """(M,) the factor in the bin of |x_qi| that starts there over a* E[lambda_i | x_qi], averaged alike.

    Control: over a*, the factor of a query of any size, as the paper has it.
    """
    k = int(np.searchsorted(EDGES(record), low))
    best = record.metrics["exponential"]["optimum"][0]
    return FACTOR(record, of="factor")[:, k] / (best * (1 if any_size else FACTOR(record, of="variance")[:, k]))
