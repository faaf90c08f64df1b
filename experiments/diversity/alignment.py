"""How linear attention does on tasks that it has not seen depends on how many it saw, and where they pointed.

The reduced model of Lu et al. 2025, the prediction x_q^T G h with h = [(d/l) sum y x, (1/l) sum y^2], is fitted to
n = tau d^2 prompts of k = kappa d tasks from N(0, C) by least squares, in closed form. Its error on tasks from
N(0, C'), exact for every fit, is held to the formula of ``icl_lab.theory.diversity``, to which it comes as 1/d: C is
the identity or a power law, and C' is C, the identity, or C with its eigenvalues reversed.

Beside that: the error over the number of tasks, for short and for long prompts; over the number of prompts; how far
predictions on unseen tasks are from those of the Bayes predictor of the k tasks (dMMSE) and from ridge regression; and
what ``identify`` says.

Panels: error over 1/d at six points; error over kappa; both distances over kappa.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.diversity.regression import Floats, Law, error, fitted
from experiments.settings import Members, member_keys
from icl_lab.identify import identify
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.prompts import Prompt, Sample, Sampler, gaussian_regression
from icl_lab.solvers import dmmse, ridge
from icl_lab.theory import diversity_error


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Ratios to d: alpha = 2, kappa = 4, tau = 4 and rho = .05 where no other is said."""

    sizes: tuple[int, ...] = setting((24, 48), "d from which errors are extrapolated", at_least=2)
    draws: tuple[int, ...] = setting((16, 1), "fits that a member averages at each d", at_least=1)
    exponent: float = setting(0.5, "eigenvalues of C fall as j^-exponent where tasks are not isotropic", above=0)
    size: int = setting(24, "d of the errors over kappa and tau", at_least=2)
    contexts: tuple[float, ...] = setting((2.0, 50.0), "alpha of the errors over kappa", above=0)
    diversities: tuple[float, ...] = setting((0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0), "kappa of these errors", above=0)
    prompts: tuple[float, ...] = setting((0.5, 1.0, 1.5, 2.0), "tau of the errors over tau", above=0)
    compared: tuple[int, ...] = setting((12, 24, 36), "d of the distances to other predictors", at_least=2)
    eval_tasks: int = setting(2000, "prompts of unseen tasks for each distance", at_least=1)
    identified: int = setting(6, "d of the models that are identified; 0: none", at_least=0)


PRESETS = {
    "smoke": Config(members=2, sizes=(3, 6), draws=(2, 1), size=4, compared=(4,),
                    eval_tasks=16, identified=0),
    "quick": Config(members=6, sizes=(12, 24), draws=(16, 4), compared=(12,), eval_tasks=500, identified=0),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

POINTS = {
    "isotropic": ("isotropic", 4.0, 4.0, "same"), "few_tasks": ("isotropic", 1.0, 4.0, "same"),
    "few_prompts": ("isotropic", 4.0, 0.25, "same"), "same": ("power", 4.0, 4.0, "same"),
    "to_isotropic": ("power", 4.0, 4.0, "isotropic"), "reversed": ("power", 4.0, 4.0, "reversed"),
}  # fmt: skip
"""C, kappa and tau of a fit, and C'."""
NOISE, LONG_NOISE, LONG_PROMPTS = 0.05, 0.01, 10.0
"""rho; rho and tau of the errors over kappa, where both must be far from what they hide."""
DISTANCES = (0.25, 0.5, 0.75, 1.0)
"""kappa of the distances."""
BELOW, ABOVE = 0.5, 16.0
"""kappa of the models that are identified, with alpha = 3 and tau = 100."""

ERROR = quantity("error/{point}", "member", "size", point=tuple(POINTS))
THEORY = quantity("theory/{point}", "size", point=tuple(POINTS))
KINK = quantity("kink/{context}", "member", "diversity", context="contexts")
PEAK = quantity("peak", "member", "prompts")
DISTANCE = quantity("distance/{to}", "member", "compared", "near", to=("dmmse", "ridge"))
NAMED = quantity(
    "identified/{side}/{what}", "member", side=lambda c: ("below", "above") if c["identified"] else (),
    what=("set", "descent", "named", "asymmetry"),
)  # fmt: skip


def spectrum(kind: str, size: int, exponent: float) -> Floats:
    """(d,) eigenvalues of C, of mean 1."""
    values = np.arange(1, size + 1.0) ** -(0.0 if kind == "isotropic" else exponent)
    return values / values.mean()


def tested(aimed: str, own: Floats) -> Floats:
    """(d,) eigenvalues of C' in the basis of C."""
    return {"same": own, "isotropic": np.ones_like(own), "reversed": own[::-1]}[aimed]


def expected(law: Law, aimed: Floats) -> float:
    """The formula for this spectrum, with the d of the law."""
    return diversity_error(
        np.diag(law.spectrum), np.diag(aimed), context=law.context, diversity=law.diversity, prompts=law.prompts,
        noise_variance=law.noise_variance,
    ).unseen  # fmt: skip


def law_of(config: Config, point: str, size: int) -> Law:
    """What the fit of a point is made of."""
    kind, diversity, prompts, _ = POINTS[point]
    return Law(size, spectrum(kind, size, config.exponent), 2.0, diversity, prompts, NOISE)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Every error over its members, what theory says, distances, names."""
    yield from _extrapolated(config)
    isotropic, members = np.ones(config.size), range(config.members)

    def errors(stage: int, problems: list[Law]) -> Floats:
        """(M, problems) on unseen isotropic tasks."""
        drawn = [[fitted(_rng(config, stage, m, i), problem)[0] for i, problem in enumerate(problems)] for m in members]
        return np.array([[error(g, isotropic, problem) for g, problem in zip(row, problems)] for row in drawn])

    for i, context in enumerate(config.contexts):
        over = [Law(config.size, isotropic, context, k, LONG_PROMPTS, LONG_NOISE) for k in config.diversities]
        yield KINK.at(context=context), errors(10 + i, over)
    yield PEAK, errors(20, [Law(config.size, isotropic, 2.0, 4.0, tau, NOISE) for tau in config.prompts])
    pairs = [[[distances(config, m, d, k) for k in DISTANCES] for d in config.compared] for m in members]
    yield DISTANCE, dict(zip(("dmmse", "ridge"), np.moveaxis(np.array(pairs), -1, 0)))
    for side, diversity in (("below", BELOW), ("above", ABOVE)) if config.identified else ():
        yield NAMED.at(side=side), identification(config, diversity)


def _extrapolated(config: Config) -> Iterator[Yield]:
    """Errors at every d; points that differ in C' alone share their fits, and cheap ones have four times as many."""
    kinds = list(dict.fromkeys(point[:3] for point in POINTS.values()))
    for point, (*_, aimed) in POINTS.items():
        problems = [law_of(config, point, d) for d in config.sizes]
        yield THEORY.at(point=point), np.array([expected(one, tested(aimed, one.spectrum)) for one in problems])
    for stage, kind in enumerate(kinds):
        sharing = [point for point, values in POINTS.items() if values[:3] == kind]
        errors = {point: np.empty((config.members, len(config.sizes))) for point in sharing}
        for i, (size, draws) in enumerate(zip(config.sizes, config.draws)):
            problem = law_of(config, sharing[0], size)
            aims = {point: tested(POINTS[point][3], problem.spectrum) for point in sharing}
            for m in range(config.members):
                rng = _rng(config, stage, m, i)
                fits = [fitted(rng, problem)[0] for _ in range(draws if problem.prompts > 1 else 4 * draws)]
                for point in sharing:
                    errors[point][m, i] = np.mean([error(g, aims[point], problem) for g in fits])
        yield from ((ERROR.at(point=point), values) for point, values in errors.items())


def _rng(config: Config, *place: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, *place])


