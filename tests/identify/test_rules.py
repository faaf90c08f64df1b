"""The rules by which identify names or refuses, each on a small learner or on the function that holds it."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import stranger_adaptive as adaptive
import stranger_learners as plain
from strangers import pool, prompts

from icl_lab import solvers
from icl_lab.identify import decision, identify, refusal, stability
from icl_lab.identify.asking import rounding
from icl_lab.identify.families import FAMILIES
from icl_lab.identify.family import Family, containers
from icl_lab.identify.fitting import Fit, fitted, judged, refitted
from icl_lab.identify.probes import FIT, JUDGE, Answers, battery
from icl_lab.identify.structure import EXACT
from icl_lab.prompts import Prompt, Sample, linear_regression

N, D = 8, 3
SIZES = {"context_length": N, "input_size": D}
ORDERED = ("LMS", "normalised LMS", "leaky LMS", "RLS with forgetting", "weighted ridge")
STEPWISE = ("GD", "GD++", "heavy ball", "Nesterov", "Chebyshev")

RIDGE = plain.linear(plain.ridge_weights(0.5))
LEAST_SQUARES = plain.linear(plain.least_squares_weights)


def of(*names):
    return {name: FAMILIES[name] for name in names}


def asked(learner, *names, sampler=None):
    return identify(learner, **SIZES, sampler=sampler or prompts(N, D), families=of(*names) if names else None)


@cache
def gained_ridge():
    """Ridge whose predictions are two per cent too large, against all families."""
    return asked(plain.gained(RIDGE, 1.02))


# A gain is a nuisance


def test_ridge_that_is_two_per_cent_too_large_is_ridge_with_a_gain():
    (member,) = gained_ridge().members
    assert (member.family, member.equals) == ("ridge", ("ridge",))
    assert member.gain == pytest.approx(1.02, abs=1e-4)
    assert member.parameters["strength"] == pytest.approx(0.5, rel=1e-3)
    assert "gain: median 1.02" in str(gained_ridge())


@pytest.mark.parametrize(
    ("gain", "learner"), [(2.0, LEAST_SQUARES), (1.2, LEAST_SQUARES), (-1.0, plain.descent([0.35] * 3))]
)
def test_a_multiple_outside_of_the_gain_is_none_of_these_and_told(gain, learner):
    (member,) = asked(plain.gained(learner, gain), "GD", "ridge", "least squares").members
    assert (member.verdict, member.family, member.equals) == ("none of these", None, ())
    assert f"{gain:g} times {'least squares' if gain > 0 else 'GD, 3 steps'} is 0.000 away" in member.reason


def fit_of(name, residual, steps=None, own=False):
    model = next(m for m in FAMILIES[name].models if m.own == own and (steps is None or m.steps == steps))
    predictions, errors = np.ones((10, 4)), np.full(10, residual)
    return Fit(model, np.full(model.size, 0.1), residual, residual, predictions, errors, residual, False)


@pytest.mark.parametrize(("gain", "named"), [(0.93, False), (0.97, True), (1.02, True), (1.07, False)])
def test_a_gain_at_its_bound_is_no_name(gain, named):
    (member,) = asked(plain.gained(LEAST_SQUARES, gain), "least squares").members
    assert member.family == ("least squares" if named else None)
    assert named == (member.gain == pytest.approx(gain, abs=1e-3))


def test_models_that_hold_a_scale_have_no_gain_and_lose_nothing():
    (member,) = asked(plain.gained(plain.descent([0.5]), 1.04), *STEPWISE).members
    assert (member.family, member.steps, member.gain) == ("GD", 1, None)
    assert member.parameters["learning_rate"] == pytest.approx(0.52, rel=1e-3)


# A name is stable


def test_stability_is_the_largest_deviation_before_a_name_is_lost():
    assert stability.stability([1.0, 0.95, 0.9, 0.89]) == 0.02
    assert stability.stability([1.0, 0.5, 1.0, 1.0]) == 0.005
    assert stability.stability([0.5, 1.0, 1.0, 1.0]) == 0.0
    assert gained_ridge().members[0].stability >= 0.01


def test_of_several_members_the_stability_is_the_worst():
    found = gained_ridge()
    (member,) = found.members
    assert found.stability == member.stability
    assert replace(found, members=[member, replace(member, stability=0.01), member]).stability == 0.01


def between(time):
    flow = plain.by_spectrum(lambda s: -np.expm1(-time * s) / s)
    return plain.mean_of(plain.linear(plain.ridge_weights(1.0)), flow)


def test_a_name_that_wavers_is_refused_with_the_names():
    """Half ridge and half flow that stops about there: either is within a few per cent, and none is it."""
    (member,) = asked(between(4.5), "ridge", "gradient flow").members
    assert (member.verdict, member.family, member.fit) == ("not separable", None, None)
    assert set(member.equals) == {"ridge", "gradient flow"}
    assert member.stability < decision.STABLE
    assert member.parameters == {}
    assert member.reason.index("gradient flow and ridge") == 0


def test_a_name_that_deviations_take_away_is_not_told_apart_from_itself():
    """Its gain is nearly at the bound."""
    (member,) = asked(plain.gained(LEAST_SQUARES, 0.953), "least squares").members
    assert (member.verdict, member.equals) == ("not separable", ("least squares",))
    assert "least squares and least squares" not in member.reason
    assert f"{member.residual:.3f}" in member.reason


def test_a_larger_family_of_which_all_are_limits_keeps_the_name():
    inside = {"ridge": {"least squares"}, "least squares": set()}
    fits = (fit_of("ridge", 0.001),)
    decided = stability.Decided((frozenset({"least squares"}), frozenset({"ridge"})), fits, fits)
    assert decided.keeps("ridge", inside)
    assert not decided.keeps("least squares", inside)
    assert not stability.Decided((), fits, fits).keeps("ridge", inside)


def test_deviations_have_size_one_and_either_sign():
    _, on, _ = battery(prompts(N, D), N, D, 0)
    model = FAMILIES["ridge"].models[0]
    mean = model.predict(np.array([[0.1]]), on)[0]
    fit = judged(fitted(model, on.take(FIT), mean[FIT], {}), on.take(JUDGE), mean[JUDGE], mean[JUDGE], False)
    moved = stability.deviations(fit, Answers(mean, mean, 0.0, 0.0), on)
    assert len(moved) >= 12
    sizes = np.linalg.norm(moved, axis=2) / np.linalg.norm(mean, axis=1)
    of_kinds = np.stack([np.median(sizes[:, kind::2], 1) for kind in (0, 1)])  # training prompts, wide spectra
    np.testing.assert_allclose(of_kinds.max(0), 1, rtol=1e-6)
    np.testing.assert_allclose(moved[::2], -moved[1::2], atol=1e-12)


@pytest.mark.parametrize("name", ["ridge", "gradient flow", "kernel smoothing"])
def test_a_model_refitted_to_a_target_is_the_model_fitted_to_it(name):
    _, on, _ = battery(prompts(N, D), N, D, 0)
    model, on = FAMILIES[name].models[0], on.take(FIT)
    theta = np.array([0.5, 0.8])[: model.size]
    target = model.predict(theta[None], on)[0]
    first = fitted(model, on, target, {})
    fit = judged(first, on, target, target, False)
    other = 1.01 * model.predict(1.03 * theta[None], on)[0]
    thetas, gains = refitted(fit, on, np.stack([target, other]))
    np.testing.assert_allclose(thetas[0], first.theta, rtol=1e-6)
    again = fitted(model, on, other, {})
    np.testing.assert_allclose(thetas[1], again.theta, rtol=1e-4)
    np.testing.assert_allclose(gains, [first.gain, again.gain], rtol=1e-4)


def test_steps_are_all_that_deviations_leave():
    (member,) = asked(plain.descent([0.35] * 5), "GD").members
    assert isinstance(member.steps, tuple)
    assert 5 in member.steps
    assert f"{member.steps[0]}, " in str(asked(plain.descent([0.35] * 5), "GD"))
    low, high = member.intervals["learning_rate"]
    assert low < 0.35 < high


@pytest.mark.parametrize(
    ("learner", "name"), [(lambda x, y, q: y.mean(1), "mean of labels"), (lambda x, y, q: y[:, -1], "last label")]
)
def test_what_has_neither_numbers_nor_a_gain_is_decided_before(learner, name):
    uniform = linear_regression(**SIZES, input_range=2.0)
    others = ("centred GD + mean", "centred ridge + mean", "centred gradient flow + mean", "ridge with an intercept")
    (member,) = asked(learner, name, *others, "LMS", sampler=uniform).members
    assert (member.family, member.gain, member.steps) == (name, None, None)
    assert member.stability >= decision.STABLE


# Structure binds both ways


def about(**parts):
    """Structure that excludes nothing, but for some parts."""
    names = {part for family in FAMILIES.values() for part in (*family.needs, *family.breaks)}
    return dict.fromkeys(names, 0.05) | parts


@pytest.mark.parametrize("part", ["permutation", "linear_query", "linear_labels", "example_rotation", "rotation"])
def test_a_learner_with_a_symmetry_is_no_family_that_lacks_it(part):
    lacking = {name for name, family in FAMILIES.items() if part in family.breaks}
    needing = {name for name, family in FAMILIES.items() if part in family.needs}
    assert lacking
    out = refusal.excluded(about(**{part: EXACT / 2}), FAMILIES, 0.0, EXACT, True)
    assert set(out) == lacking
    assert all(part in why for why in out.values())
    assert set(refusal.excluded(about(**{part: 2 * EXACT}), FAMILIES, 0.0, EXACT, True)) == set()
    assert set(refusal.excluded(about(**{part: 0.5}), FAMILIES, 0.0, EXACT, True)) == needing


def test_what_does_not_depend_on_the_order_is_no_family_that_does():
    trials = gained_ridge().members[0].trials
    assert all("permutation" in trials[name] for name in ORDERED)
    (member,) = asked(plain.recursive(1.0, 1.0), "ridge", *ORDERED, sampler=prompts(N, D, noise=1.0)).members
    assert (member.family, member.equals) == ("ridge", ("ridge",))


def test_what_is_exact_depends_on_the_precision_of_a_member_and_not_on_the_members_before_it():
    """LMS with a small rate depends on the order of examples by less than two roundings of bfloat16."""
    fine, half = plain.lms(0.007), plain.rounded(RIDGE, jnp.bfloat16)
    first, last = asked([fine, half], "LMS"), asked([half, fine], "LMS")
    assert EXACT < first.structure["permutation"]["worst"] < 2 * first.rounding
    assert [member.family for member in first.members] == ["LMS", None]
    assert [member.family for member in last.members] == [None, "LMS"]
    assert [member.trials for member in first.members] == [member.trials for member in last.members[::-1]]
    assert (first.verdict, first.rounding) == (last.verdict, last.rounding)


def test_half_precision_is_seen_in_numbers_and_not_in_zeros():
    assert rounding(np.array([0.5, 0.25])) == 2**-7
    assert rounding(np.array([1 + 2**-10])) == 2**-10
    assert rounding(np.array([1 / 3])) == rounding(np.zeros(3)) == 0


def test_a_family_at_parameters_that_make_it_an_excluded_one_is_excluded_too():
    """Ridge whose answers to small labels are larger: not linear in the labels, and close to ridge in training."""

    def learner(x, y, q):
        size = (y**2).mean(1) / D
        return RIDGE(x, y, q) * (1 + 0.4 * np.exp(-8 * size))

    found = asked(learner, "ridge", "noise-adaptive ridge")
    (member,) = found.members
    assert found.structure["linear_labels"]["grade"] == "no"
    assert member.verdict == "none of these"
    assert member.residual < decision.NAMED  # it is near enough
    assert "linear_labels" in member.trials["ridge"]
    assert "ridge, which is excluded" in member.trials["noise-adaptive ridge"]


def test_decaying_rates_stay_gradient_descent():
    (member,) = asked(plain.descent([0.72, 0.36, 0.18]), *STEPWISE).members
    assert member.family == "GD"
    assert 3 in np.atleast_1d(member.steps)
    np.testing.assert_allclose(sorted(member.parameters.values()), [0.18, 0.36, 0.72], rtol=1e-4)


def test_what_contains_a_family_contains_what_is_inside_it():
    inner = {"a": ("b", "unknown"), "c": (), "b": ("c",)}
    chain = {name: Family(name, (), contains=names) for name, names in inner.items()}
    assert containers(chain) == {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert containers(dict(reversed(chain.items()))) == containers(chain)
    with pytest.raises(ValueError, match="contains must be a tuple of names"):
        Family("b", (), contains="c")
    assert "GD++" in containers(FAMILIES)["Newton"]


# Evidence, not residual, for what cannot fail


@cache
def one_layer():
    """Never trained: one close to a multiple of the identity, one that is not."""
    drawn = np.random.default_rng(7).normal(size=(D, D))
    return asked([plain.descent([1.0], matrix) for matrix in (np.eye(D) + 0.04 * drawn, drawn)], "GD", "ridge")


def test_where_structure_forces_a_name_the_evidence_is_told():
    near, far = one_layer().members
    assert near.family == "GD"
    assert f"{near.asymmetry:.2g}" in near.evidence
    assert (far.verdict, far.evidence) == ("none of these", "")
    assert far.asymmetry > decision.ASYMMETRY
    assert gained_ridge().members[0].evidence == ""
    text = str(replace(one_layer(), members=[near], verdict="identified", family="GD"))
    assert near.evidence in text
    assert "residual: " not in text
    assert "holds up" not in text


@pytest.mark.parametrize("part", refusal.FORCING)
def test_evidence_needs_every_part_of_the_structure(part):
    exact = dict.fromkeys(refusal.FORCING, 1e-12)
    assert refusal.evidence(exact, 0.04, D, EXACT)
    assert not refusal.evidence(exact | {part: 1e-3}, 0.04, D, EXACT)
    assert not refusal.evidence(exact | {part: np.nan}, 0.04, D, EXACT)


def test_a_filter_that_a_model_of_many_numbers_approximates_is_not_named():
    learner = plain.mean_of(plain.descent([0.5]), LEAST_SQUARES)
    (member,) = asked(learner, "GD", "GD++", "ridge", "least squares").members
    assert member.verdict == "none of these"


def test_a_larger_model_must_follow_the_learner_beyond_its_training_prompts():
    smaller, larger = fit_of("ridge", 0.04), fit_of("GD++", 0.001, steps=2)
    share = decision.FOLLOWS
    for beyond, replaces in ((0.9 * share, True), (1.1 * share, False)):
        assert decision.improves(replace(larger, beyond=beyond), replace(smaller, beyond=1.0), 0.0) == replaces


# Refusals inform


def test_a_refusal_tells_the_nearest_and_what_excludes_it():
    (member,) = asked(plain.clipped(LEAST_SQUARES, 1.5), "least squares", "ridge", "GD").members
    assert member.verdict == "none of these"
    assert member.nearest
    name = member.nearest.split(",")[0]
    assert member.nearest in member.reason
    assert f"{member.residual:.3f}" in member.reason
    assert "linear_labels" in member.trials[name]
    assert 0.02 < member.residual < 0.9  # not zero's
    assert set(member.trials) == {"least squares", "ridge", "GD"}


def test_the_free_filter_is_told_below_the_nearest_only():
    near = fit_of("ridge", 0.2)
    said = [refusal.reason(near, None, {}, 0.0, {}, free) for free in (np.nan, 0.3, 0.1234)]
    assert said[0] == said[1] != said[2]
    assert "0.123" in said[2]
    assert "0.123" not in refusal.reason(near, None, {}, 0.5, {}, 0.1234)  # of what is not symmetric it says nothing


def test_of_equally_near_models_the_smallest_is_told():
    fits = [fit_of("GD++", 0.200, own=True, steps=4), fit_of("ridge", 0.215), fit_of("gradient flow", 0.3)]
    assert refusal.nearest(fits, 0.0) is fits[1]
    assert refusal.nearest(fits[::2], 0.0) is fits[0]
    assert refusal.nearest([], 0.0) is None


def test_a_parameter_that_nothing_determines_is_an_interval_only():
    """Posterior mean of two tasks: labels tell them apart whatever the noise is."""
    tasks = 3 * pool(2, D)
    learner = adaptive.posterior_over(tasks, 0.0, 0.01)
    found = asked(learner, "dMMSE", sampler=prompts(N, D, noise=0.01, tasks=tasks))
    (member,) = found.members
    assert member.family == "dMMSE"
    assert "noise_variance" not in member.parameters
    low, high = member.intervals["noise_variance"]
    assert 0 < 10 * low < high
    assert "not determined" in found.explain(0)
    assert "noise_variance" in str(found)
    strength = gained_ridge().members[0].intervals["strength"]
    assert strength[0] < gained_ridge().members[0].parameters["strength"] < strength[1]


def test_an_explanation_has_every_family_once():
    refused = asked(plain.clipped(LEAST_SQUARES, 1.5))
    for found in (gained_ridge(), refused):
        lines = [line.strip() for line in found.explain(0).splitlines()]
        for name in FAMILIES:
            assert len([line for line in lines if line.startswith(f"{name}  ")]) == 1
        assert set(found.members[0].trials) == set(FAMILIES)
    with pytest.raises(IndexError):
        refused.explain(1)


# Several outputs


def stacked(*learners):
    """An output each, of labels that have one for each."""
    return lambda x, y, q: np.concatenate([f(x, y[:, :, k : k + 1], q) for k, f in enumerate(learners)], 1)


def two_outputs(key, batch):
    """The second one's labels are five times as large."""
    sample = linear_regression(**SIZES, output_size=2, input_law="normal")(key, batch)
    sizes = jnp.array([[[1.0, 5.0]]])
    prompt = Prompt(sample.prompt.x, sample.prompt.y * sizes, sample.prompt.x_query)
    return Sample(prompt, sample.target * sizes[0], {"w": sample.latent["w"] * sizes})


