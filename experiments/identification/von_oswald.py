"""What the networks of von Oswald et al. 2022 compute, by the kept parameters of their lab records.

Every network is identified on prompts of its training. What is expected of each (``expected``: families, residual,
range) was written before any of them was identified. A record that is not there, or kept no parameters, is listed
under ``missing`` and its claims are not judged. Two controls are made here, twenty members each, that should get no
name: two layers whose training stops early, and one layer that was never trained.

Ten members leave the share that has a name open down to .72 even where all have it. Shares of kept networks are
therefore estimates without a verdict; those of the controls are judged. Averaged over rotations one layer of linear
attention is one step of gradient descent, whatever its weights: residual and range say nothing of it. Judged is its
asymmetry, how far its weights are from a multiple of the identity, against that of random weights of the same size.

On two scales of the inputs that nothing was fitted on (1.75 and 3) the loss of every named member is predicted twice:
by the named algorithm with its parameters fixed, and by the member's own relative loss in training.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.identification.expected import CONTROLS, EXPECTED, HALF_TRAINED
from experiments.identification.judging import claimed
from experiments.identification.networks import GALLERY, functions, held_back_losses, identify_members, members_of
from experiments.settings import member_keys
from experiments.training import Model
from experiments.von_oswald.common import SCHEDULE, Setting, model, planned
from icl_lab.identify import FAMILIES, Identified, asymmetry_by_chance
from icl_lab.lab import Experiment, load_run, main, setting
from icl_lab.lab.flags import to_json
from icl_lab.lab.quantities import quantity
from icl_lab.lab.record import RecordError
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention

LARGE = 2.0
"""``init_scale`` at which a layer that was never trained does not predict zero; its asymmetry depends on no scale."""
NAMES = tuple(name for name in FAMILIES if name != "dMMSE or ridge")  # whose tasks are a finite set, unlike here


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Which networks, and how the controls are made."""

    networks: tuple[str, ...] = setting(tuple(EXPECTED), "record/training of each network", choices=tuple(EXPECTED))
    controls: int = setting(20, "members of each control", at_least=1)
    steps: int = setting(400, "training steps of half_trained, a multiple of measure_every", at_least=1)
    measure_every: int = setting(400, "steps between measurements of half_trained", at_least=1)
    batch: int = setting(512, "batch of half_trained", at_least=1)
    eval_tasks: int = setting(500, "tasks that measure half_trained", at_least=1)


PRESETS = {
    "smoke": Config(members=1, controls=1, networks=("weight_maps/looped_1", *CONTROLS), steps=2, measure_every=2,
                    batch=16, eval_tasks=16, context_length=4, input_size=3),
    "quick": Config(members=2, networks=("weight_maps/looped_1",)),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


OF = "{record}/{training}"
MEMBER = "{record}_{training}_member"
GRID = quantity(f"{OF}/grid", "point")
FACTOR = quantity(f"{OF}/{{factor}}", MEMBER, "point", factor=("r", "spread"))
EQUALS = quantity(f"{OF}/equals", MEMBER, "family")
LOSS = quantity(f"{OF}/{{loss}}", MEMBER, "scale", loss=("loss", "by_algorithm", "by_loss"))
NUMBER = quantity(f"{OF}/{{number}}", MEMBER)


def trainings(config: Config) -> Table:
    """The control whose training stops early."""
    if HALF_TRAINED not in config.networks:
        return {}
    return {"half_trained": planned(controls(config), layer(HALF_TRAINED, config))}


def controls(config: Config) -> Config:
    """The setting of the controls."""
    return dataclasses.replace(config, members=config.controls)


def layer(name: str, config: Config) -> Model:
    """What a control is: a layer looped twice after few steps, or one layer as it is drawn."""
    loops, scale = (2, config.init_scale) if name == HALF_TRAINED else (1, LARGE)
    return model(LinearSelfAttention(layers=loops, looped=True, init_scale=scale), config)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Identifies every network that is there."""
    missing: dict[str, str] = {}
    yield "facts", {"missing": missing}
    for name in config.networks:
        folder, stage = name.split("/")
        try:
            if name in CONTROLS:
                learners, of = control(name, config, fits), to_json(config)
            else:
                kept = load_run(GALLERY / folder / "lab")
                learners, of = members_of(kept, stage, config.members), dict(kept.record.config)
        except (RecordError, OSError) as error:
            missing[name] = str(error).replace(str(GALLERY), "figures/von_oswald")
            continue
        result = identify_members(learners, of, config.seed)
        chance = np.full(len(learners), asymmetry_by_chance(of["input_size"]))
        losses = held_back_losses(result, learners, of, config.seed)
        yield {name: arrays_of(result) | losses | {"by_chance": chance}}
        yield "facts", {name: said_of(result)}


def control(name: str, config: Config, fits: Fits) -> list[Callable]:
    """The members of a control."""
    config, network = controls(config), layer(name, config)
    params = fits["half_trained"].params if name == HALF_TRAINED else jax.vmap(network.init)(member_keys(config, 1))
    return functions(network.learner, params, config.members)


def arrays_of(found: Identified) -> dict[str, np.ndarray]:
    """(M,) numbers of every member, and its fingerprint; ``equals`` without families that only contain the name."""
    members = found.members
    steps = [m.steps if isinstance(m.steps, tuple) else (m.steps or 0,) for m in members]
    numbers: dict[str, list] = {
        "named": [NAMES.index(m.family) if m.family else -1 for m in members],
        "steps": [min(k) for k in steps],
        "steps_most": [max(k) for k in steps],
        "gain": [np.nan if m.gain is None else m.gain for m in members],
        "range": [m.range or 0.0 for m in members],
        "label_range": [m.label_range or 0.0 for m in members],
        "equals": [[name in claimed(m) for name in NAMES] for m in members],
    }
    numbers |= {name: [getattr(m, name) for m in members] for name in ("stability", "residual", "free", "asymmetry")}
    fingerprint = dict(zip(("grid", "r", "spread"), found.filter))
    return {name: np.array(values) for name, values in numbers.items()} | fingerprint


def said_of(found: Identified) -> dict[str, Any]:
    """What a person reads: the verdict over members and one row a member."""
    row = ("verdict", "family", "equals", "steps", "parameters", "intervals", "gain", "stability", "residual",
           "asymmetry", "range", "nearest", "reason", "evidence")  # fmt: skip
    return {
        "verdict": found.verdict,
        "family": found.family,
        "stability": found.stability,
        "said": str(found),
        "members": [json.loads(json.dumps({k: getattr(m, k) for k in row})) for m in found.members],  # tuples as lists
    }


EXPERIMENT = Experiment(
    "identification.von_oswald", __doc__, PRESETS, measured, (GRID, FACTOR, EQUALS, LOSS, NUMBER),
    trainings=trainings, constraints=SCHEDULE, given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
