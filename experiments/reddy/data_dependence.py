"""In-weights or in-context learning by the data alone (Reddy 2023, Figs. 2 and A.3).

No sequence has novel classes: every one can be solved by what the classifier has stored of the trained classes, or by
copying the label that follows the item of the target's class. Three sweeps, each for the network and for the reduced
induction-head model: the number of classes K with the burstiness B (2a), the within-class spread (2b), and the exponent
of the rank-frequency distribution of the classes (2c). More classes, more copies and more spread favour the in-context
solution; a steep distribution favours the weights; around an exponent of one, says the paper, both are learned.

In the third sweep the classes of a bursty sequence are drawn from this distribution, so two of them may share a label.
With different labels, as in the other two sweeps, a bursty sequence would ignore it (as it does in the released code).

In-context accuracy is the mean of the tests on novel classes and on swapped labels; the score drawn is its share of the
way from guessing one of the context's labels to 1. Guessing gives B/N, and more in the third sweep, where labels
repeat. In-weights accuracy is measured on independent draws of trained classes. A member has the same dictionaries,
start and keys at every point of every sweep.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from experiments.reddy import settings
from experiments.reddy.settings import BURSTS, SMALL, SMOKE, Schedule, bursts_fit, member_laws
from experiments.reddy.training import Induction, induction_model, planned, reduced
from icl_lab.lab import Experiment, constraints, main, setting
from icl_lab.lab.constraints import holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.training.plans import Training

MODELS = {"network": induction_model, "reduced": reduced}
SWEEPS = ("classes", "spread", "exponent")


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """Figs. 2 and A.3 as published."""

    novel_share: float = setting(0.0, "p_C, share of sequences of classes drawn afresh", at_least=0, at_most=1)
    models: tuple[str, ...] = setting(("network", "reduced"), "what is trained", choices=tuple(MODELS))
    only: str = setting("all", "the one part to run, <model>_classes, <model>_spread or <model>_exponent, or all")
    reduced_steps: int = setting(150_000, "training steps of the reduced model", at_least=1)
    class_grid: tuple[int, ...] = setting((128, 256, 512, 1024, 2048), "K of the first sweep", at_least=1)
    burstiness_grid: tuple[int, ...] = setting((0, 1, 2, 4), "B of the first sweep", at_least=0)
    spread_grid: tuple[float, ...] = setting(
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), "epsilon of the second sweep", at_least=0
    )
    spread_classes: int = setting(1024, "K of the second sweep", at_least=1)
    exponent_grid: tuple[float, ...] = setting(
        (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75), "alpha of the third sweep", at_least=0
    )
    exponent_classes: int = setting(1024, "K of the third sweep", at_least=1)
    exponent_steps: int = setting(150_000, "training steps of the third sweep, of both models", at_least=1)


_SMALL = SMALL | {
    "members": 6, "steps": 6000, "reduced_steps": 4000,
    "measure_every": 500, "class_grid": (64, 128, 256, 512),
    "burstiness_grid": (0, 1, 2), "spread_grid": (0.0, 0.3, 0.5, 0.7), "spread_classes": 256,
    "exponent_grid": (0.0, 0.5, 1.0, 1.5), "exponent_steps": 40_000,
}  # fmt: skip

PRESETS = {
    "smoke": Config(
        **SMOKE | {
            "models": ("reduced",), "reduced_steps": 4, "class_grid": (4, 8),
            "burstiness_grid": (0, 1), "spread_grid": (0.0, 0.5),
            "spread_classes": 8, "exponent_grid": (0.0, 1.0, 2.0), "exponent_classes": 8, "exponent_steps": 4,
        },
    ),
    "quick": Config(
        **_SMALL | {
            "only": "reduced_classes", "class_grid": (64, 256), "burstiness_grid": (1,), "reduced_steps": 600,
            "learning_rate": 0.1, "measure_every": 200, "eval_tasks": 500,
        },
    ),
    "lab": Config(**_SMALL),
    "paper": Config(),
}  # fmt: skip


def chosen(models: Sequence[str], only: str) -> list[tuple[str, str]]:
    """(model, sweep) of every part to run."""
    every = [(model, name) for model in models for name in SWEEPS]
    return [part for part in every if only in ("all", "_".join(part))]


def models_of(sweep: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """The models of which a configuration runs a sweep."""
    return lambda config: [model for model, name in chosen(config["models"], config["only"]) if name == sweep]


METRICS = ("ic", "ic2", "iwl", "loss")
STEPS = quantity(
    "{part}/steps", "{part}_step", part=lambda c: ["/".join(part) for part in chosen(c["models"], c["only"])]
)
CURVES = {
    sweep: quantity(
        f"{{model}}/{sweep}/{{metric}}", "member", *axes, f"{{model}}/{sweep}_step",
        metric=METRICS, model=models_of(sweep),
    )
    for sweep, axes in (("classes", ("classes", "burstiness")), ("spread", ("spread",)), ("exponent", ("exponent",)))
}  # fmt: skip
"""By sweep."""


def trainings(config: Config) -> Table:
    """Every program; its members are those of the first point, of the second, and so on."""
    table = {}
    for program in programs(config):
        one = program.setting(config)
        model = MODELS[program.model](one)
        table[program.stage] = After(partial(plan, one, program, model), model.learner)
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Curves (M, *points, R) of every sweep of every model."""
    for program in programs(config):
        fit, start = fits[program.stage], 0
        for name in program.sweeps:
            shape = sweep(config, name)["classes"].shape
            stop = start + math.prod(shape) * config.members
            yield STEPS.at(part=f"{program.model}/{name}"), fit.steps
            for metric in METRICS:
                curves = fit.metrics[metric][start:stop].reshape(*shape, config.members, -1)
                yield CURVES[name].at(model=program.model, metric=metric), np.moveaxis(curves, -2, 0)
            start = stop
    yield "facts", {"parts": ["_".join(part) for part in chosen(config.models, config.only)]}


