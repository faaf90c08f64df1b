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
from collections.abc import Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.zhang_frei_bartlett import prefixes
from icl_lab.lab import Experiment, FlagError, from_json, main, setting
from icl_lab.lab.constraints import below, holds, multiple_of, once
from icl_lab.lab.quantities import Quantity, quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import GPT


@dataclasses.dataclass(frozen=True)
class Config(prefixes.Schedule):
    """Fig. 1 as published; the networks without position embeddings are this lab's."""

    lengths: tuple[int, ...] = setting((40, 70, 100), "N, labelled examples in a training prompt", at_least=1)
    only: str = setting("all", "the one training to run, <N>_with, <N>_without or <N>_offset, or all")
    layers: int = setting(12, "layers", at_least=1)
    positions: tuple[str, ...] = setting(prefixes.POSITIONS, "kinds of position embeddings", choices=prefixes.POSITIONS)
    heads: int = setting(8, "heads, a divisor of the width", at_least=1)
    width: int = setting(256, "width of the residual stream", at_least=1)
    spread: float = setting(0.02, "standard deviation of the initial weights", above=0)
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
    network = GPT(config.layers, config.heads, config.width, spread=config.spread)
    every = {
        f"{n}_{positions}": (n, positions, dataclasses.replace(network, positions=rows[positions]))
        for n in config.lengths
        for positions in rows
        if positions in config.positions
    }
    return {stage: one for stage, one in every.items() if config.only in ("all", stage)}


def tested(config: Mapping[str, Any]) -> list[tuple[int, str]]:
    """N and positions of all networks that are tested, of a configuration as plain values."""
    given = from_json(Config, config)
    trained = [(n, positions) for n, positions, _ in chosen(given).values()]
    return trained + [(n, "reused") for n, positions in trained if positions == "with" and "reused" in given.positions]


NETWORK: dict[str, Any] = {
    "covariance": prefixes.COVARIANCES,
    "length": lambda config: dict.fromkeys(n for n, _ in tested(config)),
    "positions": lambda config: dict.fromkeys(positions for _, positions in tested(config)),
}
TRAINED = NETWORK | {"positions": lambda config: [one for one in NETWORK["positions"](config) if one != "reused"]}
TEST: dict[str, Any] = {"test": lambda config: prefixes.tests_of(config["scales"])}
STEPS = quantity("{covariance}/{length}_{positions}/steps", "step", **TRAINED)
LOSS = quantity("{covariance}/{length}_{positions}/loss", "member", "step", **TRAINED)
ERROR = quantity("{covariance}/{length}_{positions}/error/{test}", "member", "examples", **NETWORK, **TEST)
INTERVAL = quantity("{covariance}/{length}_{positions}/interval/{test}", "member", "end", "examples", **NETWORK, **TEST)
LEAST_SQUARES = (
    quantity("least_squares/error/{test}", "member", "examples", **TEST),
    quantity("least_squares/interval/{test}", "member", "end", "examples", **TEST),
)


def trainings(config: Config) -> Table:
    """Every network, on identity covariance and, with as many members more, on random covariance."""
    return {
        stage: prefixes.planned(config, network, length, offsets=positions == "offset")
        for stage, (length, positions, network) in chosen(config).items()
    }


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Every network and least squares on every test distribution, at every M up to the longest.

    A member has one key: all its networks start from the same weights (but for the position table) and see the same
    draws, and all are tested on the same prompts.
    """
    tests = prefixes.tests_of(config.scales)
    sizes = (config.test_length, config.input_size, config.covariances, config.prompts)

    def on_tests(error: Quantity, interval: Quantity, predictor: prefixes.Predictor, params: Any) -> Iterator[Yield]:
        scales = jnp.array(list(tests.values()))
        raw_errors = np.asarray(prefixes.tested(predictor, params, prefixes.own_keys(config, 900), scales, *sizes))
        relative = {name: errors / (tests[name] or 1.0) for name, errors in zip(tests, raw_errors)}
        yield error, {name: errors.mean(axis=1) for name, errors in relative.items()}
        yield interval, {name: prefixes.bootstrapped(errors, config.resamples) for name, errors in relative.items()}

    yield from on_tests(*LEAST_SQUARES, prefixes.least_squares_errors, jnp.zeros(config.members))
    for stage, (length, positions, network) in chosen(config).items():
        predictor, fit = partial(prefixes.errors, network), fits[stage]
        all_params = jax.device_get(fit.params)
        for i, covariance in enumerate(prefixes.COVARIANCES):
            members = slice(i * config.members, (i + 1) * config.members)
            params, one = jax.tree.map(itemgetter(members), all_params), {"covariance": covariance, "length": length}
            yield STEPS.at(**one, positions=positions), fit.steps
            yield LOSS.at(**one, positions=positions), fit.metrics["loss"][members]
            kinds = {positions: params}
            if positions == "with" and "reused" in config.positions:
                kinds["reused"] = prefixes.reused(params, length)
            for kind, weights in kinds.items():
                bound = one | {"positions": kind}
                yield from on_tests(ERROR.at(**bound), INTERVAL.at(**bound), predictor, weights)
    yield "facts", {"tests": list(tests)}


CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    once("lengths", "scales", "positions"),
    holds(
        "reused together with with, whose network it is", "positions",
        when=lambda c: "reused" not in c.positions or "with" in c.positions,
    ),
    holds("a divisor of --width", "heads", "width", when=lambda c: c.width % c.heads == 0),
    holds(
        "at least twice the longest of --lengths", "test_length", "lengths",
        when=lambda c: c.test_length >= 2 * max(c.lengths),
    ),
    below("warm_up", "steps"),
)  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    if not chosen(config):
        stages = ", ".join(chosen(dataclasses.replace(config, only="all")))
        raise FlagError(f"--only={config.only}: allowed is all, {stages}")


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.nonlinear_transformer", __doc__, PRESETS, measured,
    (STEPS, LOSS, ERROR, INTERVAL, *LEAST_SQUARES), trainings=trainings, constraints=CONSTRAINTS, check=check,
    effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
