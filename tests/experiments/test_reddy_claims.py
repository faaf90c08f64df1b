"""That the claims of the binaries on clamping, curricula, labels, mixtures and data hold and fail where they should."""

from typing import Any

import numpy as np
import pytest
from toys import verdicts

from experiments.onsets import crossing, onset
from experiments.reddy import (
    clamping,
    clamping_shown,
    curriculum,
    curriculum_shown,
    data_dependence,
    data_dependence_shown,
    label_count,
    label_count_shown,
    mixtures,
    mixtures_shown,
)
from experiments.reddy.statistics import guess, guesses, same_label, solved
from experiments.reddy.transition import in_part, matched_item
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED
from icl_lab.lab.records import Record

MEMBERS, HOLD, STEPS = 8, 1500, np.arange(0, 5001, 100)
CONFIG: dict[str, Any] = {"context_length": 4, "burstiness": 1, "labels": 16}


def rises(at, low=0.06, high=1.0, width=60.0):
    """(M, R) logistic curves, the members some steps apart."""
    middle = at + 10.0 * np.arange(MEMBERS)[:, None]
    return low + (high - low) / (1 + np.exp(-(STEPS - middle) / width))


def found_of(claims, arrays, config=None, left_out=()):
    return verdicts(claims, Record("toy", "lab", CONFIG | (config or {}), {}, arrays), left_out)


def among(found, verdict):
    return {name for name, value in found.items() if value == verdict}


def test_guessing_is_of_the_copies_that_the_tests_have():
    assert guess(CONFIG) == 0.25
    assert guess(CONFIG, burstiness=2) == guess(CONFIG, burstiness=0) == 0.5
    assert guess(CONFIG, context_length=5, burstiness=0) == 0.2
    assert (guess(CONFIG, context_length=9, burstiness=0), solved(CONFIG, context_length=1)) == (1 / 3, 1.0)


def test_an_onset_is_the_first_measured_step():
    curves = np.array([[[0.1, 0.7, 0.2], [0.6, 0.1, 0.1]], [[0.1, 0.2, 0.3], [0.0, 0.0, 0.6]]])
    np.testing.assert_array_equal(onset(curves, np.array([0, 5, 9]), 0.6), [[5, 0], [np.inf, 9]])


CONDITIONS = {
    "control": 2100, "ila1_held": 2100, "tila2_held": 2700, "tla2_held": 2300, "cla_held": 3300,
    "attention_lost": 2500, "answer_lost": 2800, "ila1_given": 1500,
}  # fmt: skip


def clamped(changes=None, **times):
    curves = {}
    for name, at in (CONDITIONS | times).items():
        curves[name] = {measure: rises(at) for measure in ("ic", "ila1", "tila2")}
        curves[name]["cla"] = rises(600 + HOLD if name == "cla_held" else 600, 0.25, 1.0, 100)
    for (name, measure), values in (changes or {}).items():
        curves[name][measure] = values
    arrays = clamping.STEPS.named(STEPS) | clamping.CURVE.named(curves)
    return found_of(clamping_shown.CLAIMS, arrays, {"hold": HOLD})


@pytest.mark.parametrize("part", ["ila1_held", "tla2_held", "attention_lost"])
def test_a_part_that_is_never_learned_is_no_short_delay(part):
    never = np.full((MEMBERS, len(STEPS)), 0.2)
    late = dict.fromkeys(CONDITIONS, 4300)
    claim = part if part == "attention_lost" else part.replace("held", "does_not_delay")
    one_never = np.where(np.arange(MEMBERS)[:, None] == 0, never, rises(4300))
    for changes, verdict in ((never, FAILS), (one_never, NOT_RESOLVED)):
        assert clamped({(part, "ic"): changes}, **late)[claim] == verdict
    neither = clamped({(name, "ic"): never for name in (part, "cla_held", "answer_lost")})
    order = "answer_before_attention" if part == "attention_lost" else f"cla_before_{part[:4]}"
    assert neither[order] == NOT_RESOLVED
    without = clamped({("control", measure): never for measure in ("ic", "cla")})
    assert set(without.values()) == {NOT_RESOLVED}


def trained_in(changes=None, **times):
    onsets = {"control": 2100, "length": 1300, "labels": 2000, "novel": 2200} | times
    curves = {name: rises(at) for name, at in onsets.items()} | (changes or {})
    arrays = curriculum.STEPS.named(STEPS) | curriculum.CURVE.at(metric="ic").named(curves)
    return found_of(curriculum_shown.CLAIMS, arrays)


def test_a_curriculum_is_earlier_or_it_is_not():
    assert set(trained_in().values()) == {HOLDS}
    assert among(trained_in(length=2300, labels=1700, novel=2500), FAILS) == {"length", "labels", "novel"}
    never = np.full((MEMBERS, len(STEPS)), 0.2)
    found = trained_in({"novel": never}, control=4880)  # the control's onset is at the last step
    assert found["novel"] == FAILS  # never is later than any step
    assert trained_in({"control": never})["length"] == NOT_RESOLVED
    nothing = trained_in(dict.fromkeys(("control", "length", "labels", "novel"), never))
    assert {nothing[name] for name in ("length", "labels", "novel")} == {NOT_RESOLVED}


