"""The figure without a script: the default state of ``view.js``, drawn from the same record."""

import math
from typing import Any

import numpy as np

from experiments.page.explorables.fingerprint.data import FAMILIES, NAMED
from icl_lab.lab.records import Record

WIDTH, HEIGHT, LOW, HIGH = 470, 250, -0.75, 1.15
LEARNER, FAMILY = 1, 1  # three loops, GD++


def place(found: Record, values: Any, factors: Any) -> str:
    """A line through residual factors (G,) at eigenvalues (G,), as an SVG path."""
    grid = found.arrays["grid"]
    xs = WIDTH * np.log(values / grid[0]) / np.log(grid[-1] / grid[0])
    ys = HEIGHT * (HIGH - np.clip(factors, LOW - 1, HIGH + 1)) / (HIGH - LOW)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys) if math.isfinite(y))


def context(found: Record) -> dict[str, Any]:
    """What the template shows of the default state."""
    grid, fits = found.arrays["grid"].astype(float), found.metrics["fits"][LEARNER]
    family, fit = FAMILIES[FAMILY], fits[FAMILY]
    dense = np.geomspace(grid[0], grid[-1], 200)
    curve = 1 - dense * family.response(dense, fit["steps"], *fit["theta"])
    low, high = (WIDTH * math.log(end / grid[0]) / math.log(grid[-1] / grid[0]) for end in found.arrays["training"])
    return {
        "width": WIDTH, "height": HEIGHT, "zero": round(HEIGHT * HIGH / (HIGH - LOW), 1),
        "one": round(HEIGHT * (HIGH - 1) / (HIGH - LOW), 1), "training": (round(low, 1), round(high - low, 1)),
        "members": "".join(place(found, grid, factor) for factor in found.arrays["factors"][LEARNER]),
        "curve": place(found, dense, curve),
        "ladder": [
            {
                "name": one.name, "steps": own["steps"] if one.most > 1 else "", "near": own["residual"] <= NAMED,
                "bar": round(max(1.0, 25 * (4 + math.log10(max(own["residual"], 1e-4)))), 1),
                "residual": percent(own["residual"]), "chosen": k == FAMILY,
            }
            for k, (one, own) in enumerate(zip(FAMILIES, fits))
        ],
        "bar": round(25 * (4 + math.log10(NAMED)), 1),
        "said": f"{family.name} with {fit['steps']} steps is {percent(fit['residual'])} of the prediction away from "
        f"{found.metrics['learners'][LEARNER]}, within the bar of 5 %.",
    }  # fmt: skip


def percent(share: float) -> str:
    """A share as a reader wants it."""
    return f"{100 * share:.{2 if share < 1e-3 else 1 if share < 0.1 else 0}f} %"
