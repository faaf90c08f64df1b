"""Fits of models to predictions: damped Gauss-Newton steps in float64, all starts at once."""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import Key, Model, Parameter
from icl_lab.identify.probes import Battery, Rows, Spectrum

SQUARED_UP_TO = 0.02
"""Relative error of a context beyond which it counts in proportion, not squared: medians judge the fit."""

GAIN = (0.95, 1.05)
"""Predictions are those of an algorithm up to a factor in between: training leaves one, and no name depends on it."""

ALIKE = 5e-3
"""Starts are as good as the best where their cost is larger by less, a context: about .002 of the predictions."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """A model fitted to one member.

    Attributes:
      model: which.
      theta: (P,) parameters in units.
      residual: median over judged contexts of |f - g| / |f|, over the queries of a context.
      high: its 95 % quantile.
      predictions: (C, Q) on the judged contexts.
      errors: (C,) of each judged context.
      on_raw: as ``residual``, from f itself; the same where the family is fitted to f.
      raw: the family is fitted to f, not to the symmetrised f.
      gain: by which its predictions are multiplied; 1 where the model contains a scale.
      alike: (A, P) parameters of all starts that ended as close: what they do not share is not determined.
      beyond: as ``residual``, with the same parameters on training prompts with inputs times ``decision.BEYOND``.
    """

    model: Model
    theta: Floats
    residual: float
    high: float
    predictions: Floats
    errors: Floats
    on_raw: float
    raw: bool
    gain: float = 1.0
    alike: Floats | None = None
    beyond: float = 0.0

    @property
    def training(self) -> float:
        """The residual on training prompts alone, which every other judged context is."""
        return float(np.median(self.errors[::2]))


def judged(found: "Found", on: Battery, mean: Floats, f: Floats, raw: bool) -> Fit:
    """A fitted model on contexts that its fit has not seen, where the learner answers ``f``."""
    predictions = found.gain * predicted(found.model, found.theta, on)
    errors, plain = relative(predictions, f if raw else mean), float(np.median(relative(predictions, f)))
    residual, high = float(np.median(errors)), float(np.quantile(errors, 0.95))
    return Fit(found.model, found.theta, residual, high, predictions, errors, plain, raw, found.gain, found.alike)


def predicted(model: Model, theta: Floats, on: Battery) -> Floats:
    """(C, Q) predictions; what is not finite becomes very large."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(model.predict(theta[None], on)[0], nan=1e9, posinf=1e9, neginf=-1e9)


def relative(predictions: Floats, target: Floats) -> Floats:
    """(..., C) |f - g| / |f| over the queries (last axis); infinite where f is zero and g is large."""
    with np.errstate(over="ignore"):
        return np.linalg.norm(predictions - target, axis=-1) / np.maximum(np.linalg.norm(target, axis=-1), 1e-300)


@dataclasses.dataclass(frozen=True)
class Found:
    """Parameters (P,) and the gain of the best of all starts, and the parameters (A, P) of those that are as good."""

    model: Model
    theta: Floats
    gain: float
    alike: Floats


