"""One layer of linear self-attention learns one step of gradient descent (von Oswald et al. 2022, Fig. 2).

A one-layer LSA is trained on linear tasks y = w.x, w ~ N(0, I), and compared with one gradient-descent step of the best
learning rate, in the lab's three ways: by loss, by predictions and sensitivities, by weights modulo symmetry. The best
step has the closed form L* = (D s^2/2)(D - 0.2)/(N + D - 0.2) for inputs U(-r/2, r/2), s^2 = r^2/12.

At a constant learning rate, as published, Adam keeps the weights jittering around the step; with
--decay_steps the rate falls to zero at the end.

Panels: loss over training; agreement over training; final loss over N = D; loss on inputs of another range; and the
distribution over members of the time at which the loss drops.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import (
    DECAYS,
    Setting,
    constructed,
    one_layer,
    optimizer,
    planned,
    sampler,
)
from experiments.von_oswald.tuning import best_layer, best_step, with_best_step
from icl_lab.compare import align_weights
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.training import Fit


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 2 as the released code runs it."""

    sizes: tuple[int, ...] = setting((2, 5, 10, 15, 20, 25), "N = D of the sweep over sizes", at_least=2)
    sweep_members: int = setting(5, "members at each size", at_least=1)
    sweep_batch: int = setting(2048, "batch of the sweep", at_least=1)
    population_tasks: int = setting(
        1_000_000, "tasks for final losses, shared by trained, GD and interpolated", at_least=1
    )
    ranges: tuple[float, ...] = setting(
        tuple(np.round(np.arange(0.5, 2.01, 0.03), 2).tolist()), "input ranges alpha of the shift panel", above=0
    )
    shift_tasks: int = setting(10_000, "tasks at each alpha, the same draws at every alpha", at_least=1)
    decay_steps: int = setting(0, "last steps of a training, in which the learning rate falls to 0", at_least=0)
    onset_members: int = setting(64, "members of the ensembles that show when the loss drops", at_least=1)
    onset_batches: tuple[int, ...] = setting((256, 2048), "batch of each of these ensembles", at_least=1)
    onset_steps: int = setting(5000, "training steps of these ensembles, a multiple of onset_every", at_least=1)
    onset_every: int = setting(20, "steps between measurements of these ensembles", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=4, batch=32, steps=20, measure_every=10, eval_tasks=32, sizes=(2,),
        sweep_members=2, sweep_batch=32, population_tasks=64, ranges=(0.5, 1.0, 2.0), shift_tasks=32, onset_members=3,
        onset_batches=(16,), onset_steps=20, onset_every=10, decay_steps=10,
    ),
    "quick": Config(
        members=6, batch=256, steps=2000, eval_tasks=2000, sizes=(2, 5, 10), sweep_members=6, sweep_batch=256,
        population_tasks=100_000, ranges=(0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0), shift_tasks=2000, onset_members=16,
        onset_batches=(256,), onset_steps=1000,
    ),
    "lab": Config(sweep_members=10, sweep_batch=512),
    "paper": Config(),
}  # fmt: skip


LEARNERS = ("trained", "gd", "interpolated")
STEPS, CURVE = quantity("steps", "step"), quantity("{metric}", "member", "step")
"""``loss``, ``gd_loss``, ``interpolated_loss``; ``gd_`` before each metric of ``compare``: the layer beside GD."""
FINAL = quantity("final/{learner}", "member", learner=LEARNERS)
RANGE = quantity("range/{learner}", "member", "range", learner=LEARNERS)
DISTANCE = quantity("distance", "member")
AT_SIZE = quantity("size_{size}/{learner}", "size_member", size="sizes", learner=LEARNERS)
ONSET_STEPS = quantity("onset_steps", "onset_step")
ONSET = quantity("onset_{batch}/loss", "onset_member", "onset_step", batch="onset_batches")


def trainings(config: Config) -> Table:
    """The layer of the figure, an ensemble for each batch, a layer of every size."""
    layer, beside = one_layer(config), with_best_step(config)
    decaying = partial(optimizer, decay_steps=config.decay_steps)
    table: dict[str, Any] = {
        "training": planned(
            config, layer, optimizer=decaying, references={"gd": best_layer(config)},
            variants=lambda params: {"interpolated": beside(params)["interpolated"]},
        )
    }  # fmt: skip
    for i, batch in enumerate(config.onset_batches):
        one = dataclasses.replace(config, steps=config.onset_steps, measure_every=config.onset_every, batch=batch)
        table[f"onset_{batch}"] = planned(one, layer, stream=10 + i, members=config.onset_members)
    for size in config.sizes:
        one = at_size(config, size)
        table[f"size_{size}"] = planned(
            one, one_layer(one), stream=100 + size, members=config.sweep_members, optimizer=decaying, measured=False
        )
    return table


def at_size(config: Config, size: int) -> Config:
    """The setting of the sweep at N = D = size."""
    return dataclasses.replace(config, context_length=size, input_size=size, batch=config.sweep_batch)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Curves, final losses, distances, shifts; the ensembles; the sweep."""
    fit, (eta, best) = fits["training"], best_step(config)
    final, distance = finals(config, fit), np.asarray(distances(config, fit.params))
    yield STEPS, fit.steps
    yield CURVE, fit.metrics
    yield FINAL, final
    yield DISTANCE, distance
    yield RANGE, paired_losses(
        with_best_step(config), lambda alpha: sampler(config, input_range=alpha), fit.params, member_keys(config, 800),
        config.shift_tasks, np.asarray(config.ranges),
    )  # fmt: skip
    for batch in config.onset_batches:
        ensemble = fits[f"onset_{batch}"]
        yield ONSET.at(batch=batch), ensemble.metrics["loss"]
    yield ONSET_STEPS, ensemble.steps
    for size in config.sizes:
        yield AT_SIZE.at(size=size), finals(at_size(config, size), fits[f"size_{size}"])
    yield "facts", {"learning_rate": eta, "closed_form": best, "diverged": int((fit.diverged_at >= 0).sum())}
    yield "facts", {f"final_{learner}": float(values.mean()) for learner, values in final.items()}
    yield "facts", {"distance": float(distance.mean())}
    compared = {name: values for name, values in fit.metrics.items() if name.startswith("gd_") and name != "gd_loss"}
    yield "facts", {name: float(values[:, -1].mean()) for name, values in compared.items()}


def distances(config: Config, params: dict) -> jax.Array:
    """(M,) distance of each member's weights from those of the best step, modulo symmetry."""
    weights = constructed(config, best_step(config)[0])
    aligned = partial(align_weights, params_b=weights, layers=1, looped=True, input_size=config.input_size)
    return jax.jit(jax.vmap(lambda of_member: aligned(of_member)["distance"][0]))(params)


def finals(config: Config, fit: Fit) -> dict[str, np.ndarray]:
    """(M,) final losses by learner, on the same tasks."""
    keys = member_keys(config, 900 + config.input_size, fit.diverged_at.size)
    return paired_losses(with_best_step(config), always(sampler(config)), fit.params, keys, config.population_tasks)


EXPERIMENT = Experiment(
    "von_oswald.one_step", __doc__, PRESETS, measured,
    (STEPS, CURVE, FINAL, RANGE, DISTANCE, AT_SIZE, ONSET_STEPS, ONSET),
    trainings=trainings, constraints=(*DECAYS, once("sizes", "onset_batches")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
