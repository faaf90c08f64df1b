import jax
import numpy as np
import pytest

from icl_lab.theory import (
    StableManifoldWarning,
    block_loss,
    flow_limit,
    gamma,
    gradient_flow,
    isotropic_course,
    largest_initial_scale,
    optimal_loss,
    pl_constant,
    population_loss,
    race_margin,
    race_probability,
    race_threshold,
    smallest_value_square,
    spurious_loss,
    spurious_point,
)
from icl_lab.theory.flows.losses import PARAMETRISATIONS, Law

RNG = np.random.default_rng(0)
N = 10
TURN = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
COVARIANCE = TURN @ np.diag([1.2, 0.7, 0.4]) @ TURN.T
TIMES = np.geomspace(0.1, 400, 60)  # one number of times: one program for every merged flow here
THETA = RNG.normal(size=(3, 3))
UNIT = THETA @ THETA.T / np.linalg.norm(THETA @ THETA.T)
NARROW = {"rtol": 1e-9, "atol": 1e-12, "solver": "explicit"}


@pytest.fixture(scope="module")
def merged():
    """From 0.1, 0.5 and 3 times the largest proven scale, from an indefinite U11, and unbalanced with u nearly zero."""
    scales = largest_initial_scale(COVARIANCE, N) * np.array([0.1, 0.5, 3.0])
    u = np.array([*scales, 0.2, 0.01])
    u11 = np.stack([*(s * UNIT for s in scales), 0.1 * RNG.normal(size=(3, 3)), 0.3 * UNIT])
    return u, u11, gradient_flow({"u": u, "u11": u11}, COVARIANCE, N, TIMES, **NARROW)


def test_limits_are_those_of_the_theorem_whatever_the_start(merged):
    u, u11, flow = merged
    inverse = np.linalg.inv(gamma(COVARIANCE, N))
    for m in range(len(u)):
        value, matrix = flow_limit(COVARIANCE, N, u[m] ** 2 - np.sum(u11[m] ** 2))
        np.testing.assert_allclose(flow.end["u"][m], value, rtol=1e-8)
        np.testing.assert_allclose(flow.end["u11"][m], matrix, atol=1e-8)
        np.testing.assert_allclose(flow.end["u"][m] * flow.end["u11"][m], inverse, atol=1e-8)
    np.testing.assert_allclose(flow.loss[:, -1], optimal_loss(COVARIANCE, N), rtol=1e-12)
    np.testing.assert_allclose(flow_limit(COVARIANCE, N)[0], np.linalg.norm(inverse) ** 0.5, rtol=1e-12)
    assert np.all(np.abs(flow.curvature[:, 0]) < 1e-6 * flow.curvature[:, 1])  # the scale symmetry, nothing below


def test_balance_is_conserved_and_the_loss_falls(merged):
    u, u11, flow = merged
    balance = flow.path["u"] ** 2 - np.sum(flow.path["u11"] ** 2, axis=(2, 3))
    np.testing.assert_allclose(balance, np.repeat((u**2 - np.sum(u11**2, axis=(1, 2)))[:, None], 60, 1), atol=1e-8)
    assert np.all(np.diff(flow.loss) < 1e-12)
    for u, u11, loss in zip(*(flow.path[name][0, ::20] for name in ("u", "u11")), flow.loss[0, ::20]):
        np.testing.assert_allclose(loss, population_loss(u * u11, COVARIANCE, N))


def test_pl_inequality_and_lower_bound_hold_along_the_path(merged):
    u, _, flow = merged
    for m in range(2):  # the two starts of the theorem
        law = {"covariance": COVARIANCE, "context_length": N, "scale": u[m], "theta": THETA}
        assert np.all(flow.path["u"][m] ** 2 >= smallest_value_square(**law))
        excess = flow.loss[m] - optimal_loss(COVARIANCE, N)
        assert np.all(flow.gradient[m] ** 2 >= pl_constant(**law) * excess)
        assert pl_constant(**law) > 0
    with pytest.raises(ValueError, match="scale"):
        pl_constant(COVARIANCE, N, u[2], THETA)


