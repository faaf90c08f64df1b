"""Seconds that ``identify`` takes a member, by stage; compilation apart."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments.tools.benchmarks.timing import Config, Row, Timing, row
from icl_lab import solvers
from icl_lab.identify import (
    EXACT,
    FAMILIES,
    Setting,
    all_fits,
    answers,
    asked,
    battery,
    fingerprint,
    in_units,
    one_member,
    refusal,
    rotations,
    structure,
    training_prompts,
)
from icl_lab.prompts import linear_regression


def identify_stages(config: Config) -> dict[str, list[Row]]:
    """Stages of learners that need few fits (one step), most of them (GD++ with own steps), or a refusal."""
    return {"identify": [row for size in (5, 10) for row in _stages(config, size)]}


def _stages(config: Config, size: int) -> list[Row]:
    sampler = linear_regression(context_length=20, input_size=size)
    units, on, rng = battery(sampler, 20, size, 0)
    setting = Setting(units, on, rotations(rng, size), FAMILIES)
    rates, gammas = np.array([0.5, 1.0, 0.3]) / units.eigenvalue, np.array([0.3, 0.1, 0.1]) / units.eigenvalue / 20
    rows = []
    for name, learner in {
        "GD, 1 step": solvers.gradient_descent(0.8 / units.eigenvalue, 1),
        "GD, 5 steps": solvers.gradient_descent(0.3 / units.eigenvalue, 5),
        "GD++, 3 steps of their own": solvers.gd_plus_plus(rates, gammas),
        "2 x ridge (refused)": lambda prompt: 2 * solvers.ridge(5.0 * units.eigenvalue)(prompt),
    }.items():
        started = time.perf_counter()
        ask = in_units(asked(learner, name, training_prompts(on, units)), units)
        compile_ms = 1e3 * (time.perf_counter() - started)
        about = structure(ask, on, 0)
        found = answers(ask, on, setting.turns)
        out = refusal.excluded(about, FAMILIES, 0.0, EXACT, False)
        names = [name for name in FAMILIES if name not in out]
        stages: dict[str, Callable[[], Any]] = {
            "structure": partial(structure, ask, on, 0),
            "fingerprint": partial(fingerprint, ask, units, 20, size, 0),
            "symmetrise": partial(answers, ask, on, setting.turns),
            "fits": partial(all_fits, found, names, setting),
            "symmetrise, fit, decide, stability, range": partial(one_member, ask, about, setting),
        }
        for stage, run in stages.items():
            times = []
            for _ in range(config.rounds):
                started = time.perf_counter()
                run()
                times.append(1e3 * (time.perf_counter() - started))
            first = compile_ms if stage == "structure" else 0.0
            rows.append(row(f"D = {size}, {name}: {stage}", Timing(first, np.array(times))))
    return rows
