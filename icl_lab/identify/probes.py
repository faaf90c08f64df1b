"""The prompts on which a learner is identified: training prompts, wide spectra, rotations; in units of the training."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import NDArray

from icl_lab.identify.asking import Ask, Floats
from icl_lab.prompts.prompt import Sample, Sampler, check_batch, check_differ
from icl_lab.prompts.regression import linear_regression

Rows = NDArray[np.intp]

QUERIES = 6
CONTEXTS = 24  # of each kind: training prompts (even rows of a battery) and wide spectra (odd rows)
BATCHES = 16  # of 2048 prompts, whose inputs give their second moment: a preconditioner is fitted to it
FIT, JUDGE = (np.flatnonzero(np.arange(2 * CONTEXTS) // 2 % 2 == half) for half in (0, 1))
"""Half of the contexts of either kind fit the models, the other half judges them."""


@dataclasses.dataclass(frozen=True)
class Units:
    """What training prompts are like. Inputs are divided by sqrt(eigenvalue), labels by label: then both have size 1.

    Attributes:
      eigenvalue: mean eigenvalue of S = X^T X / N.
      label: root mean square of the context labels.
      low: smallest eigenvalue of wide spectra, over ``eigenvalue``: the 5 % quantile of training.
      high: largest, the 95 % quantile.
      task_norm: root mean square norm of the tasks, in units.
      query_norm: of the queries, in units.
      assumed: no sampler was given, standard normal prompts are assumed.
    """

    eigenvalue: float
    label: float
    low: float
    high: float
    task_norm: float
    query_norm: float
    assumed: bool


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """A context in its eigenbasis: x_q^T h(S) b = sum_i weights_i h(eigenvalues_i).

    Attributes:
      eigenvalues: (C, r) of S.
      weights: (C, Q, r) products (v_i.x_q)(v_i.b), zero where the eigenvalue is.
      b: (C, r) v_i.b.
    """

    eigenvalues: Floats
    weights: Floats
    b: Floats


@dataclasses.dataclass(frozen=True)
class Battery:
    """C contexts with Q queries each, in units.

    Attributes:
      x: (C, N, D).
      y: (C, N).
      q: (C, Q, D).
      tasks: (T, D) all tasks of training, where they are a finite set; else None.
      covariance: (D, D) second moment of training inputs.
    """

    x: Floats
    y: Floats
    q: Floats
    tasks: Floats | None
    covariance: Floats

    def __post_init__(self):
        centred = self.x - self.x.mean(1, keepdims=True), self.y - self.y.mean(1, keepdims=True)
        object.__setattr__(self, "plain", spectrum(self.x, self.y, self.q))
        object.__setattr__(self, "centred", spectrum(*centred, self.q))
        object.__setattr__(self, "shifted", spectrum(*centred, self.q - self.x.mean(1, keepdims=True)))

    plain: Spectrum = dataclasses.field(init=False)
    centred: Spectrum = dataclasses.field(init=False)
    shifted: Spectrum = dataclasses.field(init=False)

    def take(self, rows: Rows) -> "Battery":
        """Some of the contexts."""
        return Battery(self.x[rows], self.y[rows], self.q[rows], self.tasks, self.covariance)

    def scaled(self, inputs: float, labels: float) -> "Battery":
        """Context and query inputs times a factor, labels times another."""
        return Battery(inputs * self.x, labels * self.y, inputs * self.q, self.tasks, self.covariance)


def spectrum(x: Floats, y: Floats, q: Floats) -> Spectrum:
    """The eigenbasis of contexts (C, N, D), (C, N), (C, Q, D)."""
    _, singular, v = np.linalg.svd(x, full_matrices=False)  # v: (C, r, D)
    values = singular**2 / x.shape[1]
    seen = values > 1e-12 * values.max(1, keepdims=True)
    b = np.einsum("crd,cnd,cn->cr", v, x, y, optimize=True) / x.shape[1]
    b = np.where(seen, b, 0)
    return Spectrum(np.where(seen, values, 1.0), np.einsum("crd,cqd->cqr", v, q) * b[:, None], b)


def haar(rng: np.random.Generator, count: int, size: int) -> Floats:
    """(count, size, size) rotations and reflections, uniform."""
    q, r = np.linalg.qr(rng.normal(size=(count, size, size)))
    return q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]


def rotations(rng: np.random.Generator, size: int) -> Floats:
    """(2, R, D, D): two independent halves of Haar rotations whose sum over either half has no linear part.

    A half is one Haar rotation times all signed cyclic shifts, with signs from a Hadamard matrix: each factor is Haar
    distributed, and the mean of O^T A O over a half is a multiple of the identity for every symmetric A. So what
    couplings in a network's weights do in first order averages out exactly, not like 1/sqrt(R).
    """
    hadamard = np.ones((1, 1))
    while hadamard.shape[0] < size + 1:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    signs = hadamard[:, 1 : size + 1]
    if len(signs) * size > 160:
        return haar(rng, 128, size).reshape(2, 64, size, size)
    shifts = np.stack([np.roll(np.eye(size), k, 0) for k in range(size)])
    group = (signs[:, None, :, None] * shifts[None]).reshape(-1, size, size)
    blocks = max(1, -(-32 // len(group)))
    return (group[None, None] @ haar(rng, 2 * blocks, size).reshape(2, blocks, 1, size, size)).reshape(
        2, -1, size, size
    )


def battery(
    sampler: Sampler | None, context_length: int, input_size: int, seed: int
) -> tuple[Units, Battery, np.random.Generator]:
    """Units and prompts: even contexts are training prompts, odd ones have wide spectra.

    Raises:
      ValueError: for a sampler that draws no samples, not as many as it is asked for, the same ones whatever the key,
        prompts of other sizes, or several outputs.
    """
    n, d = context_length, input_size
    draw = sampler or linear_regression(context_length=n, input_size=d, input_law="normal", task_scale=d**-0.5)
    sample = draw(jax.random.key(seed), 2048) if callable(draw) else draw
    if not (callable(draw) and isinstance(sample, Sample)):
        raise ValueError(f"sampler must be a function (key, batch) -> Sample, got {type(sample).__name__}")
    check_batch("sampler", sample, 2048)
    check_differ("sampler", draw, sample, draw(jax.random.key(seed ^ 1), 2048))
    x, y, q = (np.asarray(part, np.float64) for part in (sample.prompt.x, sample.prompt.y, sample.prompt.x_query))
    if x.shape[1:] != (n, d) or y.shape[1:] != (n, 1):
        raise ValueError(f"sampler: prompts must be x ({n}, {d}) and y ({n}, 1), got {x.shape[1:]} and {y.shape[1:]}")
    y = y[:, :, 0]
    w = sample.latent.get("w")
    linear = w is not None and np.shape(w) == (len(x), d, 1)
    tasks = np.asarray(w, np.float64)[:, :, 0] if linear else np.stack([np.linalg.pinv(a) @ b for a, b in zip(x, y)])
    spectra = np.linalg.svd(x, compute_uv=False) ** 2 / n
    unit, label = float((x**2).sum((1, 2)).mean() / n / d), float(np.sqrt((y**2).mean()))
    if not (unit > 0 and label > 0):
        raise ValueError("sampler: inputs and labels must not all be zero")
    x, q, tasks, y = x / unit**0.5, q / unit**0.5, tasks * unit**0.5 / label, y / label
    low, high = np.quantile(spectra[spectra > 1e-9 * unit] / unit, (0.05, 0.95))
    task_norm, query_norm = (float(np.sqrt((a**2).sum(1).mean())) for a in (tasks, q))
    units = Units(unit, label, float(low), float(high), task_norm, query_norm, sampler is None)
    rng = np.random.default_rng(seed)
    wide = wide_inputs(rng, units, CONTEXTS, n, d)
    contexts = np.stack([x[:CONTEXTS], wide], 1).reshape(2 * CONTEXTS, n, d)
    labels = np.stack([y[:CONTEXTS], np.einsum("cnd,cd->cn", wide, tasks[CONTEXTS : 2 * CONTEXTS])], 1)
    queries = q[: 2 * CONTEXTS * QUERIES].reshape(2 * CONTEXTS, QUERIES, d)
    known = _all_tasks(draw, seed) if linear and len(np.unique(tasks, axis=0)) < len(tasks) // 2 else None
    known = None if known is None else known * unit**0.5 / label
    more = [np.asarray(draw(jax.random.key(seed ^ k), 2048).prompt.x, np.float64) for k in range(2, 2 + BATCHES)]
    covariance = sum(np.einsum("bnd,bne->de", one, one) for one in more) / unit / BATCHES / len(x) / n
    return units, Battery(contexts, labels.reshape(-1, n), queries, known, covariance), rng


def _all_tasks(draw: Sampler, seed: int) -> Floats:
    """(T, D) the tasks of a finite set, of so many draws that one of a thousand is left out with probability 1e-11."""
    drawn = draw(jax.random.key(seed), 2**15).latent["w"]
    return np.unique(np.asarray(drawn, np.float64)[:, :, 0], axis=0)


def wide_inputs(rng: np.random.Generator, units: Units, count: int, n: int, d: int) -> Floats:
    """(count, N, D) inputs X = sqrt(N) Q diag(sqrt l) V^T: Haar bases, l log-uniform inside the training range."""
    r = min(n, d)
    values = np.exp(rng.uniform(np.log(units.low), np.log(units.high), (count, r)))
    return inputs_with(values, haar(rng, count, n)[:, :, :r], haar(rng, count, d)[:, :, :r])


def inputs_with(values: Floats, q: Floats, v: Floats) -> Floats:
    """X (..., N, D) with eigenvalues (..., r) of X^T X / N, and bases Q (..., N, r) and V (..., D, r)."""
    return q.shape[-2] ** 0.5 * np.einsum("...nr,...r,...dr->...nd", q, np.sqrt(values), v, optimize=True)


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a learner answers on a battery, over label size.

    Attributes:
      raw: (C, Q) f; after ``over_examples`` its mean over rotations of the examples.
      mean: (C, Q) the symmetrised f: the mean over rotations of the odd part in the labels.
      noise: median over contexts of |half mean - half mean| / 2 over |mean|.
      asymmetry: median over contexts of |f - mean| / |f|, over rotations and both signs of the labels.
    """

    raw: Floats
    mean: Floats
    noise: float
    asymmetry: float


