"""Train at one prompt length, test at another (Zhang, Frei & Bartlett 2023, Theorem 4.2 and its corollary).

One layer of linear self-attention is trained at several lengths N, on inputs of identity covariance and of the given
spectrum, and tested at lengths M: the risk is floor + c/M, the floor falls as 1/N^2 for long training prompts,
and at each M no training length is better than N = M. Its risk comes from its weights by exact moments of all blocks;
for one N, on the spectrum, it is also sampled, on clean and on noisy labels and on the nonlinear labels
x_1^2 + x_2/2 + sin x_3, whose best linear predictor it approaches.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.zhang_frei_bartlett.common import Setting, planned, predictions
from icl_lab.constructions import linear_attention_blocks
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner, Sampler, gaussian_regression
from icl_lab.theory import best_linear_predictor, block_loss, gaussian_labels, joint_risk, optimum, risk


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Training and test lengths; the paper has no experiment with the layer of its theorems."""

    eval_tasks: int = setting(100_000, "prompts of each sampled risk of a member", at_least=1)
    context_length: int = setting(20, "N of the layer whose risk is sampled, one of train_lengths", at_least=1)
    train_lengths: tuple[int, ...] = setting((5, 10, 20, 40, 80), "training lengths N", at_least=1)
    test_lengths: tuple[int, ...] = setting((5, 10, 20, 40, 80, 160, 320), "test lengths M", at_least=1)
    label_noise: float = setting(2.0, "standard deviation of the noise on context labels, tests only", above=0)


