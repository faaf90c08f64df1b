import dataclasses
from typing import Any

import numpy as np
import pytest

from experiments.reddy import landscape, reduced_model, reduced_model_claims
from experiments.reddy.landscape_figures import NAMES
from icl_lab.lab.claims import judge
from icl_lab.lab.flags import FlagError, to_json
from icl_lab.lab.records import Record
from icl_lab.theory import balanced_alpha, cliff_time_limit

MEMBERS, STEPS, EQUAL_STEPS = 10, np.arange(0, 8001, 100), np.arange(0, 4001, 100)


def jump():
    """Step at which the flow has half of its loss, at the rate of the preset lab."""
    times, _, loss = reduced_model_claims._flow(8, 32, "mean_field")
    return np.interp(-np.log(32) / 2, -loss, times) / 0.05


def rise(steps, at, low, high, width):
    """(M, R) logistic curves, one for each time in ``at``."""
    return low + (high - low) / (1 + np.exp(-(steps[None] - np.asarray(at)[:, None]) / width))


def reduced_record(changes=None):
    """Members that jump as the flow does: labels of the context first, then all at once."""
    config = to_json(reduced_model.PRESETS["lab"])
    _, path, _ = reduced_model_claims._flow(8, 32, "mean_field")
    arrays: dict[str, Any] = {"steps": STEPS, "equal_steps": EQUAL_STEPS}
    for part, late in (("three", 1.0), ("two", 1.15)):
        at = late * jump() + np.linspace(-80, 80, MEMBERS)
        early = (1 - (STEPS[None] < at[:, None] - 1500)) if part == "three" else 0.0
        arrays[f"{part}/ic"] = rise(STEPS, at, 0.03, 1.0, 20)
        arrays[f"{part}/ila1"] = rise(STEPS, at, 0.17, 0.9, 20)
        arrays[f"{part}/cla"] = np.maximum(rise(STEPS, at - 500, 0.25, 0.7, 200), rise(STEPS, at, 0.25, 1.0, 20))
        arrays[f"{part}/tla2"] = np.maximum(rise(STEPS, at, 0.47, 0.95, 20), 0.47 + 0.4 * early)
        arrays[f"{part}/beta_1"] = rise(STEPS, at, 0.0, 5.0, 20)
        arrays[f"{part}/alpha"] = np.interp(arrays[f"{part}/beta_1"], path[:, 0], path[:, 1])
        arrays[f"{part}/ic_loss"] = rise(STEPS, at, np.log(32), 0.0, 20)
    starts = [np.where(np.arange(MEMBERS) < 5, 3000, 9000), np.full(MEMBERS, 1500), np.full(MEMBERS, 600)]
    arrays["equal/ic"] = np.stack([rise(EQUAL_STEPS, at, 0.25, 1.0, 20) for at in starts])
    arrays["more/ic"] = rise(EQUAL_STEPS, np.full(MEMBERS, 1200), 0.06, 1.0, 20)[None]
    return Record("toy", "lab", config, {}, arrays | (changes or {}), {})


def landscape_record(changes=None):
    """The closed forms themselves."""
    config = landscape.PRESETS["lab"]
    n = np.array(config.lengths)[:, None]
    labels = np.ceil(n * np.array(config.factors))
    saddles, scales = len(config.saddle_lengths), np.array(config.scales)
    times = np.concatenate([[0.0], np.geomspace(1, 4000, 300)])
    beta_1 = np.linspace(0, 6, 301)
    arrays: dict[str, Any] = {"wait_limit": cliff_time_limit(n, labels), "wait_labels": labels}
    for form in NAMES:
        top = arrays["wait_limit"]
        loss = np.log(4 * n) * (times[None] < top[:, 2:3])
        arrays |= {
            f"{form}/slope": np.full((labels.size, 3), 0.04),
            f"{form}/slope_error": np.zeros(labels.size),
            f"{form}/saddle_slope": np.zeros((saddles, 3)),
            f"{form}/saddle_rate_error": np.zeros(saddles),
            f"{form}/wait": np.stack([top / (1 + 0.04 * 3.0 ** -np.arange(len(n))[:, None]), top]),
            f"{form}/lengths_loss": loss,
            f"{form}/times": times,
            f"{form}/path": np.stack([beta_1, balanced_alpha(beta_1, 8), beta_1], axis=1),
            f"{form}/rate": np.full(saddles, 0.01),
            f"{form}/escape": np.broadcast_to(50 - np.log(scales) / 0.01, (saddles, 2, len(scales))),
            f"{form}/random": np.linspace(300, 500, 200),
            f"{form}/random_predicted": np.linspace(300, 500, 200),
        }
    return Record("toy", "lab", to_json(config), {}, arrays | (changes or {}), {})


def verdicts(binary, record):
    return {row["id"].split(".", 2)[-1]: row["verdict"] for row in (judge(claim, record) for claim in binary.CLAIMS)}


def failing(binary, record):
    return {name for name, verdict in verdicts(binary, record).items() if verdict == "fails"}


def test_members_that_jump_as_the_paper_says_bear_every_claim_out():
    assert set(verdicts(reduced_model, reduced_record()).values()) == {"holds"}
    assert set(verdicts(landscape, landscape_record()).values()) == {"holds"}


