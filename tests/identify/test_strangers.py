"""identify on learners of other code, against all families: named rightly where the algorithm is exact, else refused.

That hundreds of planted learners and of outsiders are is a claim of ``identification.planted``.
"""

import numpy as np
import pytest
import strangers as plain

from icl_lab import solvers
from icl_lab.identify import identify

REFUSED = ("none of these", "not separable")
ROOT = np.diag([0.4, 0.7, 1.0, 1.4, 2.0]) @ np.linalg.qr(np.random.default_rng(5).normal(size=(5, 5)))[0].T
"""Of a rotated covariance with condition number 25."""


@pytest.mark.parametrize(
    ("learner", "allowed", "sizes", "law"),
    [
        (plain.dual_ridge(0.5), {"ridge"}, (10, 2), {}),
        (plain.with_ones, {"least squares with an intercept", "ridge with an intercept"}, (10, 2), {"noise": 1.0}),
        (solvers.median_regression(), {"median regression", "Huber regression"}, (10, 2), {"noise": 1.0}),
        (plain.descent([0.7], np.linalg.inv(ROOT.T @ ROOT)), {"preconditioned GD"}, (20, 5), {"root": ROOT}),
        (plain.mean_of(plain.descent([0.5]), plain.least_squares), None, (20, 5), {}),
        (plain.clipped(plain.least_squares, 2.0), None, (20, 5), {}),
    ],
    ids=["dual form", "intercept", "median", "preconditioned", "mean of two", "clipped labels"],
)
def test_a_stranger_is_named_rightly_or_refused(learner, allowed, sizes, law):
    n, d = sizes
    found = identify(learner, context_length=n, input_size=d, sampler=plain.prompts(n, d, **law))
    assert found.family in allowed if allowed else found.verdict in REFUSED, str(found)
