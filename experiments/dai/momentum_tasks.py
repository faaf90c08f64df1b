"""Do language models with momentum attention learn better in context? The six tasks (Dai et al. 2022, Table 7).

Dai et al. report that a language model with momentum attention answers 2.8 points more few-shot questions, mean of six
data sets, from one training each. Here networks with momentum (of fixed and of learned coefficients), and with two
local mixers of equal cost, go through the whole curriculum of ``pretrain`` with rotary positions, and answer the six
held-out tasks. The arm without a mixer is the networks of ``pretrain`` themselves: networks of one number have one
language, one start and the same sequences in every arm, so differences are paired.

A stage ends by its loss and the mixture has the same steps for all, so two things are compared: the steps that the
stages take, and the accuracy after 0 .. n demonstrations in the end. Networks that do not come through are counted;
they are in no mean.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.dai import mixers, pretrain
from experiments.dai.common import COMMITTED, ENCODINGS, network
from experiments.dai.networks import record_of
from experiments.dai.pretrain_stages import Config as Schedule
from experiments.dai.pretrain_stages import measured_of, trainings_of, worlds_of
from icl_lab.lab import Experiment, FlagError, main, setting
from icl_lab.lab.constraints import holds
from icl_lab.lab.flags import to_json
from icl_lab.lab.quantities import quantity
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LanguageModel
from icl_lab.prompts.text_sequences import STAGES
from icl_lab.prompts.text_tasks import HELD_OUT, ceiling_accuracy

ARMS = ("momentum_0.5", "learned_0.5", "recent_1", "recent_4")
TRAINED_HERE = "none"
"""Stands for a folder: the arm without a mixer is trained too."""
FREE = {"members", "first", "positions", "fewer", "mixers", "networks"}
"""Settings in which a run of ``pretrain`` may differ."""


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """How the networks are pre-trained: as those of ``pretrain``."""

    members: int = setting(3, "networks of each mixer; the paper has one", at_least=1)
    positions: tuple[str, ...] = setting(("rotary",), "position encoding, one", choices=ENCODINGS)
    mixers: tuple[str, ...] = setting(("vanilla", *ARMS), f"beside attention: {mixers.ALLOWED}")
    networks: str = setting(
        TRAINED_HERE,
        f"folder of a run of dai.pretrain, whose networks are vanilla; {TRAINED_HERE}: they are trained here",
        path=True,
    )


def _as_in(preset: str, **changes: Any) -> Config:
    one = {"positions": ("rotary",), "fewer": Config.fewer}  # of a second encoding, which there is not
    return Config(**vars(pretrain.PRESETS[preset]) | one | changes)


PRESETS = {
    # one stage, which nobody comes through: the smoke run of ``pretrain`` goes through all of them
    "smoke": _as_in("smoke", mixers=("vanilla", "momentum_0.5"), most_steps=2, stage_loss=(1e-6, 1.0, 1.0)),
    "quick": _as_in(
        "quick", mixers=("vanilla", "momentum_0.5"), most_steps=20, measure_every=20, steps=40, test_tasks=20
    ),
    "lab": _as_in("lab", members=11, networks=COMMITTED),
    "paper": Config(),
}


CEILING = quantity("ceiling", "member", "task")
REACHED = quantity("reached", "mixer", "member")
END = quantity("end/{metric}", "mixer", "member", "stage")
FINAL = quantity("final_accuracy", "mixer", "member", "task", "demonstrations")
ETA = quantity(
    "eta/{mixer}", "member", "layer", "head",
    mixer=lambda config: [name for name in config["mixers"] if mixers.kind(name) == "learned"],
)  # fmt: skip


def trainings(config: Config) -> Table:
    """The stages of the networks of every mixer that is trained here."""
    table: dict[str, Any] = {}
    for name in _trained_here(config):
        table |= trainings_of(config, name, module_of(config, name), config.members)
    return table


def _trained_here(config: Config) -> list[str]:
    return [name for name in config.mixers if name != "vanilla" or config.networks == TRAINED_HERE]


def without_mixer(config: Config) -> Record:
    """The run of ``pretrain`` whose networks of the same numbers are the arm without a mixer.

    Raises:
      FlagError: where it was made with other settings, or has not all of these networks.
    """
    record, settings = record_of(config.networks), to_json(config)
    unlike = [k for k, v in record.config.items() if k not in FREE and settings.get(k) != v]
    (encoding,), numbers = config.positions, _numbers(config, record)
    if (
        unlike
        or numbers.start < 0
        or encoding not in record.config["positions"]
        or len(pretrain.REACHED(record, positions=encoding)) < numbers.stop
    ):
        last = config.first + config.members - 1
        raise FlagError(
            f"--networks={config.networks}: allowed is a run of dai.pretrain with the networks {config.first} to "
            f"{last} of --positions={encoding} and the same settings, or {TRAINED_HERE}"
            + (f"; it differs in {', '.join(unlike)}" if unlike else "")
        )
    return record


def _numbers(config: Config, record: Record) -> slice:
    """Where in a run of ``pretrain`` the networks of the numbers asked for are."""
    start = config.first - record.config["first"]
    return slice(start, start + config.members)


def module_of(config: Config, mixer: str) -> LanguageModel:
    """The network with a mixer."""
    eta, normalised = mixers.eta_of(mixer), mixers.kind(mixer) == "normalised"
    options: dict[str, dict[str, Any]] = {
        "vanilla": {},
        "recent": {"mixer": "recent", "window": mixers.window_of(mixer)},
        "learned": {"mixer": "momentum", "eta": eta, "learned_eta": True},
        "momentum": {"mixer": "momentum", "eta": eta, "normalised": normalised},
    }
    return network(config, config.positions[0]).clone(**options["momentum" if normalised else mixers.kind(mixer)])


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """V mixers times M networks; arrays are (V, M, ..)."""
    params, by_mixer = {}, []
    for name in config.mixers:
        if name in _trained_here(config):
            params[name], metrics = measured_of(config, name, module_of(config, name), config.members, fits)
            by_mixer.append({part: metrics[part] for part in ("reached", "end", "final_accuracy")})
        else:
            by_mixer.append(_read(config))
    yield "params", params
    of_worlds = jax.jit(jax.vmap(jax.vmap(ceiling_accuracy, (0, None, 0)), (None, 0, 0)))
    keys, world = jax.random.split(jax.random.key(config.seed), len(HELD_OUT)), worlds_of(config)
    yield CEILING, of_worlds(keys, world["language"], world["tasks"])
    yield jax.tree.map(lambda *leaves: np.stack(leaves), *by_mixer)
    for name in params:
        if mixers.kind(name) == "learned":
            yield ETA.at(mixer=name), jax.nn.sigmoid(jnp.asarray(params[name]["params"]["eta"]))
    classes = [task.classes for task in HELD_OUT]
    yield "facts", {"tasks": [task.stands_for for task in HELD_OUT], "stages": list(STAGES), "classes": classes}


def _read(config: Config) -> dict[str, Any]:
    """What is kept of the networks without a mixer that ``pretrain`` trained."""
    record, (encoding,) = without_mixer(config), config.positions
    handles = {"reached": pretrain.REACHED, "end": pretrain.END, "final_accuracy": pretrain.FINAL}
    arrays = {part: handle(record, positions=encoding) for part, handle in handles.items()}
    return jax.tree.map(lambda values: values[_numbers(config, record)], arrays)


EXPERIMENT = Experiment(
    "dai.momentum_tasks", __doc__, PRESETS, measured, (CEILING, REACHED, END, FINAL, ETA),
    trainings=trainings, effort={"quick": "little"},
    constraints=(
        *pretrain.CONSTRAINTS,
        *mixers.CONSTRAINTS,
        mixers.includes("momentum", "learned"),
        holds("false, because its networks must learn in context", "text", when=lambda c: not c.text),
        holds("one position encoding", "positions", when=lambda c: len(c.positions) == 1),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
