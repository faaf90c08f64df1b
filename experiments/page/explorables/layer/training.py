"""Trains the ten networks of two inputs that the page computes with, and keeps their weights along the way.

    python -m experiments.page.explorables.layer.training

This takes half a minute. The record is committed beside this file, since no experiment keeps weights over time.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from experiments.page.explorables import Made, make
from experiments.von_oswald.common import Setting, one_layer, planned
from experiments.von_oswald.tuning import best_step
from icl_lab.models import folded_weights
from icl_lab.prompts import linear_regression

FOLDER = Path(__file__).with_name("record")
CONFIG = Setting(
    seed=0, members=10, context_length=8, input_size=2, input_range=2.0, eval_tasks=2000, batch=512, steps=3000,
    measure_every=50,
)  # fmt: skip
CHECKED = 60  # prompts whose predictions are exported


def folded(params: dict, *_) -> dict[str, jax.Array]:
    """The products A = W_q W_k^T and B = W_v W_p of the one layer, (3, 3) each."""
    a, b = folded_weights(params)
    return {"a": a[0, 0], "b": b[0, 0]}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return make(__doc__, "layer", FOLDER, _train, argv)


def _train() -> Made:
    layer = one_layer(CONFIG)
    fit = planned(CONFIG, layer, extra=folded).carried_out()
    prompts = linear_regression(context_length=8, input_size=2, input_range=2.0)(jax.random.key(1), CHECKED).prompt
    predictions = jax.vmap(lambda params: layer.learner(params)(prompts))(fit.params)
    arrays: dict[str, Any] = {name: fit.metrics[name] for name in ("a", "b", "loss")}
    arrays |= {"steps": fit.steps, "x": prompts.x, "y": prompts.y[..., 0], "query": prompts.x_query}
    arrays |= {"predictions": predictions[..., 0]}
    if (fit.diverged_at >= 0).any():
        raise RuntimeError("a member diverged")
    eta, best = best_step(CONFIG)
    return vars(CONFIG), {"learning_rate": eta, "closed_form": best}, arrays


if __name__ == "__main__":
    sys.exit(main())
