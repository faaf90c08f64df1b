"""Families that are no spectral filter; formulas are those of the solvers of the same names (``icl_lab.solvers``)."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import Family, Key, Model, Parameter, single
from icl_lab.identify.probes import Battery
from icl_lab.identify.sets import DMMSE, STRENGTH

LINEAR = ("linear_labels", "linear_query")
SIMILARITY = ("linear_labels", "permutation")
ORDERED: dict[str, Any] = {"needs": LINEAR, "breaks": ("permutation",)}
ADAPTIVE: dict[str, Any] = {
    "needs": ("linear_query", "permutation", "example_rotation"), "breaks": ("linear_labels", "centred_rotation")
}  # fmt: skip


def zero(theta: Floats, on: Battery) -> Floats:
    """Nothing."""
    return np.zeros((len(theta), *on.q.shape[:2]))


def mean_of_labels(theta: Floats, on: Battery) -> Floats:
    """The mean label of the context."""
    return np.broadcast_to(on.y.mean(1)[None, :, None], (len(theta), *on.q.shape[:2]))


def last_label(theta: Floats, on: Battery) -> Floats:
    """The last label of the context."""
    return np.broadcast_to(on.y[None, :, -1:], (len(theta), *on.q.shape[:2]))


def conjugate_gradients(theta: Floats, on: Battery, *, steps: int) -> Floats:
    """Conjugate gradients on the normal equations, without fitted numbers."""
    n = on.x.shape[1]
    b = np.einsum("cnd,cn->cd", on.x, on.y) / n
    w, residual, direction = np.zeros_like(b), b, b
    floor = 1e-26 * (b**2).sum(1) + 1e-300
    for _ in range(steps):
        image = np.einsum("cnd,cn->cd", on.x, np.einsum("cnd,cd->cn", on.x, direction)) / n
        size = (residual**2).sum(1)
        going = size > floor
        length = np.where(going, size / np.maximum((direction * image).sum(1), floor), 0)[:, None]
        w, residual = w + length * direction, residual - length * image
        turn = np.where(going, (residual**2).sum(1) / np.maximum(size, floor), 0)[:, None]
        direction = residual + turn * direction
    return np.broadcast_to((on.q @ w[:, :, None])[None, ..., 0], (len(theta), *on.q.shape[:2]))


def noise_adaptive(theta: Floats, on: Battery) -> Floats:
    """Ridge over nine strengths from low to high, log-spaced, weighted by their evidence."""
    n = on.x.shape[1]
    values = n * np.where(on.plain.b == 0, 0, on.plain.eigenvalues)  # (C, r) of the sum; 0 where the context has none
    low, high = theta[:, :1], np.maximum(theta[:, 1:], theta[:, :1])
    strengths = (low * (high / low) ** np.linspace(0, 1, 9)[None])[:, :, None, None]  # (S, J, 1, 1)
    shrunk = 1 / (values + strengths)  # (S, J, C, r)
    fit = (on.y**2).sum(1) - ((n * on.plain.b) ** 2 * shrunk).sum(-1)  # (S, J, C): y^T C^-1 y
    evidence = -0.5 * np.log1p(values / strengths).sum(-1) - 0.5 * n * np.log(np.maximum(fit, 1e-300))
    evidence = np.exp(evidence - evidence.max(1, keepdims=True))
    h = (evidence[..., None] * shrunk).sum(1) / evidence.sum(1)[..., None] * n  # (S, C, r)
    return (on.plain.weights @ h[..., None])[..., 0]


def softmax_heads(theta: Floats, on: Battery) -> Floats:
    """sum_h c_h sum_i softmax_i(b_h x_i.x_q) y_i; theta is b_1 .. b_H, c_1 .. c_H."""
    overlap, heads = on.q @ on.x.swapaxes(1, 2), theta.shape[1] // 2  # (C, Q, N)
    total = np.zeros((len(theta), *on.q.shape[:2]))
    for h in range(heads):
        weights = softmax(theta[:, h, None, None, None] * overlap)
        total = total + theta[:, heads + h, None, None] * (weights @ on.y[..., None])[..., 0]
    return total


def smoothing(theta: Floats, on: Battery) -> Floats:
    """Gaussian kernel smoothing; theta is bandwidth, amplitude."""
    distances = ((on.x[:, None] - on.q[:, :, None]) ** 2).sum(-1)  # (C, Q, N)
    weights = softmax(-distances / (2 * theta[:, 0, None, None, None] ** 2))
    return theta[:, 1, None, None] * (weights @ on.y[..., None])[..., 0]


def softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def lms(theta: Floats, on: Battery, *, normalised: bool) -> Floats:
    """One step an example, in their order; theta is the rate and, where w shrinks before each step, the leak."""
    rate, leak = theta[:, :1], theta[:, 1:, None] if theta.shape[1] > 1 else 0.0
    w = np.zeros((len(theta), len(on.x), on.x.shape[2]))
    for x, y in zip(on.x.swapaxes(0, 1), on.y.T):
        size = np.maximum((x**2).sum(1), 1e-300) if normalised else 1.0
        w = (1 - leak) * w
        w = w + (rate / size * (y - (w * x).sum(-1)))[..., None] * x
    return np.einsum("scd,cqd->scq", w, on.q)


def forgetting(theta: Floats, on: Battery) -> Floats:
    """Recursive least squares in closed form; theta is strength, 1 - forgetting."""
    n, f = on.x.shape[1], 1 - theta[:, 1]
    return _weighted_ridge(f[:, None] ** np.arange(n - 1, -1, -1), theta[:, 0] * f**n, on)


def weighted(theta: Floats, on: Battery) -> Floats:
    """Ridge with weights exp(slope t + bend t^2) of mean 1; theta is strength, slope, bend."""
    n = on.x.shape[1]
    t = np.arange(n) / max(n - 1, 1) - 0.5
    return _weighted_ridge(n * softmax(theta[:, 1:2] * t + theta[:, 2:] * t**2), theta[:, 0], on)


def _weighted_ridge(weights: Floats, strength: Floats, on: Battery) -> Floats:
    """Of weights (S, N) and strengths (S,)."""
    gram = np.einsum("sn,cnd,cne->scde", weights, on.x, on.x, optimize=True)
    gram = gram + strength[:, None, None, None] * np.eye(on.x.shape[2])
    b = np.einsum("sn,cnd,cn->scd", weights, on.x, on.y, optimize=True)
    return np.einsum("scd,cqd->scq", np.linalg.solve(gram, b[..., None])[..., 0], on.q)


def preconditioned(theta: Floats, on: Battery, *, steps: int) -> Floats:
    """W <- W - P grad with P = e C^p, C the second moment of training inputs; theta is e, p."""
    values, vectors = np.linalg.eigh(on.covariance)
    scales = theta[:, :1] * np.maximum(values, 1e-12)[None] ** theta[:, 1:]  # (S, D)
    return _descend((vectors * scales[:, None]) @ vectors.T, on, steps)


def matrix(theta: Floats, on: Battery, *, steps: int) -> Floats:
    """W <- W - P grad with any symmetric P; theta is its upper triangle."""
    d = on.x.shape[2]
    upper = np.triu_indices(d)
    p = np.zeros((len(theta), d, d))
    p[:, upper[0], upper[1]] = p[:, upper[1], upper[0]] = theta
    return _descend(p, on, steps)


def _descend(p: Floats, on: Battery, steps: int) -> Floats:
    n = on.x.shape[1]
    s, b = on.x.swapaxes(1, 2) @ on.x / n, np.einsum("cnd,cn->cd", on.x, on.y) / n
    w = np.zeros((len(p), *b.shape))
    for _ in range(steps):
        gradient = (s @ w[..., None])[..., 0] - b
        w = w - gradient @ p
    return np.einsum("scd,cqd->scq", w, on.q)


def general_preconditioner(size: int) -> tuple[Model, ...]:
    """Models with any symmetric matrix, of up to ten inputs; started from GD of as many steps."""
    if (d := size) > 10:
        return ()
    entries = tuple(
        Parameter(f"p_{i}{j}", -5.0, 5.0, eigenvalue=-1, logarithmic=False) for i in range(d) for j in range(i, d)
    )

    def warm(fitted: Mapping[Key, Floats], steps: int) -> list[Floats]:
        shared = fitted.get(("GD", steps, False))
        return [(0.5 if shared is None else shared[0]) * np.eye(d)[np.triu_indices(d)]]

    return tuple(
        Model(
            "preconditioned GD", k, entries, functools.partial(matrix, steps=k), own=True, starts=0,
            warm=functools.partial(warm, steps=k), scaled=k == 1, turns=12,
        )
        for k in (1, 2, 3)
    )  # fmt: skip


SHARPNESS = Parameter("sharpness", 1e-3, 30.0, eigenvalue=-1)
AMPLITUDE = Parameter("amplitude", -20.0, 20.0, logarithmic=False)
SIGNED_SHARPNESS = Parameter("sharpness", -10.0, 10.0, eigenvalue=-1, logarithmic=False)
RATE = Parameter("learning_rate", 1e-4, 2.0, eigenvalue=-1)  # of LMS


def _two_heads(fitted) -> list[Floats]:
    one = fitted.get(("softmax regression", 1, False))
    blunt = [np.array([b, -b, c / b, -c / b]) for b in (0.1, 0.3, 1.0) for c in (0.3, 1.0)]
    return blunt if one is None else [*blunt, np.array([one[0], -one[0], one[1] / 2, -one[1] / 2])]


def _around_ridge(fitted: Mapping[Key, Floats]) -> list[Floats]:
    """Below and above the strength of ridge, where random starts end that see no difference between the two."""
    one = fitted.get(("ridge", 0, False))
    return [] if one is None else [one[0] * np.array(ends) for ends in ((0.6, 3.0), (0.3, 3.0), (0.5, 30.0))]


def _slopes(fitted: Mapping[Key, Floats]) -> list[Floats]:
    return [np.array([strength, slope, 0.0]) for slope in (-3.0, 0.1, 3.0, 8.0) for strength in (0.1, 3.0)]


OTHERS = (
    Family(
        "softmax regression",
        (
            Model("softmax regression", 1, (SHARPNESS, AMPLITUDE), softmax_heads, unit="head",
                  scaled=True),
            Model("softmax regression", 2, (SIGNED_SHARPNESS,) * 2 + (AMPLITUDE,) * 2, softmax_heads, own=True,
                  starts=12, warm=_two_heads, unit="head", scaled=True),
        ),
        SIMILARITY,
        ("linear_query",),
    ),
    single("kernel smoothing", smoothing, (Parameter("bandwidth", 0.1, 30.0, eigenvalue=0.5), AMPLITUDE), scaled=True,
           needs=SIMILARITY, breaks=("linear_query",)),
    Family(
        "conjugate gradients",
        tuple(
            Model("conjugate gradients", k, (), functools.partial(conjugate_gradients, steps=k))
            for k in (1, 2, 3, 4, 5, 6, 8)
        ),
        contains=("least squares",),
        **ADAPTIVE,
    ),
    single(
        "noise-adaptive ridge", noise_adaptive,
        (Parameter("low strength", 1e-4, 1e3, eigenvalue=1), Parameter("high strength", 1e-4, 1e4, eigenvalue=1)),
        warm=_around_ridge, contains=("ridge",), **ADAPTIVE,
    ),
    single("LMS", functools.partial(lms, normalised=False), (RATE,), **ORDERED),
    single("normalised LMS", functools.partial(lms, normalised=True), (Parameter("learning_rate", 1e-3, 2.0),),
           **ORDERED),
    single("leaky LMS", functools.partial(lms, normalised=False), (RATE, Parameter("leak", 1e-4, 0.7)),
           contains=("LMS",), **ORDERED),
    single("RLS with forgetting", forgetting, (STRENGTH, Parameter("1 - forgetting", 1e-4, 0.7)), contains=("ridge",),
           **ORDERED),
    single(
        "weighted ridge", weighted,
        (STRENGTH, Parameter("slope", -20.0, 20.0, logarithmic=False),
         Parameter("bend", -40.0, 40.0, logarithmic=False)),
        starts=4, warm=_slopes, contains=("RLS with forgetting", "ridge"), **ORDERED,
    ),
    Family(
        "preconditioned GD",
        tuple(
            Model("preconditioned GD", k,
                  (Parameter("learning_rate", 1e-3, 10.0, eigenvalue=-1),
                   Parameter("power", -3.0, 1.0, logarithmic=False)),
                  functools.partial(preconditioned, steps=k), starts=6, scaled=k == 1)
            for k in (1, 2, 3)
        ),
        ("linear_labels", "linear_query", "permutation", "example_rotation"), ("rotation",), raw=True,
        for_size=general_preconditioner,
    ),
    DMMSE,
    single("mean of labels", mean_of_labels, scaled=True),
    single("last label", last_label, scaled=True),
    single("zero", zero, scaled=True),
)  # fmt: skip