def answers(ask: Callable[[Floats, Floats, Floats], Floats], on: Battery, turns: Floats) -> Answers:
    """Symmetrises a learner (``in_units``) over the rotations of ``rotations``."""
    c, queries, d = on.q.shape
    n, every = on.x.shape[1], np.concatenate([np.eye(d)[None], turns.reshape(-1, d, d)])
    f = np.empty((c, queries, len(every), 2))
    for begin in range(0, c, 8):
        rows = slice(begin, begin + 8)
        x = np.broadcast_to((on.x[rows, None] @ every)[:, None, :, None], (*f[rows].shape, n, d))
        q = np.broadcast_to((on.q[rows, :, None, None] @ every)[..., 0, :][:, :, :, None], (*f[rows].shape, d))
        y = np.broadcast_to(on.y[rows, None, None, None] * np.array([[1.0], [-1.0]]), (*f[rows].shape, n))
        f[rows] = ask(x.reshape(-1, n, d), y.reshape(-1, n), q.reshape(-1, d)).reshape(f[rows].shape)
    turned = f[:, :, 1:]
    halves = ((turned[..., 0] - turned[..., 1]) / 2).reshape(c, queries, 2, -1).mean(-1)
    mean = halves.mean(-1)
    off = np.stack([turned[..., 0] - mean[..., None], turned[..., 1] + mean[..., None]])
    size = np.sqrt((turned**2).sum((1, 2, 3)))
    asymmetry = np.sqrt((off**2).sum((0, 2, 3))) / np.maximum(size, 1e-300)
    apart = np.linalg.norm(halves[..., 0] - halves[..., 1], axis=1) / 2
    noise = apart / np.maximum(np.linalg.norm(mean, axis=1), 1e-300)
    return Answers(f[:, :, 0, 0], mean, float(np.median(noise)), float(np.median(asymmetry)))


