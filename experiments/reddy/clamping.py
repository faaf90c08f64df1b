"""Which part of an induction head must move first? By clamping, not by correlation (Reddy 2023, Figs. 4 to 6).

Before the transition the network learns to answer with some label of the context (CLA); then three things jump
together: labels attend to their item in the first layer (ILA1), the target attends to its item's label in the second
(TILA2), and the answers are right. The paper infers from reduced models that CLA drives the other two. Here each part
of the network is frozen for the first ``hold`` steps, while everything else learns: the attention of the first layer,
the target's attention in the second, the share of it that goes to labels (TLA2), the classifier (CLA). The part that
must change first delays the transition by as long as it is frozen. The others delay it by less, since what they need is
learned meanwhile. CLA makes most of its way in these steps, so a part that changes only later costs nothing here;
``interventions`` freezes parts for several times. In two more conditions queries and keys, or values and classifier,
start afresh after these steps and lose what they had learned. In the last one a perfect first layer is given from the
start.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.reddy.settings import SMALL, SMOKE, TRAINING, Schedule, by_part, member_laws, repeated
from experiments.reddy.training import (
    Induction,
    cross_entropy,
    evaluation_samples,
    induction_model,
    progress,
    sampler,
    sampler_of,
    sgd,
)
from experiments.settings import member_keys
from icl_lab.lab import Experiment, arguments, main, setting
from icl_lab.lab.constraints import below, multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.models.inspection import Intervention, Trace
from icl_lab.prompts import Sample
from icl_lab.training.clamping import by_member, clamped, combined, frozen, kept_share, pinned_attention
from icl_lab.training.fitting import Tree
from icl_lab.training.plans import Training, members_at_once

ATTENTION = ("w_q", "w_k")
"""What makes the attention patterns; the values and the classifier make the answer of what is attended to."""

Window = tuple[int, int]
"""First step at which a clamp acts, and first at which it no longer does."""

PARTS = {
    "held": ("ila1_held", "tila2_held", "tla2_held", "cla_held"),
    "lost": ("attention_lost", "answer_lost", "ila1_given"),
}
"""Conditions beside the control: a part frozen; starting afresh after these steps, or with a perfect first layer."""

OFF: Window = (0, 0)
WINDOWS = ("ila1_held", "ila1_given", "tila2_held", "tla2_held", "cla_held")
"""What can be clamped, see ``clamps``."""


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """The published setting of Fig. 3, each condition as many members."""

    hold: int = setting(20_000, "steps for which a part is frozen, or after which it starts afresh", at_least=1)
    only: str = setting("all", "the one part to run beside the control, or all", choices=("all", *PARTS))


PRESETS = {
    "smoke": Config(**SMOKE, hold=2),
    "quick": Config(**SMALL | {"measure_every": 50}, members=2, steps=100, hold=50),
    "lab": Config(**SMALL, members=16, steps=5000, hold=1500),
    "paper": Config(),
}


STEPS = quantity("steps", "step")
CURVE = quantity("{condition}/{metric}", "member", "step", condition=lambda config: conditions(config["only"]))


def conditions(only: str) -> list[str]:
    """The control, and the conditions of the parts that are run."""
    return ["control", *(name for part, names in PARTS.items() if only in ("all", part) for name in names)]


def trainings(config: Config) -> Table:
    """The members of all conditions in one program, those of the control first.

    As learners they are free: those that were given a perfect first layer to the end predict without it.
    """
    model = induction_model(config)
    return {"training": After(lambda fits: plan(config, model), model.learner)}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Accuracy and progress measures of every condition."""
    yield STEPS, fits["training"].steps
    yield CURVE, by_part(fits["training"].metrics, conditions(config.only))


def plan(config: Config, model: Induction) -> Training:
    """The training of all conditions, paired by key: the same start and the same sequences."""
    chosen, fresh, forever = conditions(config.only), initial(config, model), config.steps + 1
    # conditions that clamp nothing have names that are no window's
    windows = [{name: (0, forever if name == "ila1_given" else config.hold)} for name in chosen]
    lost_in = {name: "attention_lost" if name in ATTENTION else "answer_lost" for name in fresh["params"]}
    lost = {name: jnp.repeat(np.array(chosen) == condition, config.members) for name, condition in lost_in.items()}

    def optimizer(setting: Tree) -> optax.GradientTransformation:
        return losing(sgd(setting["config"]), setting, config.hold)

    return planned(config, model, repeated(fresh, len(chosen)), windows, optimizer, lost=lost)


def initial(config: Schedule, model: Induction) -> Tree:
    """(M, ...) parameters at which members start."""
    return jax.jit(lambda keys: jax.lax.map(model.init, keys))(member_keys(config))  # vmap compiles for longer


def classifier(params: Tree) -> tuple[str, ...]:
    """Names of the classifier's parameters."""
    return tuple(name for name in params["params"] if name not in (*ATTENTION, "w_v"))


