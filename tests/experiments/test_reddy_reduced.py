"""Claims of the landscape of the reduced model on records made of its closed forms, and of others."""

from typing import Any

import numpy as np
from toys import verdicts

from experiments.reddy import landscape, landscape_shown
from experiments.reddy.landscape_panels import NAMES
from icl_lab.lab.flags import to_json
from icl_lab.lab.records import Record
from icl_lab.theory import balanced_alpha, cliff_time_limit


def landscape_record(*changes):
    """The closed forms themselves."""
    config = landscape.PRESETS["lab"]
    n = np.array(config.lengths)[:, None]
    labels = np.ceil(n * np.array(config.factors))
    saddles, scales = len(config.saddle_lengths), np.array(config.scales)
    times = np.concatenate([[0.0], np.geomspace(1, 4000, 300)])
    beta_1 = np.linspace(0, 6, 301)
    top = cliff_time_limit(n, labels)
    arrays: dict[str, Any] = landscape.WAIT_LIMIT.named(top) | landscape.WAIT_LABELS.named(labels)
    for form in NAMES:
        loss = np.log(4 * n) * (times[None] < top[:, 2:3])
        for quantity, values in (
            (landscape.SLOPE, np.full((labels.size, 3), 0.04)),
            (landscape.SLOPE_ERROR, np.zeros(labels.size)),
            (landscape.SADDLE_SLOPE, np.zeros((saddles, 3))),
            (landscape.SADDLE_RATE_ERROR, np.zeros(saddles)),
            (landscape.WAIT, np.stack([top / (1 + 0.04 * 3.0 ** -np.arange(len(n))[:, None]), top])),
            (landscape.LENGTHS_LOSS, loss),
            (landscape.TIMES, times),
            (landscape.PATH, np.stack([beta_1, balanced_alpha(beta_1, 8), beta_1], axis=1)),
            (landscape.RATE, np.full(saddles, 0.01)),
            (landscape.ESCAPE, np.broadcast_to(50 - np.log(scales) / 0.01, (saddles, 2, len(scales)))),
            (landscape.RANDOM, np.linspace(300, 500, 200)),
            (landscape.RANDOM_PREDICTED, np.linspace(300, 500, 200)),
        ):
            arrays |= quantity.at(form=form).named(values)
    for quantity, values in changes:
        arrays |= quantity.named(values)
    return Record("toy", "lab", to_json(config), {}, arrays, {})


def failing(binary, record):
    return {name for name, verdict in verdicts(binary.CLAIMS, record).items() if verdict == "fails"}


def test_the_closed_forms_bear_every_claim_out():
    assert set(verdicts(landscape_shown.CLAIMS, landscape_record()).values()) == {"holds"}


def test_waits_and_random_starts_that_are_others_are_told():
    random = landscape.RANDOM.at(form="mean_field")
    changed = landscape_record(
        (landscape.WAIT.at(form="simplified"), np.stack([np.ones((4, 5)), 1.2 * np.ones((4, 5))])),
        (random, 1.1 * random(landscape_record())),
    )
    assert failing(landscape_shown, changed) == {
        "cliff_simplified", "narrowing_simplified", "wait_pairs_simplified", "wait_labels_simplified", "limit",
        "random_mean_field",
    }  # fmt: skip


def test_one_cell_of_twenty_is_enough_for_an_exact_claim_to_fail():
    good = landscape_record()
    for form in NAMES:
        handles = [
            quantity.at(form=form)
            for quantity in (
                landscape.WAIT, landscape.LENGTHS_LOSS, landscape.SLOPE_ERROR, landscape.SADDLE_SLOPE,
                landscape.SADDLE_RATE_ERROR, landscape.ESCAPE,
            )
        ]  # fmt: skip
        wait, loss, slope, saddle, rate, escape = worse = [quantity(good).copy() for quantity in handles]
        wait[1, 0, 0] *= 1.5
        loss[0] *= np.linspace(1, 0.1, loss.shape[1]) ** 3
        slope[3], saddle[1, 2], rate[1], escape[0, 0, -1] = 1e-5, -1e-9, -1e-3, 1.1 * escape[0, 0, -1]
        names = ("slope", "critical", "saddle", "cliff", "escape", "shelf")
        found = failing(landscape_shown, landscape_record(*zip(handles, worse)))
        assert found == {f"{name}_{form}" for name in names}
    field, exact = landscape.WAIT.at(form="mean_field"), landscape.WAIT.at(form="simplified")
    unordered = field(good).copy()
    unordered[1, 1, 1] = unordered[1, 0, 1]
    assert failing(landscape_shown, landscape_record((field, unordered))) >= {"wait_pairs_mean_field"}
    last, path = exact(good).copy(), landscape.PATH(good, form="simplified").copy()
    last[:, -1, 0] *= 1.05
    path[200, 1] *= 1.001
    changed = landscape_record((exact, last), (landscape.PATH.at(form="simplified"), path))
    assert failing(landscape_shown, changed) == {"limit", "path"}