def test_isotropic_course_and_the_stable_manifold_of_the_origin():
    start = 0.2 * np.array([1.0, -1.0, -1.0])[:, None, None] * np.eye(3) / 3**0.5
    laws = np.stack([0.8 * np.eye(3), 0.8 * np.eye(3), COVARIANCE])
    with pytest.warns(StableManifoldWarning, match=r"members \[1\]"):
        flow = gradient_flow({"u": np.full(3, 0.2), "u11": start}, laws, N, TIMES, **NARROW)
    exact = isotropic_course(TIMES, input_size=3, context_length=N, scale=0.2, variance=0.8)
    course = flow.path["u"][0, :, None, None] * flow.path["u11"][0]
    np.testing.assert_allclose(course, exact[:, None, None] * np.eye(3), atol=1e-7)
    early = np.searchsorted(TIMES, 10)  # later, rounding lets it leave
    assert 0 < flow.path["u"][1, early] < 1e-4  # a negative multiple of the identity dies under an isotropic law
    np.testing.assert_allclose(flow.loss[1, early], 1.2, atol=1e-6)
    np.testing.assert_allclose(flow.loss[2, -1], optimal_loss(COVARIANCE, N), rtol=1e-10)  # and escapes under another


def test_flow_is_gradient_descent_of_small_steps_to_first_order(merged):
    u0, u11, flow = merged
    lam, gam, until = COVARIANCE, gamma(COVARIANCE, N), 30
    errors = []
    for steps in (2000, 4000):
        u, a, rate = u0[1], u11[1], TIMES[until] / steps
        for _ in range(steps):  # the velocities as Zhang, Frei & Bartlett print them
            du = np.trace(lam @ lam @ a.T) - u * np.trace(gam @ lam @ a @ lam @ a.T)
            u, a = u + rate * du, a + rate * (u * lam @ lam - u**2 * gam @ lam @ a @ lam)
        errors.append(abs(u - flow.path["u"][1, until]))
    assert errors[0] < 0.01
    np.testing.assert_allclose(errors[0] / errors[1], 2, rtol=0.02)


def random_blocks(members, size, scale, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"u": (), "u11": (size, size), "u12": (size,), "u21": (size,)}
    return {name: scale * rng.normal(size=(members, *shape)) for name, shape in shapes.items()}


def test_losses_in_the_eigenbasis_are_the_closed_forms(x64):
    start = random_blocks(3, 3, 0.7)
    values, vectors = np.linalg.eigh(COVARIANCE)
    loss = jax.jit(PARAMETRISATIONS[2].loss)
    for u, u11, u12, u21 in zip(*start.values()):
        turned = {"u": u, "u11": vectors.T @ u11 @ vectors, "u12": vectors.T @ u12, "u21": vectors.T @ u21}
        exact = block_loss(u11, u, u12, u21, COVARIANCE, 4)
        np.testing.assert_allclose(loss(turned, Law(values, np.float64(4))), exact, rtol=1e-12)


TWO = {"covariance": np.array([[1.2, 0.4], [0.4, 0.8]]), "context_length": 6, "times": 3000.0}


def test_members_do_not_know_of_each_other():
    start = random_blocks(3, 2, 0.3)
    laws, lengths = np.stack([np.eye(2), TWO["covariance"], np.diag([0.3, 1.5])]), np.array([4, 6, 20])
    many = gradient_flow(start, laws, lengths, 3000.0)
    for m in range(3):
        one = gradient_flow({k: v[m : m + 1] for k, v in start.items()}, laws[m], lengths[m], 3000.0)
        for name in start:
            np.testing.assert_array_equal(one.end[name][0], many.end[name][m])


def test_without_u12_and_u21_every_block_is_the_merged_flow():
    start = random_blocks(2, 2, 0.3)
    start |= {"u12": np.zeros((2, 2)), "u21": np.zeros((2, 2))}
    whole = gradient_flow(start, TWO["covariance"], 6, 3.0, rtol=1e-9, atol=1e-12)
    part = gradient_flow({k: start[k] for k in ("u", "u11")}, TWO["covariance"], 6, 3.0, **NARROW)
    for name in ("u", "u11"):
        np.testing.assert_allclose(whole.end[name], part.end[name], atol=1e-8)
    assert not whole.end["u12"].any()
    assert not whole.end["u21"].any()


