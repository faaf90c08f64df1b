import warnings

import numpy as np
import pytest

from icl_lab.theory import (
    StableManifoldWarning,
    escape_rate,
    escape_times,
    gamma,
    gradient_flow,
    growth_rates,
    head_scales,
    head_time,
    head_velocity,
    optimal_loss,
    staircase_levels,
)

N = 31
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
EIGENVALUES = np.array([0.5, 0.35, 0.25])
COVARIANCE = TURN * EIGENVALUES @ TURN.T
TIMES = np.linspace(0, 20_000, 2001)[1:]


def separate(value, key, query, **options):
    """(T, D) components learned, as fractions, beside the flow of heads (M, H), (M, H, D): one program for all here."""
    start = {"value": value, "key": np.asarray(key)[:, :, None], "query": np.asarray(query)[:, :, None]}
    flow = gradient_flow(start, COVARIANCE, N, TIMES, solver="explicit", **options)
    read = [flow.path[name][:, :, :, 0] @ TURN for name in ("key", "query")]
    learned = np.einsum("mth,mthi,mthi->mti", flow.path["value"], *read)
    return learned * np.diag(TURN.T @ gamma(COVARIANCE, N) @ TURN), flow


@pytest.fixture(scope="module")
def aligned():
    """Member m: heads aligned with the first m + 1 components, balanced; the others zero."""
    keys = 0.02 * np.tril(np.ones((3, 3)))[:, :, None] * TURN.T
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = separate(0.02 * np.tril(np.ones((3, 3))), keys, keys, rtol=1e-8, atol=1e-11)
    return *found, [str(w.message) for w in caught if w.category is StableManifoldWarning]


def test_aligned_heads_end_on_the_saddles_of_the_staircase(aligned):
    _, flow, messages = aligned
    levels = staircase_levels(COVARIANCE, N)
    np.testing.assert_allclose(levels[[0, -1]], [EIGENVALUES.sum() / 2, optimal_loss(COVARIANCE, N)])
    np.testing.assert_allclose(flow.loss[:, -1], levels[1:], rtol=1e-10)
    assert [message.split(" start")[0] for message in messages] == ["members [0, 1]"]  # their other heads are zero
    for name in ("value", "key", "query"):
        size = np.linalg.norm(flow.end[name].reshape(3, 3, -1), axis=2)
        np.testing.assert_allclose(size, np.tril(np.ones((3, 3))) * head_scales(COVARIANCE, N), atol=1e-8)


def test_an_aligned_head_follows_the_reduced_equation(aligned):
    _, flow, _ = aligned
    law = (COVARIANCE, N)
    for head, scale in enumerate(head_scales(*law)):
        value = flow.path["value"][2, :, head]
        index = int(np.searchsorted(value, 0.8 * scale))
        np.testing.assert_allclose(head_time(0.02, value[index], *law, head), TIMES[index], rtol=1e-5)
        ahead = head_time(0.5 * scale, 0.5001 * scale, *law, head)
        np.testing.assert_allclose(head_velocity(0.50005 * scale, *law, head), 1e-4 * scale / ahead, rtol=1e-6)
        assert abs(head_velocity(scale, *law, head)) < 1e-12
        assert head_time(scale / 1e6, scale / 2e5, *law, head) == pytest.approx(  # algebraic, 1 / (lam^2 w)
            8e5 / scale / EIGENVALUES[head] ** 2, rel=1e-4
        )


def test_escape_times_follow_from_the_initial_weights():
    rng = np.random.default_rng(0)
    start = [0.003 * rng.normal(size=shape) for shape in ((3, 3), (3, 3, 3), (3, 3, 3))]
    learned, _ = separate(*start, rtol=1e-6, atol=1e-9)
    resolved = 0
    for m in range(3):
        components, times = escape_times(*(part[m] for part in start), COVARIANCE, N)
        measured = [TIMES[np.argmax(learned[m, :, c] > 0.5)] for c in components if c >= 0]
        np.testing.assert_allclose(times[: len(measured)], measured, rtol=0.03, atol=10)
        assert np.all(np.isnan(times) == (components < 0))
        resolved += len(measured)
    assert resolved >= 7


def test_escape_times_of_a_balanced_head_are_those_of_the_reduced_equation():
    direction = 1e-3 * TURN[:, 1]
    components, times = escape_times([1e-3], direction[None], direction[None], COVARIANCE, N)
    scale = head_scales(COVARIANCE, N)[1]
    assert components.tolist() == [1, -1, -1]
    np.testing.assert_allclose(times[0], head_time(1e-3, scale / 2 ** (1 / 3), COVARIANCE, N, 1), rtol=1e-5)
    flipped = escape_times([-1e-3], -direction[None], direction[None], COVARIANCE, N)
    np.testing.assert_allclose(flipped[1], times, rtol=1e-6)


def test_merged_attention_grows_at_its_escape_rate_and_faster_than_any_component():
    rate, squares = growth_rates(COVARIANCE)
    np.testing.assert_allclose([rate, *squares], [escape_rate(COVARIANCE), *EIGENVALUES**2], rtol=1e-12)
    assert rate > squares[0]
    np.testing.assert_allclose(growth_rates(np.eye(5))[0], 5**0.5)


def test_bad_arguments():
    with pytest.raises(ValueError, match="final scale"):
        head_time(0.1, 5.0, COVARIANCE, N, 0)
    with pytest.raises(ValueError, match="component"):
        head_velocity(0.1, COVARIANCE, N, 3)
    with pytest.raises(ValueError, match="as many heads"):
        escape_times([0.1, 0.1], np.ones((1, 3)), np.ones((1, 3)), COVARIANCE, N)
    with pytest.raises(ValueError, match="positive"):
        escape_rate(-COVARIANCE)
