"""Families of filters, the exact residual of one, and what ``view.js`` reads."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.identify import filters
from icl_lab.identify.decision import NAMED
from icl_lab.pages import packed

TOLERANCE = 1e-6  # both sides calculate in float64, from the same float32 numbers
CHECKS = 8  # residuals of each family that are exported
PACKED = ("eigenvalues", "weights", "answers", "doubled", "grid", "factors")
Arrays = Mapping[str, Any]
"""What the figure shows of L learners, in units of the training prompts (``probes.Units``), float32.

``eigenvalues`` (C, D) and ``weights`` (C, Q, D), or (O, C, Q, D) of O outputs, of the contexts by which ``identify``
judges, every other one of which is a training prompt; ``answers`` (L, C, Q); ``doubled`` (L, C / 2, Q), on the training
prompts with inputs twice as large; residual ``factors`` (L, M, G) of M members at the eigenvalues ``grid`` (G,);
``training`` (2,), the range of eigenvalues in training.
"""


@dataclasses.dataclass(frozen=True)
class Family:
    """One family: h(l) of ``icl_lab.identify.filters``, and what its parameters are called and range over, in units."""

    name: str
    response: Callable[..., Any]  # (eigenvalues, steps, *parameters) -> h
    parameters: Sequence[str] = ()
    bounds: Sequence[tuple[float, float]] = ()
    usual: Sequence[float] = ()
    most: int = 1  # steps


FAMILIES = (
    Family("GD", filters.gd, ("learning rate",), ((0.01, 3.0),), (0.5,), 8),
    Family("GD++", filters.gd_plus_plus, ("learning rate", "γ"), ((0.01, 3.0), (0.001, 0.5)), (0.5, 0.05), 4),
    Family("heavy ball", filters.heavy_ball, ("learning rate", "momentum"), ((0.01, 3.0), (0.01, 0.95)), (0.4, 0.3), 8),
    Family("ridge", filters.ridge, ("strength",), ((0.001, 10.0),), (0.3,)),
    Family("gradient flow", filters.flow, ("time",), ((0.05, 30.0),), (2.0,)),
    Family("least squares", filters.least_squares),
)
BY_NAME = {family.name: family for family in FAMILIES}


def residual(arrays: Arrays, learner: int, family: Family, steps: int, theta: Sequence[float]) -> float:
    """Median over contexts of |f - g| / |f| over the queries of a context, as ``identify`` judges (``fitting.judged``).

    Args:
      arrays: f, by ``eigenvalues``, ``weights`` of one output and ``answers``.
      learner: which of the L.
      family: g, with ``steps`` and ``theta``.
    """
    eigenvalues = np.asarray(arrays["eigenvalues"], float)
    with np.errstate(over="ignore", invalid="ignore"):  # where a step is far too large
        h = family.response(eigenvalues, steps, *theta)
        predictions = np.einsum("cqd,cd->cq", np.asarray(arrays["weights"], float), h)
    f = np.asarray(arrays["answers"][learner], float)
    return float(np.median(np.linalg.norm(predictions - f, axis=1) / np.linalg.norm(f, axis=1)))


def fitted(arrays: Arrays, learner: int, family: Family) -> dict[str, Any]:
    """The number of steps and the parameters with the least residual, from the usual ones."""
    from scipy.optimize import minimize

    fits: list[dict[str, Any]] = []
    bounds = [tuple(np.log(ends)) for ends in family.bounds]
    for steps in range(1, family.most + 1):

        def off(theta: np.ndarray, steps: int = steps) -> float:
            return residual(arrays, learner, family, steps, np.exp(theta).tolist())

        best = minimize(off, np.log(family.usual), method="Nelder-Mead", bounds=bounds).x if bounds else []
        theta = [float(f"{value:.4g}") for value in np.exp(best)]
        one = {"steps": steps, "theta": theta, "residual": residual(arrays, learner, family, steps, theta)}
        if not fits or one["residual"] < 0.9 * fits[-1]["residual"]:  # more steps have to be worth it
            fits.append(one)
    return fits[-1]


def checks(arrays: Arrays, learners: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Residuals of algorithms that are drawn from the seed, which the page has to calculate again."""
    draws = np.random.default_rng(seed)
    algorithms: list[dict[str, Any]] = []
    for family in FAMILIES:
        for k in range(CHECKS):
            steps = int(draws.integers(1, family.most + 1))
            theta = [float(np.exp(draws.uniform(*np.log(bounds)))) for bounds in family.bounds]
            learner = learners[k % len(learners)]
            one = {"family": family.name, "steps": steps, "theta": theta, "learner": learner}
            algorithms.append(one | {"residual": residual(arrays, learner, family, steps, theta)})
    return [one for one in algorithms if np.isfinite(one["residual"])]


def data(arrays: Arrays, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON.

    Args:
      arrays: of L learners.
      facts: their names, ``learners``; ``checks``; ``fits``, by learner one of each family (``fitted``), None of one
        that is no filter; ``outputs``, the output of each where weights are of several; ``start``, the learner and the
        family that are shown first; ``others``, by learner what is shown of one that is no filter, else None.
    """
    contexts, queries, size = arrays["weights"].shape[-3:]
    return {
        "contexts": contexts, "queries": queries, "size": size, "named": NAMED, "tolerance": TOLERANCE,
        "outputs": facts.get("outputs") or [0] * len(facts["learners"]),
        **{name: facts[name] for name in ("learners", "checks", "fits", "start", "others")},
        "families": [
            {"name": f.name, "parameters": f.parameters, "bounds": f.bounds, "usual": f.usual, "most": f.most}
            for f in FAMILIES
        ],
        "training": np.asarray(arrays["training"]).tolist(),
        **{name: packed(arrays[name]) for name in PACKED},
    }  # fmt: skip