def test_dense_starts_end_at_the_optimum_or_at_the_spurious_minimum():
    flow = gradient_flow(random_blocks(16, 2, 0.1), **TWO)
    best, spurious = optimal_loss(TWO["covariance"], 6), spurious_loss(TWO["covariance"], 6)
    at_best, at_spurious = (np.abs(flow.loss[:, -1] - level) < 1e-9 for level in (best, spurious))
    assert np.all(at_best ^ at_spurious)
    assert at_best.any()
    assert at_spurious.any()
    read = flow.end["u12"][:, :, None] * flow.end["u21"][:, None, :]
    _, _, u12, u21 = spurious_point(TWO["covariance"], 6)
    np.testing.assert_allclose(np.ptp(read[at_spurious], axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(read[at_spurious][0], np.outer(u12, u21), atol=1e-6)
    assert np.all(flow.curvature[:, 0] > -1e-8)


def test_race_threshold_parts_the_basins():
    covariance, scale = np.eye(2) * [1.4, 0.9], 1e-2
    (threshold,) = race_threshold(covariance[None], 6)
    rate = np.linalg.norm(covariance**2)
    a = np.full(2, scale)
    b = np.array([0.95, 1.05]) * threshold * scale ** (1.4**2 / rate)
    start = {"u": a / 2**0.5, "u11": a[:, None, None] * covariance**2 / rate / 2**0.5}
    start |= dict.fromkeys(("u12", "u21"), b[:, None] * np.array([1.0, 0.0]) / 2**0.5)
    flow = gradient_flow(start, covariance, 6, 3000.0)
    levels = [optimal_loss(covariance, 6), spurious_loss(covariance, 6)]
    np.testing.assert_allclose(flow.loss[:, -1], levels, atol=1e-9)
    np.testing.assert_allclose(race_margin(start, covariance, threshold), [1 / 0.95, 1 / 1.05], rtol=1e-9)
    dense = random_blocks(48, 2, 1e-3)  # of which only two amplitudes matter
    flow = gradient_flow(dense, covariance, 6, 3000.0)
    told = race_margin(dense, covariance, threshold) > 1
    assert np.mean(told == (flow.loss[:, -1] - levels[0] < 1e-9)) > 0.95


def test_race_probability():
    steep = np.diag([1.0, 1e-3])  # both modes at the same rate
    np.testing.assert_allclose(race_probability([1e-6, 0.1], 1.3, steep), 2 / np.pi * np.arctan(1.3), rtol=1e-4)
    flat = race_probability([1e-4, 1e-2], 0.9, np.eye(3))
    assert 0 < flat[1] < flat[0] < 1
    assert race_probability(0.1, np.inf, np.eye(3)) == 1
    a, b = np.random.default_rng(0).normal(size=(2, 3, 200_000))
    won = np.linalg.norm(b, axis=0) < 0.9 * 1e-2 ** (3**-0.5 - 1) * np.abs(a[0]) ** 3**-0.5
    start = {"u": 1e-2 * 2**0.5 * a[0], "u11": np.zeros((3, 3)), "u12": 1e-2 * 2**0.5 * b.T, "u21": np.zeros(3)}
    np.testing.assert_array_equal(race_margin(start, np.eye(3), 0.9) > 1, won)
    assert abs(won.mean() - flat[1]) < 4 * (0.25 / 200_000) ** 0.5


def test_bad_arguments():
    start = {"u": [0.1], "u11": 0.1 * np.eye(2)[None]}
    for message, change in (
        ("covariance", {"covariance": np.array([[1.0, 0.5], [0.0, 1.0]])}),
        ("covariance", {"covariance": -np.eye(2)}),
        ("context_length", {"context_length": 0}),
        ("times", {"times": [1.0, 1.0]}),
        ("times", {"times": -1.0}),
        ("solver", {"solver": "euler"}),
        ("no parametrisation", {"start": {"u": [0.1]}}),
        ("fit", {"start": {"u": [0.1, 0.1], "u11": 0.1 * np.eye(2)[None]}}),
        ("finite", {"start": {"u": [np.nan], "u11": 0.1 * np.eye(2)[None]}}),
    ):
        with pytest.raises(ValueError, match=message):
            gradient_flow(**({"start": start} | TWO | change))
    with pytest.raises(ValueError, match="balance"):
        flow_limit(np.eye(2), 6, np.inf)
    with pytest.raises(ValueError, match="theta"):
        smallest_value_square(np.eye(2), 6, 0.1, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="stack"):
        race_threshold(np.eye(2), 6)


def test_what_does_not_end_well_says_so():
    start = {"u": np.array([0.0, 0.1]), "u11": 0.3 * UNIT * np.arange(2)[:, None, None]}
    with pytest.warns(StableManifoldWarning, match=r"\[0\] rest at a saddle"):
        gradient_flow(start, COVARIANCE, N, TIMES, **NARROW)
    start["u"][1] = 1e200  # its velocity overflows
    with pytest.raises(RuntimeError, match=r"members \[1\] did not reach"):
        gradient_flow(start, COVARIANCE, N, TIMES, **NARROW)
    assert jax.numpy.ones(1).dtype == np.float32  # the caller's precision is untouched
