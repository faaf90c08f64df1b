"""Asks four trained networks and one solver on the contexts by which ``identify`` judges, and keeps their answers.

    python -m experiments.page.explorables.fingerprint.measuring

This takes a minute. The residual factors of all ten members are those of the committed record of
``identification.von_oswald``. The record is committed beside this file.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.identification.networks import members_of, sampler_of
from experiments.page.explorables import Made, make
from icl_lab.identify import battery, fingerprint, in_units, rotations
from icl_lab.identify.asking import asked
from icl_lab.identify.explorable.data import FAMILIES, checks, fitted
from icl_lab.identify.probes import JUDGE, answers, training_prompts
from icl_lab.lab import load_run
from icl_lab.lab.records import load
from icl_lab.solvers import ridge

HERE = Path(__file__)
FOLDER = HERE.with_name("record")
GALLERY = HERE.parents[4] / "figures"
LEARNERS = {
    "one layer": "weight_maps/looped_1",
    "three loops of one layer": "weight_maps/looped_3",
    "five free layers": "multi_step/free_5",
    "two softmax heads": "softmax/heads_2",
}
MYSTERY, STRENGTH = "a mystery learner", 0.15
SEED, N, D, MEMBER = 0, 10, 10, 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return make(__doc__, "fingerprint", FOLDER, _measure, argv)


def _measure() -> Made:
    known = load(GALLERY / "identification" / "von_oswald" / "lab")
    one = load_run(GALLERY / "von_oswald" / "weight_maps" / "lab")
    units, every, rng = battery(sampler_of(one.record.config), N, D, SEED)
    turns, on = rotations(rng, D), every.take(JUDGE)
    means, doubled, factors = [], [], []

    def answer(learner: Any, name: str) -> Any:
        ask = in_units(asked(learner, name, training_prompts(every, units)), units)
        means.append(answers(ask, on, turns).mean)
        doubled.append(answers(ask, on.scaled(2, 2), turns).mean)
        return ask

    for name, place in LEARNERS.items():
        record, stage = place.split("/")
        answer(members_of(load_run(GALLERY / "von_oswald" / record / "lab"), stage, 1)[MEMBER], name)
        factors.append(known.arrays[f"{place}/r"])
    ask = answer(ridge(STRENGTH), MYSTERY)
    factors.append(np.repeat(fingerprint(ask, units, N, D, SEED)["r"][None], len(factors[0]), axis=0))
    grid = known.arrays[f"{place}/grid"] / units.eigenvalue
    arrays: dict[str, Any] = {
        "eigenvalues": on.plain.eigenvalues, "weights": on.plain.weights, "answers": means, "doubled": doubled,
        "grid": grid, "factors": factors, "training": [units.low, units.high],
    }  # fmt: skip
    arrays = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    fits = [[fitted(arrays, learner, family) for family in FAMILIES] for learner in range(len(means))]
    facts = {"learners": [*LEARNERS, MYSTERY], "checks": checks(arrays, range(len(means)), SEED), "fits": fits}
    facts |= {"member": MEMBER, "strength": STRENGTH}
    return {"seed": SEED, "context_length": N, "input_size": D}, facts, arrays


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", False)
    sys.exit(main())
