"""What families predict is what the solvers predict that they are named after; in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab import solvers
from icl_lab.identify.families import FAMILIES
from icl_lab.identify.family import containers
from icl_lab.identify.fitting import Fit
from icl_lab.identify.numbers import reported
from icl_lab.identify.others import general_preconditioner
from icl_lab.identify.probes import Battery, Units, battery, in_units
from icl_lab.identify.setting import Setting
from icl_lab.identify.structure import grade, structure
from icl_lab.prompts import Prompt, linear_regression

N, D = 7, 3
UNITS = Units(eigenvalue=0.4, label=1.7, low=0.1, high=3.0, task_norm=1.0, query_norm=1.0, assumed=False)


def rates(p, name="learning_rate"):
    return jnp.array([value for key, value in p.items() if key.split(" ")[0] == name])


def gammas(p, steps):
    return jnp.concatenate([rates(p, "gamma"), jnp.zeros(1)]) if steps > 1 else jnp.zeros(1)


def symmetric(p):
    matrix = np.zeros((D, D))
    matrix[np.triu_indices(D)] = list(p.values())
    return jnp.asarray(matrix + np.triu(matrix, 1).T)


def gd_plus_plus(p, model):
    own = gammas(p, model.steps) if model.own else jnp.full(model.steps, p.get("gamma", 0.0))
    return solvers.gd_plus_plus(rates(p) if model.own else p["learning_rate"], own, model.steps)


def one_step_or(make):
    return lambda p, m: solvers.gradient_descent(p["learning_rate"], 1) if m.steps == 1 else make(p, m)


SOLVERS = {
    "GD": lambda p, m: solvers.gradient_descent(rates(p) if m.own else p["learning_rate"], m.steps),
    "GD++": gd_plus_plus,
    "ridge": lambda p, m: solvers.ridge(p["strength"]),
    "least squares": lambda p, m: solvers.least_squares(),
    "gradient flow": lambda p, m: solvers.gradient_flow(p["time"]),
    "heavy ball": one_step_or(lambda p, m: solvers.heavy_ball(p["learning_rate"], p["momentum"], m.steps)),
    "Nesterov": one_step_or(lambda p, m: solvers.nesterov(p["learning_rate"], p["momentum"], m.steps)),
    "Chebyshev": one_step_or(lambda p, m: solvers.chebyshev(p["low over high"] * p["high"], p["high"], m.steps)),
    "Newton": lambda p, m: solvers.newton(p["start"], m.steps),
    "Newton from covariance": lambda p, m: solvers.newton(p["start"], m.steps, of="covariance"),
    "normalised Newton": lambda p, m: solvers.newton(p["start"], m.steps, of="covariance", normalised=True),
    "softmax regression": lambda p, m: solvers.softmax_regression(rates(p, "sharpness"), rates(p, "amplitude")),
    "kernel smoothing": lambda p, m: solvers.gaussian_smoothing(p["bandwidth"], p["amplitude"]),
    "conjugate gradients": lambda p, m: solvers.conjugate_gradients(m.steps),
    "noise-adaptive ridge": lambda p, m: solvers.noise_adaptive_ridge(
        jnp.geomspace(p["low strength"], p["high strength"], 9)
    ),
    "LMS": lambda p, m: solvers.lms(p["learning_rate"]),
    "normalised LMS": lambda p, m: solvers.lms(p["learning_rate"], normalised=True),
    "RLS with forgetting": lambda p, m: solvers.recursive_least_squares(p["strength"], 1 - p["1 - forgetting"]),
    "ridge with an intercept": lambda p, m: solvers.with_intercept(solvers.ridge(p["strength"])),
    "least squares with an intercept": lambda p, m: solvers.with_intercept(solvers.least_squares()),
    "median regression": lambda p, m: solvers.median_regression(),
    "Huber regression": lambda p, m: solvers.huber_regression(p["threshold"]),
    "leaky LMS": lambda p, m: solvers.leaky_lms(p["learning_rate"], p["leak"]),
    "weighted ridge": lambda p, m: solvers.weighted_ridge(**p),
    "trace-normalised GD": lambda p, m: solvers.trace_normalised_gradient_descent(p["learning_rate"], m.steps),
    "mean of labels": lambda p, m: lambda prompt: prompt.y.mean(0),
    "last label": lambda p, m: lambda prompt: prompt.y[-1],
    "zero": lambda p, m: lambda prompt: 0 * prompt.y[0],
}


def solver_of(name, model, p):
    if name.startswith("centred "):
        inner = name.removeprefix("centred ").removesuffix(" + mean")
        return solvers.centred(SOLVERS[inner](p, model), add_mean=name.endswith(" + mean"))
    return SOLVERS[name](p, model)


def prompts(seed=0, contexts=4, queries=2, tasks=None):
    draw = np.random.default_rng(seed).normal
    x, y, q = draw(size=(contexts, N, D)), draw(size=(contexts, N)), draw(size=(contexts, queries, D))
    return Battery(x, y, q, tasks, np.diag([0.5, 1.0, 1.5]))


def answers(learner, on):
    """What a learner of prompts answers on a battery in units."""
    (c, queries, d), predict = on.q.shape, jax.jit(jax.vmap(learner))

    def ask(x, y, q):
        return np.asarray(predict(Prompt(x, y[:, :, None], q)))[:, 0]

    x, y = (np.repeat(part, queries, 0) for part in (on.x, on.y))
    return in_units(ask, UNITS)(x, y, on.q.reshape(-1, d)).reshape(c, queries)


def drawn(model, seed):
    """Parameters inside the middle of their range, so that deep methods stay moderate."""
    rng, found = np.random.default_rng(seed), []
    for p in model.parameters:
        low, high = (np.log(p.low), np.log(p.high)) if p.logarithmic else (p.low, p.high)
        value = rng.uniform(low + 0.4 * (high - low), low + 0.6 * (high - low))
        found.append(np.exp(value) if p.logarithmic else value)
    return np.array(found)


def told(model, theta):
    setting = Setting(UNITS, prompts(), np.empty(0), FAMILIES)
    return reported(Fit(model, theta, 0, 0, None, None, 0, False), setting)


CHOSEN = [
    (name, model)
    for name, family in FAMILIES.items()
    if not family.raw
    for model in family.models
    if model.steps in (0, 1, 2, 3)
]


@pytest.mark.parametrize(("name", "model"), CHOSEN, ids=lambda v: v if isinstance(v, str) else f"{v.steps}{v.own}")
def test_a_family_predicts_what_its_solver_predicts(x64, name, model):
    theta, on = drawn(model, 3), prompts()
    expected = answers(solver_of(name, model, told(model, theta)), on)
    np.testing.assert_allclose(model.predict(theta[None], on)[0], expected, rtol=1e-7, atol=1e-10)


def test_contexts_of_low_rank_are_evidence_of_their_own_directions_only(x64):
    on = prompts()
    flat = Battery(on.x * np.array([1.0, 1.0, 0.0]), on.y, on.q, None, on.covariance)
    model = FAMILIES["noise-adaptive ridge"].models[0]
    theta = np.array([0.01, 10.0])
    expected = answers(solver_of("noise-adaptive ridge", model, told(model, theta)), flat)
    np.testing.assert_allclose(model.predict(theta[None], flat)[0], expected, rtol=1e-7, atol=1e-10)


def test_candidates_are_predicted_side_by_side(x64):
    for family in FAMILIES.values():
        model, on = family.models[-1], prompts(tasks=np.random.default_rng(5).normal(size=(6, D)))
        theta = np.stack([drawn(model, seed) for seed in (0, 1)])
        both = model.predict(theta, on)
        assert both.shape == (2, *on.q.shape[:2])
        np.testing.assert_allclose(both[1], model.predict(theta[1:], on)[0], rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 2])
def test_preconditioned_gradient_descent_with_any_matrix_and_with_a_power_of_the_covariance(x64, steps):
    on, matrix = prompts(), general_preconditioner(D)[steps - 1]
    theta = np.random.default_rng(0).normal(size=6) * 0.3
    learner = solvers.preconditioned_gradient_descent(symmetric(told(matrix, theta)), steps)
    np.testing.assert_allclose(matrix.predict(theta[None], on)[0], answers(learner, on), rtol=1e-9)
    power, theta = FAMILIES["preconditioned GD"].models[steps - 1], np.array([0.3, -0.7])
    said, covariance = told(power, theta), UNITS.eigenvalue * np.array([0.5, 1.0, 1.5])  # of the learner's own inputs
    p = np.diag(said["learning_rate"] * covariance ** said["power"])
    np.testing.assert_allclose(np.diag(p), 0.3 / UNITS.eigenvalue * np.array([0.5, 1.0, 1.5]) ** -0.7)
    learner = solvers.preconditioned_gradient_descent(jnp.asarray(p), steps)
    np.testing.assert_allclose(power.predict(theta[None], on)[0], answers(learner, on), rtol=1e-9)


def test_dmmse_weighs_the_tasks_of_training(x64):
    tasks = np.random.default_rng(5).normal(size=(6, D))
    model, on, theta = FAMILIES["dMMSE"].models[0], prompts(tasks=tasks), np.array([2.0])
    variance = told(model, theta)["noise_variance"]
    assert variance == pytest.approx(2.0 * UNITS.label**2)
    learner = solvers.dmmse(jnp.asarray(tasks)[:, :, None] * UNITS.label / UNITS.eigenvalue**0.5, variance)
    np.testing.assert_allclose(model.predict(theta[None], on)[0], answers(learner, on), rtol=1e-9)


def test_the_mixture_weighs_the_tasks_of_training_against_ridge(x64):
    tasks = np.random.default_rng(5).normal(size=(6, D))
    model, on = FAMILIES["dMMSE or ridge"].models[0], prompts(tasks=tasks)
    for theta in np.array([[2.0, 0.7, 1.5], [0.3, 2.0, -1.0]]):
        p = told(model, theta)
        given = jnp.asarray(tasks)[:, :, None] * UNITS.label / UNITS.eigenvalue**0.5
        learner = solvers.dmmse_or_ridge(given, **p)
        np.testing.assert_allclose(model.predict(theta[None], on)[0], answers(learner, on), rtol=1e-9)
    known, ridge = (model.predict(np.array([[2.0, 0.7, odds]]), on)[0] for odds in (30.0, -30.0))
    np.testing.assert_allclose(known, FAMILIES["dMMSE"].models[0].predict(np.array([[2.0]]), on)[0], rtol=1e-6)
    np.testing.assert_allclose(ridge, FAMILIES["ridge"].models[0].predict(np.array([[0.7 / N]]), on)[0], rtol=1e-6)


def test_every_family_says_what_it_needs_and_stands_under_its_name():
    for name, family in FAMILIES.items():
        assert family.name == name
        assert {model.family for model in family.models} == {name}
        sizes = [model.size for model in family.models if model.own or family.name not in ("GD", "GD++")]
        assert sizes == sorted(sizes)


STRUCTURED = [(name, family.models[0]) for name, family in FAMILIES.items() if not (family.raw or family.of_set)]


@pytest.mark.parametrize(("name", "model"), STRUCTURED, ids=lambda v: v if isinstance(v, str) else "")
def test_a_member_of_a_family_has_what_it_needs_and_lacks_what_it_breaks(x64, name, model):
    """Fitted to prompts with noise: on exact labels robust regressions are least squares."""
    sampler = linear_regression(context_length=N, input_size=D, input_law="normal", task_scale=0.6, label_noise=0.5)
    _, on, _ = battery(sampler, N, D, 0)

    def ask(x, y, q):
        return model.predict(drawn(model, 3)[None], Battery(x, y, q[:, None], None, np.eye(D)))[0, :, 0]

    about, family = structure(ask, on, 0), FAMILIES[name]
    assert [part for part in family.needs if grade(about[part]) == "no"] == []
    assert [part for part in family.breaks if grade(about[part]) == "exact"] == []


def test_larger_families_contain_smaller_ones_directly_and_through_others():
    inside = containers(FAMILIES)
    assert "ridge with an intercept" in inside["least squares with an intercept"]
    assert "Huber regression" in inside["median regression"] & inside["least squares"]
    assert "leaky LMS" in inside["LMS"]
    assert "weighted ridge" in inside["RLS with forgetting"] & inside["ridge"] & inside["least squares"]


def test_contexts_with_no_more_examples_than_inputs_are_met_by_robust_regressions():
    few = Battery(*(part[:, :D] for part in (prompts().x, prompts().y)), prompts().q, None, np.eye(D))
    for name in ("median regression", "Huber regression"):
        model = FAMILIES[name].models[0]
        found = model.predict(np.full((2, model.size), 0.1), few)
        np.testing.assert_allclose(found, FAMILIES["least squares"].models[0].predict(np.zeros((2, 0)), few))
