"""Takes one gradient and three steps of Adam with JAX, on which the page checks its own training.

    python -m experiments.page.explorables.weights.checking

This takes seconds. The record is committed beside this file.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.page.explorables import Options
from experiments.page.explorables.layer.training import CONFIG
from experiments.page.explorables.weights.data import FOLDER, NAMES
from experiments.von_oswald.common import model, optimizer, sampler
from icl_lab.lab.command_line import command
from icl_lab.lab.provenance import provenance
from icl_lab.lab.records import Record, save
from icl_lab.models import LinearSelfAttention
from icl_lab.training.plans import squared_error

STEPS, BATCH = 3, 16


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _take_steps, argv)


def _take_steps(options: Options) -> int:
    began = time.monotonic()
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
    record = Record(
        "page.weights", "lab", vars(CONFIG) | {"steps": STEPS, "batch": BATCH}, {},
        {name: np.asarray(value, np.float32) for name, value in arrays.items()},
        provenance(time.monotonic() - began, CONFIG.seed),
    )  # fmt: skip
    save(record, Path(options.outdir or FOLDER), [])
    return 0


def packed(params: dict) -> np.ndarray:
    """(4, 3, 3) weights in the order of ``NAMES``."""
    return np.stack([np.asarray(params["params"][name])[0, 0] for name in NAMES])


if __name__ == "__main__":
    sys.exit(main())
