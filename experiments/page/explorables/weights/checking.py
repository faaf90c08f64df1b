"""Takes one gradient and three steps of Adam with JAX, on which the page checks its own training.

    python -m experiments.page.explorables.weights.checking

This takes seconds. The record is committed beside this file.
"""

import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.page.explorables import Made, make
from experiments.page.explorables.layer.training import CONFIG
from experiments.page.explorables.weights.data import FOLDER, NAMES
from experiments.von_oswald.common import model, optimizer, sampler
from icl_lab.models import LinearSelfAttention
from icl_lab.training.plans import squared_error

STEPS, BATCH = 3, 16


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return make(__doc__, "weights", FOLDER, _take_steps, argv)


def _take_steps() -> Made:
    layer = model(LinearSelfAttention(layers=1, looped=True, init_scale=1.0), CONFIG)  # large: every term counts
    tasks = [sampler(CONFIG)(jax.random.key(step), BATCH) for step in range(STEPS)]

    def loss(params: dict, sample: Any) -> jax.Array:
        return squared_error(layer.learner(params)(sample.prompt), sample).mean()

    params, steps = layer.init(jax.random.key(STEPS)), optimizer(CONFIG)
    state, start, after, slopes = steps.init(params), packed(params), [], []
    for sample in tasks:
        slope = jax.grad(loss)(params, sample)
        update, state = steps.update(slope, state, params)
        params = optax.apply_updates(params, update)
        slopes.append(packed(slope))
        after.append(packed(params))
    arrays = {
        "start": start, "slope": slopes[0], "after": np.stack(after),
        "x": jnp.stack([t.prompt.x for t in tasks]), "y": jnp.stack([t.prompt.y[..., 0] for t in tasks]),
        "query": jnp.stack([t.prompt.x_query for t in tasks]), "target": jnp.stack([t.target[:, 0] for t in tasks]),
    }  # fmt: skip
    arrays = {name: np.asarray(value, np.float32) for name, value in arrays.items()}
    return vars(CONFIG) | {"steps": STEPS, "batch": BATCH}, {}, arrays


def packed(params: dict) -> np.ndarray:
    """(4, 3, 3) weights in the order of ``NAMES``."""
    return np.stack([np.asarray(params["params"][name])[0, 0] for name in NAMES])


if __name__ == "__main__":
    sys.exit(main())
