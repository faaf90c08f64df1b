"""How the time of a training step grows with context, dimension, layers, batch and members: fitted exponents."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from experiments.benchmarks.programs import by_fit, collected, in_chunks
from experiments.benchmarks.timing import Config, Row, Timing, chunks_of_fit, row, take_turns
from experiments.reddy import training
from experiments.reddy.settings import SMALL, WORLDS, Schedule, laws
from experiments.settings import member_keys
from experiments.von_oswald.common import Setting
from icl_lab.models import LinearSelfAttention

LINEAR: dict[str, tuple[int, ...]] = {
    "N": (5, 10, 20, 40, 80),
    "D": (5, 10, 20, 40),
    "L": (1, 2, 4, 8),
    "batch": (256, 512, 1024, 2048, 4096),
    "members": (1, 4, 16, 64),
}
"""Sizes of linear attention, each varied alone around one looped layer at N = D = 10."""

INDUCTION: dict[str, tuple[int, ...]] = {
    "N": (2, 4, 8, 16),
    "D": (15, 31, 63, 127),
    "batch": (32, 64, 128, 256),
    "members": (1, 4, 16),
}
"""Sizes of the induction-head network, around the small setting."""

Train = Callable[[Callable[[int, int], None]], Any]


def scaling(config: Config) -> dict[str, list[Row]]:
    """Milliseconds of a step of all members at each size, with the exponent fitted to them in logarithms.

    ``exponent`` is the slope of a least-squares line through log time over log size, the same in all rows of a size;
    ``local exponent`` is the slope from the size before. What a step costs whatever its size (dispatch, keys, small
    products) makes slopes rise with size.
    """
    found = {}
    for title, sweeps, train in (
        (f"one looped layer of linear attention, N = D = 10, batch {config.batch}", LINEAR, _linear),
        ("induction-head network, small setting, batch 128", INDUCTION, _induction),
    ):
        rows = []
        for name, sizes in sweeps.items():
            rows += _sweep(name, {size: train(config, name, size) for size in sizes}, config)
        found[f"growth of a step: {title}; members at batch {config.ensemble_batch}"] = rows
    return found


def _linear(config: Config, name: str, size: int) -> Train:
    layers, members = (size if name == which else 1 for which in ("L", "members"))
    changes = {"N": {"context_length": size}, "D": {"input_size": size}, "batch": {"batch": size}}.get(name, {})
    batch = {"batch": config.ensemble_batch if name == "members" else config.batch}
    setting = Setting(**(batch | changes))
    return by_fit(LinearSelfAttention(layers=layers, looped=True), setting, config.chunk, members)


def _induction(config: Config, name: str, size: int) -> Train:
    changes = {
        "N": {"context_length": size, "slots": max(2 * size + 1, SMALL["slots"])},
        "D": {"input_size": size},
        "batch": {"batch": size},
        "members": {"batch": config.ensemble_batch},
    }[name]
    setting, members = Schedule(**SMALL | changes), size if name == "members" else 1
    law = laws(setting, member_keys(setting, WORLDS, members))
    keys, model = member_keys(setting, members=members), training.network(setting)
    planned = training.planned(setting, model, keys, law)
    program = collected(lambda session: planned.carried_out(partial(session.fit, "")))
    return in_chunks(program, config.chunk, measure=None)


def _sweep(name: str, trains: Mapping[int, Train], config: Config) -> list[Row]:
    with chunks_of_fit({str(size): train for size, train in trains.items()}) as fits:
        timings = take_turns({size: (run, config.chunk) for size, run in fits.items()}, config.rounds)
    return with_exponents(name, {int(size): timing for size, timing in timings.items()})


def with_exponents(name: str, timings: Mapping[int, Timing]) -> list[Row]:
    """Rows of timings by size, with what power of the size they grow."""
    x, y = np.log(list(timings)), np.log([timing.ms for timing in timings.values()])
    fitted: dict[str, float | str] = {"exponent": float(np.polyfit(x, y, 1)[0])}
    local = [{}, *({"local exponent": float(slope)} for slope in np.diff(y) / np.diff(x))]
    return [row(f"{name} = {size}", timings[size], None, **fitted | more) for size, more in zip(timings, local)]