LABELS = {
    (2, 2): 2000, (2, 4): 1000, (2, 8): 900, (2, 16): 800, (4, 4): 9000, (4, 5): 2000, (4, 6): 2100, (4, 8): 1500,
    (4, 16): 1200, (8, 8): 9000, (8, 9): 3000, (8, 16): 2500,
}  # fmt: skip


def counted(times):
    arrays = {}
    for (n, labels), at in times.items():
        arrays |= label_count.CURVE.at(n=n, labels=labels, metric="ic").named(rises(at))
        arrays |= label_count.STEPS.at(n=n, labels=labels).named(STEPS)
    lengths, counts = map(list, zip(*times))
    config = {"lengths": lengths, "label_counts": counts, "only": "all"}
    return found_of(label_count_shown.CLAIMS, arrays, config)


def test_a_run_too_short_for_anything_says_nothing_of_as_many_labels():
    short = counted(dict.fromkeys(LABELS, 9000))
    assert {short[name] for name in ("as_many_labels_8", "delay_2", "delay_4", "one_more_label_8")} == {NOT_RESOLVED}
    assert {short[f"more_labels_{n}"] for n in (2, 4, 8)} == {FAILS}
    for n in (2, 4):
        assert set(counted({(n, n): 2000}).values()) == {NOT_JUDGED}


def mixed(ic, iwl):
    """Curves of onsets (p_B, p_C)."""
    return {
        name: np.stack([np.stack([rises(at) for at in row], axis=1) for row in times], axis=1)
        for name, times in (("ic", ic), ("iwl", iwl))
    }


def of_mixtures(curves):
    return found_of(mixtures_shown.CLAIMS, mixtures.STEPS.named(STEPS) | mixtures.CURVE.named(curves))


SOONER, LATER = [[3000, 1000], [2500, 900]], [[1000, 3000], [800, 2500]]


def test_mixtures_are_both_learned_kept_and_ordered_by_their_share():
    curves = mixed(SOONER, LATER)
    assert set(of_mixtures(curves).values()) == {HOLDS}
    assert among(of_mixtures(mixed(LATER, SOONER)), FAILS) == {"novel_share", "trained_share"}
    for name, claim in (("ic", "in_context"), ("iwl", "in_weights")):
        worse = curves[name].copy()
        worse[:, 0, 0, 10:] = 0.2
        assert claim in among(of_mixtures(curves | {name: worse}), FAILS)
        lost = curves[name].copy()
        lost[:, 1, 1, -3:] -= 0.2
        assert "kept" in among(of_mixtures(curves | {name: lost}), FAILS)
    nothing = of_mixtures(mixed(np.full((2, 2), 9000), np.full((2, 2), 9000)))
    assert among(nothing, NOT_RESOLVED) == {"kept", "novel_share", "trained_share"}
    assert among(nothing, FAILS) == {"in_context", "in_weights"}
    where = [[3000, 9000], [2500, 9000]], [[9000, 3000], [9000, 2500]]  # the one that should be sooner is not learned
    assert among(of_mixtures(mixed(*where)), HOLDS) == {"kept"}


CLASSES = {
    "ic_classes": [[0.5, 0.3, 0.8], [0.5, 0.9, 0.95]], "iwl_classes": [[1.0, 0.9, 0.5], [1.0, 0.1, 0.05]],
}  # fmt: skip


def dependence(model="network", moving=0.0, settings=None, **changes):
    """Scores and accuracies at the end; the arrays that change are (*points,)."""
    ends = CLASSES | {
        "ic_spread": [0.5, 0.95], "iwl_spread": [0.8, 0.2],
        "ic_exponent": [1.0, 0.9, 0.4], "iwl_exponent": [0.1, 0.7, 0.95],
    } | changes  # fmt: skip
    arrays = {}
    for name, values in ends.items():
        metric, sweep = name.split("_")
        points = np.array(values)
        rates = np.array([1.0, 1.0, 1.0, 1.0 - moving, 1.0])  # on the way to the end
        curves = points[None, ..., None] * np.broadcast_to(rates, (MEMBERS, *points.shape, 5))
        named = {metric: curves} | ({"ic2": curves} if metric == "ic" else {})
        arrays |= data_dependence.CURVES[sweep].at(model=model).named(named)
    config = {"burstiness_grid": (0, 1, 2), "exponent_grid": (0.0, 1.1, 2.0), "exponent_classes": 512}
    config |= settings or {}
    other = "reduced/*" if model == "network" else "network/*"
    found = found_of(data_dependence_shown.CLAIMS, arrays, config, [other])
    return {name.removeprefix(f"{model}_"): v for name, v in found.items() if name.startswith(model)}


