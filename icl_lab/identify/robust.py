"""Median and Huber regression, as the solvers of the same names compute them (``icl_lab.solvers.robust``)."""

from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import Parameter, single
from icl_lab.identify.probes import Battery

ITERATIONS = 12
EPS = float(np.finfo(float).eps)


def huber(theta: Floats, on: Battery) -> Floats:
    """Residuals beyond the threshold count in proportion; theta is the threshold."""
    if on.x.shape[1] <= on.x.shape[2]:  # every label is met
        predictions = (on.plain.weights / on.plain.eigenvalues[:, None]).sum(-1)
        return np.broadcast_to(predictions, (len(theta), *predictions.shape))
    return (_fit(on.x, on.y, theta[:, 0]) @ on.q.swapaxes(1, 2)).swapaxes(0, 1)


def median(theta: Floats, on: Battery) -> Floats:
    """Least absolute deviations."""
    return np.broadcast_to(huber(np.zeros((1, 1)), on), (len(theta), *on.q.shape[:2]))


def _fit(x: Floats, y: Floats, threshold: Floats) -> Floats:
    """(C, S, D) w: the interior point method of the solver, of contexts (C, N, D), (C, N) and thresholds (S,)."""
    c, n, d = x.shape
    scale = np.sqrt((y**2).mean(1))[:, None, None]
    scale = np.where(scale > 0, scale, 1)
    k = threshold[:, None] / scale  # (C, S, 1)
    y = np.broadcast_to(y[:, None] / scale, (c, len(threshold), n))
    turned, outer = x.swapaxes(1, 2), (x[..., None] * x[..., None, :]).reshape(c, n, d * d)

    def gram(q: Floats) -> Floats:
        grams = (q @ outer).reshape(*q.shape[:2], d, d)
        trace = np.trace(grams, axis1=2, axis2=3)[..., None, None]
        return grams + d * EPS * np.where(trace > 0, trace, 1) * np.eye(d)

    def solved(matrix: Floats, right: Floats) -> Floats:
        return np.asarray(np.linalg.solve(matrix, (right @ x)[..., None])[..., 0], np.float64)

    w = solved(gram(np.ones_like(y)), y)
    residual, a, b = y - w @ turned, np.ones_like(y), np.ones_like(y)
    size = np.abs(residual).mean(-1, keepdims=True) + 100 * EPS
    p, m = np.maximum(residual, 0) + size, np.maximum(-residual, 0) + size
    for _ in range(ITERATIONS):
        u, q = (b - a) / 2, 1 / (k + p / a + m / b)
        matrix, miss = gram(q), y - w @ turned - k * u - p + m
        gap = (p * a + m * b).mean(-1, keepdims=True) / 2

        def newton(for_p: Floats | float, for_m: Floats | float) -> tuple[Floats, ...]:
            right = miss - (for_p / a - p) + (for_m / b - m)  # noqa: B023
            dw = solved(matrix, q * right + u)  # noqa: B023
            du = q * (right - dw @ turned)  # noqa: B023
            return dw, du, (for_p + p * du) / a - p, (for_m - m * du) / b - m  # noqa: B023

        def length(du: Floats, dp: Floats, dm: Floats) -> Floats:
            worst = np.maximum(np.maximum(du / a, -du / b), np.maximum(-dp / p, -dm / m))  # noqa: B023
            return 1 / np.maximum(worst.max(-1, keepdims=True), 1e-30)

        _, du, dp, dm = newton(0.0, 0.0)
        t = np.minimum(1, length(du, dp, dm))
        ahead = ((p + t * dp) * (a - t * du) + (m + t * dm) * (b + t * du)).mean(-1, keepdims=True) / 2
        aim = np.maximum((ahead / gap) ** 3 * gap, 0.1 * EPS)
        dw, du, dp, dm = newton(aim + dp * du, aim - dm * du)
        t = np.minimum(1, 0.99 * length(du, dp, dm))
        w, a, b, p, m = w + t * dw, a - t * du, b + t * du, p + t * dp, m + t * dm
    return scale * w


STRUCTURE: dict[str, Any] = {"needs": ("linear_query", "permutation"), "breaks": ("example_rotation",)}
"""Where labels plus those of a task are asked, X w more moves w exactly: ``linear_labels`` hardly sees them."""

ROBUST = (
    single("median regression", median, **STRUCTURE),
    single("Huber regression", huber, (Parameter("threshold", 1e-3, 10.0, labels=1),), starts=4,
           contains=("least squares", "median regression"), **STRUCTURE),
)  # fmt: skip
