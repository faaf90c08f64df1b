"""When does a network become its algorithm? The answer of ``identify`` over training (this lab).

One layer of linear attention, two loops of it, two softmax heads, five layers with weights of their own (all trained as
in von Oswald et al. 2022) and a layer of DeltaNet (trained as in ``online.delta_rule``) keep their weights over
training. At measurements that lie evenly in log time every member is asked which algorithm it computes, among a list
of families that is shorter than that of ``identify``: fits of all families would take twice as long. At the end each
member is asked among all.

An answer is a name, "zero" for predictions below .001 labels, or none. The *name* here is the family of the smallest
model that explains the predictions: two steps of GD++ are GD++, although GD with four rates of its own is the same. The
*fall* is the loss at the start less that at the end, the *plateau* the time before a tenth of the fall.

Questions: does the name come before half of the fall, or after it; is GD named before GD++; has a member on the plateau
a name; does a name stay.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from experiments.identification.networks import functions
from experiments.training import always, falling_adam
from experiments.von_oswald.common import Setting, Task, model, optimizer, planned, sampler
from icl_lab.identify import (
    FAMILIES,
    Member,
    asked,
    battery,
    in_units,
    one_member,
    rotations,
    structure,
    training_prompts,
)
from icl_lab.identify import Setting as Asked
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, at_most, holds, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention, Transformer
from icl_lab.prompts import Sampler, gaussian_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.training import Fit, Model, Training

NETWORKS = ("one_layer", "two_loops", "softmax_heads", "five_layers", "delta_net")
SHORT = ("GD", "GD++", "ridge", "least squares", "gradient flow", "preconditioned GD", "centred GD",
         "softmax regression", "LMS", "normalised LMS", "mean of labels", "zero")  # fmt: skip
NAMES = tuple(FAMILIES)
NONE = -1
"""In the place of a name: none of these, or not separable."""


@dataclasses.dataclass(frozen=True)
class Config(Task):
    """Which networks, how long they train, and when they are asked."""

    members: int = setting(10, "independent trainings of each network", at_least=1)
    networks: tuple[str, ...] = setting(NETWORKS, "networks to train", choices=NETWORKS)
    steps: tuple[int, ...] = setting((5000, 5000, 10_000, 50_000, 6000), "training steps of each", at_least=1)
    batches: tuple[int, ...] = setting((2048, 2048, 2048, 2048, 256), "fresh tasks in a step of each", at_least=1)
    measurements: int = setting(100, "measurements of loss and weights, a divisor of all steps", at_least=1)
    times: int = setting(30, "about so many of them, evenly in log time, at which identify is asked", at_least=2)
    families: tuple[str, ...] = setting(SHORT, "families that it tries", choices=NAMES)
    in_full: bool = setting(True, "at the end, ask among all families too")


PRESETS = {
    "smoke": Config(
        members=1, context_length=4, input_size=2, eval_tasks=16, networks=("one_layer", "two_loops", "delta_net"),
        steps=(4, 4, 4), batches=(16, 16, 16), measurements=2, times=2, in_full=False,
        families=("GD", "LMS", "mean of labels", "zero"),
    ),
    "quick": Config(
        members=1, eval_tasks=500, networks=("one_layer",), steps=(1000,), batches=(256,), measurements=10, times=3,
        in_full=False,
    ),
    "lab": Config(
        eval_tasks=500, steps=(3000, 4000, 6000, 12_000, 2000), batches=(512, 512, 256, 128, 128),
    ),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    as_long_as("networks", "steps", "batches"), once("networks"), once("families"),
    holds("steps that are a multiple of the measurements", "steps", "measurements",
          when=lambda c: not any(steps % c.measurements for steps in c.steps)),
    at_most("times", "measurements"),
)  # fmt: skip

OF: dict[str, Any] = {"network": "networks"}
STEPS, LOSS = quantity("{network}/steps", "step", **OF), quantity("{network}/loss", "member", "step", **OF)
TIMES = quantity("{network}/times", "time", **OF)
ANSWERS = ("named", "algorithm", "wavers", "steps", "stability", "residual", "asymmetry")
ANSWER = quantity("{network}/answer/{answer}", "member", "time", answer=ANSWERS, **OF)
FULL = quantity(
    "{network}/full/{answer}", "member", answer=ANSWERS,
    network=lambda config: config["networks"] if config["in_full"] else (),
)  # fmt: skip
AGREES = quantity("{network}/full/agrees", "member", network=FULL.domains["network"])


def built(config: Config, name: str) -> Model:
    """A network as it is trained."""
    if name == "delta_net":
        d = config.input_size
        layer = Transformer(attention="delta", parametrisation="key_query", key_size=d, init_scale=0.004 * (d + 1))
        return model(layer, config, joint_layout(sign=1))
    if name == "softmax_heads":
        return model(Transformer(layers=1, looped=True, attention="softmax", heads=2, init_scale=config.init_scale),
                     config)  # fmt: skip
    layers = {"one_layer": 1, "two_loops": 2, "five_layers": 5}[name]
    clip = 10.0 if layers > 3 else 0.0
    return model(LinearSelfAttention(layers=layers, looped=layers < 3, token_clip=clip, init_scale=config.init_scale),
                 config)  # fmt: skip


def prompts(config: Config, name: str) -> Sampler:
    """Those of training; of DeltaNet with standard normal inputs and tasks."""
    if name == "delta_net":
        return gaussian_regression(context_length=config.context_length, covariance=np.eye(config.input_size))
    return sampler(config)


def kept(params: dict, _: Any) -> dict[str, Array]:
    """All weights as one vector, a measurement like any other."""
    return {"weights": ravel_pytree(params)[0]}


def trainings(config: Config) -> Table:
    """Every network, by the optimizer of its paper; of five layers the rate falls to zero over the last quarter."""
    task = {field.name: getattr(config, field.name) for field in dataclasses.fields(Task)}

    def one(name: str, steps: int, batch: int) -> Training:
        delta, deep = name == "delta_net", name == "five_layers"
        network_setting = Setting(
            **task, steps=steps, measure_every=steps // config.measurements, batch=batch,
            learning_rate=0.005 if delta else 1e-3, gradient_clip=10.0 if deep else 1e-3,
        )  # fmt: skip
        adam: Callable = falling_adam(steps) if delta else lambda setup: optimizer(setup, steps // 4 if deep else 0)
        return planned(
            network_setting, built(config, name), stream=NETWORKS.index(name), sampler_of=always(prompts(config, name)),
            optimizer=adam, extra=kept,
        )  # fmt: skip

    return {name: one(name, *sizes) for name, *sizes in zip(config.networks, config.steps, config.batches)}


def asked_at(config: Config) -> np.ndarray:
    """(T,) the measurements at which identify is asked: the first, and others evenly in log time."""
    last = config.measurements
    return np.unique([0, *np.geomspace(min(2, last), last, config.times - 1).round().astype(int)])


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Loss of every network, and the answers over time."""
    at = asked_at(config)
    for name in config.networks:
        fit = fits[name]
        yield STEPS.at(network=name), fit.steps
        yield LOSS.at(network=name), fit.metrics["loss"]
        yield TIMES.at(network=name), fit.steps[at]
        of, rows = questions(config, name), []
        weights = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(weights_at(fit, r) for r in at))
        learners = functions(built(config, name).learner, weights, config.members * len(at))
        with fits.bar(f"names of {name}", len(at)) as advance:
            for done in range(1, len(at) + 1):
                members = learners[(done - 1) * config.members : done * config.members]
                rows.append(answers(of, members, config.seed))
                advance(done, len(at))
        numbers = {key: np.stack([[number(m, key) for m in row] for row in rows], axis=1) for key in ANSWERS}
        yield ANSWER.at(network=name), numbers
        if config.in_full:
            full = answers(dataclasses.replace(of, families=FAMILIES), members, config.seed)
            yield FULL.at(network=name), {key: np.array([number(m, key) for m in full]) for key in ANSWERS}
            yield AGREES.at(network=name), np.array([agree(*pair) for pair in zip(rows[-1], full)], float)


