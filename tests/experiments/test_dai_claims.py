"""Claims and slopes are read off records by the rules they state."""

import numpy as np
import pytest

from experiments.dai import implicit_finetuning_claims as claims
from experiments.dai import layers_claims
from icl_lab.lab.claims import NotRun
from icl_lab.lab.record import Record, flat

BY_NAME = {claim.id.rsplit(".", 1)[1]: claim for claim in claims.CLAIMS}


def record(learned=None, **arrays):
    rotary = {
        "zero_shot": np.full((2, 6), 0.3),
        "in_context": np.stack([[0.5] * 4 + [0.3] * 2, [0.5] * 3 + [0.39] * 3]),
    }
    networks = {"rotary": rotary | arrays} | ({"learned": learned} if learned else {})
    rows = ["finetuning", "wrong_task"]
    return Record("dai.implicit_finetuning", "lab", {"positions": [*networks]}, {"rows": rows}, flat(networks))


def test_a_network_is_judged_where_it_learns_four_of_six_tasks_in_context():
    assert claims.learns_in_context(record(), "rotary").tolist() == [True, False]


def test_networks_of_both_encodings_count():
    both = record(learned={"zero_shot": np.zeros((1, 6)), "in_context": np.ones((1, 6))})
    assert claims.learns_in_context(both).tolist() == [True, False, True]
    assert claims.learns_in_context(both, "learned").tolist() == [True]
    np.testing.assert_allclose(BY_NAME["context_learns"].statistic(both), [0.8 / 6, 0.87 / 6, 1], rtol=1e-12)


def test_similarities_are_paired_and_only_of_networks_that_learn():
    similar = np.zeros((2, 6, 2, 3))
    similar[:, :, 0], similar[:, :, 1] = 0.4, 0.1
    similar[:, 0, 0, 0] = np.nan  # an undefined layer leaves its pair out
    similar[:, 1, 1, 2] = np.nan
    claim = BY_NAME["sim_aou_over_wrong_task"]
    values = claim.statistic(record(sim_aou=similar))
    np.testing.assert_allclose(values, [0.3, np.nan], rtol=1e-12)
    np.testing.assert_allclose(claim.control(record(sim_aou=similar)), [0.1, 0.1], rtol=1e-12)


def test_a_row_that_was_not_run_is_missing():
    with pytest.raises(NotRun, match="row untrained"):
        BY_NAME["sim_aou_no_more_than_untrained"].statistic(record(sim_aou_raw=np.zeros((2, 6, 2, 3))))


def test_the_first_layer_has_no_part_in_sim_am():
    after, before = np.zeros((2, 6, 2, 3)), np.zeros((2, 6, 2, 3))
    before[..., 0] = 1
    after[..., 1:] = 0.2
    values = BY_NAME["sim_am_rises"].statistic(record(sim_am_after=after, sim_am_before=before))
    np.testing.assert_allclose(values, [0.2, np.nan], rtol=1e-12)


def test_accuracies_are_judged_without_the_gate():
    finetuned = np.full((2, 6), 0.35)
    values = BY_NAME["fine_tuning_learns"].statistic(record(finetuned=finetuned))
    np.testing.assert_allclose(values, [0.05, 0.05], rtol=1e-12)


def test_every_claim_beside_a_control_names_it():
    named = [claim for claim in claims.CLAIMS if "with a control" in claim.paper]
    assert len(named) > 10
    assert all(claim.control is not None for claim in named)


def test_the_slope_over_depth():
    np.testing.assert_allclose(layers_claims.slope(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])), [2, 1], rtol=1e-12)
    assert np.isnan(layers_claims.slope(np.ones((2, 1)))).all()
