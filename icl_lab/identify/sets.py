"""Families that know the tasks of training, a finite set; formulas are those of the solvers of the same names."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import Key, Parameter, single
from icl_lab.identify.probes import Battery

NOISE = Parameter("noise_variance", 1e-3, 1e2, labels=2)
STRENGTH = Parameter("strength", 1e-3, 1e3, eigenvalue=1)
LOG_ODDS = Parameter("log_odds", -30.0, 30.0, logarithmic=False)


def dmmse(theta: Floats, on: Battery) -> Floats:
    """The posterior mean over the tasks of training; theta is the noise variance."""
    return _of_set(theta[:, 0], on)[0]


def dmmse_or_ridge(theta: Floats, on: Battery) -> Floats:
    """Posterior mean where a task is of the set or normal; theta is noise variance, strength, log odds of the set."""
    n, (noise, strength, log_odds) = on.x.shape[1], theta.T
    values = n * on.plain.eigenvalues  # (C, r) of the sum
    shrunk = 1 / (values + strength[:, None, None])  # (S, C, r)
    fit = (on.y**2).sum(1) - ((n * on.plain.b) ** 2 * shrunk).sum(-1)  # (S, C)
    seen = np.log1p(np.where(on.plain.b == 0, 0, values) / strength[:, None, None]).sum(-1)
    known, of_set = _of_set(noise, on)
    log = of_set + fit / (2 * noise[:, None]) + seen / 2 + log_odds[:, None]
    p = (1 / (1 + np.exp(-np.clip(log, -700, 700))))[..., None]
    return p * known + (1 - p) * n * (on.plain.weights @ shrunk[..., None])[..., 0]


def _of_set(noise: Floats, on: Battery) -> tuple[Floats, Floats]:
    """(S, C, Q) predictions of the posterior mean, and (S, C) log of the mean likelihood but for its constant."""
    assert on.tasks is not None
    misses = ((on.y[:, :, None] - on.x @ on.tasks.T) ** 2).sum(1)  # (C, T)
    log = -misses[None] / (2 * noise[:, None, None])
    top = log.max(-1, keepdims=True)
    weights = np.exp(log - top)
    w = weights / weights.sum(-1, keepdims=True) @ on.tasks  # (S, C, D)
    return np.einsum("scd,cqd->scq", w, on.q), np.log(weights.mean(-1)) + top[..., 0]


def _from_dmmse(fitted: Mapping[Key, Floats]) -> list[Floats]:
    noise = fitted.get(("dMMSE", 0, False))
    return [] if noise is None else [np.array([noise[0], k, odds]) for k in (0.1, 1.0, 10.0) for odds in (-4, 0, 4)]


OF_SET: dict[str, Any] = {"needs": ("linear_query", "permutation"), "raw": True, "of_set": True}
DMMSE = single("dMMSE", dmmse, (NOISE,), **OF_SET)
MIXTURE = single(
    "dMMSE or ridge", dmmse_or_ridge, (NOISE, STRENGTH, LOG_ODDS), starts=6, warm=_from_dmmse,
    contains=("dMMSE", "ridge"), **OF_SET,
)  # fmt: skip
