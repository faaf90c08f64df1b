"""The reduced model: two scalars are enough for the sudden transition (Reddy 2023, Figs. 5, 6 and A.2).

Two layers of attention become three scalars: beta_1, with which layer 1 attends to the previous token, alpha, with
which layer 2 attends where the target's item was written, beta_2, with which it attends to labels; the classifier is
that of the network. Four parts:

- three: its progress measures over training. Attention to labels and the context-label accuracy go first, then
  attention to the previous token, attention to the right label and the in-context accuracy jump together.
- two: beta_2 = 0, no attention to labels that is not attention to the right one; the transition is there all the same.
- equal: as many labels as pairs, L = N. The first stage, to answer with some label of the context, teaches nothing:
  the start is a saddle, and whether and when it is left depends on the initial value of the scalars.
- more: the same with L > N, from scalars zero.

In the (beta_1, alpha) plane the trained path is compared with the gradient flow of the mean-field nested-logit loss
(``icl_lab.theory.mean_field_loss``), which has nothing to fit.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from jax import Array

from experiments.reddy.settings import BURSTS, SMALL, SMOKE, TRAINING, Schedule, bursts_fit, by_part, member_laws
from experiments.reddy.training import (
    Induction,
    accuracy,
    cross_entropy,
    evaluation_samples,
    planned,
    progress,
    reduced,
)
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import above, holds, multiple_of, once, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.prompts import NOVEL_CLASSES, ItemLabelLaw
from icl_lab.theory import nested_logit_flow
from icl_lab.training.plans import Training

PARTS = ("three", "two", "equal", "more")
SCALARS = ("beta_1", "alpha", "beta_2")


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """Fig. 5 at the published data; parts ``equal`` and ``more`` at N = 8."""

    steps: int = setting(50_000, "training steps of every part, a multiple of measure_every", at_least=1)
    only: tuple[str, ...] = setting(PARTS, "parts to run", choices=PARTS)
    starts: tuple[float, ...] = setting((0.0, 0.5, 1.0), "initial scalars of the part equal, rising")
    equal_length: int = setting(8, "N = L of the part equal, N of the part more", at_least=2)
    equal_size: int = setting(63, "D of the parts equal and more", at_least=1)
    equal_classes: int = setting(256, "K of the parts equal and more", at_least=1)
    more_labels: int = setting(32, "L of the part more, above N", at_least=3, at_most=NOVEL_CLASSES)
    equal_steps: int = setting(50_000, "steps of the parts equal and more, a multiple of measure_every", at_least=1)


_SMALL: dict[str, Any] = {
    "equal_length": SMALL["context_length"], "equal_size": SMALL["input_size"], "equal_classes": SMALL["classes"],
    "more_labels": SMALL["labels"], "learning_rate": SMALL["learning_rate"],
}  # fmt: skip

PRESETS = {
    "smoke": Config(
        **SMOKE, only=("three", "two", "equal"), starts=(0.0, 1.0), equal_length=2, equal_size=5, equal_classes=8,
        more_labels=4, equal_steps=4,
    ),
    "quick": Config(
        **(_SMALL | SMALL), members=6, steps=1600, only=("three",), starts=(0.0, 1.0),
    ),
    "lab": Config(**_SMALL, members=16, steps=8000, measure_every=100, eval_tasks=1000, equal_steps=4000),
    "paper": Config(),
}  # fmt: skip


MEASURED = ("three", "two")
"""The parts whose progress is measured, members of one training."""


def _run(*parts: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """Those of these parts that a configuration runs."""
    return lambda config: [part for part in parts if part in config["only"]]


STEPS, EQUAL_STEPS = quantity("steps", "step"), quantity("equal_steps", "small_step")
CURVE = quantity("{part}/{metric}", "member", "step", part=_run(*MEASURED))
FROM = {
    "equal": quantity("{part}/{metric}", "start", "member", "small_step", part=_run("equal")).at(part="equal"),
    "more": quantity("{part}/{metric}", "more_start", "member", "small_step", part=_run("more")).at(part="more"),
}
"""Curves of the parts that start from several scalars."""
THEORY_PATH = quantity("theory_{scalar}", "time", scalar=("beta_1", "alpha"))


def trainings(config: Config) -> Table:
    """The parts ``three`` and ``two`` in one program; ``equal``, from all its starts; ``more``."""
    table = {}
    for stage, one in stages(config).items():
        model = reduced(one)
        table[stage] = After(partial(plan, one, model, stage), model.learner)
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The path of the theory, and curves of every part."""
    _, path, _ = flow(config.context_length, config.labels)  # at the setting of the first parts
    yield THEORY_PATH, {"beta_1": path[:, 0], "alpha": path[:, 1]}
    for stage in stages(config):
        fit = fits[stage]
        if stage == "measures":
            yield CURVE, by_part(fit.metrics, measured_parts(config))
            yield STEPS, fit.steps
        else:
            shape = (-1, config.members, fit.steps.size)
            yield FROM[stage], {name: values.reshape(shape) for name, values in fit.metrics.items()}
    if small := [stage for stage in FROM if stage in config.only]:
        yield EQUAL_STEPS, fits[small[0]].steps


