"""One layer of softmax attention, with one head and with two (von Oswald et al. 2022, A.9, Figs. 11 and 12).

A softmax head moves a token by an average. Near uniform attention its pattern is (1 + z_j - mean z) / N with logits
z_j = x_q A x_j: with one head the constant adds noise, two heads whose value weights cancel remove it. What they then
compute is a step of gradient descent on *centred* inputs x_j - mean x, whose best loss has the closed form
(D s^2/2)(1 - (N - 1) / (N + D - 1.2 (N - 1)/N)) (this lab): 0.2185 by default, against 0.2062 for gradient descent. The
paper scales each head's A_h by its value entry B_h(y, y) and adds: what remains is close to a multiple of the identity.

Panels: loss and agreement with the best GD step over training, loss on larger inputs and targets, one row for each
number of heads; the scaled A_h of the first member and their sum. The paper shows one head for 5000 steps; both are
trained for 10,000 here.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator

import jax
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald import shifts
from experiments.von_oswald.common import SCHEDULE, Setting, law_sizes, model, planned, sampler
from experiments.von_oswald.tuning import best_layer, best_step
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_least, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import Transformer, folded_weights
from icl_lab.prompts import BatchLearner
from icl_lab.training import Model


@dataclasses.dataclass(frozen=True)
class Config(Setting, shifts.Scales):
    """Figs. 11 and 12 as the released code runs them."""

    heads: tuple[int, ...] = setting((1, 2), "heads of each network", at_least=1)
    steps: int = setting(10_000, "training steps, a multiple of measure_every", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by trained and GD", at_least=1)


PRESETS = {
    "smoke": Config(members=2, context_length=4, input_size=3, batch=16, steps=20, measure_every=10, eval_tasks=16,
                    population_tasks=64, input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 5.0), shift_tasks=32),
    "quick": Config(heads=(1,), members=6, batch=256, steps=3000, eval_tasks=500, population_tasks=20_000,
                    input_scales=(0.5, 1.0, 1.5, 2.0), other_scales=(0.5, 1.0, 2.0, 3.5, 5.0), shift_tasks=1000),
    "lab": Config(batch=512, eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


LEARNERS = ("trained", "gd")
STEPS = quantity("steps", "step")
CURVE = quantity("heads_{heads}/{metric}", "member", "step", heads="heads")
FINAL = quantity("heads_{heads}/final/{learner}", "member", heads="heads", learner=LEARNERS)
MAPS = quantity("heads_{heads}/maps", "member", "heads_{heads}_head", "row", "column", heads="heads")
SHIFTED = shifts.quantities("heads_{heads}", heads="heads", learner=LEARNERS)


def trainings(config: Config) -> Table:
    """A network for each number of heads."""
    gd = best_layer(config)
    return {
        f"heads_{heads}": planned(config, _network(config, heads), stream=i, references={"gd": gd})
        for i, heads in enumerate(config.heads)
    }


def _network(config: Config, heads: int) -> Model:
    layer = Transformer(layers=1, looped=True, attention="softmax", init_scale=config.init_scale, heads=heads)
    return model(layer, config)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Both networks over training, at the end, far out, and what their heads look at."""
    for i, heads in enumerate(config.heads):
        fit, of = fits[f"heads_{heads}"], learners(config, heads)
        yield CURVE.at(heads=heads), fit.metrics
        tasks, keys = always(sampler(config)), member_keys(config, 900 + i)
        yield FINAL.at(heads=heads), paired_losses(of, tasks, fit.params, keys, config.population_tasks)
        yield MAPS.at(heads=heads), jax.vmap(_scaled_maps)(fit.params)
        far = shifts.losses(config, of, fit.params, member_keys(config, 800 + i), config.columns())
        for column, losses in far.items():
            yield SHIFTED[column].at(heads=heads), losses
    yield STEPS, fit.steps
    eta, best = best_step(config)
    _, centred = theory.centred_step_optimum(**law_sizes(config))
    yield "facts", {"learning_rate": eta, "closed_form": best, "centred": float(centred)}


def learners(config: Config, heads: int) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: trained, and the best GD step."""
    network, gd = _network(config, heads), best_layer(config)
    return lambda params: {"trained": network.learner(params), "gd": gd}


def _scaled_maps(params: dict) -> Array:
    """(H, E, E) maps A_h B_h(y, y): the logits' map of each head times what it makes of the labels."""
    a, b = (weights[0] for weights in folded_weights(params))
    return a * b[:, -1, -1][:, None, None]


EXPERIMENT = Experiment(
    "von_oswald.softmax", __doc__, PRESETS, measured, (STEPS, CURVE, FINAL, MAPS, *SHIFTED.values()),
    trainings=trainings,
    constraints=(*SCHEDULE, once("heads"), at_least("context_length", 2), at_least("input_size", 2)),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
