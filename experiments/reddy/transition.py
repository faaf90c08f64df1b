"""The abrupt birth of an induction head (Reddy 2023, Figs. 1d, 3 and 4).

A network of two attention layers and a deep classifier learns to give an item the label that stood after an item of
its class. It is trained on two task distributions: trained classes alone (Fig. 1d), where in-context learning has to
win against the weights, and mostly classes never seen before (Figs. 3 and 4), which the context alone can tell. In
the paper the loss waits between log L and log(N/B) while the network learns to answer with some label of the context;
then, within a small part of that wait, accuracy jumps from B/N to 1, and so it does on swapped labels.

Progress measures, on sequences of new classes: CLA, how often the answer is a label of the context, and TLA2, the
target's attention to labels, rise in the slow phase; ILA1, the attention of labels to their items, and TILA2, the
target's attention to its item's label, jump together at the transition. Attention maps are means over such sequences
whose target is like one given item, half-way through a member's wait and at the end.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.reddy import training
from experiments.reddy.settings import SMALL, SMOKE, TRAINING, Schedule, bursts, by_part, member_laws
from experiments.reddy.statistics import onset_times
from experiments.reddy.training import Induction, evaluation_samples, induction_model, planned, progress
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.models.inspection import Trace
from icl_lab.prompts import ItemLabelLaw, Sample
from icl_lab.training.plans import Training

PARTS = ("novel", "trained")
"""What is trained on: mostly novel classes (Figs. 3, 4), trained classes alone (Fig. 1d)."""


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """The published settings; those of Schedule are those of Figs. 3 and 4."""

    trained_classes: int = setting(512, "K of the training without novel classes (Fig. 1d)", at_least=1)
    trained_burstiness: int = setting(2, "B of the training without novel classes", at_least=1)
    only: tuple[str, ...] = setting(PARTS, "parts to run: with novel classes, with trained ones alone", choices=PARTS)


PRESETS = {
    "smoke": Config(**SMOKE, trained_classes=12, trained_burstiness=1),
    "quick": Config(
        **SMALL | {"eval_tasks": 250, "learning_rate": 0.1, "measure_every": 50}, members=6, steps=2000,
        trained_burstiness=1, only=("novel",),
    ),
    # N/B = 4 classes in a context of trained classes, as in the published one
    "lab": Config(**SMALL, members=16, steps=5000, trained_burstiness=1),
    "paper": Config(),
}  # fmt: skip


STEPS, CURVE = quantity("steps", "step"), quantity("{part}/{metric}", "member", "step", part="only")
MAP = quantity("{part}/map/{when}", "member", "layer", "query", "key", part="only", when=("half", "end"))


def trainings(config: Config) -> Table:
    """The members of all parts in one program, those of the first part first."""
    model = induction_model(config)
    return {"training": After(lambda fits: plan(config, model), model.learner)}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Curves of every part; attention maps half-way through each member's wait, and at the end."""
    fit = fits["training"]
    yield STEPS, fit.steps
    for part, metrics in by_part(fit.metrics, chosen(config)).items():
        maps = metrics.pop("attention")
        half = 0.5 * onset_times(metrics["ic"], fit.steps, in_part(part, dataclasses.asdict(config)))
        before = np.searchsorted(fit.steps, np.where(np.isfinite(half), half, 0.0), side="right") - 1
        yield CURVE.at(part=part), metrics
        yield MAP.at(part=part), {"half": maps[np.arange(len(maps)), before], "end": maps[:, -1]}


def chosen(config: Config) -> list[str]:
    """The parts to run."""
    return [part for part in PARTS if part in config.only]


def in_part(part: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is in a part: with its B."""
    return {**config, "burstiness": config["trained_burstiness" if part == "trained" else "burstiness"]}


def matched_item(context_length: int) -> int:
    """Index of the context item whose class the target shares in the averaged maps: the one before the middle."""
    return (context_length - 1) // 2


def plan(config: Config, model: Induction) -> Training:
    """The training of ``config.members`` members of each part, which share dictionaries, starts and keys.

    Metrics are those of ``standard_observe``, and on sequences of new classes the progress measures and ``attention``
    (M, R, 2, T, T), the mean map of those whose target is like ``matched_item``.
    """
    parts = chosen(config)
    of_part: dict[str, dict[str, Any]] = {
        "classes": {"novel": config.classes, "trained": config.trained_classes},
        "burstiness": {"novel": config.burstiness, "trained": config.trained_burstiness},
        "novel_share": {"novel": config.novel_share, "trained": 0.0},
    }
    values = {name: [one[part] for part in parts] for name, one in of_part.items()}
    law = member_laws(config, len(parts), rows=max(of_part["classes"].values()), **values)
    observe_standard, item = training.standard_observe(config, model), matched_item(config.context_length)

    def attention(sample: Sample, logits: Array, trace: Trace) -> dict[str, Array]:
        like_item = sample.latent["match"][item].astype(logits.dtype)
        return {"attention": like_item * trace.attention[:, 0], "chosen": like_item}

    def observe(params: dict, key: Array, distribution: ItemLabelLaw) -> dict[str, Array]:
        samples = evaluation_samples(config, distribution, "ic", key)
        measures = progress(partial(model.run, params), samples, attention)
        measures["attention"] = measures["attention"] / jnp.maximum(measures.pop("chosen"), 1 / config.eval_tasks)
        return observe_standard(params, key, distribution) | measures

    return planned(config, model, law, observe=observe, one_by_one=True)


EXPERIMENT = Experiment(
    "reddy.transition", __doc__, PRESETS, measured, (STEPS, CURVE, MAP), trainings=trainings,
    constraints=(*TRAINING, multiple_of("trained_classes", "labels"), bursts("trained_burstiness")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