def distances(config: Config, member: int, size: int, diversity: float) -> tuple[float, float]:
    """Mean squared distance of predictions on unseen tasks to dMMSE of the training tasks and to ridge, times d."""
    problem = Law(size, np.ones(size), 2.0, diversity, 4.0, NOISE)
    weights, tasks = fitted(_rng(config, 30, member, size, round(100 * diversity)), problem)
    sampler = gaussian_regression(
        context_length=problem.length, covariance=np.eye(size) / size, label_noise=NOISE**0.5
    )  # fmt: skip
    prompts = sampler(jax.random.fold_in(member_keys(config, 30)[member], size), config.eval_tasks).prompt
    outputs = predictions(weights, np.asarray(prompts.x), np.asarray(prompts.y), np.asarray(prompts.x_query))
    others = (dmmse(jnp.asarray(tasks[:, :, None], jnp.float32), NOISE), ridge(NOISE))
    return tuple(float(np.mean((outputs - jax.vmap(other)(prompts)) ** 2)) * size for other in others)  # type: ignore


def predictions(weights: Floats, x: Floats, y: Floats, query: Floats) -> Floats:
    """(B, 1) x_q^T G h of prompts x (B, l, d), y (B, l, 1), queries (B, d)."""
    (_, length, d), labels = x.shape, y[..., 0].astype(np.float64)
    h = d / length * np.einsum("bld,bl->bd", x, labels)
    return np.sum(query @ weights * np.c_[h, (labels**2).mean(axis=1)], axis=1, keepdims=True)


def known_tasks(tasks: Floats, law: Law) -> Sampler:
    """Prompts of training: each has one of the tasks (k, d)."""
    every, (d, length) = jnp.asarray(tasks, jnp.float32)[..., None], (law.size, law.length)

    def sampler(key: jax.Array, batch: int) -> Sample:
        choice, inputs, noise = jax.random.split(key, 3)
        w = every[jax.random.randint(choice, (batch,), 0, len(every))]
        x = jax.random.normal(inputs, (batch, length + 1, d)) / d**0.5
        y = x @ w
        noisy = y[:, :-1] + law.noise_variance**0.5 * jax.random.normal(noise, (batch, length, 1))
        return Sample(Prompt(x[:, :-1], noisy, x[:, -1]), y[:, -1], {"w": w})

    return sampler


def identification(config: Config, diversity: float) -> Floats | dict[str, Floats]:
    """(M,) of every member: is the name, or the nearest, of a set of tasks, or of descent or ridge; is it a name."""
    problem, members = Law(config.identified, np.ones(config.identified), 3.0, diversity, 100.0, NOISE), []
    for member in range(config.members):
        weights, tasks = fitted(_rng(config, 40, member, round(10 * diversity)), problem)
        members += identify(partial(predictions, weights), sampler=known_tasks(tasks, problem)).members
    names = [(one.family or one.nearest or "").split(",")[0] for one in members]
    return {
        "set": np.array([float(name in ("dMMSE", "dMMSE or ridge")) for name in names]),
        "descent": np.array([float(name in ("GD", "preconditioned GD", "ridge")) for name in names]),
        "named": np.array([float(one.verdict == "identified") for one in members]),
        "asymmetry": np.array([one.asymmetry for one in members]),
    }


EXPERIMENT = Experiment(
    "diversity.alignment", __doc__, PRESETS, measured, (ERROR, THEORY, KINK, PEAK, DISTANCE, NAMED),
    constraints=(
        once("contexts", "diversities", "prompts", "compared"), as_long_as("sizes", "draws"),
        holds("two numbers that rise", "sizes", when=lambda c: len(c.sizes) == 2 and c.sizes[0] < c.sizes[1]),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
