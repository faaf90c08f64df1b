"""Which part of an induction head must move first? By clamping, not by correlation (Reddy 2023, Figs. 4 to 6).

Before the transition the network learns to answer with some label of the context (CLA); then three things jump
together: labels attend to their item in the first layer (ILA1), the target attends to its item's label in the second
(TILA2), and the answers are right. The paper infers from reduced models that CLA drives the other two. Here each part
of the network itself is held at its start for the first steps of training, everything else learning: the attention of
the first layer, the target's attention in the second, the share of it that goes to labels (TLA2), the classifier (CLA).
What must move first delays the transition by as long as it is held; the others cost less than that, since what they
wait for is learned meanwhile. The reverse: at the end of the hold, queries and keys, or values and classifier, start
afresh, and what they had learned until then is lost. Last, a perfect first layer is given from the start.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.reddy.clamped import ATTENTION, clamps, fast_run
from experiments.reddy.clamping_figures import CLAIMS, PARTS, figures
from experiments.reddy.settings import SMALL, SMOKE, WORLDS, Training, laws, repeated
from experiments.reddy.settings import check as check_training
from experiments.reddy.training import Induction, cross_entropy, evaluation_samples, network, progress, sampler, sgd
from experiments.settings import member_keys
from experiments.training import members_at_once
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, arguments, from_json, setting
from icl_lab.lab.session import Session
from icl_lab.models import Intervention
from icl_lab.models.inspection import Trace
from icl_lab.prompts import Sample
from icl_lab.training.clamping import by_member, fit_clamped
from icl_lab.training.fitting import Fit, Tree


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """The published setting of Fig. 3, each condition as many members."""

    hold: int = setting(20_000, "steps for which a part is held, or after which it starts afresh", at_least=1)
    only: str = setting("all", "the one part to run beside the control, held or lost, or all")


PRESETS = {
    "smoke": Config(**SMOKE, hold=2),
    "quick": Config(**SMALL | {"measure_every": 50}, members=2, steps=150, hold=50),
    "lab": Config(**SMALL, members=16, steps=5000, hold=1500),
    "paper": Config(),
}


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_training(config)
    if config.hold % config.measure_every or config.hold >= config.steps:
        raise FlagError(
            f"--hold={config.hold}: allowed is a multiple of --measure_every={config.measure_every} below "
            f"--steps={config.steps}"
        )
    if config.only not in ("all", *PARTS):
        raise FlagError(f"--only={config.only}: allowed is all, {', '.join(PARTS)}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains the members of all conditions in one program, paired by key: the same start and the same sequences."""
    model, conditions = network(config), ("control", *sum((PARTS[part] for part in chosen(config)), ()))
    keys = repeated(member_keys(config), len(conditions))
    fresh = jax.jit(lambda ks: jax.lax.map(model.init, ks))(member_keys(config))  # vmap compiles for longer
    answer = tuple(name for name in fresh["params"] if name not in ATTENTION)
    classifier_names = tuple(name for name in answer if name != "w_v")
    forever = config.steps + 1
    windows = {name: (0, forever if name == "ila1_given" else config.hold) for name in conditions[1:]}
    each = [
        clamps(config, {name: windows[name]} if name in windows else {}, classifier_names)
        for name in conditions
        for _ in range(config.members)
    ]
    settings = {
        "config": arguments(config, keys.shape[0]),
        "law": laws(config, repeated(member_keys(config, WORLDS), len(conditions))),
        "fresh": jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(conditions)), fresh),
        "lost": {
            name: jnp.repeat(jnp.array([lost == condition for condition in conditions]), config.members)
            for names, lost in ((ATTENTION, "attention_lost"), (answer, "answer_lost"))
            for name in names
        },
    }
    fitted = fit_clamped(
        lambda _, setting: setting["fresh"],
        fast_run(config.slots),
        cross_entropy,
        lambda setting: sampler(config, setting["law"]),
        lambda setting: losing(sgd(setting["config"]), setting, config.hold),
        keys,
        by_member(each),
        settings,
        batch=config.batch,
        measure=measure(config, model),
        train=partial(session.fit, "training"),
        steps=config.steps,
        measure_every=config.measure_every,
        members_at_once=members_at_once(config.batch, 2),
    )
    return {}, _arrays(fitted, conditions)


def chosen(config: Config) -> tuple[str, ...]:
    """The parts that are run."""
    return tuple(PARTS) if config.only == "all" else (config.only,)


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


def measure(config: Config, model: Induction) -> Callable[..., dict[str, Array]]:
    """Accuracy and progress measures on novel classes, of the network as it is clamped at that step."""

    def measured(
        params: dict, key: Array, setting: dict, intervention: Intervention | None, step: Array
    ) -> dict[str, Array]:
        def right(sample: Sample, logits: Array, trace: Trace) -> dict[str, Array]:
            return {"ic": (logits.argmax() == sample.target).astype(logits.dtype)}

        samples = evaluation_samples(config, setting["law"], "ic", key)
        return progress(lambda prompt: model.run(params, prompt, intervention, step), samples, right)

    return measured


def _arrays(fitted: Fit, conditions: tuple[str, ...]) -> dict[str, np.ndarray]:
    """(M, R) measurements by condition."""
    arrays = {"steps": fitted.steps}
    for i, condition in enumerate(conditions):
        for name, values in fitted.metrics.items():
            arrays[f"{condition}_{name}"] = np.split(values, len(conditions))[i]
    return arrays


AXES = {"steps": ("step",), "*": ("member", "step")}

EXPERIMENT = Experiment(
    "reddy.clamping", __doc__, PRESETS, run, figures, CLAIMS, check,
    lambda c: [f"{name}_*" for part in chosen(from_json(Config, c)) for name in PARTS[part]],
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
