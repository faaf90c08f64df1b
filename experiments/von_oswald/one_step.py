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
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.settings import checks, member_keys
from experiments.training import Model, always, learners_of, paired_losses
from experiments.von_oswald.common import Setting, constructed, interpolated, model, optimizer, sampler, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.one_step_claims import CLAIMS
from experiments.von_oswald.one_step_figures import figures
from experiments.von_oswald.tuning import best_step
from icl_lab.compare import align_weights
from icl_lab.lab import Experiment, Session, main, setting
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner


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


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    network = LinearSelfAttention(layers=1, looped=True, init_scale=config.init_scale)
    found = dict.fromkeys(["training", *(f"onset_{batch}" for batch in config.onset_batches)], model(network, config))
    return found | {f"size_{size}": model(network, _at_size(config, size)) for size in config.sizes}


def _at_size(config: Config, size: int) -> Config:
    return dataclasses.replace(config, context_length=size, input_size=size, batch=config.sweep_batch)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains, compares, sweeps; everything that figures and claims need."""
    trained, (eta, best) = models(config), best_step(config)
    layer, weights = trained["training"], constructed(config, eta)
    middle = interpolated(layer, weights, config)
    decaying = partial(optimizer, decay_steps=config.decay_steps)
    fitted = train(
        session, "training", config, layer, references={"gd": layer.learner(weights)}, optimizer=decaying,
        variants=lambda params: {"interpolated": middle(params)},
    )  # fmt: skip
    aligned = jax.jit(
        jax.vmap(
            lambda p: align_weights(p, weights, layers=1, looped=True, input_size=config.input_size)["distance"][0]
        )
    )
    arrays: dict[str, Any] = {
        "steps": fitted.steps,
        **fitted.metrics,
        "final": _finals(config, layer, fitted.params),
        "distance": np.asarray(aligned(fitted.params)),
        "range": _shift(config, layer, fitted.params),
    }
    for stage, batch in enumerate(config.onset_batches):
        onset = dataclasses.replace(config, steps=config.onset_steps, measure_every=config.onset_every, batch=batch)
        keys = member_keys(config, 10 + stage, config.onset_members)
        ensemble = train(session, f"onset_{batch}", onset, trained[f"onset_{batch}"], keys=keys)
        arrays |= {"onset_steps": ensemble.steps, f"onset_{batch}": {"loss": ensemble.metrics["loss"]}}

    for size in config.sizes:
        one, name = _at_size(config, size), f"size_{size}"
        keys = member_keys(config, 100 + size, config.sweep_members)
        sweep = train(session, name, one, trained[name], keys=keys, optimizer=decaying, measured=False)
        arrays[name] = _finals(one, trained[name], sweep.params)
    metrics = {
        "learning_rate": eta,
        "closed_form": best,
        "diverged": int((fitted.diverged_at >= 0).sum()),
        **{f"final_{name}": float(values.mean()) for name, values in arrays["final"].items()},
        "distance": float(arrays["distance"].mean()),
        **{
            name: float(values[:, -1].mean())
            for name, values in fitted.metrics.items()
            if name.startswith("gd_") and name != "gd_loss"
        },
    }
    return metrics, arrays


def _learners(config: Config, trained: Model) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: trained, best GD step, and the mean of their weights."""
    weights = constructed(config, best_step(config)[0])
    gd, middle = trained.learner(weights), interpolated(trained, weights, config)
    return lambda params: {"trained": trained.learner(params), "gd": gd, "interpolated": middle(params)}


def _finals(config: Config, trained: Model, params: dict) -> dict[str, np.ndarray]:
    """(M,) final losses by learner, on the same tasks."""
    keys = member_keys(config, 900 + config.input_size, jax.tree.leaves(params)[0].shape[0])
    return paired_losses(_learners(config, trained), always(sampler(config)), params, keys, config.population_tasks)


def _shift(config: Config, trained: Model, params: dict) -> dict[str, np.ndarray]:
    """(M, A) losses by learner over input ranges alpha, on the same draws at every alpha."""
    return paired_losses(
        _learners(config, trained),
        lambda alpha: sampler(config, input_range=alpha),
        params,
        member_keys(config, 800),
        config.shift_tasks,
        np.asarray(config.ranges),
    )


AXES = {
    "steps": ("step",),
    "onset_steps": ("onset_step",),
    "onset_*/loss": ("onset_member", "onset_step"),
    "range/*": ("member", "range"),
    "size_*/*": ("size_member",),
    "final/*": ("member",),
    "distance": ("member",),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "von_oswald.one_step", __doc__, PRESETS, run, figures, CLAIMS, checks("sizes", "onset_batches"),
    lambda config: [f"size_{n}/*" for n in config["sizes"]] + [f"onset_{b}/*" for b in config["onset_batches"]],
    axes=AXES, learners=learners_of(models),
    quick=QUICK["one_step"], finding=FINDINGS["one_step"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
