"""Does an automatic curriculum bring the transition earlier, at equal samples? (The outlook of Reddy 2023.)

Each curriculum starts at an end of one of three scales: short contexts, few labels in use, or novel classes alone,
which only a context can answer; it moves on, one level after the other up to the whole task, when the member's own
training accuracy passes a threshold. Everything else is as in its control, which has the same key: the start, the
batch, the number of sequences. The onset is the step at which the accuracy on novel classes, at the full N and L, is
half way from guessing one of the context's labels to 1. Short contexts have fewer tokens: equal samples, not equal
work.

The outlook expects all three to bring the onset earlier. Theory (``landscape``) says so of short contexts: the wait
grows as N^(3/2). Of few labels it says the opposite, as does Fig. A.5 (``label_count``): the wait grows as N/L goes to
1, since with few labels there is little to gain by answering with some label of the context, and at L = N nothing.
Fewer labels are a task that is easier to guess, not one whose circuit is easier to find. Of the share of novel classes
it says nothing.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.reddy.settings import SMALL, SMOKE, TRAINING, Schedule, by_part, member_laws, repeated
from experiments.reddy.training import (
    Induction,
    accuracy,
    cross_entropy,
    evaluation_samples,
    induction_model,
    sampler,
    sampler_of,
    sgd,
)
from experiments.settings import member_keys
from icl_lab.lab import Experiment, arguments, main, setting
from icl_lab.lab.constraints import Constraint, as_long_as, at_most, holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.prompts import BatchLearner, ItemLabelLaw, burstiness_values
from icl_lab.training.fitting import Tree
from icl_lab.training.plans import Training

CURRICULA = {
    "control": "no curriculum",
    "length": "context length N",
    "labels": "labels in use",
    "novel": "novel share",
}
"""What each begins with less of, and its name in figures."""

LENGTH, LABELS, NOVEL = (list(CURRICULA).index(name) for name in ("length", "labels", "novel"))


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """The published setting of Fig. 3, each curriculum as many members."""

    lengths: tuple[int, ...] = setting((1, 2, 4, 8), "N, level by level, up to the setting's own", at_least=1)
    label_counts: tuple[int, ...] = setting((16, 24, 32, 32), "labels in use, level by level", at_least=2)
    novel_shares: tuple[float, ...] = setting(
        (1.0, 0.9, 0.8, 0.8), "share of novel classes, level by level", at_least=0, at_most=1
    )
    passed: float = setting(0.8, "training accuracy at which the next level begins", above=0, at_most=1)
    memory: int = setting(50, "steps over which the training accuracy is averaged (exponentially)", at_least=1)


PRESETS = {
    "smoke": Config(**SMOKE, lengths=(1, 2), label_counts=(3, 4), novel_shares=(1.0, 0.8), passed=0.01, memory=1),
    "quick": Config(
        **SMALL, members=2, steps=200, lengths=(2, 4), label_counts=(8, 16), novel_shares=(1.0, 0.8),
    ),
    "lab": Config(
        **SMALL, members=16, steps=3500, lengths=(1, 2, 4), label_counts=(8, 12, 16), novel_shares=(1.0, 0.9, 0.8),
    ),
    "paper": Config(),
}  # fmt: skip


STEPS = quantity("steps", "step")
CURVE = quantity("{curriculum}/{metric}", "member", "step", curriculum=tuple(CURRICULA))


def trainings(config: Config) -> Table:
    """The members of the control and of the curricula in one program, those of the control first."""
    model = induction_model(config)
    return {"training": After(lambda fits: plan(config, model), partial(learner, model))}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Accuracy on novel classes, level and training loss of every curriculum."""
    fit = fits["training"]
    yield STEPS, fit.steps
    yield CURVE, by_part({metric: fit.metrics[metric] for metric in ("ic", "level", "train_loss")}, CURRICULA)


def learner(model: Induction, state: Tree) -> BatchLearner:
    """What the state of a training predicts; it holds the parameters as ``weights``."""
    return model.learner(state["weights"])


