"""What the claims of reddy.transition read off curves made by hand."""

import numpy as np
import pytest
from toys import verdicts

from experiments.onsets import crossing
from experiments.reddy.transition import CURVE, guess_of, matched_item, waits
from experiments.reddy.transition import STEPS as MEASURED_AT
from experiments.reddy.transition_shown import CLAIMS
from icl_lab.lab.claims import FAILS, HOLDS
from icl_lab.lab.records import Record

STEPS = np.arange(0, 5001, 100)


def _sigmoid(middle, width, start=0.0, end=1.0):
    rise = 1 / (1 + np.exp(-(STEPS[None] - middle[:, None]) / width))
    return start + (end - start) * rise


def _record(jump_width=60.0, order=1.0):
    """Sixteen members whose parts move in the paper's order at 2000 steps, more or less; order -1 is the reverse."""
    middle = 2000 + 30.0 * np.arange(16)
    parts: dict[str, np.ndarray] = {}
    for part in ("novel", "trained"):
        slow, jump = middle - order * 1300, middle
        accuracy = _sigmoid(slow, 150, 0.06, 0.25) + _sigmoid(jump, jump_width, 0, 0.74)
        labels = _sigmoid(slow, 150, 0.25, 1.0)
        curves = {
            "ic": accuracy, "ic2": accuracy, "cla": labels, "tla2": _sigmoid(slow, 200, 0.45, 0.9),
            "ila1": _sigmoid(jump, 80, 0.26, 0.8), "tila2": _sigmoid(jump, 80, 0.12, 0.8),
            "loss": 2.77 - 0.67 * _sigmoid(60 + 0 * jump, 30) - 2.0 * _sigmoid(jump, jump_width),
        }  # fmt: skip
        parts |= CURVE.at(part=part).named(curves)
    config = {"context_length": 4, "burstiness": 1, "trained_burstiness": 1, "labels": 16, "members": 16}
    return Record("reddy.transition", "lab", config, {}, MEASURED_AT.named(STEPS) | parts, {})


def test_every_claim_holds_of_an_abrupt_birth():
    assert set(verdicts(CLAIMS, _record()).values()) == {HOLDS}


def test_claims_fail_of_other_births():
    gradual = verdicts(CLAIMS, _record(jump_width=700.0))
    assert gradual["abrupt_novel"] == gradual["abrupt_trained"] == FAILS
    reverse = verdicts(CLAIMS, _record(order=-0.5))
    assert {reverse[name] for name in reverse if name.startswith("order_")} == {FAILS}
    assert reverse["slow_phase"] == FAILS
    forgotten = _record()
    CURVE(forgotten, part="novel", metric="ic")[:, -5:] = 0.3
    assert verdicts(CLAIMS, forgotten)["kept_novel"] == verdicts(CLAIMS, forgotten)["learns_novel"] == FAILS


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({("novel", "loss"): 2.77 - STEPS / 2000}, {"plateau_novel", "shelf_novel"}),  # a steady fall
        ({("trained", "loss"): 2.77 - (STEPS / 2000) ** 2}, {"plateau_trained"}),  # a shelf from the start, no plateau
        ({("novel", "ic"): np.where(STEPS > 500, 0.5, 0.06) + 0.5 * (STEPS > 2000)}, {"guesses_novel"}),
        ({("trained", "ic2"): 0.06 + 0.9 * (STEPS > 3500)}, {"together"}),
        ({("novel", "ila1"): np.where(STEPS > 900, 0.8, 0.26)}, {"latent_ila1", "jump_together"}),
        ({("novel", "tila2"): np.where(STEPS > 900, 0.8, 0.12)}, {"latent_tila2", "jump_together"}),
        ({("novel", "tila2"): np.where(STEPS > 3500, 0.8, 0.12)}, {"jump_together"}),
        ({("novel", "ila1"): 0.26 + 0.1 * (STEPS > 2200)}, {"head_ila1"}),
        ({("novel", "tila2"): 0.12 + 0.1 * (STEPS > 2200)}, {"head_tila2"}),
    ],
)
def test_each_part_of_the_birth_is_told_when_it_is_missing(changes, fails):
    record = _record()
    for (part, metric), curve in changes.items():
        shape = CURVE(record, part=part, metric=metric).shape
        record.arrays.update(CURVE.at(part=part, metric=metric).named(np.broadcast_to(curve, shape)))
    assert fails <= {name for name, verdict in verdicts(CLAIMS, record).items() if verdict == FAILS}


def test_crossings_interpolate():
    curves = np.array([[0.0, 0.5, 0.4, 1.0], [0.2, 0.2, 0.2, 0.2], [0.9, 0.0, 0.0, 1.0]])
    steps = np.array([0, 10, 20, 30])
    np.testing.assert_allclose(crossing(curves, steps, 0.25), [5, np.inf, 0])
    np.testing.assert_allclose(crossing(curves, steps, np.array([0.7, 0.2, 0.95])), [25, 0, 29.5])
    np.testing.assert_allclose(waits(curves, steps, 0.0), [10, np.inf, 0])
    assert [matched_item(n) for n in (1, 2, 4, 8)] == [0, 0, 1, 3]
    config = {"context_length": 4, "burstiness": 1, "trained_burstiness": 2}
    assert [guess_of(part, config) for part in ("novel", "trained")] == [0.25, 0.5]
