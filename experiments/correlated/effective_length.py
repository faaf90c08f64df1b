"""Linear attention sees a context of N correlated inputs as one of N_eff independent inputs (Letey et al. 2026).

One layer of linear self-attention is trained on contexts with E x_i x_j^T = c^|i-j| I and an independent query. Its
optimum and its error are those of independent inputs at N_eff = N^2 / tr K^2, exactly, at finite N and D. So layers
trained at other (N, c) of one N_eff have one error (*collapse*); noise on the labels undoes that, because its term
stays s^2/N. Errors are squared errors over that of predicting zero.

Panels: error over N_eff; error where the correlation of the test contexts is another one; error over N at one N_eff,
without and with noise.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import training
from experiments.identification.networks import functions
from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.zhang_frei_bartlett.common import Setting, covariance, lsa, predictions, product
from icl_lab.identify import identify
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_least, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import Sampler, correlated_context, gaussian_regression
from icl_lab.solvers import least_squares
from icl_lab.theory import correlation_of, effective_length, effective_noise, optimum, risk
from icl_lab.training import Training


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Isotropic inputs; the layer and its training are those of Zhang, Frei & Bartlett 2023."""

    spectrum: tuple[float, ...] = setting(
        (1.0,) * 5, "eigenvalues of the inputs' covariance; their number is D", above=0
    )
    correlations: tuple[float, ...] = setting(
        (0.0, 0.5, 0.8), "c, correlation of neighbouring inputs, in training and at test", at_least=0, at_most=1
    )
    lengths: tuple[int, ...] = setting((10, 20, 40), "N of the layers with one effective length", at_least=1)
    effective: float = setting(10.0, "this effective length, at most the shortest N", at_least=1, argument=False)
    label_noise: float = setting(
        1.0, "s, noise on the labels that undoes the collapse; 0: no training with it", at_least=0, argument=False
    )
    identified: bool = setting(True, "whether the layers trained at each correlation are identified")
    risk_tasks: int = setting(200_000, "prompts for each error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, spectrum=(1.0, 1.0), steps=20, measure_every=10, batch=16, eval_tasks=32,
        correlations=(0.0, 0.5), lengths=(5,), effective=3.0, risk_tasks=64,
    ),
    "quick": Config(
        members=6, steps=1000, measure_every=500, batch=128, correlations=(0.8,), lengths=(10, 40), label_noise=0.0,
        identified=False, eval_tasks=2000, risk_tasks=20_000,
    ),
    "lab": Config(steps=4000, measure_every=500, risk_tasks=100_000),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"), once("correlations", "lengths"), at_least("lengths", "effective"),
)  # fmt: skip

TRAINED = {"at": lambda config: (f"{c:g}" for c in config["correlations"])}
IDENTIFIED = {"at": lambda config: (f"{c:g}" for c in config["correlations"] if config["identified"])}
KINDS: dict[str, Any] = {
    "kind": lambda config: ("equal", "noisy") if config["label_noise"] else ("equal",), "n": "lengths",
}  # fmt: skip
STEPS, LOSS = quantity("steps", "step"), quantity("correlation_{at}/loss", "member", "step", **TRAINED)
PRODUCT = quantity("correlation_{at}/product", "member", "row", "column", **TRAINED)
SHIFT = quantity("correlation_{at}/error", "member", "tested", **TRAINED)
NAMED = quantity("correlation_{at}/{of}", "member", **IDENTIFIED, of=("named", "learning_rate", "asymmetry"))
ERROR = quantity("{kind}_{n}/error", "member", **KINDS)
LEAST_SQUARES = quantity("least_squares", "member", "tested")


class Law(NamedTuple):
    """The distribution of the contexts of one training."""

    length: int
    correlation: Any
    noise: Any = 0.0


def laws(config: Config) -> dict[str, Law]:
    """The task distribution of every training."""
    by_name = {f"correlation_{c:g}": Law(config.context_length, c) for c in config.correlations}
    for n in config.lengths:
        c = correlation_of(n, config.effective)
        by_name[f"equal_{n}"] = Law(n, c)
        if config.label_noise:
            by_name[f"noisy_{n}"] = Law(n, c, config.label_noise)
    return by_name