PRESETS = {
    "smoke": Config(
        members=2, spectrum=(1.0, 0.5, 0.5), batch=16, steps=20, measure_every=20, eval_tasks=64, context_length=3,
        train_lengths=(3, 6), test_lengths=(3, 6),
    ),
    "quick": Config(
        members=6, batch=128, steps=1000, measure_every=500, eval_tasks=10_000, context_length=10,
        train_lengths=(5, 10, 20), test_lengths=(5, 10, 20, 80),
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    rising("train_lengths", "test_lengths", fewest=2),
    holds(
        "one of --train_lengths", "context_length", "train_lengths",
        when=lambda c: c.context_length in c.train_lengths,
    ),
    holds("three values or more, which the nonlinear labels need", "spectrum", when=lambda c: len(c.spectrum) >= 3),
)  # fmt: skip

COVARIANCES = ("identity", "spectrum")
RISK = quantity("{covariance}/risk", "member", "train_length", "test_length", covariance=COVARIANCES)
FLOOR = quantity("{covariance}/floor", "member", "train_length", covariance=COVARIANCES)
CLOSED = quantity("{covariance}/closed", "train_length", "test_length", covariance=COVARIANCES)
CLOSED_FLOOR = quantity("{covariance}/closed_floor", "train_length", covariance=COVARIANCES)
SAMPLED = quantity(
    "sampled/{labels}", "member", "test_length", labels=("clean", "noisy", "nonlinear", "nonlinear_best")
)
PREDICTED = quantity("predicted/{labels}", "test_length", labels=("clean", "noisy", "nonlinear"))


def trainings(config: Config) -> Table:
    """The same layer on both covariances and at every length."""
    return {
        _stage(name, n): planned(
            dataclasses.replace(config, context_length=n, spectrum=_spectrum(config, name)),
            member_keys(config, 100 * i + j),
            measured=False,
        )
        for i, name in enumerate(COVARIANCES)
        for j, n in enumerate(config.train_lengths)
    }


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Exact risks of all layers, sampled risks of one."""
    every = (*config.test_lengths, math.inf)
    for name in COVARIANCES:
        lam, lengths = np.diag(_spectrum(config, name)), config.train_lengths
        exact = np.stack([_exact_risks(fits[_stage(name, n)].params, lam, every) for n in lengths], axis=1)
        closed = np.array([[risk(optimum(lam, n), test_length=m, covariance=lam) for m in every] for n in lengths])
        yield RISK.at(covariance=name), exact[:, :, :-1]
        yield FLOOR.at(covariance=name), exact[:, :, -1]
        yield CLOSED.at(covariance=name), closed[:, :-1]
        yield CLOSED_FLOOR.at(covariance=name), closed[:, -1]
    yield SAMPLED, _sampled_risks(config, fits[_stage("spectrum", config.context_length)].params)
    yield PREDICTED, _predicted_risks(config)
    yield "facts", _best_linear(config)


def _stage(covariance: str, length: int) -> str:
    return f"{covariance}_{length}"


def _spectrum(config: Config, covariance: str) -> tuple[float, ...]:
    return config.spectrum if covariance == "spectrum" else (1.0,) * len(config.spectrum)


def curved(x: Any, sine: Callable = np.sin) -> Any:
    """Nonlinear labels of the first three inputs, (..., D) -> (...)."""
    return x[..., 0] ** 2 + 0.5 * x[..., 1] + sine(x[..., 2])


def _exact_risks(params: dict, lam: np.ndarray, lengths: tuple[float, ...]) -> np.ndarray:
    """(members, lengths) risk of trained layers at each test length: exact moments of all their blocks."""
    blocks = {name: np.asarray(value, np.float64) for name, value in linear_attention_blocks(params).items()}
    members = [{name: value[m] for name, value in blocks.items()} for m in range(len(blocks["u"]))]
    return np.array([[2 * block_loss(**b, covariance=lam, context_length=m) for m in lengths] for b in members])


def _best_linear(config: Config) -> dict[str, Any]:
    predictor, least = best_linear_predictor(gaussian_labels(curved, np.diag(config.spectrum), 3))
    return {"best_linear_predictor": predictor.tolist(), "best_linear_risk": least}


def _sampled_risks(config: Config, params: dict) -> dict[str, np.ndarray]:
    """(members, lengths) mean squared errors on fresh tasks; ``nonlinear_best``: of the best linear predictor."""
    lam = np.diag(config.spectrum)
    best = jnp.asarray(_best_linear(config)["best_linear_predictor"], jnp.float32)
    names, by_length = ("clean", "noisy", "nonlinear", "nonlinear_best"), []
    keys, noises = member_keys(config, 900), jnp.array([0.0, config.label_noise])

    def learners(p: dict) -> dict[str, BatchLearner]:
        return {"trained": partial(predictions, p), "best": lambda prompts: (prompts.x_query @ best)[:, None]}

    def linear(length: int) -> Callable[[Any], Sampler]:
        return lambda noise: gaussian_regression(context_length=length, covariance=lam, label_noise=noise)

    for length in config.test_lengths:
        clean, noisy = paired_losses(learners, linear(length), params, keys, config.eval_tasks, noises)["trained"].T
        labels = partial(curved, sine=jnp.sin)
        nonlinear = always(gaussian_regression(context_length=length, covariance=lam, labels=labels))
        both = paired_losses(learners, nonlinear, params, keys, config.eval_tasks)
        by_length.append((clean, noisy, both["trained"], both["best"]))
    return dict(zip(names, 2 * np.stack(by_length, axis=-1)))


def _predicted_risks(config: Config) -> dict[str, np.ndarray]:
    """(lengths,) risks of the theorem's layer on clean, noisy and nonlinear labels."""
    lam = np.diag(config.spectrum)
    a, nonlinear = optimum(lam, config.context_length), gaussian_labels(curved, lam, 3)
    linear = partial(risk, a, covariance=lam)
    return {
        "clean": np.array([linear(test_length=m) for m in config.test_lengths]),
        "noisy": np.array([linear(test_length=m, label_noise=config.label_noise) for m in config.test_lengths]),
        "nonlinear": np.array([joint_risk(a, nonlinear, m) for m in config.test_lengths]),
    }


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.risk", __doc__, PRESETS, measured,
    (RISK, FLOOR, CLOSED, CLOSED_FLOOR, SAMPLED, PREDICTED), trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
