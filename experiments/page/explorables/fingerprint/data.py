"""Families of filters, the exact residual of one, and what the page holds of the record."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.page.explorables import packed
from icl_lab.identify import filters
from icl_lab.lab.records import Record, RecordError, load

FOLDER = Path(__file__).with_name("record")
TOLERANCE = 1e-6  # both sides calculate in float64, from the same float32 numbers
NAMED = 0.05
"""Below this residual ``identify`` names a family (``decision.NAMED``)."""


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


PACKED = ("eigenvalues", "weights", "answers", "doubled", "grid", "factors")


def residual(arrays: Mapping[str, Any], learner: int, family: Family, steps: int, theta: Sequence[float]) -> float:
    """Median over contexts of |f - g| / |f| over the queries of a context, as ``identify`` judges (``fitting.judged``).

    Args:
      arrays: ``eigenvalues`` (C, D), ``weights`` (C, Q, D), ``answers`` (L, C, Q), in units.
      learner: which of the L.
      family: g, with ``steps`` and ``theta``.
    """
    eigenvalues = np.asarray(arrays["eigenvalues"], float)
    h = family.response(eigenvalues, steps, *theta)
    predictions = np.einsum("cqd,cd->cq", np.asarray(arrays["weights"], float), h)
    f = np.asarray(arrays["answers"][learner], float)
    return float(np.median(np.linalg.norm(predictions - f, axis=1) / np.linalg.norm(f, axis=1)))


def record(folder: Path = FOLDER) -> Record:
    """The committed record, whose exported residuals its own arrays give.

    Raises:
      RecordError: if they do not, to ``TOLERANCE``.
    """
    found = load(folder)
    by_name = {family.name: family for family in FAMILIES}
    for check in found.metrics["checks"]:
        again = residual(found.arrays, check["learner"], by_name[check["family"]], check["steps"], check["theta"])
        if not abs(again - check["residual"]) <= TOLERANCE * max(1, again):
            raise RecordError(f"{folder}: {check['family']} is {again:g} from the learner, the record says otherwise")
    return found


def data(found: Record) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON."""
    shapes = found.arrays["weights"].shape
    return {
        "contexts": shapes[0], "queries": shapes[1], "size": shapes[2],
        **{name: found.metrics[name] for name in ("learners", "checks", "fits")},
        "named": NAMED, "tolerance": TOLERANCE,
        "families": [
            {"name": f.name, "parameters": f.parameters, "bounds": f.bounds, "usual": f.usual, "most": f.most}
            for f in FAMILIES
        ],
        "training": found.arrays["training"].tolist(),
        **{name: packed(found.arrays[name]) for name in PACKED},
    }  # fmt: skip