def measured_parts(config: Config) -> list[str]:
    """Those of the parts whose progress is measured that are run."""
    return [part for part in MEASURED if part in config.only]


def stages(config: Config) -> dict[str, Config]:
    """The setting of every training: of the parts ``three`` and ``two`` together, of ``equal``, of ``more``."""
    measures = {"measures": config} if measured_parts(config) else {}
    labels = {"equal": config.equal_length, "more": config.more_labels}
    return measures | {part: _smaller(config, count) for part, count in labels.items() if part in config.only}


def _smaller(config: Config, labels: int) -> Config:
    """The setting of the parts ``equal`` and ``more``."""
    return dataclasses.replace(
        config,
        context_length=config.equal_length,
        labels=labels,
        input_size=config.equal_size,
        classes=config.equal_classes,
        steps=config.equal_steps,
    )


def plan(config: Config, model: Induction, stage: str, fits: Fits) -> Training:
    """The training of a stage: all its models, or all its starts, in one program, one after the other.

    Metrics (points * M, R) are ``ic`` and ``ic_loss``, accuracy and loss on novel classes, and the scalars; of the
    stage ``measures`` the progress measures on novel classes, and the in-weights accuracy, too.
    """
    three = [float(part == "three") for part in measured_parts(config)]  # factor on beta_2, 0 in the model of two
    starts, label_attention = {
        "measures": ([0.0] * len(three), three),
        "equal": (config.starts, [1.0] * len(config.starts)),
        "more": ([0.0], [1.0]),
    }[stage]

    def starting(params: dict, setting: dict) -> dict:
        return {"params": dict(params["params"]) | dict.fromkeys(SCALARS, setting["start"])}

    def acting(params: dict, setting: dict) -> dict:
        weights = params["params"]
        return {"params": weights | {"beta_2": setting["label_attention"] * weights["beta_2"]}}

    def observe(params: dict, key: Array, distribution: ItemLabelLaw) -> dict[str, Array]:
        samples = evaluation_samples(config, distribution, "ic", key)
        logits = model.logits(params, samples.prompt)
        metrics = {"ic": accuracy(logits, samples), "ic_loss": cross_entropy(logits, samples).mean()}
        if stage == "measures":
            memorised = evaluation_samples(config, distribution, "iwl", key)
            metrics["iwl"] = accuracy(model.logits(params, memorised.prompt), memorised)
            metrics |= progress(partial(model.run, params), samples)
        return metrics | {name: params["params"][name] for name in SCALARS}

    each = {"start": starts, "label_attention": label_attention}
    law = member_laws(config, len(starts))
    return planned(config, model, law, each=each, starting=starting, acting=acting, observe=observe)


@cache
def flow(context_length: int, labels: int, form: str = "mean_field") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(400,) times, (400, 3) path and (400,) loss of the nested-logit flow from the origin."""
    times = np.geomspace(1.0, 3000.0, 400)
    solution = nested_logit_flow(np.zeros(3), times, context_length=context_length, labels=labels, form=form)
    return times, solution.path[0], solution.loss[0]


EXPERIMENT = Experiment(
    "reddy.reduced_model", __doc__, PRESETS, measured, (STEPS, EQUAL_STEPS, CURVE, *FROM.values(), THEORY_PATH),
    trainings=trainings,
    constraints=(
        *TRAINING,
        once("only"),
        rising("starts", fewest=2),
        above("more_labels", "equal_length"),
        multiple_of("equal_steps", "measure_every"),
        multiple_of("equal_classes", "equal_length"),
        multiple_of("equal_classes", "more_labels"),
        holds("at least 2N + 1", "slots", "equal_length", when=lambda c: c.slots > 2 * c.equal_length),
        holds(BURSTS, "burstiness", "equal_length",
              when=lambda c: bursts_fit(_smaller(c, c.equal_length), c.burstiness)),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
