"""What is necessary for the induction head, and what is sufficient: parts given, and frozen.

``clamping`` freezes each part once, in the phase in which CLA makes most of its way and the attention hardly any; what
moves only later costs nothing there. Here every part is

- *frozen* from step 0 on, for a short, a middle and a long window, the last one longer than the control's wait. What
  remains of the wait after the release, over the control's, tells what was learned meanwhile: nothing (1) if all else
  waits for this part, everything (0) if this part alone was missing;
- *given*: the network starts with this part of its own control, trained on the same classes, all else at its start; and
  *all but* it given. A part is sufficient if hardly anything of the wait remains with it alone, and quick to learn if
  hardly anything remains where it alone is missing.

Parts that are given are the parameters of layer 1 (queries, keys, values), the queries and keys of layer 2, and the
answer (values of layer 2, classifier); all parameters train on. Parts that are frozen are those of ``clamping``.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.reddy.clamping import ATTENTION, initial, planned
from experiments.reddy.settings import BURSTS, EXPONENT, SMALL, SMOKE, Schedule, bursts_fit, by_part
from experiments.reddy.training import Induction, induction_model
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds, multiple_of, once, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.training.fitting import Tree
from icl_lab.training.plans import Training

HELD = ("ila1", "tila2", "tla2", "cla")
GIVEN = {"layer_1": "layer 1", "layer_2": "attention of layer 2", "answer": "values and classifier"}


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """The task distribution of Fig. 3 at several N; all else as in ``clamping``."""

    lengths: tuple[int, ...] = setting((4, 8), "N", at_least=2)
    length_steps: tuple[int, ...] = setting((75_000, 150_000), "training steps at each N", at_least=1)
    windows: tuple[float, ...] = setting(
        (0.1, 0.3, 0.6), "how long parts are frozen, shares of the steps, rising", above=0, at_most=0.9
    )


PRESETS = {
    "smoke": Config(**SMOKE | {"steps": 10}, lengths=(2,), length_steps=(10,), windows=(0.2, 0.4)),
    "quick": Config(
        **SMALL | {"measure_every": 10, "eval_tasks": 100}, batch=32, members=2, lengths=(4,), length_steps=(20,),
        windows=(0.5,),
    ),
    # --lengths=4,8 --length_steps=5000,14000 adds N = 8: hours more of one core
    "lab": Config(**SMALL, members=10, lengths=(4,), length_steps=(5000,)),
    "paper": Config(),
}  # fmt: skip


def settings_of(config: Config) -> dict[int, Config]:
    """The setting at each N."""
    return {
        n: dataclasses.replace(config, context_length=n, steps=steps)
        for n, steps in zip(config.lengths, config.length_steps)
    }


CONTROL = "control"


def held(windows: Sequence[float]) -> dict[str, tuple[str, float]]:
    """Conditions in which a part is frozen: the part and its window."""
    return {f"{part}_held_{i}": (part, window) for part in HELD for i, window in enumerate(windows)}


LAYERED = (*ATTENTION, "w_v")
OF_LAYERS: dict[str, tuple[tuple, tuple]] = {
    "layer_1": (LAYERED, ()), "layer_2": ((), ATTENTION), "answer": ((), ("w_v",)),
}  # fmt: skip
"""Parameters of the first and of the second layer that a group of ``GIVEN`` has; ``answer`` has the classifier, too."""

STARTS = {f"{group}_{how}": (group, how) for group in GIVEN for how in ("given", "missing")}
"""Conditions in which a part, or all but a part, is given."""


def conditions(windows: Sequence[float]) -> list[str]:
    """All but the control: a part held for a window, a part given, all but a part given."""
    return [*held(windows), *STARTS]


STEPS = quantity("n_{n}/steps", "n_{n}_step", n="lengths")
CURVE = quantity(
    "n_{n}/{condition}/{metric}", "member", "n_{n}_step", n="lengths",
    condition=lambda config: [CONTROL, *conditions(config["windows"])],
)  # fmt: skip


def trainings(config: Config) -> Table:
    """At each N the control, and from its end and its start the members of every condition in one program."""
    table: dict[str, Any] = {}
    for n, one in settings_of(config).items():
        model = induction_model(one)
        table[f"control_{n}"] = After(partial(control, one, model), model.learner)
        table[f"training_{n}"] = After(partial(changed, one, model), model.learner)
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """At each N the curves of the control and of every condition."""
    for n in config.lengths:
        untouched, fit = fits[f"control_{n}"], fits[f"training_{n}"]
        yield STEPS.at(n=n), fit.steps
        yield CURVE.at(n=n, condition=CONTROL), untouched.metrics
        yield CURVE.at(n=n), by_part(fit.metrics, conditions(config.windows))


def control(config: Config, model: Induction, fits: Fits) -> Training:
    """The network as it is."""
    return planned(config, model, initial(config, model), [{}])


def changed(config: Config, model: Induction, fits: Fits) -> Training:
    """The members of every condition, given what their control has become."""
    trained = fits[f"control_{config.context_length}"].params
    start = jax.jit(partial(starts, config))(initial(config, model), trained)
    windows = [{f"{part}_held": (0, round(window * config.steps))} for part, window in held(config.windows).values()]
    return planned(config, model, start, [*windows, *[{}] * len(STARTS)])


def starts(config: Config, fresh: Tree, trained: Tree) -> Tree:
    """The parameters (conditions * M, ...) at which all conditions start."""
    trees = (mixed(fresh, trained, condition) for condition in conditions(config.windows))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def mixed(fresh: Tree, trained: Tree, condition: str) -> Tree:
    """The parameters (M, ...) at which a condition starts."""
    if condition not in STARTS:
        return fresh
    group, how = STARTS[condition]

    def one(name: str, new: Array, old: Array) -> Array:
        if name in LAYERED:
            layers = np.array([name in of_layer for of_layer in OF_LAYERS[group]])
            in_group = layers.reshape(1, -1, *[1] * (new.ndim - 2))
        else:
            in_group = np.array(group == "answer")
        return jnp.where(in_group == (how == "given"), old, new)

    names = fresh["params"]
    return {"params": {name: one(name, names[name], jnp.asarray(trained["params"][name])) for name in names}}


EXPERIMENT = Experiment(
    "reddy.interventions", __doc__, PRESETS, measured, (STEPS, CURVE),
    trainings=trainings, effort={"quick": "little"},
    constraints=(
        once("lengths"),
        as_long_as("lengths", "length_steps"),
        rising("windows"),
        multiple_of("length_steps", "measure_every"),
        multiple_of("classes", "labels"),
        EXPONENT,
        holds("at least 2N + 1 at every N", "slots", "lengths", when=lambda c: c.slots > 2 * max(c.lengths)),
        holds(BURSTS, "burstiness", "lengths", "labels",
              when=lambda c: all(bursts_fit(one, c.burstiness) for one in settings_of(c).values())),
        holds("shares of the steps at which --measure_every measures", "windows", "length_steps", "measure_every",
              when=lambda c: not any(round(w * n) % c.measure_every for w in c.windows for n in c.length_steps)),
    ),
    unused=("context_length", "steps"),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
