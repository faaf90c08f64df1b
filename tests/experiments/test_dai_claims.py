"""Claims and slopes are read off records by the rules they state."""

import numpy as np
import pytest

from experiments.dai import by_encoding, dual_form_shown, layers_shown
from experiments.dai import implicit_finetuning_shown as claims
from icl_lab.lab.claims import NotRun
from icl_lab.lab.record import Record, flat

BY_NAME = {claim.id.rsplit(".", 1)[1]: claim for claim in claims.CLAIMS}
ROTARY = {"zero_shot": np.full((2, 6), 0.3), "in_context": np.stack([[0.5] * 4 + [0.3] * 2, [0.5] * 3 + [0.39] * 3])}


def record(sinusoidal=None, **arrays):
    networks = {"rotary": ROTARY | arrays} | ({"sinusoidal": sinusoidal} if sinusoidal else {})
    rows = ["finetuning", "wrong_task", "shuffled_labels", "wrong_labels"]
    return Record("dai.implicit_finetuning", "lab", {"positions": [*networks]}, {"rows": rows}, flat(networks))


def test_a_network_is_judged_where_it_learns_four_of_six_tasks_in_context():
    assert by_encoding.learned(record(), "rotary").tolist() == [True, False]


def test_networks_of_two_encodings_are_never_put_together():
    both = record(
        finetuned_free=np.full((2, 6), 0.35),
        sinusoidal={
            "zero_shot": np.zeros((1, 6)),
            "in_context": np.ones((1, 6)),
            "finetuned_free": np.full((1, 6), 0.5),
        },
    )
    np.testing.assert_allclose(BY_NAME["context_over_fine_tuning"].statistic(both), [0.5 / 6, np.nan], rtol=1e-12)
    np.testing.assert_allclose(BY_NAME["context_over_fine_tuning_sinusoidal"].statistic(both), [0.5], rtol=1e-12)
    with pytest.raises(NotRun, match="sinusoidal"):
        BY_NAME["context_over_fine_tuning_sinusoidal"].statistic(record(finetuned_free=np.full((2, 6), 0.35)))
    for claim in claims.CLAIMS:
        assert claim.paper.endswith("; sinusoidal") == claim.id.endswith("_sinusoidal")


def test_similarities_are_paired_and_only_of_networks_that_learn():
    similar = np.zeros((2, 6, 4, 3))
    similar[:, :, 0], similar[:, :, 1] = 0.4, 0.1
    similar[:, 0, 0, 0] = np.nan  # an undefined layer leaves its pair out
    similar[:, 1, 1, 2] = np.nan
    claim = BY_NAME["sim_aou_over_wrong_task"]
    values = claim.statistic(record(sim_aou=similar))
    np.testing.assert_allclose(values, [0.3, np.nan], rtol=1e-12)
    assert claim.beside is not None
    np.testing.assert_allclose(claim.beside.statistic(record(sim_aou=similar)), [0.1, np.nan], rtol=1e-12)


def test_a_control_is_of_the_networks_that_count():
    names = ["finetuning", "trained_embeddings", "wrong_task"]
    similar = np.zeros((2, 6, 3, 4))
    similar[:, :, 1], similar[:, :, 2] = -0.02, 0.05
    found = record(sim_aou_raw=similar)
    found.metrics["rows"] = names
    control = BY_NAME["sim_aou_over_wrong_task"].control
    assert control is not None
    np.testing.assert_allclose(control(found), [-0.07, np.nan], rtol=1e-12)


def test_a_row_that_was_not_run_is_missing():
    with pytest.raises(NotRun, match="row untrained"):
        BY_NAME["sim_aou_no_more_than_untrained"].statistic(record(sim_aou_raw=np.zeros((2, 6, 4, 3))))
    with pytest.raises(NotRun, match="row local"):
        BY_NAME["alpha"].statistic(record())


def test_the_first_layer_has_no_part_in_sim_am():
    after, before = np.zeros((2, 6, 4, 3)), np.zeros((2, 6, 4, 3))
    before[..., 0] = 1
    after[..., 1:] = 0.2
    values = BY_NAME["sim_am_rises"].statistic(record(sim_am_after=after, sim_am_before=before))
    np.testing.assert_allclose(values, [0.2, np.nan], rtol=1e-12)


def test_what_carries_the_answer_is_a_share_of_the_accuracy_that_is_gained():
    layer = np.zeros((2, 6, 3))
    layer[:, :, 1] = [[0, 0, 0, 0, 0, 0.3]]
    accuracy = {"answer": np.full((2, 6), 0.1), "all": np.full((2, 6), 0.1), "layer": layer}
    logs = {"answer": np.ones((2, 6)), "all": np.tile([1, 1, 1, 1, 1, 0.8], (2, 1))}
    found = record(carried={"in_context": {"accuracy": accuracy, "log_probability": logs}})
    np.testing.assert_allclose(BY_NAME["one_layer_carries_the_answer"].statistic(found), [0.5, np.nan], rtol=1e-12)
    np.testing.assert_allclose(BY_NAME["outputs_are_the_answer"].statistic(found), [0.2, 0.2], rtol=1e-12)


def test_no_difference_is_an_equivalence_with_a_bound():
    alike = [claim for name, claim in BY_NAME.items() if "_as_" in name or "across" in name]
    assert len(alike) > 8
    assert all((claim.relation, claim.expected, claim.tolerance) == ("==", 0, 0.05) for claim in alike)


def test_similarities_need_ten_networks_for_a_verdict():
    few = [name for name, claim in BY_NAME.items() if claim.fewest_members() < 10]
    assert set(few) == {"outputs_are_the_answer", "full_batch_has_no_order"}


def test_what_a_claim_compares_with_is_shown_beside_it():
    named = [claim for claim in claims.CLAIMS if "with a control" in claim.paper]
    assert len(named) > 10
    assert all(claim.beside is not None for claim in named)


def test_the_slope_over_depth():
    np.testing.assert_allclose(layers_shown.slope(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])), [2, 1], rtol=1e-12)
    assert np.isnan(layers_shown.slope(np.ones((2, 1)))).all()
    values = np.broadcast_to([1.0, 2.0, 4.0], (2, 6, 5, 3))
    np.testing.assert_allclose(layers_shown.layer_means(values), [[1, 2, 4]] * 2, rtol=1e-12)
    rising = next(claim for claim in layers_shown.CLAIMS if claim.id.endswith("kendall_rises"))
    np.testing.assert_allclose(rising.statistic(record(kendall=values)), [2, np.nan], rtol=1e-12)  # from the second


def test_heads_of_all_networks_of_an_encoding_count():
    found = Record("dai.dual_form", "lab", {"positions": ["rotary"]}, {}, {"rotary/cosine": np.ones((2, 6, 3, 4)) / 2})
    claim = next(claim for claim in dual_form_shown.CLAIMS if claim.id.endswith("relaxed_direction"))
    np.testing.assert_allclose(claim.statistic(found), [0.5, 0.5], rtol=1e-12)
