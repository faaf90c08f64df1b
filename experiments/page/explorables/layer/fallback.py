"""The figure without a script: the default state of ``view.js``, drawn from the same record."""

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from experiments.page.explorables.layer.data import PROMPT, TRUTH, of_one_direction
from icl_lab.lab.records import Record

UNIT = 126.0  # pixels a unit, in both planes
LEVELS = (0.02, 0.08, 0.18, 0.32)
STAR = "M0-8L2-2L8-2L3 2L5 8L0 4L-5 8L-3 2L-8-2L-2-2Z"
CROSS = "M-5-5L5 5M-5 5L5-5"


def context(found: Record) -> dict[str, Any]:
    """What the template ``layer.html`` shows: the two planes and a sentence."""
    return {
        "prompt": prompt_plane(),
        "weights": weight_plane(found),
        "steps": f"{found.arrays['steps'][-1]:,}",
        "distance": f"{100 * distance(found):.1f}",
        "one_direction": of_one_direction(found),
    }


def labelled() -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 2) and labels (N,) of the default prompt."""
    x = np.array(PROMPT)
    return x, x @ np.array(TRUTH)


def answers(found: Record) -> dict[str, np.ndarray]:
    """(2,) weights by what gives them: the first member, one gradient step, least squares."""
    x, y = labelled()
    tokens = np.column_stack([x, y])
    a, b = found.arrays["a"][0, -1].astype(float), found.arrays["b"][0, -1].astype(float)
    trained = -(a[:2] @ tokens.T) @ (tokens @ b[:, -1])
    return {
        "trained": trained,
        "step": found.metrics["learning_rate"] * x.T @ y / len(x),
        "least_squares": np.linalg.lstsq(x, y, rcond=None)[0],
    }


def distance(found: Record) -> float:
    """How far the layer is from the step, as a share of the step."""
    weights = answers(found)
    return float(np.linalg.norm(weights["trained"] - weights["step"]) / np.linalg.norm(weights["step"]))


def prompt_plane() -> Markup:
    """The examples; their labels as colours."""
    x, y = labelled()
    return Markup("").join(
        Markup('<circle class="point" cx="{}" cy="{}" r="8" fill-opacity="{}" data-sign="{}"/>').format(
            _px(u), _px(-v), round(min(abs(label) / 1.2, 1), 2), "up" if label > 0 else "down"
        )
        for (u, v), label in zip(x, y)
    )


def weight_plane(found: Record) -> Markup:
    """Rings of the loss on the prompt, the step as an arrow, the layer as a ring, least squares, the true weights."""
    x, _ = labelled()
    weights = answers(found)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    angle = -math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    u, v = (_px(value) for value in weights["least_squares"] * [1, -1])
    rings = [
        Markup('<ellipse class="level" rx="{}" ry="{}" transform="translate({},{}) rotate({})"/>').format(
            _px(math.sqrt(2 * level / values[1])), _px(math.sqrt(2 * level / values[0])), u, v, round(angle, 1)
        )
        for level in LEVELS
    ]
    tip, ring, star = ([_px(value) for value in place * np.array([1, -1])] for place in (
        weights["step"], weights["trained"], np.array(TRUTH)))  # fmt: skip
    return Markup("").join([
        *rings,
        Markup('<path class="step" d="M0 0L{} {}" marker-end="url(#tip)"/>').format(*tip),
        Markup('<path class="squares" d="{}" transform="translate({},{})"/>').format(CROSS, u, v),
        Markup('<path class="truth" d="{}" transform="translate({},{})"/>').format(STAR, *star),
        Markup('<circle class="trained" cx="{}" cy="{}" r="7"/>').format(*ring),
    ])  # fmt: skip


def _px(value: float) -> float:
    return round(float(UNIT * value), 1)
