import dataclasses
from pathlib import Path

import numpy as np
import pytest
from toys import measured_with

from experiments.von_oswald import separate_tokens as binary
from experiments.von_oswald import separate_tokens_shown as shown
from icl_lab.lab.claims import NOT_JUDGED
from icl_lab.lab.drift import committed
from icl_lab.prompts.positions import sinusoidal_positions

FIGURES = Path(__file__).resolve().parents[2] / "figures"


def record_of(losses, following, finals):
    """Members measured at steps 0, 100, 200, ..; predicting zero has loss 1, one GD step .5."""
    losses, following = np.array(losses), np.array(following)
    curves = {"loss": losses, "zero_loss": np.ones_like(losses), "next": following}
    curves |= {"own": np.full_like(losses, 2.0), "other": np.full_like(losses, 0.1)}
    pieces = (
        (binary.STEPS, 100 * np.arange(losses.shape[1])),
        (binary.CURVE["softmax"], curves),
        (binary.FINAL["softmax"], {"trained": np.array(finals), "gd": np.full(len(losses), 0.5)}),
        ("facts", {"predict_zero": 1.0, "closed_form": 0.5, "two_steps": 0.4}),
    )
    return measured_with({"input_size": 4}, pieces)


def test_the_drop_is_half_of_the_way_and_copying_half_of_its_largest_value():
    record = record_of(
        [[1.0, 0.9, 0.7, 0.52], [1.0, 1.0, 0.98, 0.9], [1.0, 1.0, 1.0, 0.6]],
        [[0.0, 0.6, 0.9, 1.0], [0.0, 0.0, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]],
        [0.52, 0.9, 0.6],
    )
    assert shown.drop_index(record).tolist() == [2, -1, 3]
    assert shown.dropped(record).tolist() == [1, 0, 1]
    np.testing.assert_allclose(shown.copying_onset(record), [100 / 200, np.nan, 1.0])
    np.testing.assert_allclose(shown.next_at_drop(record), [0.9 / 0.1, np.nan, 1.0 / 0.1])
    found = {claim.id.split(".")[-1]: claim for claim in shown.CLAIMS}
    np.testing.assert_allclose(found["one_step"].statistic(record), [1.04, np.nan, np.nan])  # 9/10 of the way
    np.testing.assert_allclose(found["not_two_steps"].statistic(record), [1.3, np.nan, np.nan])


def test_curves_are_laid_over_each_other_at_the_drop():
    record = record_of([[1.0, 0.5, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]], np.ones((3, 3)), [0.5, 0.5, 1.0])
    steps, curves = shown._around_drop(record, ("loss",))
    assert steps.tolist() == [-100, 0]  # where both members that drop have been measured
    np.testing.assert_array_equal(curves["loss"], [[1.0, 0.5], [1.0, 0.5]])


def test_what_a_linear_pattern_of_ten_sinusoidal_channels_can_do():
    # The docstring's reason why a linear first layer falls short. The weights of channel i that one step after a
    # pattern V A V^T by position learns are linear in A: sum_t c_t v_t A (sum_s v_s z_s), with z the last content
    # channel of the 2N tokens and c channel i (zero on y-tokens but for the last): least squares finds the best A.
    n = d = 10
    directions, sizes, _ = np.linalg.svd(sinusoidal_positions(2 * n, 10), full_matrices=False)
    np.testing.assert_allclose(sizes[[0, 4, 5]], [8.24, 1.26, 0.07], atol=0.01)
    v = directions[:, :5]
    draw = np.random.default_rng(0)
    x, w = draw.uniform(-0.5, 0.5, (20_000, n, d)), draw.normal(size=(20_000, d))
    tokens = np.zeros((20_000, 2 * n, d))
    tokens[:, ::2] = x
    tokens[:, 1::2, -1] = (x * w[:, None]).sum(-1)
    queries, read = np.einsum("btd,tp->bdp", tokens, v), tokens[:, :, -1] @ v
    features = (queries[..., None] * read[:, None, None]).reshape(20_000, d, 25)
    unexplained = [
        np.mean((target - inputs @ np.linalg.lstsq(inputs, target, rcond=None)[0]) ** 2)
        for inputs, target in (
            (features[:, :-1].reshape(-1, 25), w[:, :-1].reshape(-1)),
            (features[:, -1], w[:, -1]),
        )
    ]
    assert (9 * unexplained[0] + unexplained[1]) / 24 == pytest.approx(0.302, abs=0.003)


@pytest.mark.parametrize(
    ("name", "about"), [("softmax", "copy_share"), ("linear", "linear_fails"), ("one_hot", "one_hot_own")]
)
def test_a_run_of_one_training_has_its_figures_and_says_of_it_what_the_whole_run_says(name, about):
    whole, _ = committed(FIGURES / "von_oswald/separate_tokens/lab")
    others = {*binary.FIRST_LAYERS} - {name}
    kept = {key: values for key, values in whole.arrays.items() if key.split("/")[0] not in others}
    part = dataclasses.replace(whole, config={**whole.config, "only": name}, arrays=kept)
    drawn = binary.EXPERIMENT.figures(part)
    assert len(drawn["attention"].axes) == (2 if name == "linear" else 3)  # by hand, the colour bar, one trained
    assert len(drawn["separate_tokens"].axes) == (4 if name == "softmax" else 1)
    rows, of_whole = ({row["id"]: row for row in binary.EXPERIMENT.judged(record)} for record in (part, whole))
    judged = {claim: row for claim, row in rows.items() if row["verdict"] != NOT_JUDGED}
    assert all(row["interval"] == of_whole[claim]["interval"] for claim, row in judged.items())
    abouts = {f"von_oswald.separate_tokens.{claim}" for claim in ("copy_share", "linear_fails", "one_hot_own")}
    assert abouts & {*judged} == {f"von_oswald.separate_tokens.{about}"}