def test_several_outputs_are_one_answer_or_mixed():
    descent, names = plain.descent([0.35] * 2), ("GD", "ridge")
    found = asked([stacked(RIDGE, RIDGE), stacked(RIDGE, RIDGE)], *names, sampler=two_outputs)
    assert (found.verdict, found.family) == ("identified", "ridge")
    assert len(found.members) == 2
    assert found.members[0].parameters["strength"] == pytest.approx(0.5, rel=1e-3)
    (member,) = asked(stacked(RIDGE, descent), *names, sampler=two_outputs).members
    assert (member.verdict, member.family, member.equals, member.steps) == ("mixed", None, (), None)
    assert member.reason.index("0: ridge") < member.reason.index("1: GD")
    (member,) = asked(stacked(descent, RIDGE), *names, sampler=two_outputs).members
    assert member.reason.index("0: GD") < member.reason.index("1: ridge")


def test_an_output_that_is_none_of_these_is_not_hidden_by_the_other():
    clipped = plain.clipped(LEAST_SQUARES, 1.5)
    found = asked(stacked(RIDGE, clipped), "ridge", "least squares", sampler=two_outputs)
    assert found.verdict == "mixed"
    assert "1: none of these" in found.members[0].reason
    found = asked(stacked(clipped, clipped), "ridge", "least squares", sampler=two_outputs)
    assert found.verdict == "none of these"


