"""``garg.linear_functions``: its networks are too far from least squares for a name; when a training has settled."""

import numpy as np
import pytest
from test_headline_controls import at_lab

from experiments.garg.linear_functions import ERROR, IDENTIFIED, LOSS, PLANTED
from experiments.statistics import change, settled
from icl_lab.identify.decision import NAMED


@pytest.fixture(scope="module")
def record():
    return at_lab("garg.linear_functions")[0]


def test_networks_that_leave_so_much_error_get_no_name_and_ridge_gets_its_own(record):
    """Distance from least squares, which has no error from D examples on, is the root of the relative error."""
    lengths, counts = record.config["lengths"], [2 * record.config["input_size"], 3 * record.config["input_size"]]
    assert (np.sqrt(ERROR(record, tasks="dense", learner="trained")[:, counts]) > NAMED).all()
    at = [list(lengths).index(count) for count in counts]
    assert (IDENTIFIED(record, number="residual")[:, at] > NAMED).all()
    assert not IDENTIFIED(record, number="named")[:, at].any()
    assert (PLANTED(record)[at] < NAMED / 1000).all()
    assert {names[-1] for names in record.metrics["verdicts"].values()} == {"ridge"}


@pytest.mark.parametrize("tasks", ["dense", "sparse"])
def test_the_loss_of_neither_network_has_settled(record, tasks):
    assert not settled(LOSS.at(tasks=tasks)).reached(record)


def test_the_change_is_that_of_the_median_member_between_the_last_two_fifths():
    curves = np.concatenate([np.full((3, 15), 7.0), np.full((3, 5), 2.0), np.full((3, 5), 1.0)], axis=1)
    curves[0, 15:] = 5.0  # one member that has settled
    assert change(curves) == pytest.approx(0.5)
    curves[1, 15:] = 5.0
    assert change(curves) == 0
