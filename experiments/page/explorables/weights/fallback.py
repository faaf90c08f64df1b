"""The figure without a script: the default state of ``view.js``, drawn from the record of ``layer``."""

from typing import Any

import numpy as np

from experiments.page.explorables.layer.data import record
from experiments.page.explorables.weights.data import KURTOSIS, population_loss

WIDTH, HEIGHT, HIGHEST = 360, 230, 0.36
NEAR = 1.05
"""Of the loss of the best step: what counts as having it."""
CELL, ACROSS, DOWN = 36, (0, 138), (16, 146)
SIDE, FAR = 210, 0.8  # of the square of residual factors, from 1 down to -1, and the largest eigenvalue in it


def levels(context_length: int, variance: float = 1 / 3) -> list[float]:
    """Loss with no direction learned, with one and with both: the best layers whose A has rank 0, 1 and 2.

    v (1 - m/2 N / (N + k)) with m directions, D = 2 (``experiments.von_oswald.one_step_shown.plateau_loss``).
    """
    return [variance * (1 - m / 2 * context_length / (context_length + KURTOSIS)) for m in range(3)]


def balanced(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same layer with A and B of equal size where an answer depends on them, and a positive diagonal of A."""
    c = np.sqrt(np.linalg.norm(b[:, 2]) / np.linalg.norm(a[:2])) * (-1 if np.trace(a[:2, :2]) < 0 else 1)
    return c * a, b / c


def pace(a: np.ndarray, b: np.ndarray, context_length: int) -> tuple[float, float]:
    """How much of a direction's part of the answer a layer takes at eigenvalue 1, in its fastest and slowest direction.

    With S = X^T X / N the part of its answer that is odd in the labels of w has the weights G S w,
    G = -N (beta P + p q^T) (``data.population_loss``), so that of an eigenvector v of S, of eigenvalue l, 1 - l v^T G v
    is left; a step of gradient descent has G = eta I. These are the eigenvalues of the symmetric part of G.
    """
    taken = -context_length * (b[2, 2] * a[:2, :2] + np.outer(a[:2, 2], b[:2, 2]))
    slow, fast = np.linalg.eigvalsh((taken + taken.T) / 2)
    return float(fast), float(slow)


def factor(rate: float) -> str:
    """The line 1 - rate l over eigenvalues l from 0 to ``FAR``, as an SVG path."""
    return f"M0 0L{SIDE} {SIDE / 2 * FAR * rate:.1f}"


def context() -> dict[str, Any]:
    """What the template shows: losses of all networks along their training, and the weights of the first."""
    run = record()
    n, steps = run.config["context_length"], run.arrays["steps"]
    a, b = run.arrays["a"].astype(float), run.arrays["b"].astype(float)
    losses = np.array([[population_loss(*both, n) for both in zip(*member)] for member in zip(a, b)])
    nothing, one, best = levels(n)
    near = losses[:, -1] < NEAR * best
    rates = -n * b[..., 2, 2] * (a[..., 0, 0] + a[..., 1, 1]) / 2
    rate, paces = run.metrics["learning_rate"], pace(a[0, -1], b[0, -1], n)
    hand = np.diag([1.0, 1.0, 0.0]), np.diag([0.0, 0.0, -rate / n])
    maps = list(zip(balanced(a[0, -1], b[0, -1]), balanced(*hand)))
    most = max(abs(matrix).max() for matrix in maps[0][1:] + maps[1][1:])
    return {
        "stuck": (~near).sum(), "width": WIDTH, "height": HEIGHT, "last": f"{steps[-1]:,}",
        "curves": [
            "M" + "L".join(f"{WIDTH * step / steps[-1]:.1f} {_py(loss)}" for step, loss in zip(steps, curve))
            for curve in losses
        ],
        "levels": [
            (_py(value), f"{name} = {value:.3f}")
            for value, name in zip((nothing, one, best), ("nothing learned: v", "one direction: v (1 − N / 2(N + 1.8))",
                                                          "the best step: v (1 − N / (N + 1.8))"))
        ],
        "maps": [
            {
                "x": ACROSS[side], "y": DOWN[row], "name": f"{'AB'[row]}, {('network 1', 'by hand')[side]}",
                "cells": [
                    {
                        "x": CELL * j, "y": CELL * i, "sign": "up" if value > 0 else "down",
                        "used": i < 2 if row == 0 else j == 2, "text": f"{round(value, 2) + 0:.2f}".replace("-", "−"),
                        "opacity": round(0.7 * min(1, abs(value) / most), 2),
                    }
                    for i, values in enumerate(matrix) for j, value in enumerate(values)
                ],
            }
            for row, sides in enumerate(maps) for side, matrix in enumerate(sides)
        ],
        "cell": CELL, "side": SIDE, "factors": "".join(map(factor, paces)), "best": factor(rate),
        "paces": [f"1 − {value:.2f} λ" for value in paces], "pace": f"best step: 1 − {rate:.2f} λ",
        "mean": round(SIDE / 3 / FAR, 1),
        "said": f"After {steps[-1]:,} steps {near.sum()} of {near.size} networks have the loss of the best step. "
        f"Network 1 has {losses[0, -1] / best:.3f} times that loss; over its last 1,000 steps its own step had the "
        f"learning rate {rates[0, -20:].mean():.2f}, and the closed form says {rate:.2f}.",
    }  # fmt: skip


def _py(loss: float) -> float:
    return round(float(HEIGHT * (1 - loss / HIGHEST)), 1)