def planned(
    config: Schedule,
    model: Induction,
    start: Tree,
    windows: Sequence[Mapping[str, Window]],
    optimizer: Callable[[Tree], optax.GradientTransformation] = lambda setting: sgd(setting["config"]),
    **settings: Tree,
) -> Training:
    """Members from ``start``, in every condition with the same keys, clamped by its windows and measured so."""
    each = [clamps(config, one, classifier(start)) for one in windows]
    return clamped(
        lambda _, setting: setting["fresh"],
        lambda params, prompts, clamp, step: (model.logits(params, prompts, clamp, step), None),
        cross_entropy,
        sampler_of(config),
        optimizer,
        repeated(member_keys(config), len(each)),
        by_member(one for one in each for _ in range(config.members)),
        {
            "config": arguments(config, len(each) * config.members),
            "law": member_laws(config, len(each)),
            "fresh": start,
            **settings,
        },
        batch=config.batch,
        batched=True,
        measure=measure(config, model),
        steps=config.steps,
        measure_every=config.measure_every,
        members_at_once=members_at_once(config.batch, 2),
        learner=model.learner,
        sampler=lambda now: sampler(config, now["setting"]["law"]),
    )


def uniform(tokens: int) -> Array:
    """(1, T, T) causal attention to all tokens alike, that of a network that has learned nothing."""
    causal = jnp.tril(jnp.ones((tokens, tokens)))
    return (causal / causal.sum(1, keepdims=True))[None]


def previous(tokens: int) -> Array:
    """(1, T, T) every token attends to the one before it (the first to itself): the first layer's perfect pattern."""
    return jnp.eye(tokens, k=-1).at[0, 0].set(1)[None]


def clamps(config: Schedule, windows: Mapping[str, Window], classifier_names: tuple[str, ...]) -> Intervention:
    """What one member is clamped by; what ``windows`` does not name never acts.

    Names are ``ila1_held`` (first layer's attention uniform), ``tila2_held`` (the target's attention in the second
    uniform), ``tla2_held`` (the labels get the share of the target's attention that they have when it is uniform; how
    they divide it is free), ``cla_held`` (the classifier's parameters frozen) and ``ila1_given`` (labels attend to
    their item in the first layer; other tokens are free, else items could carry the label before them).
    """
    return _clamps(config.context_length, {name: windows.get(name, OFF) for name in WINDOWS}, classifier_names)


@partial(jax.jit, static_argnums=(0, 2))  # one program for all windows
def _clamps(length: int, windows: Mapping[str, Window], classifier_names: tuple[str, ...]) -> Intervention:
    tokens = 2 * length + 1
    target = jnp.arange(tokens) == tokens - 1
    labels = jnp.arange(tokens) % 2 == 1

    def window(name: str) -> dict[str, Any]:
        return dict(zip(("start", "stop"), windows[name]))

    return combined(
        pinned_attention(uniform(tokens), 0, layers=2, **window("ila1_held")),
        pinned_attention(previous(tokens), 0, layers=2, rows=labels, **window("ila1_given")),
        pinned_attention(uniform(tokens), 1, layers=2, rows=target, **window("tila2_held")),
        kept_share(length / tokens, target[:, None] & labels[None], 1, layers=2, **window("tla2_held")),
        frozen(classifier_names, **window("cla_held")),
    )


def losing(inner: optax.GradientTransformation, setting: Tree, step: int) -> optax.GradientTransformation:
    """Trains by ``inner``; parameters marked in ``lost`` are those of the start again after ``step`` steps."""

    def init(params: Tree) -> Tree:
        return {"inner": inner.init(params), "step": jnp.int32(0)}

    def update(gradient: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        updates, kept = inner.update(gradient, state["inner"], params)
        taken = state["step"] + 1
        back = {
            name: jnp.where(
                setting["lost"][name] & (taken == step),
                setting["fresh"]["params"][name] - params["params"][name],
                update,
            )
            for name, update in updates["params"].items()
        }
        return {"params": back}, {"inner": kept, "step": taken}

    return optax.GradientTransformation(init, update)


def measure(config: Schedule, model: Induction) -> Callable[..., dict[str, Array]]:
    """Accuracy and progress measures on novel classes, of the network as it is clamped at that step."""

    def measured(
        params: dict, key: Array, setting: dict, intervention: Intervention | None, step: Array
    ) -> dict[str, Array]:
        def right(sample: Sample, logits: Array, trace: Trace) -> dict[str, Array]:
            return {"ic": (logits.argmax() == sample.target).astype(logits.dtype)}

        samples = evaluation_samples(config, setting["law"], "ic", key)
        return progress(lambda prompt: model.run(params, prompt, intervention, step), samples, right)

    return measured


EXPERIMENT = Experiment(
    "reddy.clamping", __doc__, PRESETS, measured, (STEPS, CURVE), trainings=trainings,
    constraints=(*TRAINING, multiple_of("hold", "measure_every"), below("hold", "steps")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
