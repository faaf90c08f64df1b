"""Networks trained on corrupted context labels (this lab).

The released code only evaluates on such labels (``noisy_labels``). Here m of the N context labels are replaced by N(0,
1) draws, in training and evaluation. A layer looped twice is trained at each m (all m and all members in one program)
and compared with two-step GD and GD++ whose eta and gamma are tuned by gradient on the same tasks, and with the mean of
trained and GD++ weights.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import panels
from experiments.settings import member_keys
from experiments.training import Model, always, learners_of, paired_losses
from experiments.von_oswald.common import Setting, constructed, interpolated, model, sampler, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.noisy_labels import check_labels
from experiments.von_oswald.tuning import exactly_tuned, tune_on_tasks
from icl_lab.lab import Experiment, Record, Session, claims_of, main, setting
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import input_variance


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """As the notebook on noisy labels, but trained on them."""

    layers: int = setting(2, "K, layers that share their weights", at_least=1)
    corrupted: tuple[int, ...] = setting((0, 2, 4, 6, 8), "m, corrupted labels among the N of a context", at_least=0)
    tuning_steps: int = setting(2000, "Adam steps that tune eta and gamma at each m", at_least=1)
    tuning_batch: int = setting(2048, "tasks of a tuning step", at_least=1)
    tuning_contexts: int = setting(100_000, "contexts on which the clean starting values are tuned", at_least=2)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32,
        corrupted=(0, 2), tuning_steps=4, tuning_batch=16, tuning_contexts=200, population_tasks=64,
    ),
    "quick": Config(members=6, batch=256, steps=3000, eval_tasks=500, corrupted=(0,), tuning_steps=500,
                    tuning_batch=512, tuning_contexts=4000, population_tasks=20_000),
    "lab": Config(batch=512, eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


def _network(config: Config) -> LinearSelfAttention:
    return LinearSelfAttention(layers=config.layers, looped=True, init_scale=config.init_scale)


def models(config: Config) -> dict[str, Model]:
    """What is trained: first all members at the first m, then all at the second ..."""
    return {"training": model(_network(config), config)}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tunes the solvers and trains the network at every m, then compares on the same tasks."""
    solvers = _tuned(config, session)
    trained, counts = models(config)["training"], jnp.asarray(config.corrupted)
    grid = jnp.repeat(counts, config.members)
    fitted = train(
        session, "training", config, trained, keys=member_keys(config, 0, grid.size),
        sampler_of=lambda _, m: sampler(config, corrupted_labels=m), settings=grid,
    )  # fmt: skip
    finals = []
    for i, count in enumerate(config.corrupted):
        here = slice(i * config.members, (i + 1) * config.members)
        params = jax.tree.map(lambda leaf, here=here: leaf[here], fitted.params)
        finals.append(_finals(config, trained, params, count, solvers[:, i]))
    arrays = {
        "steps": fitted.steps,
        "loss": fitted.metrics["loss"].reshape(len(counts), config.members, -1),
        "final": {name: np.stack([final[name] for final in finals]) for name in finals[0]},
    }
    return {"gd": solvers[0].tolist(), "gd++": solvers[1].tolist()}, arrays


def _tuned(config: Config, session: Session) -> np.ndarray:
    """(2, counts, 2, 1): of GD and of GD++, at every m, eta and gamma of the one weight set."""
    network, counts = _network(config), jnp.asarray(config.corrupted)
    clean = exactly_tuned(config, network, config.tuning_contexts)
    starts = np.repeat([np.stack([s.learning_rates, s.gammas]) for s in clean], len(counts), axis=0)
    found, _, _ = tune_on_tasks(
        session, "tuning", config, network, starts, lambda m: sampler(config, corrupted_labels=m), jnp.tile(counts, 2),
        steps=config.tuning_steps, batch=config.tuning_batch,
    )  # fmt: skip
    return found.reshape(2, len(counts), 2, 1)


def _finals(config: Config, trained: Model, params: dict, count: int, solvers: np.ndarray) -> dict[str, np.ndarray]:
    """(M,) final losses by learner at m = count, on the same tasks."""
    gd, gdpp = (constructed(config, eta, gamma) for eta, gamma in solvers)
    built, middle = {"gd": trained.learner(gd), "gd++": trained.learner(gdpp)}, interpolated(trained, gdpp, config)
    return paired_losses(
        lambda params: {"trained": trained.learner(params), **built, "interpolated": middle(params)},
        always(sampler(config, corrupted_labels=count)),
        params,
        member_keys(config, 900),
        config.population_tasks,
    )


def figures(record: Record) -> dict[str, Figure]:
    """Final losses over the number of corrupted labels, and training curves."""
    config = record.config
    figure, ((finals, curves),) = axes_grid(2, 1, width=3.6)
    shown = {name: record[f"final/{name}"] for name in ("trained", "gd", "gd++", "interpolated")}
    panels.points_panel(finals, config["corrupted"], shown, "corrupted labels of a context")
    finals.set_ylim(0, 1.3 * max(float(np.median(losses, axis=1).max()) for losses in shown.values()))
    panels.family_panel(curves, record["steps"], record["loss"], [f"m = {m}" for m in config["corrupted"]])
    return {"noisy_labels_retrained": figure}


def _past(record: Record, learner: str, reference: str) -> np.ndarray:
    """(M,) largest ratio of final losses over the m at which a member has done half of the drop from zero to GD.

    The rest wait on a plateau. No multiple of the loss of GD tells them: at m = 8 zero has 1.03 times that loss.
    """
    final, config = record["final"], record.config
    zero = config["input_size"] * input_variance("uniform", config["input_range"]) / 2
    past = final["trained"] < (zero + final["gd"]) / 2
    largest = np.where(past, final[learner] / final[reference], -np.inf).max(axis=0)
    return np.where(past.any(axis=0), largest, np.nan)


claim = claims_of(
    "von_oswald.noisy_labels_retrained",
    "this lab, on von Oswald et al. 2022",
    at_lab={"matches_gdpp": "fails"},
    presets=("lab",),
)

CLAIMS = (
    claim("matches_gdpp", "",
          "At every number of corrupted labels a layer looped twice, trained on them, is no worse than tuned "
          "GD++ (largest ratio of losses over the numbers at which a member has left the plateau, median).",
          lambda record: _past(record, "trained", "gd++"), 1.0, 0.02, relation="<=", interval="median",
          reason="2 % is a line's width on the notebook's axis (.2 to .5)",
          control=lambda record: _past(record, "trained", "gd")),
    claim("beats_gd", "", "With clean labels a layer looped twice beats tuned two-step GD (ratio of losses).",
          lambda record: record["final/trained"][0] / record["final/gd"][0], 0.85, relation="<=",
          reason="half of the gain of GD++ over GD, .1106 against .1567"),
    claim("interpolated", "", "The mean of trained and GD++ weights is no worse than GD++ either (as for the trained "
          "network, median).",
          lambda record: _past(record, "interpolated", "gd++"), 1.0, 0.02, relation="<=", interval="median",
          reason="as for the trained network"),
)  # fmt: skip

AXES = {"steps": ("step",), "loss": ("corrupted", "member", "step"), "final/*": ("corrupted", "member")}

EXPERIMENT = Experiment(
    "von_oswald.noisy_labels_retrained", __doc__, PRESETS, run, figures, CLAIMS, check_labels, axes=AXES,
    learners=learners_of(models), quick=QUICK["noisy_labels_retrained"], finding=FINDINGS["noisy_labels_retrained"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
