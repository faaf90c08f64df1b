"""Learners that the planted suite did not draw, with the answers that ``identify`` may give.

Every one may be refused ("none of these" or "not separable") unless it ``must_name``; none may get a name that is not
allowed. Allowed are its own name, names of algorithms equal to it and of families that contain it exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import stranger_adaptive as adaptive
import stranger_learners as plain

from icl_lab.prompts import Prompt, Sample


def prompts(context_length, input_size, root=None, noise=0.0, tasks=None, sparse=None):
    """Sampler of y = w.x + N(0, noise), x ~ N(0, root^T root), w ~ N(0, I), one of ``tasks``, or ``sparse``."""

    # sparse: so many entries of w are not zero
    def sampler(key, batch):
        keys = jax.random.split(key, 4)
        x = jax.random.normal(keys[0], (batch, context_length + 1, input_size))
        x = x if root is None else jnp.einsum("bnd,de->bne", x, jnp.asarray(root, x.dtype))
        w = jax.random.normal(keys[1], (batch, input_size, 1))
        if tasks is not None:
            w = jnp.asarray(tasks, x.dtype)[jax.random.randint(keys[1], (batch,), 0, len(tasks))][..., None]
        if sparse is not None:
            ranks = jnp.argsort(jnp.argsort(jax.random.uniform(keys[2], (batch, input_size, 1)), axis=1), axis=1)
            w = jnp.where(ranks < sparse, w, 0)
        y = x @ w
        labels = y[:, :-1] + noise**0.5 * jax.random.normal(keys[3], (batch, context_length, 1))
        return Sample(Prompt(x[:, :-1], labels, x[:, -1]), y[:, -1], {"w": w})

    return sampler


@dataclass(frozen=True)
class Stranger:
    """A learner, its prompts, and what it may be called.

    Attributes:
      name: unique.
      source: paper and equation, or what the learner is.
      make: makes the learner.
      allowed: names.
      must_name: an exact textbook algorithm, which may not be refused.
      evidence: a name counts only where ``Member.evidence`` says that the structure alone forces it.
      quick: it is in the sample that always runs.
      context_length: N.
      input_size: D.
      law: keyword arguments of ``prompts``.
    """

    name: str
    source: str
    make: Callable
    allowed: tuple[str, ...] = ()
    must_name: bool = False
    evidence: bool = False
    quick: bool = False
    context_length: int = 20
    input_size: int = 5
    law: Callable[[], dict] = dict

    def sampler(self):
        return prompts(self.context_length, self.input_size, **self.law())


def row(name, source, make, *allowed, **options):
    return Stranger(name, source, make, allowed, **options)


def must(name, source, make, *allowed, **options):
    return Stranger(name, source, make, allowed, must_name=True, **options)


GD = plain.descent
LEAST_SQUARES = plain.linear(plain.least_squares_weights)
GD_NAMES = ("GD", "GD++")
LEAST_SQUARES_NAMES = ("least squares", "ridge", "gradient flow")
SMALL = {"context_length": 10, "input_size": 2}
GARG = {"context_length": 40, "input_size": 20}
NOISY = {"law": lambda: {"noise": 1.0}}
SCALES = np.diag([0.4, 0.7, 1.0, 1.4, 2.0])


def turn(size):
    return np.linalg.qr(np.random.default_rng(size).normal(size=(size, size)))[0]


def root():
    """Of a rotated covariance with condition number 25."""
    return SCALES @ turn(5).T


def inverse_covariance(factor=1.0):
    return factor * np.linalg.inv(root().T @ root())


def best_layer():
    """Ahn et al. 2023, theorem 1: A = U diag(1 / ((N + 1) / N l_i + sum_k l_k / N)) U^T."""
    return np.linalg.inv(21 / 20 * root().T @ root() + np.trace(root().T @ root()) / 20 * np.eye(5))


def ahn(*layers):
    return lambda: adaptive.attention([adaptive.sparse_layer(a(), b) for a, b in layers])


def identity(a):
    return lambda: a * np.eye(5)


def whitened(a):
    return lambda: inverse_covariance(a)


def coupled(scale, size=5):
    """One layer of linear attention with random couplings."""
    drawn = np.random.default_rng(7).normal(size=(size, size))
    return GD([1.0], scale * drawn + (np.eye(size) if scale < 1 else 0))


def pool(count, size):
    return np.random.default_rng(count).normal(size=(count, size))


def of_pool(count, size=5):
    """Raventos et al. 2023, equation 5."""
    return lambda: adaptive.posterior_over(pool(count, size), 0.0, 0.25)


def pooled(count, size=5):
    return {"law": lambda: {"noise": 0.25, "tasks": pool(count, size)}}


GAINED = {
    "ridge": (lambda: plain.linear(plain.ridge_weights(0.4)), ("ridge",)),
    "least squares": (lambda: LEAST_SQUARES, LEAST_SQUARES_NAMES),
    "GD, 3 steps": (lambda: GD([0.35] * 3), GD_NAMES),
    "GD, 5 steps": (lambda: GD([0.35] * 5), GD_NAMES),
    "gradient flow": (lambda: plain.by_spectrum(lambda s: -np.expm1(-1.5 * s) / s), ("gradient flow",)),
}
GAINS = [
    row(f"{name} x {gain}", "a gain that training leaves", lambda of=of, c=gain: plain.gained(of(), c), *names,
        quick=(name, gain) == ("ridge", 1.02))
    for name, (of, names) in GAINED.items()
    for gain in (0.97, 0.98, 0.99, 1.01, 1.02, 1.03)
]  # fmt: skip
NOISES = [
    row(f"{name} + {size:.0%} smooth", "random features", lambda of=of, s=size: plain.smooth_noise(of(), s), *names)
    for name, (of, names) in GAINED.items()
    for size in (0.01, 0.03)
]

FILTERS = [
    must("ridge, dual form", "Rasmussen & Williams 2006, eq. 2.25", lambda: plain.gaussian_process(0.5), "ridge",
         quick=True, **SMALL),
    must("ridge", "Hoerl & Kennard 1970", GAINED["ridge"][0], "ridge"),
    must("least squares", "the pseudoinverse", GAINED["least squares"][0], *LEAST_SQUARES_NAMES),
    must("GD, 3 steps", "constant rate", GAINED["GD, 3 steps"][0], *GD_NAMES),
    must("GD, 5 steps", "constant rate", GAINED["GD, 5 steps"][0], *GD_NAMES),
    must("gradient flow", "Ali et al. 2019, eq. 7", GAINED["gradient flow"][0], "gradient flow"),
    must("GD, decaying rates", "rates 1.2 e, .6 e, .3 e", lambda: GD([0.72, 0.36, 0.18]), "GD"),
    must("GD, Chebyshev rates", "Young 1953: reciprocals of Chebyshev nodes on [.3, 2]",
         lambda: GD(1 / (1.15 - 0.85 * np.cos(np.pi * np.array([1, 3, 5]) / 6))), *GD_NAMES, "Chebyshev"),
    must("GD, N < D", "constant rate", lambda: GD([0.3] * 3), *GD_NAMES, context_length=5, input_size=10),
    must("least norm, N < D", "the pseudoinverse", GAINED["least squares"][0], *LEAST_SQUARES_NAMES,
         context_length=5, input_size=10),
    must("Schulz, 2 steps", "Fu et al. 2023, eq. 5, from a I: four steps of GD", lambda: plain.schulz(0.3, 2),
         *GD_NAMES, "Newton"),
    must("Nesterov", "constant momentum", lambda: plain.momentum(0.5, [0.8] * 4), "Nesterov"),
    row("Nesterov, k / (k + 3)", "Nesterov 1983 as used since",
        lambda: plain.momentum(0.3, np.arange(6) / np.arange(3, 9)), "Nesterov"),
    must("heavy ball", "Polyak 1964", lambda: plain.momentum(0.3, [0.5] * 4, look_ahead=False), "heavy ball"),
    row("principal components", "the two largest of five", lambda: plain.principal_components(2)),
    must("trace-normalised GD", "rate over the mean eigenvalue of the prompt", lambda: plain.trace_normalised(0.6, 3),
         "trace-normalised GD"),
    row("2 x least squares", "a scale is no gain", lambda: plain.gained(LEAST_SQUARES, 2.0),
        *(f"scaled {name}" for name in LEAST_SQUARES_NAMES)),
    row("-1 x GD", "a scale is no gain", lambda: plain.gained(GD([0.35] * 3), -1.0),
        *(f"scaled {name}" for name in GD_NAMES)),
    row("GD step and least squares", "a mean", lambda: plain.mean_of(GD([0.5]), LEAST_SQUARES), quick=True),
    row("ridge and GD, 2 steps", "a mean",
        lambda: plain.mean_of(plain.linear(plain.ridge_weights(8.0)), GD([0.9] * 2))),
    row("centred GD and ridge", "a mean", lambda: plain.mean_of(plain.centred(GD([0.5] * 2), add_mean=True),
                                                               plain.linear(plain.ridge_weights(4.0)))),
    row("softmax head and least squares", "a mean", lambda: plain.mean_of(adaptive.softmax_head(0.5), LEAST_SQUARES)),
    row("ridge and LMS", "a mean", lambda: plain.mean_of(plain.linear(plain.ridge_weights(4.0)), plain.lms(0.05))),
    row("kernel smoothing and ridge", "a mean",
        lambda: plain.mean_of(adaptive.nadaraya_watson(1.0), plain.linear(plain.ridge_weights(0.4)))),
    must("centred GD", "von Oswald et al. 2022, two softmax heads",
         lambda: plain.centred(GD([0.35] * 3), add_mean=False), "centred GD", "centred GD++"),
    must("centred GD plus mean", "the same, the mean label added",
         lambda: plain.centred(GD([0.35] * 3), add_mean=True), "centred GD + mean", "centred GD++ + mean"),
    must("ridge with an intercept", "a column of ones", lambda: plain.with_intercept(2.0), "ridge with an intercept",
         **NOISY),
    must("least squares with an intercept", "a column of ones", lambda: plain.with_intercept(0.0),
         "least squares with an intercept", "ridge with an intercept", quick=True, **SMALL, **NOISY),
]  # fmt: skip

ORDERED = [
    must("LMS", "Widrow & Hoff 1960", lambda: plain.lms(0.1), "LMS", "leaky LMS"),
    must("Kaczmarz", "Kaczmarz 1937, relaxed, one sweep", lambda: plain.kaczmarz(0.6), "normalised LMS"),
    must("leaky LMS", "the leak before the step", lambda: plain.leaky_lms(0.1, 0.05, first=True), "leaky LMS"),
    row("leaky LMS, Widrow", "Widrow & Stearns 1985: the leak within the step",
        lambda: plain.leaky_lms(0.1, 0.05, first=False), "leaky LMS"),
    row("sign LMS", "Gersho 1984", lambda: plain.sign_lms(0.2)),
    must("RLS, forgetting .9", "Haykin 2002, table 9.1", lambda: plain.recursive(1.0, 0.9), "RLS with forgetting",
         "weighted ridge", **NOISY),
    must("RLS, no forgetting", "Haykin 2002: it is ridge", lambda: plain.recursive(1.0, 1.0), "ridge"),
    must("weighted ridge", "weights exp(slope t + bend t^2)", lambda: plain.weighted_ridge(2.0, 1.5, -4.0),
         "weighted ridge", **NOISY),
    row("last five examples, GD step", "a window", lambda: plain.last_examples(5, GD([0.5]))),
    row("last eight examples, ridge", "a window",
        lambda: plain.last_examples(8, plain.linear(plain.ridge_weights(1.0))),
        **NOISY),
]  # fmt: skip

ADAPTIVE = [
    must("conjugate gradients", "Hestenes & Stiefel 1952, two steps", lambda: adaptive.krylov(2),
         "conjugate gradients"),
    row("Barzilai-Borwein", "Barzilai & Borwein 1988, four steps", lambda: adaptive.barzilai_borwein(0.5, 4)),
    must("median regression", "Barrodale & Roberts 1973", lambda: plain.linear(adaptive.median_weights),
         "median regression", "Huber regression", quick=True, **SMALL, **NOISY),
    must("median regression, D = 5", "Barrodale & Roberts 1973", lambda: plain.linear(adaptive.median_weights),
         "median regression", "Huber regression", **NOISY),
    must("Huber regression", "Huber 1964", lambda: adaptive.huber(0.5), "Huber regression", **SMALL, **NOISY),
    row("total least squares", "Golub & Van Loan 1980", lambda: plain.linear(adaptive.total_least_squares),
        law=lambda: {"noise": 2.0}),
    row("plug-in ridge", "strength from the residual variance", lambda: plain.linear(adaptive.plug_in_ridge),
        "noise-adaptive ridge", context_length=10, law=lambda: {"noise": 2.25}),
    row("James-Stein", "James & Stein 1961", lambda: plain.linear(adaptive.james_stein), context_length=10,
        law=lambda: {"noise": 9.0}),
    row("spike and slab", "Mitchell & Beauchamp 1988",
        lambda: plain.linear(adaptive.spike_and_slab(0.2, 1.0)), law=lambda: {"noise": 1.0, "sparse": 1}),
    row("Laplace prior", "posterior mean on a grid", lambda: adaptive.laplace_prior(0.5, 4.0), **SMALL,
        law=lambda: {"noise": 4.0}),
    row("lasso .1", "Garg et al. 2022", lambda: plain.linear(adaptive.lasso_weights(0.1)), **GARG),
    row("lasso .5", "Garg et al. 2022", lambda: plain.linear(adaptive.lasso_weights(0.5)), **GARG),
    row("lasso 1", "Garg et al. 2022", lambda: plain.linear(adaptive.lasso_weights(1.0)), **GARG),
    row("lasso .001", "Garg et al. 2022: least squares within a thousandth",
        lambda: plain.linear(adaptive.lasso_weights(0.001)), *LEAST_SQUARES_NAMES, **GARG),
    row("lasso .1, sparse tasks", "Garg et al. 2022, three of twenty",
        lambda: plain.linear(adaptive.lasso_weights(0.1)), **GARG, law=lambda: {"sparse": 3}),
    row("elastic net", "Zou & Hastie 2005", lambda: plain.linear(adaptive.lasso_weights(0.4, 0.3))),
    row("clipped labels, least squares", "labels in [-2, 2]", lambda: plain.clipped(LEAST_SQUARES, 2.0), quick=True),
    row("clipped labels, ridge", "labels in [-2, 2]",
        lambda: plain.clipped(plain.linear(plain.ridge_weights(0.4)), 2.0)),
    row("dMMSE, 1 task", "Raventos et al. 2023, eq. 5", of_pool(1), "dMMSE", "dMMSE or ridge", **pooled(1)),
    must("dMMSE, 2 tasks", "Raventos et al. 2023, eq. 5", of_pool(2), "dMMSE", "dMMSE or ridge", **pooled(2)),
    row("dMMSE, 2^14 tasks", "Raventos et al. 2023, eq. 5: nearly ridge", of_pool(2**14, 2), "dMMSE", "dMMSE or ridge",
        "ridge", **SMALL, **pooled(2**14, 2)),
]  # fmt: skip

LOCAL = [
    row("3-nearest neighbours", "Garg et al. 2022", lambda: adaptive.nearest(3), **GARG),
    row("1-nearest neighbour", "the limit of kernel smoothing", lambda: adaptive.nearest(1), "kernel smoothing"),
    row("tree of depth 2", "Garg et al. 2022, greedy", lambda: adaptive.tree(2), context_length=12, input_size=5),
    row("stump", "one split, greedy", lambda: adaptive.tree(1), quick=True, **SMALL),
    row("kernel ridge", "Gaussian kernel", lambda: plain.kernel_ridge(plain.rbf(2.0), 0.1)),
    must("kernel smoothing", "Nadaraya 1964, Watson 1964", lambda: adaptive.nadaraya_watson(1.0), "kernel smoothing"),
    must("softmax head", "Vaswani et al. 2017, one head", lambda: adaptive.softmax_head(0.5), "softmax regression"),
    must("last label", "y_N", lambda: lambda x, y, q: y[:, -1], "last label"),
    must("mean of labels", "the sum over N", lambda: lambda x, y, q: y.sum(1) / y.shape[1], "mean of labels"),
    must("zero", "nothing", lambda: lambda x, y, q: 0 * q[:, :1], "zero"),
]

ANISOTROPIC = {"law": lambda: {"root": root()}}
LAYERS = [
    must("averaging", "Garg et al. 2022: w = X^T y / N, one step of GD", lambda: GD([1.0]), *GD_NAMES, **GARG),
    must("least squares, D = 20", "Garg et al. 2022", lambda: LEAST_SQUARES, *LEAST_SQUARES_NAMES, **GARG),
    must("Ahn, P = 0, one layer", "Ahn et al. 2023, theorem 1", ahn((best_layer, 0.0)), "preconditioned GD",
         **ANISOTROPIC),
    must("Ahn, P = 0, power -1", "Ahn et al. 2023", ahn((whitened(0.7), 0.0)), "preconditioned GD", quick=True,
         **ANISOTROPIC),
    must("Ahn, P = 0, two layers", "Ahn et al. 2023, theorem 3", ahn(*[(whitened(0.6), 0.0)] * 2), "preconditioned GD",
         **ANISOTROPIC),
    row("Ahn, P = .05 I", "Ahn et al. 2023, theorem 4", ahn(*[(whitened(0.6), 0.05)] * 2), "preconditioned GD",
        **ANISOTROPIC),
    row("Ahn, P = b I", "Ahn et al. 2023, theorem 4: GD++ of whitened inputs", ahn(*[(whitened(0.6), 0.8)] * 2),
        **ANISOTROPIC),
    must("Ahn, P = b I, isotropic", "Ahn et al. 2023, theorem 4: GD++", ahn(*[(identity(0.5), 0.4)] * 2), "GD++"),
    row("one layer, I + .04 normal", "never trained", lambda: coupled(0.04), *GD_NAMES, evidence=True),
    row("one layer, normal", "never trained", lambda: coupled(1.0)),
    row("two layers, never trained", "dense random layers",
        lambda: adaptive.attention(adaptive.drawn_layers(2, 3, 0)), context_length=8, input_size=3),
    row("one layer, half-trained", "400 steps of Adam", lambda: adaptive.attention(adaptive.drawn_layers(1, 3, 400)),
        context_length=8, input_size=3),
    row("one layer, trained", "800 steps of Adam", lambda: adaptive.attention(adaptive.drawn_layers(1, 3, 800)),
        *GD_NAMES, context_length=8, input_size=3),
    row("two layers, barely trained", "400 steps of Adam", lambda: adaptive.attention(adaptive.drawn_layers(2, 3, 400)),
        context_length=8, input_size=3),
    row("two layers, half-trained", "1200 steps of Adam: a part of .38 that rotations change",
        lambda: adaptive.attention(adaptive.drawn_layers(2, 3, 1200)), context_length=8, input_size=3),
    must("ridge in float32", "rounded", lambda: plain.rounded(GAINED["ridge"][0](), np.float32), "ridge"),
    must("GD in float32", "every operation rounds", lambda: plain.computed_in(jnp.float32, 0.35, 3), *GD_NAMES),
    must("ridge in bfloat16", "inputs and answers rounded", lambda: plain.rounded(GAINED["ridge"][0](), jnp.bfloat16),
         "ridge"),
    row("GD in bfloat16", "every operation rounds", lambda: plain.computed_in(jnp.bfloat16, 0.35, 3), *GD_NAMES),
]  # fmt: skip

STRANGERS = [*FILTERS, *ORDERED, *ADAPTIVE, *LOCAL, *LAYERS, *GAINS, *NOISES]