def test_members_that_do_not_are_told():
    good = reduced_record().arrays
    slow = reduced_record({"three/ic": rise(STEPS, np.full(MEMBERS, jump()), 0.03, 1.0, 400)})
    assert failing(reduced_model, slow) == {"sharp_three"}
    never = reduced_record({"two/ic": 0.1 + 0 * good["two/ic"], "more/ic": 0.1 + 0 * good["more/ic"]})
    assert {"solves_two", "more_from_zero"} <= failing(reduced_model, never)
    together = reduced_record(
        {"three/cla": good["three/ila1"], "three/tla2": good["three/ila1"], "two/tla2": good["two/cla"]}
    )
    assert failing(reduced_model, together) == {"cla_first", "tla2_first", "tla2_not_needed"}
    alike = reduced_record({"equal/ic": np.stack([good["equal/ic"][1]] * 3), "two/ic": good["three/ic"]})
    assert {"equal_start", "two_later"} <= failing(reduced_model, alike)
    astray = reduced_record({"two/alpha": 1.3 * good["two/alpha"]})
    assert failing(reduced_model, astray) == {"path_two"}
    later = reduced_record({"two/ic_loss": rise(STEPS, np.full(MEMBERS, 2.5 * jump()), np.log(32), 0.0, 20)})
    assert failing(reduced_model, later) == {"clock_two"}
    low = reduced_record({"two/ic_loss": 0.6 * good["two/ic_loss"]})
    assert failing(reduced_model, low) == {"loss_two"}
    stuck = reduced_record({"equal/ic": 0.25 + 0 * good["equal/ic"]})
    assert failing(reduced_model, stuck) == {"equal_from_one", "equal_start"}
    early = reduced_record({"equal/ic": good["equal/ic"][[1, 1, 2]]})
    assert failing(reduced_model, early) == {"equal_later"}


def test_another_landscape_is_told():
    good = landscape_record().arrays
    power = np.broadcast_to(np.array(landscape.PRESETS["lab"].scales) ** -0.5, good["mean_field/escape"].shape)
    changed = landscape_record(
        {
            "simplified/wait": np.stack([np.ones((4, 5)), 1.2 * np.ones((4, 5))]),
            "mean_field/escape": power,
            "mean_field/random": 1.1 * good["mean_field/random"],
            "simplified/slope_error": 1e-3 + good["simplified/slope_error"],
            "simplified/saddle_slope": 1e-3 + good["simplified/saddle_slope"],
            "mean_field/saddle_rate_error": 1e-2 + good["mean_field/saddle_rate_error"],
            "simplified/path": good["simplified/path"] * [1, 1.1, 1],
            "mean_field/lengths_loss": good["mean_field/lengths_loss"] * np.linspace(1, 0.1, 301) ** 3,
        }
    )
    assert failing(landscape, changed) == {
        "cliff_simplified", "narrowing_simplified", "wait_pairs_simplified", "wait_labels_simplified", "limit",
        "escape_mean_field",
        "random_mean_field", "slope_simplified", "critical_simplified", "saddle_mean_field", "shelf_mean_field", "path",
    }  # fmt: skip


def test_one_cell_of_twenty_is_enough_for_an_exact_claim_to_fail():
    good = landscape_record().arrays
    for form in NAMES:
        wait, loss = good[f"{form}/wait"].copy(), good[f"{form}/lengths_loss"].copy()
        wait[1, 0, 0] *= 1.5
        loss[0] *= np.linspace(1, 0.1, loss.shape[1]) ** 3
        slope, saddle, rate, escape = (
            good[f"{form}/{name}"].copy() for name in ("slope_error", "saddle_slope", "saddle_rate_error", "escape")
        )
        slope[3], saddle[1, 2], rate[1], escape[0, 0, -1] = 1e-5, -1e-9, -1e-3, 1.1 * escape[0, 0, -1]
        changed = landscape_record({
            f"{form}/wait": wait, f"{form}/lengths_loss": loss, f"{form}/slope_error": slope,
            f"{form}/saddle_slope": saddle, f"{form}/saddle_rate_error": rate, f"{form}/escape": escape,
        })  # fmt: skip
        names = ("slope", "critical", "saddle", "cliff", "escape", "shelf")
        assert failing(landscape, changed) == {f"{name}_{form}" for name in names}
    unordered = good["mean_field/wait"].copy()
    unordered[1, 1, 1] = unordered[1, 0, 1]
    assert failing(landscape, landscape_record({"mean_field/wait": unordered})) >= {"wait_pairs_mean_field"}
    last = good["simplified/wait"].copy()
    last[:, -1, 0] *= 1.05
    path = good["simplified/path"].copy()
    path[200, 1] *= 1.001
    assert failing(landscape, landscape_record({"simplified/wait": last, "simplified/path": path})) == {"limit", "path"}


@pytest.mark.parametrize(
    ("binary", "changes", "named"),
    [
        (reduced_model, {"starts": (1.0, 0.0)}, "starts"),
        (reduced_model, {"more_labels": 4}, "more_labels"),
        (reduced_model, {"equal_classes": 6}, "equal_classes"),
        (reduced_model, {"steps": 150}, "steps"),
        (landscape, {"labels": 8}, "labels"),
        (landscape, {"lengths": (8, 4)}, "lengths"),
        (landscape, {"scales": (0.1, 0.1)}, "scales"),
        (landscape, {"saddle_lengths": (2, 4)}, "saddle_lengths"),
        (landscape, {"factors": (1.01, 1.02)}, "factors"),
    ],
)
def test_what_does_not_fit_together_is_refused(binary, changes, named):
    with pytest.raises(FlagError, match=named):
        binary.EXPERIMENT.check(dataclasses.replace(binary.PRESETS["lab"], **changes))
