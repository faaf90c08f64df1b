"""The figure without a script: the state in which ``view.js`` begins."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.decision import NAMED
from icl_lab.identify.explorable.data import FAMILIES, Arrays

WIDTH, HEIGHT, LOW, HIGH = 470, 250, -0.75, 1.15  # of the plot of a filter; view.js has the same
SIDE = 320  # of the square in which predictions are drawn


def line(grid: Floats, values: Any, factors: Any) -> str:
    """A line through residual factors (G,) at eigenvalues (G,), as an SVG path; ``grid`` has the ends of the axis."""
    xs = WIDTH * np.log(values / grid[0]) / np.log(grid[-1] / grid[0])
    ys = HEIGHT * (HIGH - np.clip(factors, LOW - 1, HIGH + 1)) / (HIGH - LOW)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys) if math.isfinite(y))


def scatter(answers: Floats, predictions: Floats) -> str:
    """Dots at (a learner's answers, predictions of an algorithm), as an SVG path of a square around zero."""
    most = max(float(np.abs(answers).max()), 1e-12)
    xs, ys = (np.clip(SIDE / 2 * (1 + values.ravel() / most), 0, SIDE) for values in (answers, -predictions))
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in zip(xs, ys))


def context(arrays: Arrays, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the template ``fingerprint.html`` shows (arguments: ``data.data``)."""
    (learner, chosen), grid = facts["start"], np.asarray(arrays["grid"], float)
    ends = np.log(np.asarray(arrays["training"], float) / grid[0]) * WIDTH / np.log(grid[-1] / grid[0])
    shown: dict[str, Any] = {
        "width": WIDTH, "height": HEIGHT, "zero": round(HEIGHT * HIGH / (HIGH - LOW), 1),
        "one": round(HEIGHT * (HIGH - 1) / (HIGH - LOW), 1), "side": SIDE,
        "training": (round(float(ends[0]), 1), round(float(ends[1] - ends[0]), 1)),
        "bar": bar(NAMED), "other": facts["others"][learner], "others": any(facts["others"]),
        "members": "".join(line(grid, grid, factor) for factor in arrays["factors"][learner]),
    }  # fmt: skip
    if shown["other"]:
        return shown | {"curve": "M0 0", "ladder": [], "said": shown["other"]["said"]}
    fits, family = facts["fits"][learner], FAMILIES[chosen]
    fit, dense = fits[chosen], np.geomspace(grid[0], grid[-1], 200)
    steps = f" with {fit['steps']} step{'s' * (fit['steps'] > 1)}" if family.most > 1 else ""
    return shown | {
        "curve": line(grid, dense, 1 - dense * family.response(dense, fit["steps"], *fit["theta"])),
        "ladder": [
            {
                "name": one.name, "steps": row["steps"] if one.most > 1 else "", "near": row["residual"] <= NAMED,
                "bar": max(1.0, bar(row["residual"])), "residual": percent(row["residual"]), "chosen": k == chosen,
            }
            for k, (one, row) in enumerate(zip(FAMILIES, fits))
        ],
        "said": f"{family.name}{steps} is {percent(fit['residual'])} of the prediction away from "
        f"{facts['learners'][learner]}, {'within' if fit['residual'] <= NAMED else 'outside'} the bar of 5 %.",
    }  # fmt: skip


def bar(residual: float) -> float:
    """Length of a bar of the ladder, whose axis has four decades of 25 units."""
    return round(25 * (4 + math.log10(max(residual, 1e-4))), 1)


def percent(share: float) -> str:
    """A share as a reader wants it."""
    return f"{100 * share:.{2 if share < 1e-3 else 1 if share < 0.1 else 0}f} %"