def plan(config: Config, model: Induction) -> Training:
    """The training of all curricula, paired by member."""
    keys = repeated(member_keys(config), len(CURRICULA))
    settings = {
        "config": arguments(config, keys.size),
        "law": member_laws(config, len(CURRICULA)),
        "kind": jnp.repeat(jnp.arange(len(CURRICULA)), config.members),
    }

    def measure(state: Tree, key: Array, setting: Tree) -> dict[str, Array]:
        samples = evaluation_samples(config, setting["law"], "ic", key)
        return {"ic": accuracy(model.logits(state["weights"], samples.prompt), samples), "level": state["level"]}

    return Training(
        lambda key, _: {"weights": model.init(key)} | dict.fromkeys(("level", "accuracy", "probe"), jnp.float32(0)),
        loss_of(config, model),
        lambda setting: advancing(sgd(setting["config"]), config),
        keys,
        settings,
        steps=config.steps,
        measure_every=config.measure_every,
        measure=measure,
        members_at_once=1 if jax.default_backend() == "cpu" else None,  # one at a time, a switch runs one branch
        learner=partial(learner, model),
        sampler=sampler_of(config),
    )


def law_at(config: Config, law: ItemLabelLaw, kind: Array, level: Array) -> ItemLabelLaw:
    """The task distribution at a curriculum's level; the whole one where the curriculum is of the context length."""
    labels, shares = jnp.asarray(config.label_counts), jnp.asarray(config.novel_shares, jnp.float32)
    return dataclasses.replace(
        law,
        labels=jnp.where(kind == LABELS, labels[level], law.labels),
        novel_share=jnp.where(kind == NOVEL, shares[level], law.novel_share),
    )


def loss_of(config: Config, model: Induction) -> Callable[[Tree, Array, Tree], Array]:
    """The training loss at the member's level.

    The derivative by ``probe``, which stays 0, is the batch's accuracy: so the accuracy reaches ``advancing``.
    """

    def loss(state: Tree, key: Array, setting: Tree) -> Array:
        level = state["level"].astype(jnp.int32)
        distribution = law_at(config, setting["law"], setting["kind"], level)

        def at(length: int) -> tuple[Array, Array]:
            samples = sampler(dataclasses.replace(config, context_length=length), distribution)(key, config.batch)
            logits = model.logits(state["weights"], samples.prompt)
            return cross_entropy(logits, samples).mean(), accuracy(logits, samples)

        index = jnp.where(setting["kind"] == LENGTH, level, len(config.lengths) - 1)
        value, right = jax.lax.switch(index, [partial(at, length) for length in config.lengths])
        return value + jax.lax.stop_gradient(right) * state["probe"]

    return loss


def advancing(inner: optax.GradientTransformation, config: Config) -> optax.GradientTransformation:
    """Trains the weights by ``inner``, and raises the level where the averaged training accuracy has passed."""
    last = len(config.lengths) - 1

    def update(gradient: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        updates, state = inner.update(gradient["weights"], state, params["weights"])
        mean = params["accuracy"] + (gradient["probe"] - params["accuracy"]) / config.memory
        up = (mean >= config.passed) & (params["level"] < last)
        moved = {"level": up.astype(jnp.float32), "accuracy": jnp.where(up, 0, mean) - params["accuracy"]}
        return {"weights": updates, "probe": jnp.zeros_like(params["probe"]), **moved}, state

    return optax.GradientTransformation(lambda params: inner.init(params["weights"]), update)


def _up_to(levels: str, whole: str) -> Constraint:
    """The last level is the whole task."""
    return holds(f"levels up to --{whole}, the setting's own", levels, whole,
                 when=lambda c: getattr(c, levels)[-1] == getattr(c, whole))  # fmt: skip


EXPERIMENT = Experiment(
    "reddy.curriculum", __doc__, PRESETS, measured, (STEPS, CURVE), trainings=trainings,
    constraints=(
        *TRAINING,
        holds("bursts of different labels alone, --distinct_labels --bursty_share=1 --burstiness=1 or more: sequences "
              "of other kinds have all labels at any level", "distinct_labels", "bursty_share", "burstiness",
              when=lambda c: c.distinct_labels and c.bursty_share == 1 and c.burstiness > 0),
        as_long_as("lengths", "label_counts", "novel_shares"),
        _up_to("lengths", "context_length"),
        _up_to("label_counts", "labels"),
        _up_to("novel_shares", "novel_share"),
        at_most("lengths", "context_length"),
        holds("N of which B is a divisor below it, or N = B = 1", "lengths", "burstiness",
              when=lambda c: all(c.burstiness in burstiness_values(n) for n in c.lengths)),
        at_most("label_counts", "labels"),
        holds("at least N/B different labels", "label_counts", "context_length", "burstiness",
              when=lambda c: min(c.label_counts) >= c.context_length // c.burstiness),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
