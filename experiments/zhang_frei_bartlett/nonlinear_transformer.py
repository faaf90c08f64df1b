"""The nonlinear transformer beside linear attention (Zhang, Frei & Bartlett 2023, Fig. 1; Garg et al. 2022).

GPT-2 on alternating tokens x_1, y_1, x_2, .. is trained on the loss of all prefixes of N examples, with identity
covariance or with diag(Exp(1)) drawn anew for each task, by Garg et al.'s curriculum. It is tested after M = 0, 1, ..
examples, also beyond N, on identity covariance and on c diag(Exp(1)), c = 1, 4, 9. Every number is the squared error of
the final query over that of predicting zero, which is 1 (c D before the division). Beside it: least squares on the same
prompts, exact from D examples on, and the exact risk of linear attention trained to its optimum at the same N on the
same task distribution. The paper divides by D alone; its axes end at 4 and 8 for c = 4 and 9, where the limit
M, N -> infinity of linear attention that it draws is 25.3 and 387.

The authors explain the rise of the error beyond N by position embeddings that were never trained. To test this, the
same training is done without position embeddings, from the same weights on the same prompts. Two controls: the *same*
trained network, its trained rows of position reused beyond N; and a network trained at random offsets, all of whose
rows are trained. Claims pool the training lengths: a member's statistic is its mean over N.
"""

import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import settings
from experiments.settings import check_each_once
from experiments.training import Model, learners_of
from experiments.zhang_frei_bartlett import prefixes
from experiments.zhang_frei_bartlett.findings import FINDINGS
from experiments.zhang_frei_bartlett.headlines import QUICK
from experiments.zhang_frei_bartlett.nonlinear_transformer_claims import CLAIMS
from experiments.zhang_frei_bartlett.nonlinear_transformer_figures import figures, tests_of
from icl_lab.lab import Experiment, FlagError, Session, from_json, main, setting
from icl_lab.models import GPT


@dataclasses.dataclass(frozen=True)
class Config(prefixes.Training):
    """Fig. 1 as published; the networks without position embeddings are this lab's."""

    lengths: tuple[int, ...] = setting((40, 70, 100), "N, labelled examples in a training prompt", at_least=1)
    only: str = setting("all", "the one training to run, <N>_with, <N>_without or <N>_offset, or all")
    layers: int = setting(12, "layers", at_least=1)
    positions: tuple[str, ...] = setting(prefixes.POSITIONS, "kinds of position embeddings", choices=prefixes.POSITIONS)
    heads: int = setting(8, "heads, a divisor of the width", at_least=1)
    width: int = setting(256, "width of the residual stream", at_least=1)
    scales: tuple[float, ...] = setting((1.0, 4.0, 9.0), "c of the test covariances c diag(Exp(1))", above=0)
    test_length: int = setting(200, "largest M; the position table has 2 M + 1 rows", at_least=1)
    covariances: int = setting(64, "test covariances of each member", at_least=1)
    prompts: int = setting(64, "test prompts of each covariance", at_least=1)
    resamples: int = setting(1000, "bootstrap resamples of the covariances", at_least=1)


_LAB = Config(
    members=5, input_size=5, lengths=(10, 20), layers=3, heads=4, width=64, steps=10_000, measure_every=500,
    eval_tasks=512, learning_rate=1e-3, warm_up=500, decay=True, start_dimension=1, start_points=7,
    curriculum_every=500, test_length=50, covariances=256, prompts=32,
)  # fmt: skip

PRESETS = {
    "smoke": dataclasses.replace(
        _LAB, members=2, input_size=2, lengths=(4,), layers=1, heads=2, width=8, batch=8, steps=20, measure_every=10,
        eval_tasks=16, warm_up=4, start_dimension=1, start_points=3, curriculum_every=4, test_length=9, covariances=4,
        prompts=4, resamples=20,
    ),
    "quick": dataclasses.replace(
        _LAB, members=2, input_size=1, lengths=(8,), layers=1, heads=2, width=16, steps=100, measure_every=50,
        eval_tasks=256, learning_rate=2e-3, warm_up=50, start_points=5, curriculum_every=25, test_length=20,
        covariances=16, prompts=16, positions=("with", "without"),
    ),
    "lab": _LAB,
    "paper": Config(),
}  # fmt: skip


