from typing import Any

import numpy as np
from toys import verdicts

from experiments.reddy import landscape, landscape_shown, reduced_model, reduced_model_shown
from experiments.reddy.landscape_panels import NAMES
from icl_lab.lab.flags import to_json
from icl_lab.lab.records import Record
from icl_lab.theory import balanced_alpha, cliff_time_limit

MEMBERS, STEPS, EQUAL_STEPS = 10, np.arange(0, 8001, 100), np.arange(0, 4001, 100)


def jump():
    """Step at which the flow has half of its loss, at the rate of the preset lab."""
    times, _, loss = reduced_model.flow(8, 32)
    return np.interp(-np.log(32) / 2, -loss, times) / 0.05


def rise(steps, at, low, high, width):
    """(M, R) logistic curves, one for each time in ``at``."""
    return low + (high - low) / (1 + np.exp(-(steps[None] - np.asarray(at)[:, None]) / width))


def curves_of(part, metric):
    """Handle of the curves of a part."""
    return reduced_model.FROM.get(part, reduced_model.CURVE.at(part=part)).at(metric=metric)


def reduced_record(changes=None):
    """Members that jump as the flow does: labels of the context first, then all at once."""
    config = to_json(reduced_model.PRESETS["lab"])
    _, path, _ = reduced_model.flow(8, 32)
    curves: dict[str, dict[str, np.ndarray]] = {"three": {}, "two": {}, "equal": {}, "more": {}}
    for part, late in (("three", 1.0), ("two", 1.15)):
        at = late * jump() + np.linspace(-80, 80, MEMBERS)
        early = (1 - (STEPS[None] < at[:, None] - 1500)) if part == "three" else 0.0
        curves[part]["ic"] = rise(STEPS, at, 0.03, 1.0, 20)
        curves[part]["ila1"] = rise(STEPS, at, 0.17, 0.9, 20)
        curves[part]["cla"] = np.maximum(rise(STEPS, at - 500, 0.25, 0.7, 200), rise(STEPS, at, 0.25, 1.0, 20))
        curves[part]["tla2"] = np.maximum(rise(STEPS, at, 0.47, 0.95, 20), 0.47 + 0.4 * early)
        curves[part]["beta_1"] = rise(STEPS, at, 0.0, 5.0, 20)
        curves[part]["alpha"] = np.interp(curves[part]["beta_1"], path[:, 0], path[:, 1])
        curves[part]["ic_loss"] = rise(STEPS, at, np.log(32), 0.0, 20)
    starts = [np.where(np.arange(MEMBERS) < 5, 3000, 9000), np.full(MEMBERS, 1500), np.full(MEMBERS, 600)]
    curves["equal"]["ic"] = np.stack([rise(EQUAL_STEPS, at, 0.25, 1.0, 20) for at in starts])
    curves["more"]["ic"] = rise(EQUAL_STEPS, np.full(MEMBERS, 1200), 0.06, 1.0, 20)[None]
    made = {(part, metric): values for part, found in curves.items() for metric, values in found.items()}
    arrays = reduced_model.STEPS.named(STEPS) | reduced_model.EQUAL_STEPS.named(EQUAL_STEPS)
    for (part, metric), values in (made | (changes or {})).items():
        arrays |= curves_of(part, metric).named(values)
    return Record("toy", "lab", config, {}, arrays, {})


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


def test_members_that_jump_as_the_paper_says_bear_every_claim_out():
    assert set(verdicts(reduced_model_shown.CLAIMS, reduced_record()).values()) == {"holds"}
    assert set(verdicts(landscape_shown.CLAIMS, landscape_record()).values()) == {"holds"}


def test_members_that_do_not_are_told():
    record, metrics = reduced_record(), ("ic", "ila1", "cla", "tla2", "alpha", "ic_loss")
    good = {(part, name): curves_of(part, name)(record) for part in ("three", "two") for name in metrics}
    good |= {(part, "ic"): curves_of(part, "ic")(record) for part in ("equal", "more")}
    slow = reduced_record({("three", "ic"): rise(STEPS, np.full(MEMBERS, jump()), 0.03, 1.0, 400)})
    assert failing(reduced_model_shown, slow) == {"sharp_three"}
    never = reduced_record({("two", "ic"): 0.1 + 0 * good["two", "ic"], ("more", "ic"): 0.1 + 0 * good["more", "ic"]})
    assert {"solves_two", "more_from_zero"} <= failing(reduced_model_shown, never)
    together = reduced_record(
        {
            ("three", "cla"): good["three", "ila1"],
            ("three", "tla2"): good["three", "ila1"],
            ("two", "tla2"): good["two", "cla"],
        }
    )
    assert failing(reduced_model_shown, together) == {"cla_first", "tla2_first", "tla2_not_needed"}
    alike = reduced_record(
        {("equal", "ic"): np.stack([good["equal", "ic"][1]] * 3), ("two", "ic"): good["three", "ic"]}
    )
    assert {"equal_start", "two_later"} <= failing(reduced_model_shown, alike)
    astray = reduced_record({("two", "alpha"): 1.3 * good["two", "alpha"]})
    assert failing(reduced_model_shown, astray) == {"path_two"}
    later = reduced_record({("two", "ic_loss"): rise(STEPS, np.full(MEMBERS, 2.5 * jump()), np.log(32), 0.0, 20)})
    assert failing(reduced_model_shown, later) == {"clock_two"}
    low = reduced_record({("two", "ic_loss"): 0.6 * good["two", "ic_loss"]})
    assert failing(reduced_model_shown, low) == {"loss_two"}
    stuck = reduced_record({("equal", "ic"): 0.25 + 0 * good["equal", "ic"]})
    assert failing(reduced_model_shown, stuck) == {"equal_from_one", "equal_start"}
    early = reduced_record({("equal", "ic"): good["equal", "ic"][[1, 1, 2]]})
    assert failing(reduced_model_shown, early) == {"equal_later"}


def test_another_landscape_is_told():
    good = landscape_record()
    exact, field = ({"form": form} for form in ("simplified", "mean_field"))
    escapes = landscape.ESCAPE(good, **field)
    power = np.broadcast_to(np.array(landscape.PRESETS["lab"].scales) ** -0.5, escapes.shape)
    lengths_loss = landscape.LENGTHS_LOSS(good, **field)
    changed = landscape_record(
        (landscape.WAIT.at(**exact), np.stack([np.ones((4, 5)), 1.2 * np.ones((4, 5))])),
        (landscape.ESCAPE.at(**field), power),
        (landscape.RANDOM.at(**field), 1.1 * landscape.RANDOM(good, **field)),
        (landscape.SLOPE_ERROR.at(**exact), 1e-3 + landscape.SLOPE_ERROR(good, **exact)),
        (landscape.SADDLE_SLOPE.at(**exact), 1e-3 + landscape.SADDLE_SLOPE(good, **exact)),
        (landscape.SADDLE_RATE_ERROR.at(**field), 1e-2 + landscape.SADDLE_RATE_ERROR(good, **field)),
        (landscape.PATH.at(**exact), landscape.PATH(good, **exact) * [1, 1.1, 1]),
        (landscape.LENGTHS_LOSS.at(**field), lengths_loss * np.linspace(1, 0.1, 301) ** 3),
    )
    assert failing(landscape_shown, changed) == {
        "cliff_simplified", "narrowing_simplified", "wait_pairs_simplified", "wait_labels_simplified", "limit",
        "escape_mean_field",
        "random_mean_field", "slope_simplified", "critical_simplified", "saddle_mean_field", "shelf_mean_field", "path",
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
