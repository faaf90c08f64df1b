"""What the trained matrices look like (von Oswald et al. 2022, Fig. 9).

A = W_q W_k^T compares tokens and B = W_v W_p writes the answer. For one layer A is a multiple of the identity on the
inputs and B only its label entry, minus eta/N: gradient descent. For three looped layers B also has -gamma on the
inputs: GD++. The scale gauge (cA, B/c) is fixed by giving A mean input diagonal 1, and entries that cannot reach the
read-out are not shown.
"""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np

from experiments.settings import member_keys
from experiments.statistics import Statistic
from experiments.training import Model, learners_of
from experiments.von_oswald.common import Networks, check_networks, chosen, models, parts, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import network_label
from experiments.von_oswald.tuning import Compared, compared, solver_json
from icl_lab.compare import align_weights
from icl_lab.lab import Claim, Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure


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


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains every network and aligns its weights with the construction's."""
    metrics, arrays, trained = {}, {}, models(config)
    for one in compared(session, config):
        # the gamma of the last application has no effect: one layer is compared with GD
        solver, weights = (one.gd_solver, one.gd) if one.network.layers == 1 else (one.gdpp_solver, one.gdpp)
        arrays[one.name] = _aligned(config, session, one, trained[one.name], weights)
        metrics[one.name] = solver_json(solver)
    return metrics, arrays


def _aligned(config: Config, session: Session, one: Compared, trained: Model, weights: dict) -> dict[str, Any]:
    """Arrays of one network: (M, E, E) matrices, trained and constructed; (M,) their distance and cosine."""
    fitted = train(
        session, one.name, one.setting, trained, keys=member_keys(config, one.stage),
        references={"built": trained.learner(weights)},
    )  # fmt: skip
    aligned = jax.vmap(
        lambda params: align_weights(
            params, weights, layers=one.network.layers, looped=True, input_size=config.input_size
        )
    )(fitted.params)
    canonical = {"trained": aligned["canonical_a"], "built": aligned["canonical_b"]}
    return {
        "distance": np.asarray(aligned["distance"][:, 0]),
        "cosine": fitted.metrics["built_sensitivity_cosine"][:, -1],
        **{
            learner: {matrix: np.asarray(values[:, 0, 0]) for matrix, values in zip("ab", pair)}
            for learner, pair in canonical.items()
        },
    }


def figures(record: Record) -> dict[str, Figure]:
    """One row a network: A and B of the first member and of the construction, each pair on one colour scale.

    The scale of B is that of its input diagonal, minus gamma, where it has one; the label entry is written.
    """
    config = from_json(Config, record.config)
    names, d = chosen(config), config.input_size
    figure, axes = style.panels(4, len(names), width=2.3, height=2.1)
    for row, name in zip(axes, names):
        for j, matrix in enumerate("ab"):
            shown = [record[f"{name}/{learner}/{matrix}"][0] for learner in ("trained", "built")]
            inputs = max(float(np.abs(m[:d, :d]).max()) for m in shown)
            largest = max(float(np.abs(m).max()) for m in shown)
            clipped = name != "looped_1" and matrix == "b"
            for axis, one, label in zip(row[2 * j :], shown, ("trained", "built")):
                limit = inputs if clipped else largest
                image = style.heat_map(axis, one, limit, f"{matrix.upper()}, {label}")
                if clipped:
                    axis.text(d, d, f"{one[d, d]:.1f}", color="white", ha="center", va="bottom", fontsize=5)
            extend = "min" if clipped else "neither"
            figure.colorbar(image, ax=list(row[2 * j : 2 * j + 2]), shrink=0.8, extend=extend, label=style.BARRED)
        row[0].set_ylabel(network_label(name))
    return {"weight_maps": figure}


def _on_inputs(record: Record, name: str, matrix: str) -> np.ndarray:
    d = record.config["input_size"]
    return record[f"{name}/trained/{matrix}"][:, :d, :d]


def _off_diagonal(name: str, matrix: str) -> Statistic:
    """(M,) root mean square of the entries off the input diagonal over the mean size of those on it."""

    def statistic(record: Record) -> np.ndarray:
        block = _on_inputs(record, name, matrix)
        d = block.shape[-1]
        off = block[:, ~np.eye(d, dtype=bool)]
        on = np.diagonal(block, axis1=1, axis2=2)
        return np.sqrt((off**2).mean(axis=1)) / np.abs(on).mean(axis=1)

    return statistic


def _diagonal_spread(name: str, matrix: str) -> Statistic:
    """(M,) standard deviation of the input diagonal over its mean size."""

    def statistic(record: Record) -> np.ndarray:
        on = np.diagonal(_on_inputs(record, name, matrix), axis1=1, axis2=2)
        return on.std(axis=1) / np.abs(on.mean(axis=1))

    return statistic


def _input_rest(record: Record) -> np.ndarray:
    """(M,) for one layer: largest entry of B that reaches the read-out, other than the label's, over the label's."""
    d = record.config["input_size"]
    column = record["looped_1/trained/b"][:, :, d]
    return np.abs(column[:, :d]).max(axis=1) / np.abs(column[:, d])


def _gamma(record: Record) -> np.ndarray:
    """(M,) gamma read off the three looped layers over the tuned one."""
    on = np.diagonal(_on_inputs(record, "looped_3", "b"), axis1=1, axis2=2)
    return -on.mean(axis=1) / record.metrics["looped_3"]["gammas"][0]


claim = claims_of("von_oswald.weight_maps", "von Oswald et al. 2022, Fig. 9", presets=("lab",))


def _small(name: str, statement: str, statistic: Statistic, bound: float, reason: str) -> Claim:
    return claim(name, "", statement, statistic, bound, relation="<=", reason=reason)


_EYE = "what the eye takes for zero beside one in a heat map"

CLAIMS = (
    _small("a_1", "One layer: A is diagonal on the inputs (rms off the diagonal over the diagonal).",
           _off_diagonal("looped_1", "a"), 0.05, _EYE),
    _small("a_1_even", "One layer: A's input diagonal is even (spread over mean).",
           _diagonal_spread("looped_1", "a"), 0.05, _EYE),
    _small("b_1", "One layer: B only has its label entry (largest other entry in its column, over it).",
           _input_rest, 0.1, _EYE),
    _small("a_3", "Three looped layers: A is diagonal on the inputs.", _off_diagonal("looped_3", "a"), 0.05, _EYE),
    _small("b_3", "Three looped layers: B is diagonal on the inputs.", _off_diagonal("looped_3", "b"), 0.05, _EYE),
    _small("b_3_even", "Three looped layers: B's input diagonal has one magnitude (spread over mean).",
           _diagonal_spread("looped_3", "b"), 0.1, _EYE),
    claim(
        "gamma_3", "",
        "Three looped layers: B's input diagonal is minus the gamma of tuned three-step GD++ (ratio).", _gamma,
        expected=1.0, tolerance=0.1, reason="gamma has a flat optimum; Fig. 13 reads it to about 5 %",
    ),
)  # fmt: skip


AXES = {"*/distance": ("member",), "*/cosine": ("member",), "*": ("member", "row", "column")}

EXPERIMENT = Experiment(
    "von_oswald.weight_maps", __doc__, PRESETS, run, figures, CLAIMS, check_networks, parts, axes=AXES,
    learners=learners_of(models), quick=QUICK["weight_maps"], finding=FINDINGS["weight_maps"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
