import numpy as np
import pytest

from icl_lab.theory.linear_attention.closed_forms import population_loss
from icl_lab.theory.linear_attention.prompt_moments import combined, evaluate, mean_of_chains

DRAW = np.random.default_rng(0)
A, ROOT = DRAW.normal(size=(3, 3)), DRAW.normal(size=(3, 3))
LAM = ROOT @ ROOT.T
TRACE, SQUARES = np.trace(LAM), np.trace(LAM @ LAM)
Z, Y = ("w", "S", "A", "q"), ("w", "q")


@pytest.mark.parametrize(
    ("chains", "mean"),
    [
        ([("q", "A", "q")], np.trace(A @ LAM)),
        ([("q", "A", "T", "q")], np.trace(A @ A.T @ LAM)),
        ([("w", "S", "w")], TRACE),
        ([("w", "S", "S", "w")], (1 + 1 / 7) * SQUARES + TRACE**2 / 7),
        ([("w", "S", "w")] * 2, (1 + 2 / 7) * (TRACE**2 + 2 * SQUARES)),
        ([("q", "q")] * 2, TRACE**2 + 2 * SQUARES),
        ([("w", "S", "q"), ("w", "q")], SQUARES),
        ([("w", "q")], 0.0),
    ],
)
def test_known_gaussian_and_wishart_moments(chains, mean):
    assert evaluate(mean_of_chains(*chains), 7, L=LAM, A=A) == pytest.approx(mean, rel=1e-12)


def test_the_squared_error_is_the_population_loss_of_any_matrix():
    squared = combined((0.5, 0, mean_of_chains(Z, Z)), (-1, 0, mean_of_chains(Z, Y)), (0.5, 0, mean_of_chains(Y, Y)))
    assert evaluate(squared, 7, L=LAM, A=A) == pytest.approx(population_loss(A, LAM, 7), rel=1e-12)


def test_pairings_are_all_counted_once():
    # at D = 1 with every matrix 1 all words have trace 1: what is left are moments of scalars
    chains = (Z, Z, ("w", "S", "w"), ("w", "S", "w"), ("q", "F", "q"))
    one = np.eye(1)
    chi_square = np.prod([(5 + 2 * k) / 5 for k in range(4)])  # E S^4
    assert evaluate(mean_of_chains(*chains), 5, L=one, A=one, F=one) == pytest.approx(15 * chi_square * 3, rel=1e-12)


@pytest.mark.parametrize("chain", [("w", "S"), ("S", "w"), ("w",), ("w", "B", "q"), ("w", "q", "w")])
def test_other_chains_are_refused(chain):
    with pytest.raises(ValueError, match="a chain is w or q"):
        mean_of_chains(chain)
