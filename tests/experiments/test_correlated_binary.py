"""Layers at the closed forms hold every claim of ``correlated.effective_length``, and its controls do not."""

import functools

import numpy as np
import pytest
from toys import inside

from experiments.correlated import effective_length as binary
from experiments.correlated.effective_length import ERROR, LEAST_SQUARES, NAMED, PRODUCT, SHIFT, Law
from experiments.correlated.effective_length_shown import CLAIMS
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.theory import effective_length, effective_noise, risk

CONFIG = binary.PRESETS["lab"]
MEMBERS = 2


@functools.cache
def record(factor=1.0):
    """Members whose A is ``factor`` times the best one, and errors that are exact."""
    pieces, names = [(LEAST_SQUARES, np.full((MEMBERS, 3), 1e-13))], binary.laws(CONFIG)
    for name, law in names.items():
        kind, at = name.split("_")
        best, error = binary.closed_form(CONFIG, law)
        rate = factor * best[0, 0]

        def exact(tested, a=factor * best):
            length = effective_length(tested.length, tested.correlation)
            return risk(a, test_length=length, covariance=np.eye(5), label_noise=effective_noise(*tested)) / 5

        if kind == "correlation":
            tested = [exact(law._replace(correlation=c)) for c in CONFIG.correlations]
            found = {"named": 1.0, "learning_rate": rate, "asymmetry": 0.01}
            pieces += [(SHIFT.at(at=at), np.tile(tested, (MEMBERS, 1)))]
            pieces += [(PRODUCT.at(at=at), np.tile(factor * best, (MEMBERS, 1, 1)))]
            pieces += [(NAMED.at(at=at), {key: np.full(MEMBERS, value) for key, value in found.items()})]
        else:
            pieces += [(ERROR.at(kind=kind, n=at), np.full(MEMBERS, exact(law)))]
        pieces += [("facts", {name: {"error": error}})]
    metrics, arrays, _ = collected(pieces)
    return Record("correlated.effective_length", "lab", to_json(CONFIG), metrics, arrays)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_the_closed_form_holds_and_the_control_fails(claim):
    found = record()
    assert inside(claim, claim.statistic, found)
    assert claim.control is None or not inside(claim, claim.control, found)


def test_layers_of_another_scale_break_the_claims():
    broken = {claim.id.rsplit(".", 1)[1] for claim in CLAIMS if not inside(claim, claim.statistic, record(0.9))}
    assert {"rate_0", "rate_05", "gd_rate_08", "shift_0_08", "shift_05_08"} <= broken


def test_laws_of_one_effective_length():
    laws = binary.laws(CONFIG)
    assert [laws[f"equal_{n}"].correlation == 0 for n in (10, 20, 40)] == [True, False, False]
    errors = [binary.closed_form(CONFIG, laws[f"equal_{n}"])[1] for n in (10, 20, 40)]
    np.testing.assert_allclose(errors, 6 / 16, rtol=1e-8)
    noisy = [binary.closed_form(CONFIG, laws[f"noisy_{n}"])[1] for n in (10, 20, 40)]
    np.testing.assert_allclose(noisy, [1 - 1 / (1.6 + 1 / n) for n in (10, 20, 40)], rtol=1e-8)
    assert binary.closed_form(CONFIG, Law(20, 0.0))[0][0, 0] == pytest.approx(20 / 26)
