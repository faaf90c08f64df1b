"""What the binaries on momentum share, and what their claims read off records made by hand."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import verdicts

from experiments.dai import mixers, momentum_icl, momentum_language_model
from experiments.dai.linear_mixing import MixedNetwork, alternating_tokens, mixed_predictions
from experiments.dai.mixed_language import attention_by_lag, falls_from, initial, learning_rate, logits, network_of
from experiments.dai.momentum_icl_shown import acquired_at
from experiments.dai.momentum_language_model_figures import drift_of_gap, limit_of_gap
from experiments.dai.momentum_language_model_shown import CLAIMS as LANGUAGE_CLAIMS
from experiments.dai.momentum_regression_shown import CLAIMS as REGRESSION_CLAIMS
from icl_lab.fast import batch_learner
from icl_lab.lab.claims import HOLDS, NOT_JUDGED, NOT_REACHED, NotRun
from icl_lab.lab.judging import judge
from icl_lab.lab.records import Record
from icl_lab.models import LinearSelfAttention, folded_weights
from icl_lab.models.attention import linear_pattern, momentum_pattern, recent_pattern
from icl_lab.models.language import language_logits
from icl_lab.prompts import linear_regression

NAMES = ("vanilla", "momentum_0.3", "normalised_0.5", "learned_0.7", "recent_3")


def test_a_member_has_the_mixer_of_its_name():
    T, N = 6, 5
    found = mixers.settings(NAMES, 2, T, N)
    patterns = [
        jnp.zeros((T, N)), momentum_pattern(T, 0.3, keys=N), momentum_pattern(T, 0.5, keys=N, normalised=True),
        momentum_pattern(T, 0.7, keys=N), recent_pattern(T, 3, keys=N),
    ]  # fmt: skip
    for i, pattern in enumerate(patterns):
        for member in (2 * i, 2 * i + 1):
            one = {name: values[member] for name, values in found.items()}
            start = jnp.full((3, 2), one["logit"])
            mixing = mixers.mixing(one, start)
            np.testing.assert_allclose(mixing, jnp.broadcast_to(pattern, (3, 2, T, N)), atol=1e-6)
            moved = mixers.mixing(one, start.at[1, 1].add(1.0)) != mixing
            assert moved.any() == (NAMES[i].startswith("learned"))
            assert not moved.at[1, 1].set(False).any()


def prompts(n, d, batch=4):
    return linear_regression(context_length=n, input_size=d)(jax.random.key(1), batch).prompt


def test_without_a_mixer_the_network_is_linear_self_attention():
    n, d = 4, 3
    network = MixedNetwork(1, n, d, 1.0)
    params = network.init(jax.random.key(0), jnp.zeros(()))
    own = {name: values[0] for name, values in mixers.settings(("vanilla",), 1, n + 1, n).items()}
    attention = {name: leaf for name, leaf in params["params"].items() if name != "eta"}
    expected = batch_learner(LinearSelfAttention(), {"params": attention})(prompts(n, d))
    np.testing.assert_allclose(network.learner(params, own)(prompts(n, d)), expected, rtol=2e-5, atol=1e-6)


def test_layers_are_momentum_attention_one_after_the_other():
    n, d, eta = 3, 2, 0.6
    network = MixedNetwork(2, n, d, 1.0, alternating=True)
    params = network.init(jax.random.key(0), jnp.zeros(()))
    a, b = folded_weights(params)
    own = {name: values[0] for name, values in mixers.settings(("momentum_0.6",), 1, 2 * n + 1, 2 * n).items()}
    found = network.learner(params, own)(prompts(n, d))
    for one, tokens in zip(found, alternating_tokens(prompts(n, d))):
        for layer in range(2):
            context = tokens[:-1]
            pattern = linear_pattern(tokens @ a[layer, 0], context) + momentum_pattern(2 * n + 1, eta, keys=2 * n)
            tokens = tokens + pattern @ context @ b[layer, 0]
        np.testing.assert_allclose(one, -tokens[-1, -1:], rtol=1e-4, atol=1e-6)


def test_tokens_are_written_in_order():
    given = prompts(2, 3, batch=1)
    x, y, query = (np.asarray(part)[0] for part in (given.x, given.y, given.x_query))
    empty = np.zeros(3)
    expected = [[*x[0], 0], [*empty, *y[0]], [*x[1], 0], [*empty, *y[1]], [*query, 0]]
    np.testing.assert_array_equal(alternating_tokens(given)[0], np.array(expected, np.float32))


def test_a_shift_in_the_first_layer_makes_the_second_one_a_step_of_gradient_descent():
    """Weights by hand: the first layer brings x_j to the token of y_j, the second reads y_j by x_j.x_q."""
    n, d, rate = 4, 3, 0.7
    on_x, on_y = jnp.diag(jnp.array([1.0, 1, 1, 0])), jnp.diag(jnp.array([0.0, 0, 0, 1]))
    small = 1e-3  # what is copied is weighed back: the tokens of x are barely moved
    weights = {
        "w_kq": jnp.stack([0 * on_x, on_x])[:, None],
        "w_pv": jnp.stack([small * on_x, -rate / (n * small) * on_y])[:, None],
    }
    mixing = jnp.stack([recent_pattern(2 * n + 1, 1, keys=2 * n), jnp.zeros((2 * n + 1, 2 * n))])
    given = prompts(n, d)
    found = mixed_predictions({"params": weights}, mixing, alternating_tokens(given))
    expected = rate / n * jnp.einsum("bno,bnd,bd->bo", given.y, given.x, given.x_query)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-4)


def _regression_record(**changes):
    """Twenty members that do what theory says, of which some stay on plateaus; rows are the mixers."""
    names = ("vanilla", "momentum_0.3", "momentum_0.9", "learned_0.5", "recent_1")
    members, noise = 20, 1 + 0.01 * np.random.default_rng(0).normal(size=(5, 20))
    row = lambda *values: np.array(values)[:, None] * noise  # noqa: E731
    metrics = {
        "joint_zero": 0.4, "joint_best_step": 0.2, "alternating_zero": 0.2, "alternating_best_step": 0.07,
        "alternating_by_hand": {"momentum_0.3": 0.07, "momentum_0.9": 0.11, "recent_1": 0.07},
    }  # fmt: skip
    penalty, steps = row(0.0, 0.01, 0.02, 0.01, 0.02), np.arange(0, 101, 10)
    when = np.array([10, 20, 40, 20, 20])[:, None] + np.arange(20)[None] % 3
    a = {
        "joint/steps": steps, "joint/loss": 0.3 - 0.1 * np.tanh((steps - when[..., None]) / 5),
        "joint/final/gd": np.full((5, members), 0.2), "joint/final/without": row(0.22, 0.22, 0.22, 0.22, 0.22),
        "joint/penalty": penalty, "joint/gd/sensitivity_difference": row(0.1, 0.1, 0.1, 0.1, 0.1),
        "joint/heavy_ball_2/sensitivity_difference": row(0.4, 0.4, 0.4, 0.4, 0.4),
        "joint/analogy/sensitivity_difference": row(0.1, 0.12, 0.3, 0.1, 0.1),
        "joint/gd/sensitivity_cosine": np.full((5, members), 0.99),
        "joint/heavy_ball_2/sensitivity_cosine": np.full((5, members), 0.9),
        "joint/eta": np.tile(np.array([0.5, 0.4, 0.2])[:, None], (5, members, 1, 1)),
        "alternating/final/gd": np.full((5, members), 0.07), "alternating/final/zero": np.full((5, members), 0.2),
        "alternating/final/trained": row(0.2, 0.075, 0.12, 0.08, 0.066),
    }  # fmt: skip
    a["alternating/final/trained"][0] = 0.2
    a["joint/final/trained"] = a["joint/final/without"] + penalty
    stuck = np.array([[0], [12], [8], [9], [8]]) > np.arange(members)[None]  # on both plateaus, each mixer as many
    there = {"trained": 0.4 + 1e-5, "without": 0.4}
    there |= {
        "/penalty": 1e-5,
        "gd/sensitivity_difference": 2.0,
        "cosine": 0.2,
        "/eta": 0.5,
        "alternating/final/trained": 0.18,
    }
    for end, value in there.items():
        for name in a:
            if name.endswith(end):
                a[name][stuck] = value
    a |= {name: change(a[name]) for name, change in changes.items()}
    return Record("dai.momentum_regression", "lab", {"mixers": names, "descents": (2,), "members": 20}, metrics, a, {})


def test_members_on_the_plateau_are_counted_and_are_in_no_mean():
    record = _regression_record()
    stuck = np.array([name != "vanilla" for name in record.config["mixers"]])[:, None] & (np.arange(20) < 3)[None]
    worse = {
        name: lambda v: np.where(stuck, 0.19, v) if v.ndim == 2 else v
        for name in ("alternating/final/trained", "joint/gd/sensitivity_cosine")
    }
    for claim in REGRESSION_CLAIMS:
        found, again = judge(claim, record), judge(claim, _regression_record(**worse))
        assert found["estimate"] == again["estimate"], claim.id
    found = {claim.id.rsplit(".", 1)[1]: judge(claim, record) for claim in REGRESSION_CLAIMS}
    assert found["shift_leaves"]["estimate"] == 12 / 20
    assert found["momentum_leaves"]["estimate"] == 8 / 20
    assert [found[name]["members"] for name in ("shift_copies", "momentum_copies", "past_is_noise")] == [12, 8, 8]


@pytest.mark.parametrize(("part", "other"), [("joint", "alternating"), ("alternating", "joint")])
def test_a_run_of_one_part_leaves_the_claims_of_the_other_not_judged(part, other):
    record = _regression_record()
    arrays, metrics = (
        {name: value for name, value in tree.items() if not name.startswith(other)}
        for tree in (record.arrays, record.metrics)
    )
    alone = dataclasses.replace(record, arrays=arrays, metrics=metrics)
    said = [judge(claim, alone, [f"{other}/*"])["verdict"] for claim in REGRESSION_CLAIMS]
    both = [judge(claim, record)["verdict"] for claim in REGRESSION_CLAIMS]
    assert all(found in (NOT_JUDGED, whole) for found, whole in zip(said, both))
    assert 5 <= said.count(NOT_JUDGED) <= 8


TINY = dataclasses.replace(momentum_language_model.PRESETS["smoke"], layers=2, heads=2, context=8)


NETWORK = network_of(TINY, 11)
INITIAL = jax.jit(lambda key, own: initial(NETWORK, key, own))


def member(name, seed=0):
    """Network, parameters and setting of a member with this mixer; its eta is moved where it is learned."""
    own = {key: values[0] for key, values in mixers.settings((name,), 1, TINY.context).items()}
    own = own if mixers.kind(name) == "learned" else {"mixing": own["mixing"]}
    params = INITIAL(jax.random.key(seed), own)
    if "eta" in params["params"]:
        params["params"]["eta"] = params["params"]["eta"] + jnp.array([[0.0, 1.0], [-1.0, 2.0]])
    return NETWORK, params, own


MODULES = {
    "vanilla": {}, "momentum_0.5": {"mixer": "momentum", "eta": 0.5}, "recent_2": {"mixer": "recent", "window": 2},
    "normalised_0.5": {"mixer": "momentum", "eta": 0.5, "normalised": True},
    "learned_0.5": {"mixer": "momentum", "eta": 0.5, "learned_eta": True},
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_a_mixer_as_data_is_the_module_that_has_it(name):
    network, params, own = member(name)
    tokens = jax.random.randint(jax.random.key(1), (2, 6), 0, 11)
    expected = jax.jit(lambda p: language_logits(network.clone(**MODULES[name]), p, tokens))(params)
    found = jax.jit(lambda p, o: logits(network, p, o, tokens))(params, own)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    plain = jax.jit(lambda p: language_logits(network, p, tokens))(params)
    assert (np.abs(plain - expected).max() > 1e-6) == (name != "vanilla")


def test_members_of_one_number_start_alike():
    starts = [member(name)[1]["params"] for name in MODULES]
    for start in starts[1:]:
        for key in starts[0]:
            np.testing.assert_array_equal(start[key], starts[0][key])


def test_attention_by_lag_is_the_mean_of_the_pattern():
    network, params, own = member("vanilla")
    tokens = jax.random.randint(jax.random.key(1), (3, 8), 0, 11)
    run = jax.jit(jax.vmap(lambda one: network.apply(params, one)[1].attention))
    patterns = np.asarray(run(tokens)).mean((0, 2))  # (L, T, T)
    found = np.asarray(jax.jit(lambda p: attention_by_lag(network, p, own, tokens))(params))
    for layer in range(2):
        by_lag = [np.mean([patterns[layer, t, t - lag] for t in range(4, 8)]) for lag in range(3)]
        np.testing.assert_allclose(found[layer], [*by_lag, 1 - sum(by_lag)], rtol=1e-4, atol=1e-6)


def test_the_same_bytes_are_predicted_at_every_length():
    tokens = jnp.arange(18).reshape(2, 9)
    for parts in (1, 2, 4):
        found = np.asarray(momentum_language_model.divided(tokens, parts))
        assert found.shape == (2 * parts, 8 // parts + 1)
        assert sorted(found[:, 1:].ravel()) == sorted(np.asarray(tokens[:, 1:]).ravel())
        assert (np.diff(found, axis=1) == 1).all()


def test_strings_repeat_and_only_what_follows_is_scored():
    for harder, allowed in ((False, range(2, 5)), (True, range(5, 9))):
        drawn = momentum_icl.strings(jax.random.key(0), 64, tokens=16, words=1000, harder=harder)
        assert drawn.tokens.shape == (64, 17)
        assert drawn.scored.shape == (64, 16)
        periods = set()
        for tokens, scored in zip(np.asarray(drawn.tokens), np.asarray(drawn.scored)):
            period = next(p for p in range(1, 17) if (tokens[p:] == tokens[:-p]).all())
            periods.add(period)
            np.testing.assert_array_equal(scored, np.arange(1, 17) > period)
        assert periods <= set(allowed)


def test_pairs_have_one_map_a_sequence_and_labels_of_seen_words_are_scored():
    draw = partial(momentum_icl.pairs, tokens=16, words=10, labels=3, shown=4, harder=False)
    drawn = jax.jit(lambda key: draw(key, 32))(jax.random.key(0))
    maps = []
    for tokens, scored in zip(np.asarray(drawn.tokens), np.asarray(drawn.scored)):
        words, labels = tokens[0:16:2], tokens[1:17:2]
        assert (words < 10).all()
        assert ((labels >= 10) & (labels < 13)).all()
        known = dict(zip(words, labels))
        assert [known[word] for word in words] == list(labels)
        assert len(known) <= 4
        seen = [word in words[:i] for i, word in enumerate(words)]
        np.testing.assert_array_equal(scored[0::2], seen)
        assert not scored[1::2].any()
        maps.append(tuple(known.get(word) for word in range(10)))
    assert len(set(maps)) > 16


def _language_record(**changes):
    """Six members whose gap is stable: momentum .5 gains as published, .9 nothing, the shift a little less."""
    names, members, noise = ("vanilla", "momentum_0.5", "momentum_0.9", "recent_1"), 6, np.random.default_rng(0)
    start = 2 + 0.1 * noise.normal(size=(1, members, 1))  # members differ more than mixers do
    gains = np.array([0.0, 0.008, 0.0, 0.005])[:, None, None] + 2e-4 * noise.normal(size=(4, members, 3))
    steps = np.arange(0, 101, 10)
    rates = np.array([0.03, 0.05, 0.04, 0.045])[:, None, None]
    lags = np.stack([np.linspace(1, 1 - slope, 8) for slope in (0.9, 0.2, 0.3, 0.3)])
    settled = gains[..., :1] * (1 + 1 / np.maximum(steps, 5))
    a = {
        "final": start - gains, "loss": start - settled + np.exp(-10 * rates * steps), "steps": steps,
        "lags": np.broadcast_to((lags / lags.sum(1, keepdims=True))[:, None, None], (4, members, 2, 8)),
    }  # fmt: skip
    a |= {name: change(a[name]) for name, change in changes.items()}
    config = {"mixers": names, "members": members, "steps": 100, "warm_up": 0, "decay": 0.2}
    return Record("dai.momentum_language_model", "lab", config, {}, a, {})


def test_a_gap_that_shrinks_is_not_reached_and_its_limit_is_judged_all_the_same():
    def shrinking(loss):
        gaps = 2.0 / np.maximum(_language_record()["steps"], 5) + 0.004
        return loss[:1] - np.array([0, 1, 0, 0])[:, None, None] * gaps

    record = _language_record(loss=shrinking)
    np.testing.assert_allclose(limit_of_gap(record), 0.004, rtol=1e-6)
    steps = np.array([40.0, 50, 60, 70, 80])
    gaps = 2.0 / steps + 0.004
    change = np.polyfit(steps, gaps, 1)[0] * 40
    assert drift_of_gap(record) == pytest.approx((change, gaps.mean()), rel=1e-6)
    assert change < min(-0.0079, -0.1 * gaps.mean())
    found = verdicts(LANGUAGE_CLAIMS, record)
    gains = {"gain_quarter", "gain_half", "gain_whole", "beats_local_mixers", "no_more_than_local_mixers"}
    assert {name for name, verdict in found.items() if verdict == NOT_REACHED} == gains
    assert found["gap_remains"] == HOLDS


def test_too_few_measurements_are_no_stable_gap():
    record = _language_record()
    few = dataclasses.replace(record, config=record.config | {"decay": 1.0})
    assert drift_of_gap(few)[0] == np.inf
    assert np.isnan(limit_of_gap(few)).all()


def test_the_learning_rate_rises_stays_and_falls():
    config = dataclasses.replace(TINY, steps=100, warm_up=10, learning_rate=0.5, decay=0.5)
    found = [float(learning_rate(config, step)) for step in (0, 5, 10, 55, 77.5, 100)]
    np.testing.assert_allclose(found, [0, 0.25, 0.5, 0.5, 0.25, 0], atol=1e-6)
    assert falls_from(dataclasses.asdict(config)) == 55
    whole = dataclasses.replace(config, decay=1.0)
    published = optax.join_schedules([optax.linear_schedule(0, 0.5, 10), optax.linear_schedule(0.5, 0, 90)], [10])
    steps = np.arange(101)
    np.testing.assert_allclose(learning_rate(whole, steps), jax.vmap(published)(steps), atol=1e-6)
    assert float(learning_rate(dataclasses.replace(whole, warm_up=0), 0)) == 0.5


def test_the_best_of_a_kind_is_chosen_by_the_other_members():
    record = _language_record()
    losses = np.array([[0.0] * 3, [1.0, 2.0, 6.0], [2.0, 2.0, 2.0], [9.0] * 3])
    np.testing.assert_array_equal(mixers.chosen(record, "momentum", losses), [2.0, 2.0, 6.0])
    curves = np.arange(4)[:, None, None] + np.arange(3)[:, None] * 10 + np.arange(5) * 100
    np.testing.assert_array_equal(mixers.chosen(record, "momentum", curves, by=losses), curves[[2, 2, 1], np.arange(3)])
    with pytest.raises(NotRun, match="normalised"):
        mixers.chosen(record, "normalised", losses)


def test_time_of_acquisition():
    curves = np.array([[[0.0, 0.4, 1.0], [0.9, 0.9, 0.9], [0.1, 0.7, 0.79]]])
    np.testing.assert_allclose(acquired_at(curves, np.array([0, 10, 20])), [[(10 + 10 * 0.4 / 0.6) / 20, 0.0, 1.0]])