@pytest.mark.parametrize("model", ["network", "reduced"])
def test_data_decide_between_weights_and_context(model):
    assert set(dependence(model).values()) == {HOLDS}


def test_a_claim_about_a_point_that_was_not_run_is_not_judged():
    some = {name: np.array(values)[:, [0, 2]] for name, values in CLASSES.items()}
    assert dependence(settings={"burstiness_grid": (0, 2)}, **some)["capacity"] == NOT_JUDGED


def test_points_of_a_sweep_are_in_the_order_of_its_shape():
    config = data_dependence.PRESETS["lab"]
    values = data_dependence.sweep(config, "classes")
    for name, grid in {"classes": np.array(config.class_grid)[:, None], "burstiness": config.burstiness_grid}.items():
        assert (values[name] == np.broadcast_to(grid, (len(config.class_grid), len(config.burstiness_grid)))).all()
    values = data_dependence.sweep(config, "spread")
    assert tuple(values["spread"]) == config.spread_grid
    for name, value in {"classes": config.spread_classes, "burstiness": config.burstiness, "exponent": 0}.items():
        assert (values[name] == value).all()
    values = data_dependence.sweep(config, "exponent")
    assert tuple(values["exponent"]) == config.exponent_grid
    assert (values["spread"] == config.spread).all()


def test_of_a_sweep_that_still_moves_nothing_is_said():
    late = {"flat_law", "steep_law", "both", "both_peak"}
    late |= {f"{data}_in_{where}" for data in ("burstiness", "spread") for where in ("context", "weights")}
    assert among(dependence(moving=0.1), NOT_REACHED) == late
    assert among(dependence(moving=0.01), NOT_REACHED) == set()


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"ic_classes": [[0.5, 0.9, 0.95], [0.5, 0.3, 0.8]]}, {"classes_in_context"}),
        ({"ic_classes": [[0.5, 0.3, 0.1], [0.5, 0.9, 0.8]]}, {"burstiness_in_context"}),
        ({"iwl_classes": [[1.0, 0.2, 0.1], [1.0, 0.1, 0.05]]}, {"classes_in_weights"}),
        ({"iwl_classes": [[1.0, 0.9, 1.0], [1.0, 0.1, 0.2]]}, {"burstiness_in_weights"}),
        ({"iwl_classes": [[1.0, 0.9, 0.5], [0.4, 0.1, 0.05]]}, {"capacity"}),
        ({"ic_spread": [0.95, 0.5], "iwl_spread": [0.2, 0.8]}, {"spread_in_context", "spread_in_weights"}),
        ({"iwl_exponent": [0.9, 0.7, 0.95]}, {"flat_law", "both_peak"}),
        ({"ic_exponent": [1.0, 0.9, 0.9]}, {"steep_law", "both_peak"}),
        ({"iwl_exponent": [0.1, 0.4, 0.95]}, {"both"}),
        ({"ic_exponent": [1.0, 0.5, 0.4]}, {"both"}),
    ],
)
def test_data_that_decide_otherwise_are_told(changes, fails):
    assert among(dependence(**changes), FAILS) == fails


def test_guesses_count_labels_that_repeat():
    rng = np.random.default_rng(0)
    law = np.arange(1, 13) ** -1.5
    draws = rng.choice(12, (2, 200_000), p=law / law.sum()) % 4
    share = (draws[0] == draws[1]).mean()
    assert same_label(1.5, 12, 4) == pytest.approx(share, abs=0.005)  # 4.5 standard errors
    assert same_label(0.0, 12, 4) == pytest.approx(0.25)
    config = CONFIG | {"burstiness_grid": (0, 1, 2), "exponent_grid": (0.0, 1.5), "exponent_classes": 12, "labels": 4}
    np.testing.assert_allclose(guesses(config, "classes"), [0.5, 0.25, 0.5])
    steep = 0.25 + 0.75 * (0.25 + same_label(1.5, 12, 4)) / 2
    np.testing.assert_allclose(guesses(config, "exponent"), [0.25 + 0.75 * 0.25, steep])


def test_crossings_interpolate():
    curves = np.array([[0.0, 0.5, 0.4, 1.0], [0.2, 0.2, 0.2, 0.2], [0.9, 0.0, 0.0, 1.0]])
    steps = np.array([0, 10, 20, 30])
    np.testing.assert_allclose(crossing(curves, steps, 0.25), [5, np.inf, 0])
    np.testing.assert_allclose(crossing(curves, steps, np.array([0.7, 0.2, 0.95])), [25, 0, 29.5])
    assert [matched_item(n) for n in (1, 2, 4, 8)] == [0, 0, 1, 3]
    config = {"context_length": 4, "burstiness": 1, "trained_burstiness": 2}
    assert [guess(in_part(part, config)) for part in ("novel", "trained")] == [0.25, 0.5]
