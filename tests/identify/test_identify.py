"""identify on learners that are plain numpy functions: names, refusals and errors."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stranger_learners as plain
from stranger_adaptive import nearest
from strangers import prompts

from icl_lab import solvers
from icl_lab.identify import FAMILIES, LearnerError, decision, identify
from icl_lab.identify.probes import battery
from icl_lab.machine import vectors
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training.model import model_of

N, D = 8, 3
SIZES = {"context_length": N, "input_size": D}
SAMPLER = linear_regression(**SIZES, input_range=2.0)
RIDGE = {"ridge": FAMILIES["ridge"]}
UNIT = 1 / 3  # mean eigenvalue: the variance of U(-1, 1)
ridge = plain.linear(plain.ridge_weights(0.5))
descent = plain.descent([0.6 / UNIT] * 3)
nearest_two = nearest(2)


def jittered(x, y, q):
    """Ridge whose inputs are coupled a little in the query, as training leaves couplings in weights."""
    jitter = np.random.default_rng(0).normal(size=(D, D))
    return ridge(x, y, q + 0.06 * q @ (jitter - np.trace(jitter) / D * np.eye(D)))


@pytest.fixture(scope="module")
def both():
    """Two members that compute ridge: one exactly, one with couplings that break a symmetry."""
    return identify([ridge, jittered], **SIZES, sampler=SAMPLER)


def test_ridge_is_named_with_its_strength_and_its_range(both):
    assert (both.verdict, both.family) == ("identified", "ridge")
    exact, changed = both.members
    assert exact.parameters["strength"] == pytest.approx(0.5, rel=1e-4)
    assert exact.residual < 1e-6
    assert exact.range == exact.label_range == 4
    assert changed.parameters["strength"] == pytest.approx(0.5, rel=0.02)
    assert 0.03 < changed.asymmetry < 0.15
    assert changed.residual < changed.asymmetry / 10  # what symmetrising is for
    assert exact.ladder[0.01] == "ridge"
    assert next(iter(exact.rivals)) == "ridge"


def test_the_structure_of_ridge(both):
    assert both.structure["permutation"]["grade"] == "exact"
    assert both.structure["rotation"]["grade"] == "approximate"  # the worst member is the one with couplings
    assert (
        both.structure["centred_rotation"]["median"] > decision.ASYMMETRY
    )  # a constant added to all labels is not forgotten
    assert both.structure["degree"] is None  # no polynomial


def test_the_measured_filter_is_that_of_ridge(both):
    grid, r, spread = both.filter
    np.testing.assert_allclose(r[0], 0.5 / (N * grid + 0.5), atol=1e-6)
    assert spread[0].max() < 1e-6
    np.testing.assert_allclose(r[1], r[0], atol=0.05)


def test_the_verdict_prints_and_plots(both):
    text = str(both)
    assert "identified: ridge" in text
    assert "strength" in text
    assert "standard normal" not in text
    assert "half precision" not in text
    figure = both.plot()
    assert len(figure.axes) == 2
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_fingerprint_holds_the_named_algorithm_and_rivals_of_other_classes(both):
    words, arrays = both.fingerprint()
    json.dumps(words)
    np.testing.assert_allclose(arrays["named"][0], arrays["r"][0], atol=1e-6)
    assert words["families"][0] == "ridge"
    assert (np.diff(arrays["residual"]) >= 0).all()
    assert len(words["curves"]) == len(arrays["curves"]) == 3
    assert words["curves"][0].startswith("ridge (")
    assert sum(said.startswith("ridge") for said in words["curves"]) == 1
    one_step = identify(solvers.gradient_descent(0.5, 1), **SIZES).fingerprint()[0]["curves"]
    assert not [said for said in one_step[1:] if said.split(",")[0] in ("GD", "GD++", "heavy ball", "Nesterov")]


@pytest.mark.parametrize("learner", [lambda x, y, q: 0 * y[:, 0], lambda x, y, q: y.mean(1), nearest_two])
def test_what_is_no_filter_or_has_no_name_can_be_drawn_too(learner):
    found = identify(learner, **SIZES, sampler=SAMPLER)
    assert np.isnan(found.fingerprint()[1]["named"]).all()
    found.plot().canvas.draw()


def test_models_that_were_not_fitted_are_said_and_drawn():
    found = identify(descent, **SIZES, sampler=SAMPLER)
    assert "GD++" in found.members[0].unfitted  # three steps of it are GD, too
    assert "GD*" in found.fingerprint()[0]["families"]
    assert "not fitted" in found.plot().axes[1].get_xlabel()


def test_a_member_without_any_fit_is_counted():
    found = identify([ridge, nearest_two], **SIZES, sampler=SAMPLER, families=RIDGE)
    assert found.members[1].nearest == "ridge"  # what the structure excludes is no fit that could be named
    assert found.fingerprint()[0]["families"] == ["ridge (1 of 2)"]
    found = identify(
        [lambda x, y, q: 0 * y[:, 0], nearest_two], **SIZES, sampler=SAMPLER, families={"dMMSE": FAMILIES["dMMSE"]}
    )
    assert np.isnan(found.members[1].residual) and found.members[1].nearest is None  # noqa: PT018
    assert "none for 1 of 2" in str(found)


def test_a_family_is_called_as_it_is_named():
    ridges, name = FAMILIES["ridge"], "ridge, of X"
    family = replace(ridges, name=name, models=(replace(ridges.models[0], family=name),))
    assert identify(ridge, **SIZES, families={name: family}).fingerprint()[0]["families"] == [name]


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_a_learner_in_half_precision_is_as_exact_as_its_answers(kind):
    if kind == jnp.float16 and vectors() in ("SSE4_2", "AVX"):
        pytest.skip("XLA compiles no float16 for these vectors")
    half, gd = {"families": {"GD": FAMILIES["GD"]}, "sampler": SAMPLER} | SIZES, solvers.gradient_descent(1.8, 3)
    found = identify([lambda prompt: gd(prompt).astype(kind), lambda *of: descent(*of).astype(kind)], **half)
    assert (found.family, [member.steps for member in found.members]) == ("GD", [3, 3])
    assert found.structure["linear_labels"]["worst"] > 1e-5
    assert found.structure["linear_labels"]["grade"] == found.structure["rotation"]["grade"] == "exact"
    assert f"exact is below {2 * float(jnp.finfo(kind).eps):.2g}" in str(found)
    found = identify(lambda x, y, q: (descent(x, y, q) * (1 + 0.06 * x[:, 0, :1])).astype(kind), **half)
    assert found.structure["permutation"]["grade"] == "approximate"  # more than rounding


def test_symmetries_of_a_learner_that_ignores_labels_are_not_measured():
    found = identify(lambda x, y, q: x[:, 0, :1] + q[:, :1], **SIZES, sampler=SAMPLER)
    assert found.structure["odd_labels"]["grade"] == "no"
    assert found.structure["permutation"]["grade"] == "not measured"
    assert found.structure["locality"]["grade"] == "not measured"
    assert "permutation not measured," in str(found)


def test_gradient_descent_is_named_with_steps_rate_and_degree():
    found = identify(descent, **SIZES, sampler=SAMPLER)
    (member,) = found.members
    assert (found.family, member.steps) == ("GD", 3)
    assert member.parameters["learning_rate"] == pytest.approx(0.6 / UNIT, rel=1e-5)
    assert found.structure["degree"] == 3
    assert found.structure["linear_labels"]["grade"] == "exact"


def test_of_few_families_only_those_are_named():
    two = solvers.gd_plus_plus([2.0, 2.0], [0.1 / N, 0.1 / N])  # e >= 27 g / 4: GD of four rates, too
    assert "GD" in identify(two, **SIZES, sampler=SAMPLER).members[0].equals
    found = identify(two, **SIZES, sampler=SAMPLER, families={"GD++": FAMILIES["GD++"]})
    assert found.members[0].equals == ("GD++",)


def test_one_step_is_one_class_and_no_sampler_is_said():
    found = identify(solvers.gradient_descent(0.5, 1), **SIZES)
    assert {"GD", "GD++", "heavy ball", "Nesterov", "Chebyshev"} <= set(found.members[0].equals)
    assert found.family == "GD"
    assert "no sampler was given" in str(found)


@pytest.mark.parametrize(
    ("learner", "family"),
    [
        (solvers.softmax_regression(2.0), "softmax regression"),
        (solvers.lms(0.5, normalised=True), "normalised LMS"),
        (solvers.centred(solvers.gradient_descent(1.5, 1)), "centred GD"),
        (solvers.centred(solvers.gradient_descent(1.5, 1), add_mean=True), "centred GD + mean"),
        (solvers.conjugate_gradients(2), "conjugate gradients"),
        (solvers.preconditioned_gradient_descent(jnp.diag(jnp.array([0.5, 1.0, 3.0])), 1), "preconditioned GD"),
        (lambda x, y, q: 1e-5 * y[:, 0], "zero"),
        (lambda x, y, q: y.mean(1), "mean of labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_filter_is_named_too(learner, family):
    assert identify(learner, **SIZES, sampler=SAMPLER).family == family


def test_zero_is_named_whatever_is_tried():
    found = identify(lambda x, y, q: 0 * y[:, 0], **SIZES, families={"GD": FAMILIES["GD"]})
    assert (found.verdict, found.family) == ("identified", "zero")


@pytest.mark.parametrize(
    ("learner", "families"),
    [
        (partial(solvers.dmmse_or_ridge, log_odds=-3.0, strength=0.25), ["dMMSE or ridge"]),
        (solvers.dmmse, ["dMMSE", "dMMSE or ridge"]),  # a part of ridge is a deviation that the larger one follows
    ],
)
def test_tasks_of_a_finite_set_are_known_and_may_be_mixed_with_ridge(learner, families):
    tasks = jax.random.normal(jax.random.key(9), (8, D, 1))
    sampler = prompts(N, D, noise=0.25, tasks=tasks[..., 0])
    found = identify(learner(tasks, noise_variance=0.25), **SIZES, sampler=sampler)
    assert found.family in families
    assert found.members[0].parameters["noise_variance"] == pytest.approx(0.25, rel=1e-3)
    if len(families) == 1:
        assert found.members[0].parameters["log_odds"] == pytest.approx(-3, abs=0.01)


def test_all_tasks_of_a_large_set_are_known():
    tasks = jax.random.normal(jax.random.key(9), (900, D))
    _, on, _ = battery(prompts(N, D, tasks=tasks), N, D, 0)
    assert on.tasks.shape == (900, D)


def test_an_outsider_is_refused_with_the_reason():
    found = identify(nearest_two, **SIZES, sampler=SAMPLER)
    assert (found.verdict, found.family) == ("none of these", None)
    assert "linear_query" in found.members[0].reason
    w = np.random.default_rng(0).normal(size=(D, 20))
    ones = np.ones((20, 1))
    asymmetric = lambda x, y, q: np.tanh(q @ w) @ ones * y[:, 0]  # noqa: E731
    without_context = lambda x, y, q: q @ w @ ones  # noqa: E731
    found = identify([asymmetric, without_context], **SIZES, sampler=SAMPLER)
    assert found.verdict == "none of these"
    assert "asymmetry" in found.members[0].reason
    assert "not odd_labels" in found.members[1].reason
    assert "2 of 2: none of these, the first one: asymmetry" in str(found)


def test_members_that_differ_are_mixed():
    found = identify([ridge, descent], **SIZES, sampler=SAMPLER)
    assert (found.verdict, found.family) == ("mixed", None)
    assert [m.family for m in found.members] == ["ridge", "GD"]


def raises(x, y, q):
    raise RuntimeError("out of order")


COUNTER = iter(range(10**9))
BAD = {
    "raised RuntimeError": raises,
    "not finite": lambda x, y, q: np.full((len(x), 1), np.nan),
    "float64 (2048, 8, 1)": lambda x, y, q: y,
    "float64 (2048, 2, 1)": lambda x, y, q: np.stack([q[:, :1]] * 2, 1),
    "float64 (2048,)": lambda x, y, q: y[:, 0, 0],
    "differently": lambda x, y, q: y[:, 0] + next(COUNTER),
    "its own prompt": lambda x, y, q: y[:, 0] - y[:1, 0] + np.arange(len(y))[:, None],
    "given one prompt": lambda prompt: prompt.y.sum(),
}


@pytest.mark.parametrize("said", BAD)
def test_a_bad_learner_is_refused_by_name(said):
    with pytest.raises(LearnerError, match="learner 1") as refused:
        identify([ridge, BAD[said]], **SIZES, sampler=SAMPLER, families=RIDGE)
    assert said in str(refused.value)


def test_a_function_that_holds_another_learner_is_asked_itself():
    class Wrapped:
        learner = staticmethod(ridge)

        def __call__(self, x, y, q):
            return 2 * ridge(x, y, q)

    assert identify(Wrapped(), **SIZES, sampler=SAMPLER, families=RIDGE).verdict == "none of these"


def test_sizes_that_do_not_fit_are_refused():
    for n, d, said in ((1, 2, "at least 2"), (4, 0, "at least 1"), (8.5, 2, r"a whole number of at least 2, got 8\.5")):
        with pytest.raises(ValueError, match=said):
            identify(ridge, context_length=n, input_size=d)
    for no_sampler in (5, lambda key, batch: None, SAMPLER(jax.random.key(0), 8)):
        with pytest.raises(ValueError, match=r"sampler must be a function \(key, batch\) -> Sample"):
            identify(ridge, **SIZES, sampler=no_sampler)
    with pytest.raises(LearnerError, match="learner 1 is a dict, not a function"):
        identify([ridge, {}], **SIZES, sampler=SAMPLER, families=RIDGE)
    network = LinearSelfAttention()
    one_prompt = jax.tree.map(lambda leaf: leaf[0], SAMPLER(jax.random.key(0), 1).prompt)
    for no_learner in (network, model_of(network, one_prompt)):
        for learners in (no_learner, [no_learner]):
            with pytest.raises(LearnerError, match=r"learner 0.* is a \w+, which has no parameters"):
                identify(learners, **SIZES, sampler=SAMPLER, families=RIDGE)
    with pytest.raises(ValueError, match=r"prompts must be x \(9, 3\)"):
        identify(ridge, context_length=N + 1, input_size=D, sampler=SAMPLER)
    for families in ({}, ["GD"], {"descent": FAMILIES["GD"]}):
        with pytest.raises(ValueError, match=r"families must be a dict|'GD' under the name 'descent'"):
            identify(lambda x, y, q: y[:, 0], **SIZES, families=families)
    with pytest.raises(ValueError, match="at least one learner"):
        identify([], **SIZES)


def test_a_model_of_another_library():
    """A layer of linear attention in Equinox, which comes with diffrax: one step of gradient descent."""
    equinox = pytest.importorskip("equinox", reason="Equinox is not installed")

    class Attention(equinox.Module):
        key_query: jax.Array

        def __call__(self, x, y, q):
            return (x @ self.key_query @ q) @ y / len(x)

    model = jax.jit(jax.vmap(Attention(0.9 * jnp.eye(D))))
    found = identify(lambda x, y, q: model(x, y, q), **SIZES, sampler=SAMPLER)
    assert found.members[0].steps == 1
    assert found.members[0].parameters["learning_rate"] == pytest.approx(0.9, rel=1e-4)
