"""A grid of settings as one program, against a program for each of its cells."""

import dataclasses
import time
from collections.abc import Callable

import jax
import numpy as np

from experiments.benchmarks.programs import program
from experiments.benchmarks.timing import Config, Row
from experiments.von_oswald.settings import Setting
from icl_lab.grids.merging import Request, merge
from icl_lab.models import LinearSelfAttention
from icl_lab.training import Fit, fit

MEMBERS = 4
STEPS = 500


def grid(config: Config) -> dict[str, list[Row]]:
    """Learning rates of the one-layer network, four members each, 500 steps: seconds of the whole grid.

    All of it counts: tracing, finding what differs, compilation, training. The baseline trains one cell after the other
    in the same process, each with a program in which its learning rate is a constant.
    """
    cells = max(2, config.ensemble // 2)
    requests = [_request(config, rate) for rate in np.geomspace(3e-4, 3e-3, cells).tolist()]
    together, of_all = _seconds(lambda: [(which, fit(**arguments)) for which, arguments in merge(requests)])
    apart, of_each = _seconds(lambda: [fit(**request.arguments) for request in requests])
    merged = {i: w for which, one in of_all for i, w in zip(which, np.split(_final(one), len(which)), strict=True)}
    difference = max(
        float(np.max(np.abs(a - merged[i]) / np.max(np.abs(a)))) for i, a in enumerate(map(_final, of_each))
    )
    columns = {"programs": float(len(of_all)), "largest difference of weights": difference}
    return {
        f"a grid of {cells} learning rates, {MEMBERS} members each, batch {config.ensemble_batch}": [
            Row("a program for each", 1e3 * apart, 1.0, {"programs": float(cells)}),
            Row("one program", 1e3 * together, apart / together, columns),
        ]
    }


def _request(config: Config, rate: float) -> Request:
    setting = dataclasses.replace(Setting(), batch=config.ensemble_batch, learning_rate=rate)
    p = program(LinearSelfAttention(layers=1, looped=True), setting, MEMBERS)
    options = p.options | {"steps": STEPS, "measure_every": STEPS}
    return Request.of("training", (p.init, p.loss, p.optimizer, p.keys, p.settings), options)


def _final(fitted: Fit) -> np.ndarray:
    """(members, all weights) of a training."""
    return np.concatenate([np.reshape(leaf, (leaf.shape[0], -1)) for leaf in jax.tree.leaves(fitted.params)], axis=1)


def _seconds(run: Callable[[], list]) -> tuple[float, list]:
    jax.clear_caches()
    started = time.perf_counter()
    found = jax.block_until_ready(run())
    return time.perf_counter() - started, found