def over_examples(ask: Ask, on: Battery, rng: np.random.Generator, turns: int = 32) -> Floats:
    """(C, Q) mean of f over rotations of the examples, which every family that depends on the inputs' basis allows."""
    c, queries, d = on.q.shape
    n = on.x.shape[1]
    mix = haar(rng, c * turns, n).reshape(c, 1, turns, n, n)
    shape = (c, queries, turns)
    x = np.broadcast_to(mix @ on.x[:, None, None], (*shape, n, d))
    y = np.broadcast_to((mix @ on.y[:, None, None, :, None])[..., 0], (*shape, n))
    q = np.broadcast_to(on.q[:, :, None], (*shape, d))
    return ask(x.reshape(-1, n, d), y.reshape(-1, n), q.reshape(-1, d)).reshape(shape).mean(-1)


def training_prompts(on: Battery, units: Units) -> tuple[Floats, Floats, Floats]:
    """The training prompts of a battery, one query each, as a learner is asked them."""
    x, y = (np.repeat(part[::2], QUERIES, 0) for part in (on.x, on.y))
    q = on.q[::2].reshape(-1, on.q.shape[2])
    return units.eigenvalue**0.5 * x, units.label * y, units.eigenvalue**0.5 * q


def in_units(ask: Ask, units: Units) -> Ask:
    """The learner on inputs and labels in units, with its answers in units."""
    return lambda x, y, q: ask(units.eigenvalue**0.5 * x, units.label * y, units.eigenvalue**0.5 * q) / units.label
