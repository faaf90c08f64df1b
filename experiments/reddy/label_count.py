"""More labels than pairs are needed for in-context learning (Reddy 2023, Fig. A.5).

At the start of training a network can do better than chance before it looks for the target's item: by answering with
some label of the context, which lowers the loss from log L to log N. Where L = N there is nothing to gain by that, and
the circuit has to appear at once. Networks are trained at several N and, for each, at several L from N on. The paper:
with L > N all of them learn in context; with L = N = 8 none does, with L = N = 4 or 2 it depends on the start, and the
transition comes late. The gain is log(L/N), 0.12 at L = 9 and N = 8: how small may it be?

Every label has equally many classes: each L takes its multiple nearest to K, and novel sequences draw from the largest
multiple of L among 128 fresh classes of a batch.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.reddy.settings import BURSTS, EXPONENT, SMALL, SMOKE, Schedule, bursts_fit, member_laws
from experiments.reddy.training import induction_model, planned
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.prompts import NOVEL_CLASSES


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """Fig. A.5 as published; ``lengths``, ``label_counts`` and ``label_steps`` have one value for each network."""

    classes: int = setting(256, "K; every L takes its multiple nearest to K", at_least=1)
    lengths: tuple[int, ...] = setting((2,) * 5 + (4,) * 4 + (8,) * 3, "N of every network", at_least=1)
    label_counts: tuple[int, ...] = setting(
        (2, 4, 8, 16, 32, 4, 8, 16, 32, 8, 16, 32), "L of every network, at least N", at_least=2, at_most=NOVEL_CLASSES
    )
    label_steps: tuple[int, ...] = setting(
        (150_000,) * 12, "training steps of every network, multiples of measure_every", at_least=1
    )
    only: str = setting("all", "the one N to run, or all")


PRESETS = {
    "smoke": Config(**SMOKE | {"lengths": (2,), "label_counts": (2,), "label_steps": (4,)}),
    "quick": Config(
        **SMALL | {
            "members": 6, "measure_every": 100, "learning_rate": 0.2, "eval_tasks": 250,
            "lengths": (4, 4), "label_counts": (4, 16), "label_steps": (1200, 1200),
        },
    ),
    "lab": Config(
        **SMALL | {
            "measure_every": 200, "learning_rate": 0.1,
            "lengths": (2,) * 5 + (4,) * 5 + (8,) * 6,
            "label_counts": (2, 3, 4, 8, 32, 4, 5, 6, 8, 32, 8, 9, 10, 12, 16, 32),
            "label_steps": (6000,) * 5 + (20_000,) * 3 + (6000,) * 2 + (20_000,) * 4 + (6000,) * 2,
        },
    ),
    "paper": Config(),
}  # fmt: skip


def settings_of(config: Config) -> list[Config]:
    """One setting for each network to run."""
    return [
        dataclasses.replace(
            config,
            context_length=n,
            labels=labels,
            steps=steps,
            classes=max(1, round(config.classes / labels)) * labels,
        )
        for n, labels, steps in zip(config.lengths, config.label_counts, config.label_steps)
        if config.only in ("all", str(n))
    ]


def chosen(config: Mapping[str, Any]) -> list[tuple[int, int]]:
    """N and L of every network to run, by a configuration's plain mapping."""
    pairs = zip(config["lengths"], config["label_counts"])
    return [(n, labels) for n, labels in pairs if config["only"] in ("all", str(n))]


NETWORK: dict[str, Any] = {
    "n": lambda config: [n for n, _ in chosen(config)],
    "labels": lambda config: [labels for _, labels in chosen(config)],
}
STEPS = quantity("N_{n}/L_{labels}/steps", "N_{n}/L_{labels}_step", **NETWORK)
CURVE = quantity(
    "N_{n}/L_{labels}/{metric}", "member", "N_{n}/L_{labels}_step", **NETWORK, metric=("ic", "ic_loss", "loss")
)


def trainings(config: Config) -> Table:
    """A network for each N and L."""
    return {_stage(one): _training(one) for one in settings_of(config)}


def _stage(one: Config) -> str:
    return f"{one.context_length}_{one.labels}"


def _training(one: Config) -> After:
    model = induction_model(one)
    return After(lambda fits: planned(one, model, member_laws(one)), model.learner)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Losses and in-context accuracy at every N and L."""
    for one in settings_of(config):
        fit, place = fits[_stage(one)], {"n": one.context_length, "labels": one.labels}
        yield STEPS.at(**place), fit.steps
        yield CURVE.at(**place), {name: fit.metrics[name] for name in ("ic", "ic_loss", "loss")}


EXPERIMENT = Experiment(
    "reddy.label_count", __doc__, PRESETS, measured, (STEPS, CURVE), trainings=trainings,
    constraints=(
        EXPONENT,
        as_long_as("lengths", "label_counts", "label_steps"),
        holds("each pair of the two once", "lengths", "label_counts",
              when=lambda c: len(set(zip(c.lengths, c.label_counts))) == len(c.lengths)),
        holds("at least the N of each network", "label_counts", "lengths",
              when=lambda c: all(labels >= n for n, labels in zip(c.lengths, c.label_counts))),
        holds("all, or one of --lengths", "only", "lengths", when=lambda c: c.only in ("all", *map(str, c.lengths))),
        holds("multiples of --measure_every", "label_steps", "measure_every",
              when=lambda c: not any(one.steps % c.measure_every for one in settings_of(c))),
        holds("at least 2N + 1 of every network", "slots", "lengths",
              when=lambda c: all(c.slots > 2 * one.context_length for one in settings_of(c))),
        holds(BURSTS, "burstiness", "lengths", "label_counts",
              when=lambda c: all(bursts_fit(one, c.burstiness) for one in settings_of(c))),
    ),
    unused=("context_length", "labels", "steps"),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
