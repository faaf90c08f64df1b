"""Several layers of linear self-attention learn GD++ (von Oswald et al. 2022, Figs. 3a, 3b, 7).

Looped networks apply one set of weights K times, free networks have one set a layer. Each is compared with K steps of
gradient descent at the best shared learning rate, and with K steps of GD++, which also transforms the inputs by
(I - gamma X^T X); eta and gamma are tuned on the exact loss given the contexts' eigenvalues (shared by the steps for
looped networks, one pair a step for free ones).

Networks: one layer looped twice (Fig. 3a), five layers (3b), one looped ten times (7); ``twelve_layers`` runs the same
for Fig. 8. With --decays the learning rate falls to zero at the end: at a constant rate, as published, Adam keeps the
weights jittering around the solver, which the lab preset leaves out for the twice looped layer.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import (
    NETWORKS,
    Networks,
    chosen_of,
    interpolated,
    model,
    optimizer,
    sampler,
    strengths,
    unpack,
)
from experiments.von_oswald.tuning import Compared, after, compared_with, solver_json, tunings
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner
from icl_lab.training import Fit


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Figs. 3 and 7 as the released code runs them."""

    networks: tuple[str, ...] = setting(
        ("looped_2", "free_5", "looped_10"), "looped_K or free_K: K layers, shared or own weights"
    )
    heads: tuple[int, ...] = setting((1, 1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0, 0), "hidden width of each network's MLPs, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048,) * 3, "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 50_000, 17_500), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((50,) * 3, "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 5e-4, 5e-4), "1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 10.0, 10.0), "0.001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 10.0, 10.0), "10 for K > 3 (text: K > 2), 0 is off", at_least=0)
    decays: tuple[int, ...] = setting((0, 0, 0), "last steps, in which the learning rate falls to 0", at_least=0)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        networks=("looped_2", "free_2"), heads=(1, 2), mlp_widths=(0, 8), batches=(16, 16), steps=(20, 20),
        measurements=(2, 2), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 10.0), token_clips=(0.0, 10.0),
        decays=(10, 0), members=2, context_length=4, input_size=3, eval_tasks=16, tuning_contexts=200,
        tuning_steps=4, tuning_batch=16, population_tasks=64,
    ),
    "quick": Config(
        networks=("looped_2",), heads=(1,), mlp_widths=(0,), batches=(512,), steps=(5000,), measurements=(25,),
        learning_rates=(1e-3,), gradient_clips=(1e-3,), token_clips=(0.0,), decays=(0,), members=6, eval_tasks=500,
        tuning_contexts=4000, population_tasks=20_000,
    ),
    "lab": Config(batches=(2048, 256, 256), decays=(1500, 0, 0), eval_tasks=2000, tuning_steps=5000),
    "paper": Config(),
}  # fmt: skip


LEARNERS = ("trained", "gd", "gd++", "released")
STEPS = quantity("{network}/steps", "{network}_step", network=chosen_of)
CURVE = quantity("{network}/{metric}", "member", "{network}_step", network=chosen_of)
FINAL = quantity("{network}/final/{learner}", "member", network=chosen_of, learner=LEARNERS)
STRENGTH = quantity(  # yielded with CURVE: of two quantities that fit, that with fewer open places counts
    "{network}/{strength}", "member", "{network}_step", "{network}_layer",
    network=chosen_of, strength=("gamma", "eta_over_n"),
)  # fmt: skip
QUANTITIES = (STEPS, CURVE, FINAL, STRENGTH)


def trainings(config: Networks, decays: tuple[int, ...] | None = None) -> Table:
    """Tunings of the solvers through a token clip, and every network."""
    table: dict[str, Any] = dict(tunings(config))
    for name, (network, one) in unpack(config).items():
        at = config.networks.index(name)
        table[name] = after(
            one, model(network, one), partial(beside, config, name), stream=at,
            optimizer=partial(optimizer, decay_steps=decays[at] if decays else 0),
        )  # fmt: skip
    return table


def beside(config: Networks, name: str, fits: Fits) -> dict[str, Any]:
    """What a network is measured with: the tuned solvers; of a plain one also its strengths and the mean of weights."""
    one = compared_with(config, name, fits)
    options: dict[str, Any] = {"references": one.learners("gd", "gd++")}
    if one.network == one.plain:
        options["extra"] = lambda params, _: strengths(params, config.input_size)
        if one.network.looped:
            middle = interpolated(model(one.network, one.setting), one.weights("gd++"), config)
            options["variants"] = lambda params: {"interpolated": middle(params)}
    return options


def measured(config: Any, fits: Fits) -> Iterator[Yield]:
    """Curves and final losses of every network, beside its tuned solvers."""
    for name in unpack(config):
        one, fit = compared_with(config, name, fits), fits[name]
        finals = _finals(config, one, fit)
        yield STEPS.at(network=name), fit.steps
        yield CURVE.at(network=name), fit.metrics
        yield FINAL.at(network=name), finals
        facts: dict[str, Any] = {learner: solver_json(solver) for learner, solver in one.solvers.items()}
        facts |= {"diverged": int((fit.diverged_at >= 0).sum())}
        yield "facts", {name: facts | {f"final_{learner}": float(values.mean()) for learner, values in finals.items()}}


def _finals(config: Any, one: Compared, fit: Fit) -> dict[str, Any]:
    """(M,) final losses by learner, on the same tasks."""
    trained, solvers = model(one.network, one.setting), one.learners(*one.solvers)

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), **solvers}

    keys = member_keys(config, 900 + one.stage)
    return paired_losses(learners, always(sampler(config)), fit.params, keys, config.population_tasks)


EXPERIMENT = Experiment(
    "von_oswald.multi_step", __doc__, PRESETS, measured, QUANTITIES,
    trainings=lambda config: trainings(config, config.decays), constraints=(
        *NETWORKS,
        as_long_as("networks", "decays"),
        holds("at most the steps of each network", "decays", "steps",
              when=lambda c: all(decay <= steps for decay, steps in zip(c.decays, c.steps))),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