# Numbers that are very large or very small


def test_a_learner_that_is_zero_on_some_prompts_overflows_nowhere():
    """James & Stein's factor is zero where labels are mostly noise; warnings are errors here."""
    learner = plain.linear(adaptive.james_stein)
    assert asked(learner, sampler=prompts(N, D, noise=9.0)).family not in ("GD", "ridge")


def test_two_shared_steps_of_gd_plus_plus_with_a_large_rate_are_named_gd_by_their_own_fit():
    """e >= 27 g / 4: four real rates of GD, of which no fit of GD with fewer steps comes near."""
    found = identify(solvers.gd_plus_plus(jnp.full(2, 0.4), jnp.full(2, 0.005), 2), context_length=10, input_size=4)
    (member,) = found.members
    assert member.family == "GD"
    assert member.fit.model.family == "GD++"
    assert member.residual < 1e-4


def test_deviations_are_as_large_as_the_learner_where_it_is_not_symmetric():
    """f is a hundredth of its mean over rotations: deviations of that mean would be as large as f."""
    _, on, _ = battery(prompts(N, D), N, D, 0)
    model = FAMILIES["dMMSE"].models[0]
    on = replace(on, tasks=np.eye(D))
    f = model.predict(np.array([[0.5]]), on)[0]
    fit = judged(fitted(model, on.take(FIT), f[FIT], {}), on.take(JUDGE), f[JUDGE], f[JUDGE], True)
    moved = stability.deviations(fit, Answers(f, 100 * f, 0.0, 1.0), on)
    assert np.median(np.linalg.norm(moved, axis=2) / np.linalg.norm(f, axis=1)) < 2
