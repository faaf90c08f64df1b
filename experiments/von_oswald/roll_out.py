"""One trained layer applied many times (von Oswald et al. 2022, Fig. 1 right and Fig. 10).

One layer, trained to answer after a single application, is applied 50 times to its own output, only the label channel
moving, its update damped by lambda; beside it the constructed gradient-descent layer, and the exact loss of damped
gradient descent, (D s^2/2) E mean_l (1 - lambda eta l/N)^(2k) over the eigenvalues l of the context's X^T X. In a
context with an eigenvalue of lambda eta l/N > 2 the loss grows. Without damping these turn the mean loss up after a few
applications; at lambda = .75 they are so rare that 10,000 tasks may hold none, yet they raise the exact mean after some
twenty. In the paper the trained layer diverges before GD; here most members diverge after it.
"""

import dataclasses
import sys
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.settings import check, check_each_once, member_keys
from experiments.statistics import Statistic
from experiments.training import Model, learners_of
from experiments.von_oswald.common import Setting, constructed, model, sampler, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import member_lines
from experiments.von_oswald.tuning import best_step, eigenvalues
from icl_lab.lab import Experiment, Record, Session, claims_of, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention, traced
from icl_lab.prompts import Sample, input_variance


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 10 as the released code runs it."""

    eval_tasks: int = setting(
        10_000, "tasks that measure a member, the same at every measurement and application", at_least=1
    )
    dampings: tuple[float, ...] = setting((1.0, 0.875, 0.75), "lambda, factor on every update", above=0, at_most=1)
    applications: int = setting(50, "times the layer is applied", at_least=2)
    oracle_contexts: int = setting(1_000_000, "contexts of the exact damped-GD curve", at_least=2)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32, applications=4,
        oracle_contexts=100,
    ),
    "quick": Config(members=6, batch=512, steps=2000, eval_tasks=2000, oracle_contexts=20_000),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


def check_dampings(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    check_each_once("dampings", config.dampings)


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    return {"training": model(_layers(config), config)}


def _layers(config: Config, layers: int = 1, **changes) -> LinearSelfAttention:
    return LinearSelfAttention(layers=layers, looped=True, init_scale=config.init_scale, **changes)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains one layer, then applies it and the GD layer ``applications`` times at each damping."""
    eta, _ = best_step(config)
    trained, weights = models(config)["training"], constructed(config, eta)
    fitted = train(session, "training", config, trained, references={"gd": trained.learner(weights)})
    arrays = {"steps": fitted.steps, "training_loss": fitted.metrics["loss"]}

    def losses(deep: LinearSelfAttention, args: tuple[dict, Array]) -> dict[str, Array]:
        params, key = args
        samples = sampler(config)(key, config.eval_tasks)
        return {name: _after_each(deep, p, samples) for name, p in (("trained", params), ("gd", weights))}

    members = (fitted.params, member_keys(config, 900))
    for damping in config.dampings:
        deep = _layers(config, config.applications, damping=damping, updated_channels=1)
        found = jax.jit(partial(jax.lax.map, partial(losses, deep)))(members)
        arrays[_name(damping)] = jax.tree.map(np.asarray, found) | {"exact": _exact(config, damping * eta)}
    return {"learning_rate": eta}, arrays


def _name(damping: float) -> str:
    return f"damping_{damping}"


def _after_each(deep: LinearSelfAttention, params: dict, samples: Sample) -> Array:
    """(K,) mean loss after each application of the layer."""

    def errors(sample: Sample) -> Array:
        _, trace = traced(deep, params)(sample.prompt)
        predictions = -trace.residual[1:, -1, sample.prompt.x.shape[1]]
        return 0.5 * (predictions - sample.target) ** 2

    return jax.vmap(errors)(samples).mean(axis=0)


def _exact(config: Config, rate: float) -> np.ndarray:
    """(K,) loss of damped gradient descent after each of K applications: exact given many contexts' eigenvalues."""
    spectrum = eigenvalues(config, member_keys(config, 10_001, 1)[0], config.oracle_contexts)
    factor = (1 - rate * spectrum / config.context_length) ** 2
    scale = 0.5 * config.input_size * input_variance("uniform", config.input_range)
    power, losses = np.ones_like(factor), []
    for _ in range(config.applications):
        power = power * factor
        losses.append(scale * power.mean())
    return np.array(losses)