def plan(config: Config, program: "Program", model: Induction, fits: Fits) -> Training:
    """The training of a model at all points of the sweeps of a program."""
    points = [sweep(config, name) for name in program.sweeps]
    values = {key: np.concatenate([one[key].ravel() for one in points]) for key in points[0]}
    classes = values["classes"]
    return planned(config, model, member_laws(config, classes.size, rows=int(classes.max()), **values))


def sweep(config: Config, name: str) -> dict[str, np.ndarray]:
    """What differs between task distributions, each array with the axes of a sweep: (classes, burstiness), or one."""
    values: dict[str, Any] = {"burstiness": config.burstiness, "spread": config.spread, "exponent": config.exponent}
    values |= {
        "classes": {"classes": np.array(config.class_grid)[:, None], "burstiness": config.burstiness_grid},
        "spread": {"classes": config.spread_classes, "spread": config.spread_grid},
        "exponent": {"classes": config.exponent_classes, "exponent": config.exponent_grid},
    }[name]
    return dict(zip(values, np.broadcast_arrays(*values.values())))


class Program(NamedTuple):
    """What trains in one program: a model at all points of the sweeps that draw bursty sequences alike."""

    model: str
    sweeps: list[str]

    @property
    def stage(self) -> str:
        """Its name."""
        return "_".join([self.model, *self.sweeps])

    @property
    def steps(self) -> str:
        """The flag that says for how long."""
        if self.sweeps == ["exponent"]:
            return "exponent_steps"
        return "steps" if self.model == "network" else "reduced_steps"

    def setting(self, config: Config) -> Config:
        """That of its training; in the third sweep two classes of a sequence may have the same label."""
        distinct = config.distinct_labels and self.sweeps != ["exponent"]
        return dataclasses.replace(config, steps=getattr(config, self.steps), distinct_labels=distinct)


def programs(config: Config) -> list[Program]:
    """Those of every part to run."""
    parts = chosen(config.models, config.only)
    every = [
        Program(model, [name for name in alike if (model, name) in parts])
        for model in config.models
        for alike in (("classes", "spread"), ("exponent",))
    ]
    return [program for program in every if program.sweeps]


def check(config: Config) -> None:
    """Raises FlagError where settings of what is run do not fit together."""
    parts = programs(config)
    sweeps = {name for program in parts for name in program.sweeps}
    bursty = [program.setting(config) for program in parts if program.sweeps != ["classes"]]
    classes = {"classes": "class_grid", "spread": "spread_classes", "exponent": "exponent_classes"}
    constraints.check(config, (
        *(multiple_of(program.steps, "measure_every") for program in parts),
        *(multiple_of(flag, "labels") for name, flag in classes.items() if name in sweeps),
        holds(BURSTS, "burstiness_grid", "context_length", "labels",
              when=lambda c: "classes" not in sweeps or all(bursts_fit(c, b) for b in c.burstiness_grid)),
        holds(BURSTS, "burstiness", "context_length", "labels",
              when=lambda c: all(bursts_fit(one, c.burstiness) for one in bursty)),
    ))  # fmt: skip


EXPERIMENT = Experiment(
    "reddy.data_dependence", __doc__, PRESETS, measured, (STEPS, *CURVES.values()), trainings=trainings, check=check,
    constraints=(
        once("models", "class_grid", "burstiness_grid", "spread_grid", "exponent_grid"),
        holds("all, or <model>_<sweep> of one of --models", "only", "models",
              when=lambda c: bool(chosen(c.models, c.only))),
        settings.SLOTS,
        settings.EXPONENT,
    ),
    unused=("classes",),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
