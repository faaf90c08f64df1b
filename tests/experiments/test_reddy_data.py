"""What the binaries on data, mixtures and label counts lay out and read off their records."""

import dataclasses

import numpy as np
import pytest

from experiments.reddy import (
    data_dependence,
    data_dependence_shown,
    label_count,
    label_count_shown,
    mixtures,
    mixtures_shown,
)
from icl_lab.lab.claims import NotRun
from icl_lab.lab.records import Record

STEPS = np.arange(5) * 100


def claim_of(binary, name):
    (claim,) = (c for c in binary.CLAIMS if c.id.endswith(f".{name}"))
    return claim.statistic


def test_points_of_a_sweep_are_in_the_order_of_its_shape():
    config = data_dependence.PRESETS["lab"]
    shape, values = data_dependence.sweep(config, "classes")
    classes, burstiness = (values[name].reshape(shape) for name in ("classes", "burstiness"))
    assert (classes == np.array(config.class_grid)[:, None]).all()
    assert (burstiness == np.array(config.burstiness_grid)[None]).all()
    _, values = data_dependence.sweep(config, "spread")
    assert (values["classes"] == config.spread_classes).all()
    assert tuple(values["spread"]) == config.spread_grid
    assert (values["burstiness"] == config.burstiness).all()
    assert not values["exponent"].any()
    _, values = data_dependence.sweep(config, "exponent")
    assert tuple(values["exponent"]) == config.exponent_grid
    assert (values["spread"] == config.spread).all()


def dependence(ic, iwl, **config):
    """A record of one member with these accuracies at the points of the first and third sweep, at the end."""
    settings = {
        "context_length": 4, "burstiness": 1, "burstiness_grid": (0, 1, 2), "exponent_grid": (0.0, 1.1, 2.0),
        "labels": 16, "exponent_classes": 64,
    }  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    for sweep in ("classes", "exponent"):
        at_end = {"ic": ic[sweep], "ic2": ic[sweep], "iwl": iwl[sweep]}
        curves = {name: np.array(v)[None, ..., None] for name, v in at_end.items()}
        arrays |= data_dependence.CURVES[sweep].at(model="network").named(curves)
    return Record("toy", "lab", settings | config, {}, arrays)


RECORD = dependence(
    ic={"classes": [[0.1, 0.25, 0.5], [0.2, 1.0, 0.75]], "exponent": [1.0, 1.0, 0.1]},
    iwl={"classes": [[1.0, 0.9, 0.8], [1.0, 0.2, 0.1]], "exponent": [0.1, 0.4, 0.9]},
)


def test_the_score_is_zero_at_guessing_a_label_of_the_context_and_one_at_all_right():
    score = data_dependence_shown.in_context(RECORD, "network", "classes")
    np.testing.assert_allclose(score, np.array([[[0, 0, 0], [0, 1, 0.5]]]))


def test_claims_compare_the_points_that_they_name():
    expected = {
        "classes_in_context": 1.0, "classes_in_weights": -0.7, "burstiness_in_context": -0.25,
        "burstiness_in_weights": -0.1, "capacity": 0.8, "flat_law": 0.9, "steep_law": -0.9, "both": 0.4,
        "both_peak": 0.3,
    }  # fmt: skip
    for name, value in expected.items():
        assert claim_of(data_dependence_shown, f"network_{name}")(RECORD) == pytest.approx([value]), name
    without = dataclasses.replace(RECORD, config=RECORD.config | {"burstiness_grid": (0, 2)})
    with pytest.raises(NotRun, match="burstiness 1"):
        claim_of(data_dependence_shown, "network_capacity")(without)


def test_what_mixtures_keep_and_which_share_is_sooner():
    steps = np.arange(7) * 100
    late, soon = [0, 0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]
    curves = np.array([[[late, soon], [late, soon]]], float)  # one member, (p_B, p_C, R)
    arrays = mixtures.CURVE.named({"ic": curves, "iwl": curves[:, :, ::-1].copy()})
    record = Record("toy", "lab", {}, {}, mixtures.STEPS.named(steps) | arrays)
    assert claim_of(mixtures_shown, "novel_share")(record) == pytest.approx([-2])
    assert claim_of(mixtures_shown, "trained_share")(record) == pytest.approx([2])
    assert claim_of(mixtures_shown, "kept")(record) == pytest.approx([0])
    mixtures.CURVE(record, metric="iwl")[0, 1, 0] = [0, 0.9, 0.9, 0.9, 0.3, 0.3, 0.3]
    assert claim_of(mixtures_shown, "kept")(record) == pytest.approx([0.6])
    assert claim_of(mixtures_shown, "in_weights")(record) == pytest.approx([0.3])


def test_who_has_learned_and_how_much_later_with_as_many_labels():
    never, late, soon = [0.5, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.9, 0.9], [0.5, 0.9, 0.9, 0.9, 0.9]
    arrays = label_count.CURVE.at(n=2, metric="ic").named({"2": np.array([never, late]), "8": np.array([soon, soon])})
    arrays |= label_count.STEPS.at(n=2).named({"2": 2 * STEPS, "8": STEPS})  # every network has steps of its own
    config = {"lengths": (2, 2), "label_counts": (8, 2), "only": "all", "burstiness": 1}
    record = Record("toy", "lab", config, {}, arrays)
    assert claim_of(label_count_shown, "more_labels_2")(record).tolist() == [1, 1]
    assert claim_of(label_count_shown, "delay_2")(record) == pytest.approx(np.log2([8, 6]))
    with pytest.raises(NotRun, match="N = 8 with L from 9 to 128"):
        claim_of(label_count_shown, "more_labels_8")(record)