def fitted(
    model: Model, on: Battery, target: Floats, before: Mapping[Key, Floats], bounds: tuple[float, float] = GAIN,
    roughly: bool = False,
) -> Found:  # fmt: skip
    """The best of all starts: random ones, and those that smaller models give; of few, and few steps (``roughly``).

    The cost is sum over contexts of sqrt(1 + (relative error / SQUARED_UP_TO)^2). A gain within ``bounds`` is fitted
    along, unless the model contains a scale.
    """
    low, high = _box(model, bounds)
    rng, size = np.random.default_rng([0, zlib.crc32(repr(model.key).encode())]), model.size
    ends = low[:size], high[:size]
    drawn = ends[0] + (ends[1] - ends[0]) * rng.uniform(0.25, 0.85, (model.starts if size else 1, size))
    if size == 1:
        drawn = np.linspace(*ends, model.starts + 2)[1:-1]
    warm = [_to_line(model.parameters, np.asarray(theta, float)) for theta in model.warm(before)]
    z = np.concatenate([drawn, *(one[None] for one in warm)])
    z = z[:: -(-len(z) // 4)] if roughly else z
    z = np.clip(np.concatenate([z, np.ones((len(z), len(low) - size))], 1), low, high)
    z, cost = _descended(model, on, target, z, low, high, min(model.turns, 12) if roughly else model.turns)
    best = int(np.argmin(cost))
    if bounds == GAIN and z.shape[1] > size and _at_bound(z[best, size]):
        return fitted(model, on, target, before, (1.0, 1.0), roughly)
    alike = z[cost <= cost[best] + ALIKE * len(target)]
    theta = _from_line(model.parameters, z[:, :size])[best]
    gain = float(z[best, size]) if z.shape[1] > size else 1.0
    return Found(model, theta, gain, _from_line(model.parameters, alike[:, :size]))


def refitted(fit: Fit, on: Battery, targets: Floats, turns: int = 4) -> tuple[Floats, Floats]:
    """(S, P) parameters and (S,) gains for targets (S, C, Q) that are close to the one that was fitted."""
    model, size = fit.model, fit.model.size
    low, high = _box(model, GAIN)
    z = np.concatenate([_to_line(model.parameters, fit.theta), [fit.gain] * (len(low) - size)])
    z = np.clip(np.repeat(z[None], len(targets), 0), low, high)
    z, _ = _descended(model, on, targets, z, low, high, turns, alone=True)
    theta, gain = _from_line(model.parameters, z[:, :size]), z[:, size] if z.shape[1] > size else np.ones(len(z))
    out = _at_bound(gain)
    if out.any():
        still = dataclasses.replace(fit, gain=1.0, model=dataclasses.replace(model, scaled=True))
        theta[out], gain[out] = refitted(still, on, targets[out], turns)
    return theta, gain


def _at_bound(gain: Any) -> Any:
    """Whether a gain explains nothing: it went as far as it may, and the algorithm is then judged without one."""
    return (gain < GAIN[0] + 1e-3) | (gain > GAIN[1] - 1e-3)


def _box(model: Model, gain: tuple[float, float]) -> tuple[Floats, Floats]:
    """Bounds of all fitted numbers: the parameters on their line, then the gain, where the model has none itself."""
    ends = [p.low for p in model.parameters], [p.high for p in model.parameters]
    free = not model.scaled and gain[0] < gain[1]
    low, high = (np.array([*_to_line(model.parameters, end), *[g] * free]) for end, g in zip(ends, gain))
    return low, high


def _descended(
    model: Model, on: Battery, target: Floats, z: Floats, low: Floats, high: Floats, turns: int, alone: bool = False
) -> tuple[Floats, Floats]:
    """Damped Gauss-Newton from all starts (S, P') at once: where they end, and their costs.

    Starts that fall behind are given up, unless each has a target of its own (``alone``).
    """
    if not z.shape[1]:
        return z, np.zeros(len(z))
    norms = np.maximum(np.linalg.norm(target, axis=-1), 1e-300)[..., None]
    damping, cost = np.full(len(z), 1e-3 if alone else 1e-2), np.full(len(z), np.inf)
    kept, slope, curve = z, np.zeros_like(z), np.zeros((*z.shape, z.shape[1]))
    floor = target.shape[-2]  # the cost of a perfect fit
    for turn in range(turns):
        new = _cost_and_slopes(model, on, target, norms, z)
        better = new[0] < cost
        gain = np.where(better, (cost - new[0]) / np.maximum(new[0], 1e-12), 0)
        cost, kept = np.where(better, new[0], cost), np.where(better[:, None], z, kept)
        ahead = 2 * (cost.min() - floor) + ALIKE  # a start that is not, and no longer gains much, will not be the best
        slope, curve = np.where(better[:, None], new[1], slope), np.where(better[:, None, None], new[2], curve)
        damping = np.clip(np.where(better, damping / 6, damping * 5), 1e-9, 1e6)
        if turn in (4, 9) and len(z) > 3 and not alone:  # starts that fell behind are given up
            best = np.argsort(cost)[: max(3, len(z) // 3)]
            kept, slope, curve, damping, cost = kept[best], slope[best], curve[best], damping[best], cost[best]
        elif turn > 4 and not ((damping < 1e3) & ((gain > 1e-6) | ~better) & (cost - floor < ahead)).any():
            break
        diagonal = np.einsum("spp->sp", curve)
        ridge = damping[:, None] * (diagonal + 1e-9 * diagonal.max(1, keepdims=True) + 1e-300)
        step = np.linalg.solve(curve + ridge[:, :, None] * np.eye(z.shape[1]), -slope[..., None])[..., 0]
        step *= np.minimum(1, 1.5 / np.maximum(np.abs(step).max(1, keepdims=True), 1e-300))
        z = np.clip(kept + step, low, high)
    return kept, cost


def _cost_and_slopes(model: Model, on: Battery, target: Floats, norms: Floats, z: Floats) -> tuple[Floats, ...]:
    """(S,) costs, (S, P') slopes and (S, P', P') Gauss-Newton curvatures; forward differences, exact in the gain."""
    s, p = len(z), model.size
    c, queries = target.shape[-2:]
    width, line = 1e-6, z[:, :p]
    moved = np.concatenate([line[:, None], line[:, None] + width * np.eye(p)[None]], 1).reshape(s * (p + 1), p)
    with np.errstate(all="ignore"):
        g = model.predict(_from_line(model.parameters, moved), on)
        g = np.nan_to_num(np.clip(g, -1e8, 1e8), nan=1e8).reshape(s, p + 1, c, queries)
        free = z.shape[1] > p
        gain = z[:, p:, None] if free else np.ones((s, 1, 1))  # (S, 1, 1)
        miss = np.clip((gain * g[:, 0] - target) / norms, -1e12, 1e12)  # (S, C, Q)
        jacobian = gain[:, None] * (g[:, 1:] - g[:, :1]) / width
        jacobian = np.concatenate([jacobian, g[:, :1]], 1) if free else jacobian
        jacobian = np.clip(jacobian / (norms if norms.ndim == 2 else norms[:, None]), -1e12, 1e12)  # (S, P', C, Q)
    scale = np.sqrt(1 + (miss**2).sum(-1) / SQUARED_UP_TO**2)  # (S, C)
    weight = np.repeat(1 / scale, queries, 1)
    jacobian, miss = jacobian.reshape(s, z.shape[1], -1), miss.reshape(s, -1)
    weighted = jacobian * weight[:, None]
    return scale.sum(1), (weighted @ miss[..., None])[..., 0], weighted @ jacobian.swapaxes(1, 2)


def _to_line(parameters: Sequence[Parameter], theta: Sequence[float] | Floats) -> Floats:
    return np.array([np.log(max(t, p.low)) if p.logarithmic else t for p, t in zip(parameters, theta, strict=True)])


def _from_line(parameters: Sequence[Parameter], z: Floats) -> Floats:
    logarithmic = np.array([p.logarithmic for p in parameters])
    return np.where(logarithmic, np.exp(np.where(logarithmic, z, 0)), z)


def free_filter(seen: Spectrum, target: Floats, fit: Rows, judge: Rows) -> Floats:
    """(C,) relative errors, on the judged contexts, of the best filter of any form: l h(l) a cubic spline in log l."""
    logs = np.log(seen.eigenvalues)
    inner = np.linspace(max(logs.min(), logs.max() - 8), logs.max(), 15)
    knots = np.concatenate([np.full(3, inner[0]), inner, np.full(3, inner[-1])])
    from scipy.interpolate import BSpline

    spline = BSpline.design_matrix(np.clip(logs, *inner[[0, -1]]).ravel(), knots, 3).toarray().reshape(*logs.shape, -1)
    count = spline.shape[-1]
    design = np.einsum("cqr,crk->cqk", seen.weights, spline / seen.eigenvalues[..., None])
    norms = np.maximum(np.linalg.norm(target, axis=1), 1e-300)[:, None]
    rows, values = (design[fit] / norms[fit][..., None]).reshape(-1, count), (target[fit] / norms[fit]).ravel()
    bend = 1e-6 * len(values) ** 0.5 * np.diff(np.eye(count), 2, axis=0)  # where no eigenvalue comes near
    rows, values = np.concatenate([rows, bend]), np.concatenate([values, np.zeros(len(bend))])
    return relative(design[judge] @ np.linalg.lstsq(rows, values, rcond=None)[0], target[judge])