def chosen(config: Config) -> dict[str, tuple[int, str, GPT]]:
    """N, positions and network of every training, by stage: ``<N>_with``, ``<N>_without`` or ``<N>_offset``."""
    rows = {"with": 2 * config.test_length + 1, "without": 0, "offset": 2 * config.test_length + 1}
    every = {
        f"{n}_{positions}": (n, positions, GPT(config.layers, config.heads, config.width, rows[positions]))
        for n in config.lengths
        for positions in rows
        if positions in config.positions
    }
    return {stage: one for stage, one in every.items() if config.only in ("all", stage)}


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage: members on identity covariance, then as many on random covariance."""
    return {stage: prefixes.model(network, n, config.input_size) for stage, (n, _, network) in chosen(config).items()}


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    settings.check(config)
    check_each_once("lengths", config.lengths)
    check_each_once("scales", config.scales)
    check_each_once("positions", config.positions)
    if "reused" in config.positions and "with" not in config.positions:
        raise FlagError("--positions: allowed is reused together with with, whose network it is")
    if config.width % config.heads:
        raise FlagError(f"--heads={config.heads}: allowed is a divisor of --width={config.width}")
    if config.test_length < 2 * max(config.lengths):
        raise FlagError(f"--test_length={config.test_length}: allowed is at least twice the longest of --lengths")
    if config.warm_up >= config.steps:
        raise FlagError(f"--warm_up={config.warm_up}: allowed is less than --steps={config.steps}")
    if not chosen(config):
        stages = ", ".join(chosen(dataclasses.replace(config, only="all")))
        raise FlagError(f"--only={config.only}: allowed is all, {stages}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains every network; tests it and least squares on every test distribution, at every M up to the longest.

    A member has one key: all its networks start from the same weights (but for the position table) and see the same
    draws, and all are tested on the same prompts.
    """
    tests = tests_of(config.scales)
    sizes = (config.test_length, config.input_size, config.covariances, config.prompts)

    def tested(predictor: prefixes.Predictor, params: Any) -> dict[str, dict[str, np.ndarray]]:
        scales = jnp.array(list(tests.values()))
        found = np.asarray(prefixes.tested(predictor, params, prefixes.own_keys(config, 900), scales, *sizes))
        relative = {name: errors / (tests[name] or 1.0) for name, errors in zip(tests, found)}
        return {
            "error": {name: errors.mean(axis=1) for name, errors in relative.items()},
            "interval": {name: prefixes.bootstrapped(errors, config.resamples) for name, errors in relative.items()},
        }

    arrays: dict[str, Any] = {covariance: {} for covariance in prefixes.COVARIANCES}
    arrays["least_squares"] = tested(prefixes.least_squares_errors, jnp.zeros(config.members))
    for stage, (length, positions, network) in chosen(config).items():
        predictor = partial(prefixes.errors, network)
        fitted = prefixes.train(
            session, stage, config, network, length, prefixes.own_keys(config), positions == "offset"
        )
        of_all = jax.device_get(fitted.params)
        for i, covariance in enumerate(prefixes.COVARIANCES):
            own = slice(i * config.members, (i + 1) * config.members)
            params = jax.tree.map(itemgetter(own), of_all)
            found = {"steps": fitted.steps, "loss": fitted.metrics["loss"][own]}
            arrays[covariance][stage] = found | tested(predictor, params)
            if positions == "with" and "reused" in config.positions:
                arrays[covariance][f"{length}_reused"] = tested(predictor, prefixes.reused(params, length))
    return {"tests": list(tests)}, arrays


AXES = {
    "*/steps": ("step",),
    "*/loss": ("member", "step"),
    "*/error/*": ("member", "examples"),
    "*/interval/*": ("member", "end", "examples"),
}


def parts(config: Mapping[str, Any]) -> list[str]:
    """Patterns of the arrays of what is trained and of the tests (``Experiment.parts``)."""
    given = from_json(Config, {"positions": ("with", "without")} | dict(config))  # records of before had these two
    stages, kinds = (f"*/{stage}/*" for stage in chosen(given)), (f"*_{kind}/*" for kind in given.positions)
    return [*stages, *kinds, *(f"*/exp_{scale:g}" for scale in config["scales"])]


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.nonlinear_transformer", __doc__, PRESETS, run, figures, CLAIMS, check, parts, axes=AXES,
    learners=learners_of(models),
    quick=QUICK["nonlinear_transformer"], effort={"quick": "little"},
    finding=FINDINGS["nonlinear_transformer"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
