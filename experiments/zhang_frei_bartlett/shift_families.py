"""What the prompts of ``shifts`` are: how those of each family are drawn, and the closed form of their error.

Eight families, each a list of points. ``inputs``: all inputs times c. ``weights``: the task times c. ``query`` and
``task``: query or task along one eigenvector of the training covariance (the risk is linear in both second moments, so
these D points give it for every diagonal one). The prompts of Garg et al. 2022 over the test length: ``orthants``;
``subspace`` and ``rescaled``, the latter with the mean square of the inputs kept, as in their code; ``orthogonal``, a
query orthogonal to the context. Errors are over that of predicting 0; for ``orthogonal`` it is the
mean square of the prediction.
"""

import dataclasses

import numpy as np

from experiments.zhang_frei_bartlett.common import Setting
from icl_lab.lab import setting
from icl_lab.prompts import Sampler, context_in_an_orthant, gaussian_regression, in_a_subspace, with_orthogonal_query
from icl_lab.theory import orthant_risk, orthogonal_query_prediction, risk, subspace_risk

TRAININGS = {
    "spectrum": ("inputs", "weights", "query", "task", "orthants", "orthogonal"),
    "isotropic": ("inputs", "orthants", "subspace", "rescaled", "orthogonal"),
}
"""The covariances on which a layer is trained, and the families on which it is tested."""

FAMILIES = tuple(dict.fromkeys(family for families in TRAININGS.values() for family in families))
OVER_LENGTHS = ("orthants", "subspace", "rescaled", "orthogonal")


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """One layer for each covariance; scales and shifts are those of Garg et al. 2022."""

    input_scales: tuple[float, ...] = setting(
        (1 / 3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0), "c, factors of all inputs of a test prompt", above=0
    )
    weight_scales: tuple[float, ...] = setting((1 / 3, 0.5, 2.0, 3.0), "c, factors of the task", above=0)
    test_lengths: tuple[int, ...] = setting((5, 10, 20, 40, 80), "M, in an orthant or a subspace", at_least=1)
    subspace_size: int = setting(
        2, "dimension of the subspaces, at most D; the paper of the shifts has D/2", at_least=1
    )
    risk_tasks: int = setting(200_000, "prompts for each risk of a member", at_least=1)


def training_config(config: Config, training: str) -> Config:
    """The setting of one training."""
    size = len(config.spectrum)
    return config if training == "spectrum" else dataclasses.replace(config, spectrum=(1.0,) * size)


def points(config: Config, family: str) -> tuple[float, ...]:
    """The points of a family, as numbers."""
    size = len(config.spectrum)
    by_family = {
        "inputs": config.input_scales,
        "weights": config.weight_scales,
        "query": range(size),
        "task": range(size),
        "orthants": config.test_lengths,
        "subspace": config.test_lengths,
        "rescaled": config.test_lengths,
        "orthogonal": range(1, size),
    }
    return tuple(by_family[family])


def moments(config: Config, family: str, point: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(D, D) covariance of the inputs, covariance of the query, second moment of the task; ``config`` of the training.

    For the families that are not over lengths.
    """
    lam, one = np.diag(config.spectrum), np.eye(len(config.spectrum))
    along = np.diag((np.arange(len(lam)) == point).astype(float))
    by_family = {
        "inputs": (point**2 * lam, point**2 * lam, one),
        "weights": (lam, lam, point**2 * one),
        "query": (lam, along, one),
        "task": (lam, lam, along),
    }
    return by_family[family]


def sampler_over_lengths(config: Config, family: str, length: int) -> Sampler:
    """Sampler of prompts of this length, in one of the other families; ``config`` of the training."""
    size = len(config.spectrum)
    covariance = np.diag(config.spectrum) if family == "orthants" else np.eye(size)
    gaussian = gaussian_regression(context_length=length, covariance=covariance)
    if family == "orthants":
        return context_in_an_orthant(gaussian)
    if family == "orthogonal":
        return with_orthogonal_query(gaussian)
    return in_a_subspace(gaussian, config.subspace_size, rescaled=family == "rescaled")


def power(config: Config, family: str, point: float) -> float:
    """Mean square of the answer, the error of predicting 0."""
    if family not in OVER_LENGTHS:
        _, query, task = moments(config, family, point)
        return float((query * task).sum())
    size, k = len(config.spectrum), config.subspace_size
    powers = {"orthants": sum(config.spectrum), "subspace": k, "rescaled": size, "orthogonal": size - point}
    return float(powers[family])


def closed_form(config: Config, family: str, point: float, a: np.ndarray) -> float:
    """What ``a`` (D, D) has at a point, over the error of predicting 0; ``config`` of the training."""
    if family == "orthants":
        mean_square = orthant_risk(a, test_length=point, covariance=np.diag(config.spectrum))
    elif family in ("subspace", "rescaled"):
        k = config.subspace_size
        c = (len(a) / k) ** 0.5 if family == "rescaled" else 1.0
        mean_square = subspace_risk(a, test_length=point, subspace_size=k, input_scale=c)
    elif family == "orthogonal":
        mean_square = orthogonal_query_prediction(a, test_length=int(point))
    else:
        lam, query, task = moments(config, family, point)
        n = config.context_length
        mean_square = np.asarray(risk(a, test_length=n, covariance=lam, query_covariance=query, task_moment=task))
    return float(mean_square) / power(config, family, point)