def closed_form(config: Config, trained: Law, tested: Law | None = None) -> tuple[np.ndarray, float]:
    """(D, D) the best A for a distribution, and its error under another (None: the same)."""

    def sizes(distribution: Law) -> tuple[float, float]:
        return effective_length(distribution.length, distribution.correlation), effective_noise(*distribution)

    lam = covariance(config)
    (n, s), (m, noise) = sizes(trained), sizes(tested or trained)
    best = optimum(lam, n, label_noise=s)
    return best, risk(best, test_length=m, covariance=lam, label_noise=noise) / float(np.trace(lam))


def sampler(config: Config, law: Law) -> Sampler:
    """The contexts of a distribution, whose correlation and noise may be traced."""
    independent = gaussian_regression(context_length=law.length, covariance=covariance(config), label_noise=law.noise)
    return correlated_context(independent, law.correlation)


def untrained_product(config: Config) -> np.ndarray:
    """(M, D, D) A of layers that are drawn as the trained ones were, before training."""
    init = lsa(len(config.spectrum), config.init_scale).init
    return np.asarray(product(jax.vmap(init)(member_keys(config, 910))), np.float64)


def trainings(config: Config) -> Table:
    """The layer under every distribution; those of one N are one program, whose arguments they are."""

    def planned(stream: int, distribution: Law) -> Training:
        moving = {name: jnp.full(config.members, getattr(distribution, name)) for name in ("correlation", "noise")}
        return training.planned(
            replace(config, context_length=distribution.length), lsa(len(config.spectrum), config.init_scale),
            keys=member_keys(config, stream), settings=moving, optimizer=training.falling_adam(config.steps),
            sampler_of=lambda _, now: sampler(config, distribution._replace(**now)),
        )  # fmt: skip

    return {name: planned(stream, distribution) for stream, (name, distribution) in enumerate(laws(config).items())}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Errors of every layer on its own distribution, of some under every correlation; their A; their names."""
    learners, power = lambda params: {"trained": partial(predictions, params)}, sum(config.spectrum)
    for stream, (name, distribution) in enumerate(laws(config).items()):
        kind, at = name.split("_")
        fit, keys = fits[name], member_keys(config, 900 + stream)
        best, error = closed_form(config, distribution)
        facts = {"correlation": distribution.correlation, "rate": float(np.diag(best).mean()), "error": error}
        yield "facts", {name: facts}
        if kind != "correlation":
            losses = paired_losses(learners, always(sampler(config, distribution)), fit.params, keys, config.risk_tasks)
            yield ERROR.at(kind=kind, n=at), 2 * losses["trained"] / power
            continue
        if not stream:
            yield STEPS, fit.steps
        yield LOSS.at(at=at), fit.metrics["loss"]
        yield PRODUCT.at(at=at), np.asarray(product(fit.params), np.float64)
        tested = np.asarray(config.correlations)
        shifted = lambda c: sampler(config, distribution._replace(correlation=c))  # noqa: B023, E731
        losses = paired_losses(learners, shifted, fit.params, keys, config.risk_tasks, tested)
        yield SHIFT.at(at=at), 2 * losses["trained"] / power
        if config.identified:
            yield NAMED.at(at=at), identification(config, distribution, fit.params)
    yield LEAST_SQUARES, _least_squares(config)


def identification(config: Config, law: Law, params: dict) -> dict[str, np.ndarray]:
    """(M,) of every member: whether it is named one step of GD, at which rate, and how far from rotation invariant."""
    members = functions(lambda one: partial(predictions, one), params, config.members)
    verdicts = identify(
        members, context_length=law.length, input_size=len(config.spectrum), sampler=sampler(config, law)
    ).members
    return {
        "named": np.array([float(m.family == "GD" and m.steps == 1) for m in verdicts]),
        "learning_rate": np.array([m.parameters.get("learning_rate", np.nan) for m in verdicts]),
        "asymmetry": np.array([m.asymmetry for m in verdicts]),
    }


def _least_squares(config: Config) -> np.ndarray:
    """(M, tested) error of least squares at every correlation; each member has its own prompts."""
    learners = lambda _: {"found": jax.vmap(least_squares())}  # noqa: E731
    losses = paired_losses(
        learners, lambda c: sampler(config, Law(config.context_length, c)), jnp.zeros(config.members),
        member_keys(config, 990), config.eval_tasks, np.asarray(config.correlations),
    )  # fmt: skip
    return 2 * losses["found"] / sum(config.spectrum)


EXPERIMENT = Experiment(
    "correlated.effective_length", __doc__, PRESETS, measured,
    (STEPS, LOSS, PRODUCT, SHIFT, NAMED, ERROR, LEAST_SQUARES), trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