def weights_at(fit: Fit, measurement: int) -> Any:
    """Parameters of all members at a measurement."""
    back = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], fit.params))[1]
    return jax.vmap(back)(jnp.asarray(fit.metrics["weights"][:, measurement]))


def questions(config: Config, name: str) -> Asked:
    """What members of a network are asked."""
    n, d = config.context_length, config.input_size
    units, on, rng = battery(prompts(config, name), n, d, config.seed)
    few = {family: FAMILIES[family] for family in config.families}
    return Asked(units, on, rotations(rng, d), few)


def answers(of: Asked, learners: list[Callable], seed: int) -> list[Member]:
    """Which algorithm each learner computes, as ``identify`` answers, but without the range of the name."""
    trial, members = training_prompts(of.battery, of.units), []
    for learner in learners:
        ask = in_units(asked(learner, learner.__name__, trial), of.units)
        members.append(one_member(ask, structure(ask, of.battery, seed), of, ranges=False))
    return members


def number(member: Member, answer: str) -> float:
    """One number of an answer."""
    if answer == "named":
        return float(NAMES.index(member.family) if member.family else NONE)
    if answer == "algorithm":
        return float(NAMES.index(algorithm(member)) if member.family else NONE)
    if answer == "wavers":
        return float(member.verdict == "not separable")
    if answer == "steps":
        steps = member.steps
        return float(min(steps) if isinstance(steps, tuple) else steps or 0)
    return float(getattr(member, answer))


def algorithm(member: Member) -> str:
    """The family of the smallest model that explains a member that has a name."""
    return member.fit.model.family if member.fit else str(member.family)


def agree(one: Member, other: Member) -> bool:
    """Whether two answers to one member are the same name, or both none."""
    if None in (one.family, other.family):
        return one.family is other.family
    return algorithm(one) in {algorithm(other), *other.equals}


EXPERIMENT = Experiment(
    "identification.in_training", __doc__, PRESETS, measured, (STEPS, LOSS, TIMES, ANSWER, FULL, AGREES),
    trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
