import dataclasses

import numpy as np
import pytest

from experiments.von_oswald import separate_tokens as binary
from icl_lab.flags import FlagError
from icl_lab.records import Record


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"position_size": 9}, "--position_size=9: allowed is an even number"),
        ({"positions": "one_hot", "position_size": 20}, "--position_size=20: allowed is at least 21"),
        ({"context_length": 1}, "--context_length=1: allowed is at least 2"),
        ({"steps": 501}, "multiple of --measure_every"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_flag_named(changes, said):
    with pytest.raises(FlagError, match=said):
        binary.check_positions(dataclasses.replace(binary.Config(), **changes))
    binary.check_positions(binary.Config(positions="one_hot", position_size=21))


def record_of(losses, following, finals):
    """Members measured at steps 0, 100, 200, ..; predicting zero has loss 1, one GD step .5."""
    losses, following = np.array(losses), np.array(following)
    arrays = {
        "steps": 100 * np.arange(losses.shape[1]),
        "softmax_loss": losses,
        "softmax_zero_loss": np.ones_like(losses),
        "softmax_next": following,
        "softmax_own": np.full_like(losses, 2.0),
        "softmax_other": np.full_like(losses, 0.1),
        "softmax_final_trained": np.array(finals),
        "softmax_final_gd": np.full(len(losses), 0.5),
    }
    metrics = {"predict_zero": 1.0, "closed_form": 0.5, "two_steps": 0.4}
    return Record("von_oswald.separate_tokens", "lab", {"input_size": 4}, metrics, arrays, {})


def test_the_drop_is_half_of_the_way_and_copying_half_of_its_largest_value():
    record = record_of(
        [[1.0, 0.9, 0.7, 0.52], [1.0, 1.0, 0.98, 0.9], [1.0, 1.0, 1.0, 0.6]],
        [[0.0, 0.6, 0.9, 1.0], [0.0, 0.0, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]],
        [0.52, 0.9, 0.6],
    )
    assert binary.drop_index(record).tolist() == [2, -1, 3]
    assert binary.dropped(record).tolist() == [1, 0, 1]
    np.testing.assert_allclose(binary.copying_onset(record), [100 / 200, np.nan, 1.0])
    np.testing.assert_allclose(binary.next_at_drop(record), [0.9 / 0.1, np.nan, 1.0 / 0.1])
    claims = {claim.id.split(".")[-1]: claim for claim in binary.CLAIMS}
    np.testing.assert_allclose(claims["one_step"].statistic(record), [1.04, np.nan, np.nan])  # 9/10 of the way
    np.testing.assert_allclose(claims["not_two_steps"].statistic(record), [1.3, np.nan, np.nan])


def test_curves_are_laid_over_each_other_at_the_drop():
    record = record_of([[1.0, 0.5, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]], np.ones((3, 3)), [0.5, 0.5, 1.0])
    steps, curves = binary._around_drop(record, ("loss",))
    assert steps.tolist() == [-200, -100, 0, 100]
    np.testing.assert_array_equal(curves["loss"], [[np.nan, 1.0, 0.5, 0.5], [1.0, 1.0, 0.5, np.nan]])
