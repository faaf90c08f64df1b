"""What the trained matrices look like (von Oswald et al. 2022, Fig. 9).

A = W_q W_k^T compares tokens and B = W_v W_p writes the answer. For one layer A is a multiple of the identity on the
inputs and B only its label entry, minus eta/N: gradient descent. For three looped layers B also has -gamma on the
inputs: GD++. The scale gauge (cA, B/c) is fixed by giving A mean input diagonal 1, and entries that cannot reach the
read-out are not shown.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax

from experiments.von_oswald.common import NETWORKS, Networks, chosen_of, model, unpack
from experiments.von_oswald.tuning import after, compared_with, solver_json, tunings
from icl_lab.compare import align_weights
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Fig. 9 as the released code runs it."""

    networks: tuple[str, ...] = setting(("looped_1", "looped_3"), "looped_K: K layers that share their weights")
    steps: tuple[int, ...] = setting((5000, 5000), "training steps of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 1e-3), "1e-3 for K <= 3, else 5e-4", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 0.0), "10 for K > 3 (text: K > 2), 0 is off", at_least=0)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batches=(16, 16), steps=(20, 20), measurements=(2, 2), eval_tasks=16,
        tuning_contexts=200, tuning_steps=4, tuning_batch=16,
    ),
    "quick": Config(members=6, batches=(256, 512), steps=(2000, 4000), measurements=(2, 2), eval_tasks=500,
                    tuning_contexts=4000, tuning_steps=1000, tuning_batch=256),
    "lab": Config(batches=(2048, 1024), eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


DISTANCE = quantity("{network}/distance", "member", network=chosen_of)
COSINE = quantity("{network}/cosine", "member", network=chosen_of)
MATRIX = quantity(
    "{network}/{learner}/{matrix}", "member", "row", "column",
    network=chosen_of, learner=("trained", "built"), matrix=("a", "b"),
)  # fmt: skip


def trainings(config: Config) -> Table:
    """Tunings of the solvers through a token clip, and every network."""
    table: dict[str, Any] = dict(tunings(config))
    for name, (network, one) in unpack(config).items():
        at = config.networks.index(name)
        table[name] = after(one, model(network, one), partial(beside, config, name), stream=at)
    return table


def beside(config: Config, name: str, fits: Fits) -> dict[str, Any]:
    """What a network is measured with: its construction."""
    one = compared_with(config, name, fits)
    return {"references": {"built": model(one.network, one.setting).learner(one.weights(one.match))}}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """(M, E, E) matrices of every network and its construction, aligned; (M,) their distance and cosine."""
    for name in unpack(config):
        one, fit = compared_with(config, name, fits), fits[name]
        align = partial(align_weights, layers=one.network.layers, looped=True, input_size=config.input_size)
        aligned = jax.vmap(partial(align, params_b=one.weights(one.match)))(fit.params)
        yield DISTANCE.at(network=name), aligned["distance"][:, 0]
        yield COSINE.at(network=name), fit.metrics["built_sensitivity_cosine"][:, -1]
        for learner, pair in (("trained", aligned["canonical_a"]), ("built", aligned["canonical_b"])):
            matrices = {matrix: values[:, 0, 0] for matrix, values in zip("ab", pair)}
            yield MATRIX.at(network=name, learner=learner), matrices
        yield "facts", {name: solver_json(one.solvers[one.match])}


EXPERIMENT = Experiment(
    "von_oswald.weight_maps", __doc__, PRESETS, measured, (DISTANCE, COSINE, MATRIX),
    trainings=trainings, constraints=NETWORKS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