def figures(record: Record) -> dict[str, Figure]:
    """One panel a damping: loss of every member after each application."""
    config = record.config
    figure, (row,) = style.panels(len(config["dampings"]), 1)
    x = np.arange(1, config["applications"] + 1)
    for axes, damping in zip(row, config["dampings"]):
        for learner in ("gd", "trained"):
            member_lines(axes, x, np.minimum(_losses(record, damping, learner), 1e6), learner)
        axes.plot(x, record[_name(damping)]["exact"], **style.THEORY, label="exact GD")
        axes.set_ylim(0, 0.45)
        axes.set_title(rf"damping $\lambda$ = {damping:g}")
        axes.set_xlabel("applications of the layer")
        axes.set_ylabel("loss")
    row[0].legend(loc="lower right")
    return {"roll_out": figure}


def _losses(record: Record, damping: float, learner: str) -> np.ndarray:
    """(M, K) loss after each application; infinite where it overflowed."""
    losses = record[f"{_name(damping)}/{learner}"]
    return np.where(np.isfinite(losses), losses, np.inf)


def _rise(damping: float) -> Statistic:
    """(M,) trained loss after the last application over the smallest on the way, at most 10^6."""

    def statistic(record: Record) -> np.ndarray:
        losses = _losses(record, damping, "trained")
        return np.minimum(losses[:, -1] / losses.min(axis=1), 1e6)

    return statistic


def diverges_at(record: Record, damping: float, learner: str) -> np.ndarray:
    """(M,) first application after which the loss exceeds that of predicting zero; one more than all if none does."""
    config = record.config
    zero = 0.5 * config["input_size"] * input_variance("uniform", config["input_range"])
    above = _losses(record, damping, learner) > zero
    return np.where(above.any(axis=1), above.argmax(axis=1) + 1, config["applications"] + 1)


def _later(damping: float) -> Statistic:
    """(M,) applications by which the trained layer diverges later than the GD step does on the same tasks."""
    return lambda record: diverges_at(record, damping, "trained") - diverges_at(record, damping, "gd")


claim = claims_of(
    "von_oswald.roll_out", "von Oswald et al. 2022, Fig. 1 right and 10", presets=("lab",), interval="median"
)

CLAIMS = (
    *(
        claim(
            f"up_{damping:g}_trained", "",
            f"At damping {damping:g} the loss of the trained layer turns up in 50 applications (last over smallest).",
            _rise(damping), 1.1, relation=">=", reason="a tenth is visible on the figure's axis", kind="identity",
        )
        for damping in (1.0, 0.875)
    ),
    *(
        claim(
            f"sooner_{1000 * damping:.0f}", "",
            f"At damping {damping:g} the trained layer diverges before GD (applications until the loss exceeds that of "
            "predicting zero, trained minus GD, same tasks).",
            _later(damping), -1, relation="<=", reason="sooner by at least one application",
            expected_verdict={"lab": "fails"},
        )
        for damping in (1.0, 0.875)
    ),
    claim(
        "falls", "", "At damping .75 the trained layer's loss falls for all 50 applications (last over smallest).",
        _rise(0.75), 1.0, 0.02, relation="<=", reason="2 % of .05 is far below the figure's line width",
    ),
    claim(
        "level", "", "At damping .75 the loss ends near .045.", lambda record: _losses(record, 0.75, "trained")[:, -1],
        0.045, 0.005, reason="read off the figure, whose axis runs from 0 to .27",
    ),
)  # fmt: skip

AXES = {
    "steps": ("step",),
    "training_loss": ("member", "step"),
    "*/exact": ("application",),
    "*": ("member", "application"),
}

EXPERIMENT = Experiment(
    "von_oswald.roll_out", __doc__, PRESETS, run, figures, CLAIMS, check_dampings,
    parts=lambda config: [f"{_name(damping)}/*" for damping in config["dampings"]],
    axes=AXES, learners=learners_of(models), quick=QUICK["roll_out"], finding=FINDINGS["roll_out"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
