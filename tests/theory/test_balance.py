import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.constructions import linear_attention_blocks, linear_attention_weights
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Prompt, gaussian_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.theory.flows.balance import (
    edge_rate,
    gradient_moments,
    mean_field,
    quiet_scale,
)
from icl_lab.theory.flows.fluctuations import (
    balance_drift,
    optimum_moments,
    resting_scale,
    scale_course,
    stable,
)
from icl_lab.theory.linear_attention.blocks import block_loss_terms
from icl_lab.theory.linear_attention.closed_forms import optimum

NETWORK = LinearSelfAttention(parametrisation="merged", query_as_key=True, averaged=True)
LAYOUT = joint_layout(sign=1)
LAM, N = np.array([[1.2, 0.3], [0.3, 0.5]]), 6
BEST = optimum(LAM, N)
KAPPA = (BEST**2).sum()


def balance(params):
    """|r|^2 - |K|_F^2, and the same of a gradient."""
    b = linear_attention_blocks(params)
    return b["u"] ** 2 + (b["u12"] ** 2).sum(-1) - (b["u11"] ** 2).sum((-1, -2)) - (b["u21"] ** 2).sum(-1)


def gaussian_nodes(dimensions, order):
    """Gauss-Hermite nodes (.., dimensions) and weights of N(0, I), exact to degree 2 order - 1 in every coordinate."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.array(list(itertools.product(nodes, repeat=dimensions)))
    return grid, np.array([np.prod(w) for w in itertools.product(weights / weights.sum(), repeat=dimensions)])


def test_gradient_moments_are_those_of_the_layer_by_exact_quadrature():
    # one example in two dimensions: a polynomial in six Gaussians, of degree at most 8 in each
    a, u, root = np.array([[0.4, -0.7], [0.2, 0.9]]), 0.8, np.linalg.cholesky(LAM)
    x, w, q = (gaussian_nodes(2, order) for order in (5, 4, 5))
    pick = np.array(list(itertools.product(*(range(len(weights)) for _, weights in (x, w, q))))).T
    chance = x[1][pick[0]] * w[1][pick[1]] * q[1][pick[2]]
    with jax.enable_x64(True):
        inputs, tasks, queries = (
            jnp.asarray(part) for part in (x[0][pick[0]] @ root.T, w[0][pick[1]], q[0][pick[2]] @ root.T)
        )
        prompts = Prompt(inputs[:, None], (inputs * tasks).sum(1)[:, None, None], queries)

        def loss(params, prompt, target):
            return 0.5 * (learner(NETWORK, params, LAYOUT)(prompt)[0] - target) ** 2

        start = linear_attention_weights(a / u, u)
        gradients = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(start, prompts, (queries * tasks).sum(1))
        of_r, of_k = (np.asarray((g**2).sum((1, 2, 3, 4))) for g in (gradients["params"][k] for k in ("w_pv", "w_kq")))
        along_u21 = np.asarray(linear_attention_blocks(gradients)["u21"])
    r, q_total = gradient_moments(a, LAM, 1)
    np.testing.assert_allclose([chance @ of_r, chance @ of_k], [r / u**2, u**2 * q_total], rtol=1e-9)
    f = np.array([[0.5, 0.2], [0.2, 2.0]])
    weighted = chance @ ((along_u21 @ f) * along_u21).sum(1) - chance @ (along_u21**2).sum(1)
    assert u**2 * (gradient_moments(a, LAM, 1, f)[1] - q_total) == pytest.approx(weighted, rel=1e-9)


@pytest.mark.usefixtures("x64")
def test_one_sgd_step_changes_the_balance_by_the_squared_gradients_exactly():
    law, rate = gaussian_regression(context_length=N, covariance=LAM), 0.3
    draw = np.random.default_rng(1)
    params = linear_attention_weights(*(draw.normal(size=shape) for shape in ((2, 2), (), 2, 2)))

    @jax.jit
    def gradient_at(params, key):
        samples = law(key, 16)

        def loss(params):
            return 0.5 * jnp.mean((batch_learner(NETWORK, params, LAYOUT)(samples.prompt) - samples.target) ** 2)

        return jax.grad(loss)(params)

    for step in range(3):
        gradient = gradient_at(params, jax.random.key(step))
        after = jax.tree.map(lambda w, g: w - rate * g, params, gradient)
        predicted = rate**2 * balance(gradient)
        assert float(balance(after) - balance(params)) == pytest.approx(float(predicted), rel=1e-10)
        assert abs(predicted) > 1e-3
        params = jax.tree.map(lambda w, g: w - 0.01 * g, params, gradient)


def test_the_edge_is_that_of_the_population_loss_along_u21_whatever_the_rest():
    with jax.enable_x64(True):
        u, u11 = 1.3, np.array([[0.4, -0.7], [0.2, 0.9]])
        hessian = jax.jit(jax.hessian(lambda v: block_loss_terms(u11, u, jnp.zeros(2), v, LAM, N)))(jnp.zeros(2))
    m2 = (1 + 2 / N) * (np.trace(LAM) ** 2 + 2 * (LAM * LAM).sum())  # E (w^T Shat w)^2
    np.testing.assert_allclose(u**2 * m2 * LAM, hessian, rtol=1e-12)
    assert edge_rate(u, LAM, N) == pytest.approx(2 / np.linalg.eigvalsh(hessian)[-1])


def test_the_edge_is_where_the_variance_of_u21_grows_by_exact_quadrature():
    # of one prompt: Hessian u^2 (w^T S w)^2 x x^T, so that variances v become E (1 - eta H) diag(v) (1 - eta H)
    u, batch, values = 1.3, 3, np.array([1.2, 0.5])
    (x, chance_x), (w, chance_w) = gaussian_nodes(2, 5), gaussian_nodes(2, 5)
    squares = ((x * np.sqrt(values)) @ w.T) ** 2  # N = 1: w^T S w = <w, x>^2
    m2, m4 = (chance_x @ squares**k @ chance_w for k in (2, 4))
    query, chance_q = gaussian_nodes(2, 3)
    fourth = np.einsum("k,ki,kj->ij", chance_q, values * query**2, values * query**2)
    h = m2 * values
    for rate, grows in ((0.98, False), (1.02, True)):
        eta = rate * edge_rate(u, np.diag(values), 1, batch)
        step = np.diag((1 - eta * u**2 * h) ** 2) + (eta * u**2) ** 2 / batch * (m4 * fourth - np.diag(h**2))
        assert (np.abs(np.linalg.eigvals(step)).max() > 1) == grows


def test_the_moments_at_the_optimum_are_those_of_the_layer_by_exact_quadrature():
    # one example in two dimensions; derivatives of the prediction, and gradients, by automatic differentiation
    values = np.array([0.5, 1.2])
    best, root = optimum(np.diag(values), 1), np.diag(np.sqrt(values))
    x, w, q = (gaussian_nodes(2, order) for order in (5, 4, 5))
    pick = np.array(list(itertools.product(*(range(len(weights)) for _, weights in (x, w, q))))).T
    chance = x[1][pick[0]] * w[1][pick[1]] * q[1][pick[2]]
    with jax.enable_x64(True):
        inputs, tasks, queries = (
            jnp.asarray(part) for part in (x[0][pick[0]] @ root, w[0][pick[1]], q[0][pick[2]] @ root)
        )
        prompts = Prompt(inputs[:, None], (inputs * tasks).sum(1)[:, None, None], queries)
        predicted = lambda params, prompt: learner(NETWORK, params, LAYOUT)(prompt)[0]  # noqa: E731
        found = jax.jit(jax.vmap(jax.value_and_grad(predicted), (None, 0)))(
            linear_attention_weights(best, 1.0), prompts
        )
        error = np.asarray(found[0] - (queries * tasks).sum(1))
        b = {name: np.asarray(value) for name, value in linear_attention_blocks(found[1]).items()}
    moments = optimum_moments(np.diag(values), 1)
    for which, weight in enumerate((chance, chance * error**2)):
        even = np.column_stack([b["u"], b["u11"][:, [0, 1], [0, 1]]])
        np.testing.assert_allclose(moments.even[which], (even.T * weight) @ even, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(moments.apart[which, 0, 1], weight @ b["u11"][:, 0, 1] ** 2, rtol=1e-9)
        np.testing.assert_allclose(moments.apart[which, 1, 0], weight @ b["u11"][:, 1, 0] ** 2, rtol=1e-9)
        for i in range(2):
            odd = np.column_stack([b["u12"][:, i], b["u21"][:, i]])
            np.testing.assert_allclose(moments.odd[which, i], (odd.T * weight) @ odd, rtol=1e-9)
        together = np.column_stack([b["u12"], b["u21"]])  # of different i nothing goes together
        np.testing.assert_allclose(((together.T * weight) @ together)[[0, 2, 0, 2], [1, 3, 3, 1]], 0, atol=1e-12)


def test_at_a_small_rate_the_drift_is_that_of_the_noise_alone_and_it_grows_towards_both_edges():
    moments, (r, q) = optimum_moments(LAM, N), gradient_moments(BEST, LAM, N)
    for u in (0.4, 1.0):
        assert balance_drift(moments, u, 1e-10, 64) == pytest.approx(r / u**2 - u**2 * q, rel=1e-6)
    us = np.geomspace(0.05, 5, 400)
    rests = np.array([stable(moments, u, 0.05, 64) for u in us])
    first, last = np.flatnonzero(rests)[[0, -1]]
    assert rests[first : last + 1].all()
    assert (first > 0, last < len(us) - 1) == (True, True)
    for u, sign in ((us[first] * 1.02, 1), (us[last] / 1.02, -1)):
        assert sign * balance_drift(moments, u, 0.05, 64) > 3 * sign * (r / u**2 - u**2 * q) > 0


@pytest.mark.usefixtures("compile_fully")
def test_sgd_of_a_finite_rate_drifts_as_predicted_from_a_small_u():
    # eta h is 1.3 along u: the noise alone would give less than two thirds of the drift
    batch, steps, members, n = 512, 150, 48, 20
    best = optimum(LAM, n)
    moments, (r, q) = optimum_moments(LAM, n), gradient_moments(best, LAM, n)
    u = float(np.sqrt(0.02 * moments.even[0, 0, 0] / 1.3))
    law = gaussian_regression(context_length=n, covariance=LAM)

    def loss(params, key):
        samples = law(key, batch)
        return 0.5 * jnp.mean((batch_learner(NETWORK, params, LAYOUT)(samples.prompt) - samples.target) ** 2)

    def member(key):
        def step(params, t):
            gradient = jax.grad(loss)(params, jax.random.fold_in(key, t))
            return jax.tree.map(lambda w, g: w - 0.02 * g, params, gradient), balance(gradient)

        return jax.lax.scan(step, linear_attention_weights(best / u, u), jnp.arange(steps))[1][20:].mean()

    measured = batch * np.asarray(jax.jit(jax.vmap(member))(jax.random.split(jax.random.key(0), members)))
    predicted, error = balance_drift(moments, u, 0.02, batch), measured.std(ddof=1) / members**0.5
    assert abs(measured.mean() - predicted) < 3 * error + 0.05 * predicted  # 5 %: of the order of 1 / B
    assert measured.mean() - 3 * error > 1.5 * (r / u**2 - u**2 * q)


def test_from_both_sides_the_drift_ends_at_the_quiet_scale():
    quiet = quiet_scale(LAM, N)
    for u in (0.5 * quiet, 2 * quiet):
        course = scale_course([0, 1e5, 1e9], u, LAM, N, 1e-6, 1)
        assert course[0] == pytest.approx(u)
        assert abs(course[1] - quiet) < abs(u - quiet)
        assert course[2] == pytest.approx(quiet, rel=1e-3)
    assert resting_scale(LAM, N, 1e-8, 1e6) == pytest.approx(quiet, rel=1e-5)
    rests = resting_scale(LAM, N, 0.02, 64)
    assert rests != pytest.approx(quiet, rel=1e-3)
    np.testing.assert_allclose(scale_course([1e5], quiet, LAM, N, 0.02, 64), rests, rtol=1e-6)


def test_without_noise_the_mean_field_is_population_gradient_descent_and_with_it_the_drift_at_the_optimum():
    u11, u, rates = np.array([[0.4, -0.1], [-0.1, 0.2]]), 0.3, np.linspace(0.2, 0.1, 40)
    found = mean_field(u11, u, LAM, N, rates, math.inf, 10)
    with jax.enable_x64(True):
        blocks = {"u11": jnp.asarray(u11), "u": jnp.asarray(u)}
        gradient = jax.jit(jax.grad(lambda b: block_loss_terms(b["u11"], b["u"], jnp.zeros(2), jnp.zeros(2), LAM, N)))
        for rate in rates:
            blocks = jax.tree.map(lambda w, g, rate=rate: w - rate * g, blocks, gradient(blocks))
    end, end11 = float(blocks["u"]), np.asarray(blocks["u11"])
    assert found["u"][-1] == pytest.approx(end, rel=1e-10)
    np.testing.assert_allclose(found["product"][-1], end * end11, rtol=1e-10)
    assert found["balance"][-1] == pytest.approx(end**2 - (end11**2).sum())
    start = float(KAPPA**0.25)
    noisy = mean_field(BEST / start, start, LAM, N, np.full(200, 0.02), 64, 50)
    course = scale_course(0.02 * np.arange(0, 201, 50), start, LAM, N, 0.02, 64)
    np.testing.assert_allclose(noisy["u"], course, rtol=2e-4)
    assert course[0] - course[-1] > 0.01


def test_a_step_of_the_mean_field_adds_what_the_batch_adds_to_the_squared_gradients():
    # of B prompts E |g|^2 = |mean|^2 + (E |g of one|^2 - |mean|^2) / B; the rate is small, so that u21 adds nothing
    u11, u, rate, batch = np.array([[0.4, -0.1], [-0.1, 0.2]]), 0.3, 1e-6, 4
    quiet, noisy = (mean_field(u11, u, LAM, N, [rate], b, 1)["balance"] for b in (math.inf, batch))
    r, q = gradient_moments(u * u11, LAM, N)
    with jax.enable_x64(True):
        loss = lambda u11, u: block_loss_terms(u11, u, jnp.zeros(2), jnp.zeros(2), LAM, N)  # noqa: E731
        g_u11, g_u = (np.asarray(g) for g in jax.jit(jax.grad(loss, argnums=(0, 1)))(jnp.asarray(u11), u))
    spread = (r / u**2 - g_u**2) - (u**2 * q - (g_u11**2).sum())
    assert noisy[1] - quiet[1] == pytest.approx(rate**2 * spread / batch, rel=1e-3, abs=0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="covariance must be symmetric"):
        gradient_moments(BEST, [[1.0, 0.5], [0.0, 1.0]], N)
    with pytest.raises(ValueError, match=r"a must be a finite \(2, 2\) matrix"):
        gradient_moments(np.eye(3), LAM, N)
    with pytest.raises(ValueError, match="context_length must be at least 1"):
        edge_rate(1.0, LAM, 0)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        scale_course([1.0], 1.0, LAM, N, 0.01, 0)
    with pytest.raises(ValueError, match="SGD stable there"):
        scale_course([1.0], 1.0, LAM, N, float(edge_rate(1.0, LAM, N, 64)), 64)
    with pytest.raises(ValueError, match="every divide 10"):
        mean_field(BEST, 1.0, LAM, N, [0.1] * 10, 64, 3)


@pytest.mark.usefixtures("compile_fully")
def test_sgd_from_the_optimum_drifts_as_predicted():
    # longer prompts have lighter tails; at half the edge rate the noise of u21 is twice that of a small one
    n, batch, steps, members = 20, 256, 100, 48
    best = optimum(LAM, n)
    kappa = (best**2).sum()
    u = float(kappa**0.25)
    rate = float(edge_rate(u, LAM, n, batch)) / 2
    law = gaussian_regression(context_length=n, covariance=LAM)

    def loss(params, key):
        samples = law(key, batch)
        return 0.5 * jnp.mean((batch_learner(NETWORK, params, LAYOUT)(samples.prompt) - samples.target) ** 2)

    def member(key):
        def step(params, t):
            return jax.tree.map(
                lambda w, g: w - rate * g, params, jax.grad(loss)(params, jax.random.fold_in(key, t))
            ), None

        return balance(jax.lax.scan(step, linear_attention_weights(best / u, u), jnp.arange(steps))[0])

    measured = np.asarray(jax.jit(jax.vmap(member))(jax.random.split(jax.random.key(0), members)))
    (end,) = scale_course([rate * steps], u, LAM, n, rate, batch)
    predicted = end**2 - kappa / end**2
    error = measured.std(ddof=1) / members**0.5
    assert abs(predicted) > 10 * error  # it does drift
    assert abs(measured.mean() - predicted) < 4 * error + 0.05 * abs(predicted)  # 5 %: fluctuations, of order eta / B
