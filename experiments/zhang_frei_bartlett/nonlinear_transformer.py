"""The nonlinear transformer beside linear attention (Zhang, Frei & Bartlett 2023, Fig. 1; Garg et al. 2022).

GPT-2 on alternating tokens x_1, y_1, x_2, .. is trained on the loss of all prefixes of N examples, with identity
covariance or with diag(Exp(1)) drawn anew for each task, by Garg et al.'s curriculum, and tested on M = 0, 1, ..
examples beyond N: on identity covariance and on c diag(Exp(1)), c = 1, 4, 9. Every number is the squared error of the
final query over that of predicting zero, which is 1 (c D before the division). Beside it: least squares on the same
prompts, exact from D examples on, and the exact risk of linear attention trained to its optimum at the same N on the
same law. The paper divides by D alone; its axes end at 4 and 8 for c = 4 and 9, where the limit M, N -> infinity of
linear attention that it draws is 25.3 and 387.

The authors lay the rise of the error beyond N to position embeddings that were never trained. The test of that cause:
the same training, from the same weights on the same prompts, without position embeddings.
"""

import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.settings import check as check_schedule
from experiments.settings import check_each_once, member_keys
from experiments.zhang_frei_bartlett.nonlinear_claims import CLAIMS
from experiments.zhang_frei_bartlett.nonlinear_figures import figures
from experiments.zhang_frei_bartlett.prefixes import (
    LAWS,
    POSITIONS,
    Predictor,
    Training,
    bootstrapped,
    errors,
    least_squares_errors,
    tested,
    train,
)
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, from_json, setting
from icl_lab.lab.session import Session
from icl_lab.models import GPT


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Fig. 1 as published; the networks without position embeddings are this lab's."""

    lengths: tuple[int, ...] = setting((40, 70, 100), "N, labelled examples in a training prompt", at_least=1)
    only: str = setting("all", "the one training to run, <N>_with or <N>_without position embeddings, or all")
    layers: int = setting(12, "layers", at_least=1)
    heads: int = setting(8, "heads, a divisor of the width", at_least=1)
    width: int = setting(256, "width of the residual stream", at_least=1)
    scales: tuple[float, ...] = setting((1.0, 4.0, 9.0), "c of the test covariances c diag(Exp(1))", above=0)
    test_length: int = setting(200, "largest M; the position table has 2 M + 1 rows", at_least=1)
    covariances: int = setting(64, "test covariances of each member", at_least=1)
    prompts: int = setting(64, "test prompts of each covariance", at_least=1)
    resamples: int = setting(1000, "bootstrap resamples of the covariances", at_least=1)


_LAB = Config(
    input_size=5, lengths=(10, 20), layers=3, heads=4, width=64, steps=10_000, measure_every=500, eval_tasks=512,
    learning_rate=1e-3, warm_up=500, decay=True, start_dimension=1, start_points=7, curriculum_every=500,
    test_length=50, covariances=256, prompts=32,
)  # fmt: skip

PRESETS = {
    "smoke": dataclasses.replace(
        _LAB, members=2, input_size=2, lengths=(4,), layers=1, heads=2, width=8, batch=8, steps=20, measure_every=10,
        eval_tasks=16, warm_up=4, start_dimension=1, start_points=3, curriculum_every=4, test_length=9, covariances=4,
        prompts=4, resamples=20,
    ),
    "quick": dataclasses.replace(
        _LAB, members=2, input_size=1, lengths=(8,), layers=2, heads=2, width=32, steps=800, measure_every=50,
        eval_tasks=256, learning_rate=2e-3, warm_up=100, start_points=5, curriculum_every=100, test_length=20,
        covariances=64, prompts=16,
    ),
    "lab": _LAB,
    "paper": Config(),
}  # fmt: skip


def chosen(config: Config) -> list[tuple[int, str]]:
    """(N, with or without) of every training to run."""
    every = [(n, positions) for n in config.lengths for positions in POSITIONS]
    return [one for one in every if config.only in ("all", "{}_{}".format(*one))]


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_schedule(config)
    check_each_once("lengths", config.lengths)
    check_each_once("scales", config.scales)
    if config.width % config.heads:
        raise FlagError(f"--heads={config.heads}: allowed is a divisor of --width={config.width}")
    if config.test_length < 2 * max(config.lengths):
        raise FlagError(f"--test_length={config.test_length}: allowed is at least twice the longest of --lengths")
    if config.warm_up >= config.steps:
        raise FlagError(f"--warm_up={config.warm_up}: allowed is less than --steps={config.steps}")
    if not chosen(config):
        names = ["{}_{}".format(*one) for one in chosen(dataclasses.replace(config, only="all"))]
        raise FlagError(f"--only={config.only}: allowed is all, {', '.join(names)}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains every network and tests it and least squares on every test law, at every M up to the longest.

    A member has one key: all its networks start from the same weights (but for the position table) and see the same
    draws, and all are tested on the same prompts.
    """
    tests = {"identity": 0.0} | {f"exp_{c:g}": c for c in config.scales}
    sizes = (config.test_length, config.input_size, config.covariances, config.prompts)
    arrays: dict[str, np.ndarray] = {}

    def test(name: str, predictor: Predictor, params: Any) -> None:
        scales = jnp.array(list(tests.values()))
        found = np.asarray(tested(predictor, params, member_keys(config, 900), scales, *sizes))
        for law, of_law in zip(tests, found):
            relative = of_law / (tests[law] or 1.0)
            arrays[f"error_{name}_{law}"] = relative.mean(axis=1)
            arrays[f"interval_{name}_{law}"] = bootstrapped(relative, config.resamples)

    test("least_squares", least_squares_errors, jnp.zeros(config.members))
    for length, positions in chosen(config):
        rows = 2 * config.test_length + 1 if positions == "with" else 0
        network = GPT(config.layers, config.heads, config.width, rows)
        stage, predictor = f"{length}_{positions}", partial(errors, network)
        fitted = train(session, stage, config, network, length, member_keys(config))
        for i, law in enumerate(LAWS):
            name, of_law = f"{law}_{stage}", partial(_of_law, config, i)
            arrays |= {f"steps_{name}": fitted.steps, f"loss_{name}": of_law(fitted.metrics["loss"])}
            test(name, predictor, jax.tree.map(of_law, fitted.params))
    return {"tests": list(tests)}, arrays


def _of_law(config: Config, law: int, leaf: Any) -> Any:
    """The members that were trained on one law."""
    return leaf[law * config.members : (law + 1) * config.members]


AXES = {
    "steps_*": ("step",),
    "loss_*": ("member", "step"),
    "error_*": ("member", "examples"),
    "interval_*": ("member", "end", "examples"),
}


def parts(config: Mapping[str, Any]) -> list[str]:
    """Patterns of the arrays of what is trained and of the tests (``Experiment.parts``)."""
    trained = [f"*_{n}_{positions}_*" for n, positions in chosen(from_json(Config, config))]
    return trained + [f"*_exp_{scale:g}" for scale in config["scales"]]


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.nonlinear_transformer", __doc__, PRESETS, run, figures, CLAIMS, check, parts,
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
