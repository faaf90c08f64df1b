"""Does a name survive a small deviation? What training may leave is laid over the learner, and the decision made again.

Deviations respect the symmetries, so that symmetrising does not remove them: a gain; the labels along each eigenvector
of a context shrunk or tilted, as the nearest model answers them; a part of another algorithm's predictions. Each has
either sign, and sizes of ``decision.DEVIATIONS`` relative to the learner.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.identify import decision
from icl_lab.identify.asking import Floats
from icl_lab.identify.fitting import Fit, predicted, refitted, relative
from icl_lab.identify.probes import FIT, JUDGE, Answers, Battery

STRENGTHS = (0.1, 1.0)
REACH = 0.1
"""Models further away than this are not refitted: no deviation makes them a name."""


@dataclasses.dataclass(frozen=True)
class Decided:
    """One decision: the names of each class that is left, and the fits of the smallest size, best first."""

    names: tuple[frozenset[str], ...]
    fits: tuple[Fit, ...]
    every: tuple[Fit, ...]

    def keeps(self, name: str, inside: Mapping[str, set[str]]) -> bool:
        """Whether every class has this name, or one that lies in it."""
        return bool(self.names) and all(name in one or inside[name] & one for one in self.names)


def decide(fits: Sequence[Fit], noise: float, deviation: float = 0.0) -> Decided:
    """The decision on these fits, of the learner or of one with a deviation of this size."""
    left = decision.remaining(fits, noise, deviation)
    names = decision.named(decision.classes(left))
    return Decided(tuple(map(frozenset, names)), tuple(left), tuple(fits))


def deviations(nearest: Fit, found: Answers, on: Battery) -> Floats:
    """(2 J, C, Q) deviations of size 1, relative to what the nearest model is fitted to.

    That is the larger of two medians: over training prompts, and over contexts of wide spectra (every other one).
    """
    plain, base = predicted(nearest.model, nearest.theta, on), found.raw if nearest.raw else found.mean
    values, count = on.plain.eigenvalues, on.x.shape[1]
    bends = [np.log(values), *(-k / (values + k) for k in STRENGTHS)]
    along = on.plain.b / values  # the task along each eigenvector
    patterns = [base, *(_bent(nearest, on, along * bend) - plain for bend in bends)]
    largest, d = float(np.median(values.max(1))), on.q.shape[2]
    filters = (min(0.6, 1.2 / largest), 1 / (values + 0.3), 1 / (values + 1e-4))  # a step of GD, ridge, least squares
    others = [(on.plain.weights @ np.broadcast_to(h, values.shape)[..., None])[..., 0] for h in filters]
    one_pass = np.zeros((len(on.x), d))
    for i in range(count):
        x, y = on.x[:, i], on.y[:, i]
        one_pass += 0.5 / d * (y - (one_pass * x).sum(1))[:, None] * x
    kernel = np.exp(-((on.x[:, None] - on.q[:, :, None]) ** 2).sum(-1) / 2) + 1e-300
    others += [
        (on.q @ one_pass[..., None])[..., 0],
        np.broadcast_to(on.y.mean(1)[:, None], base.shape),
        np.einsum("cqn,cn->cq", kernel, on.y) / kernel.sum(-1),
    ]
    patterns += [other - base for other in others]
    sized = []
    for pattern in patterns:
        off = relative(base + pattern, base)
        size = max(float(np.median(off[::2])), float(np.median(off[1::2])))
        if np.isfinite(size) and size > 1e-6:
            sized.append(pattern / size)
    return np.stack([sign * pattern for pattern in sized for sign in (1, -1)])


def _bent(nearest: Fit, on: Battery, change: Floats) -> Floats:
    """(C, Q) answers of a model to labels that a change (C, r) of the task along the eigenvectors is added to."""
    _, _, v = np.linalg.svd(on.x, full_matrices=False)
    w = np.einsum("cr,crd->cd", np.where(on.plain.b == 0, 0, change), v)
    bent = dataclasses.replace(on, y=on.y + np.einsum("cnd,cd->cn", on.x, w))
    return predicted(nearest.model, nearest.theta, bent)


def decisions(fits: Sequence[Fit], found: Answers, on: Battery) -> dict[float, list[Decided]]:
    """By size of the deviations, the decision on each."""
    reachable = [fit for fit in fits if fit.residual <= REACH]
    patterns = deviations(min(reachable, key=lambda fit: fit.residual), found, on)
    sizes = np.repeat(decision.DEVIATIONS, len(patterns))[:, None, None]
    moved = sizes * np.concatenate([patterns] * len(decision.DEVIATIONS))  # (S, C, Q)
    means, raws = found.mean + moved, found.raw + moved
    fit_on, judge = on.take(FIT), on.take(JUDGE)
    again = [_again(fit, fit_on, judge, means, raws) for fit in reachable]
    outcomes = [decide(row, found.noise, float(size)) for row, size in zip(zip(*again), sizes[:, 0, 0])]
    many = len(patterns)
    return {size: outcomes[k * many : (k + 1) * many] for k, size in enumerate(decision.DEVIATIONS)}


def _again(fit: Fit, on: Battery, judge: Battery, means: Floats, raws: Floats) -> list[Fit]:
    """A model refitted to every deviation."""
    target = raws if fit.raw else means
    theta, gain = refitted(fit, on, target[:, FIT])
    with np.errstate(all="ignore"):
        g = np.nan_to_num(gain[:, None, None] * fit.model.predict(theta, judge), nan=1e9, posinf=1e9, neginf=-1e9)
    g = np.broadcast_to(g, (len(means), *g.shape[1:]))
    errors, on_raw = relative(g, target[:, JUDGE]), relative(g, raws[:, JUDGE])
    residual, high, plain = np.median(errors, 1), np.quantile(errors, 0.95, axis=1), np.median(on_raw, 1)
    return [
        dataclasses.replace(
            fit,
            theta=theta[s],
            residual=float(residual[s]),
            high=float(high[s]),
            predictions=g[s],
            errors=errors[s],
            on_raw=float(plain[s]),
            gain=float(gain[s]),
            alike=None,
        )
        for s in range(len(means))
    ]


def shares(made: Mapping[float, Sequence[Decided]], name: str, inside: Mapping[str, set[str]]) -> list[float]:
    """By size of the deviations, the share of decisions that keep a name."""
    return [float(np.mean([one.keeps(name, inside) for one in some])) for some in made.values()]


def stability(kept: Sequence[float]) -> float:
    """The largest deviation up to which enough decisions keep a name; 0 where the smallest changes it."""
    largest = 0.0
    for size, share in zip(decision.DEVIATIONS, kept, strict=True):
        if share < decision.KEPT:
            break
        largest = size
    return largest
