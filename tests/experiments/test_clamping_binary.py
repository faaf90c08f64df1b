"""What the clamps of reddy.clamping do to the network, in its plain form and in that of batches."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.reddy.clamping import Config, clamps, losing, uniform
from experiments.reddy.interventions import CURVE, STEPS, conditions, held, mixed
from experiments.reddy.interventions_shown import delay, onset_of, remaining
from experiments.reddy.settings import SMOKE
from experiments.reddy.training import induction_model
from icl_lab.compare import progress_measures
from icl_lab.lab import Record
from icl_lab.models.inspection import held as stopped
from icl_lab.prompts import Prompt
from icl_lab.training.clamping import by_member, combined, zeroed_head

CONFIG = Config(**SMOKE)
MODEL = induction_model(CONFIG)
N, D = CONFIG.context_length, CONFIG.input_size
DRAWN = np.random.default_rng(0).normal(size=(2 * N + 1, D)).astype(np.float32)
PROMPT = Prompt(jnp.asarray(DRAWN[:N]), jnp.asarray(DRAWN[N:-1]), jnp.asarray(DRAWN[-1]), jnp.int32(1))


@pytest.fixture(scope="module")
def params():
    return jax.jit(MODEL.init)(jax.random.key(0))


def test_the_fast_form_is_the_network_in_value_and_gradient_under_every_clamp(params):
    names = ("control", "ila1_held", "tila2_held", "tla2_held", "ila1_given")
    every = by_member(clamps(CONFIG, {name: (0, 5)}, ("read_out",)) for name in names)

    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), PROMPT)  # at another place in the slots, too

    def found(run):
        def value(weights, clamp):
            logits = run(weights, batch, clamp, 2)
            return (jax.nn.logsumexp(logits, axis=1) - logits[:, 0]).sum(), logits.ravel()

        return jax.jit(jax.vmap(jax.grad(value, has_aux=True), in_axes=(None, 0)))(params, every)

    each = jax.vmap(lambda *of: MODEL.run(*of)[0], in_axes=(None, 0, None, None))
    plain, fast = found(each), found(MODEL.logits)
    assert len({tuple(logits) for logits in np.asarray(plain[1]).round(4).tolist()}) == len(names)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(fast)):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * float(jnp.abs(a).max()))


def test_a_clamp_on_what_the_form_for_batches_does_not_hold_is_refused(params):
    head = combined(zeroed_head(0, 0, layers=2, heads=1))
    with pytest.raises(ValueError, match=r"replace attention alone, not \['head_output'\]"):
        MODEL.logits(params, jax.tree.map(lambda leaf: leaf[None], PROMPT), head)


def test_what_is_lost_is_that_of_the_start_again_after_the_hold():
    fresh = {"params": {"w_q": jnp.full(3, 7.0), "read_out": jnp.full(3, 7.0)}}
    setting = {"fresh": fresh, "lost": {"w_q": jnp.array(True), "read_out": jnp.array(False)}}
    transformation = losing(optax.sgd(1.0), setting, 2)
    params, state = fresh, transformation.init(fresh)
    for step in range(1, 4):
        updates, state = transformation.update(jax.tree.map(jnp.ones_like, params), state, params)
        params = optax.apply_updates(params, updates)
        assert params["params"]["read_out"][0] == 7 - step
        assert params["params"]["w_q"][0] == (7 - step if step < 2 else 9 - step)


def test_what_is_held_stays_at_the_value_of_uniform_attention_and_what_is_given_is_perfect(params):
    labels, match = jnp.arange(N), jnp.arange(N) == 0
    same = jnp.broadcast_to(uniform(2 * N + 1)[None], (2, 1, 2 * N + 1, 2 * N + 1))
    run, measures = jax.jit(MODEL.run), jax.jit(progress_measures)
    start = measures(same, jnp.zeros(CONFIG.labels), labels, match)
    for condition, name, value in (
        ("ila1_held", "ila1", start["ila1"]),
        ("tila2_held", "tila2", start["tila2"]),
        ("tla2_held", "tla2", start["tla2"]),
        ("ila1_given", "ila1", 1.0),
    ):
        clamp = clamps(CONFIG, {condition: (1, 5)}, ())
        for step in (0, 1, 5):
            logits, trace = run(params, PROMPT, clamp, step)
            found = measures(trace.attention, logits, labels, match)[name]
            assert (found == pytest.approx(float(value), rel=1e-5)) == (step == 1), (condition, step)


def test_a_held_classifier_is_all_but_attention_and_values_and_moves_outside_the_hold_only(params):
    names = tuple(name for name in params["params"] if name not in ("w_q", "w_k", "w_v"))
    assert set(names) == {"mlp_0", "mlp_1", "mlp_2", "mlp_bias", "read_out"}
    clamp = clamps(CONFIG, {"cla_held": (1, 5)}, names)
    updates = jax.tree.map(lambda leaf: np.ones(leaf.shape), params)
    for step in (0, 1, 4, 5):
        moved = {name for name, update in stopped(updates, clamp, step)["params"].items() if update.any()}
        assert moved == set(params["params"]) - (set(names) if 1 <= step < 5 else set())
    others = dict.fromkeys(("ila1_held", "tila2_held", "tla2_held", "ila1_given"), (0, 5))
    moved = stopped(updates, clamps(CONFIG, others, names), 2)["params"]
    assert all(update.all() for update in moved.values())


def test_a_condition_starts_from_the_parts_that_are_given_and_no_others():
    fresh = {
        "params": {name: jnp.zeros((1, 2, 3, 3)) for name in ("w_q", "w_k", "w_v")} | {"read_out": jnp.zeros((1, 4))}
    }
    trained = jax.tree.map(jnp.ones_like, fresh)

    def given(condition):
        found = mixed(fresh, trained, condition)["params"]
        return {name: found[name].reshape(-1, found[name].size // 2)[:, 0].tolist() for name in found}

    layers = {"w_q": [1, 0], "w_k": [1, 0], "w_v": [1, 0], "read_out": [0, 0]}
    assert given("layer_1_given") == layers
    assert given("layer_1_missing") == {name: [1 - value for value in values] for name, values in layers.items()}
    assert given("layer_2_given") == {"w_q": [0, 1], "w_k": [0, 1], "w_v": [0, 0], "read_out": [0, 0]}
    assert given("answer_given") == {"w_q": [0, 0], "w_k": [0, 0], "w_v": [0, 1], "read_out": [1, 1]}
    assert given("cla_held_0") == {name: [0, 0] for name in layers}


def test_of_eleven_windows_each_condition_is_held_and_judged_by_its_own():
    windows = tuple(0.01 * i for i in range(1, 12))
    assert [held(windows)[f"cla_held_{i}"] for i in range(11)] == [("cla", window) for window in windows]
    assert set(held(windows)) < set(conditions(windows))
    soon, late = np.array([[0.0, 1.0, 1.0, 1.0]]), np.array([[0.0, 0.0, 0.0, 1.0]])
    curves = {"control": soon, "cla_held_0": late, "cla_held_10": late}
    arrays = STEPS.at(n=4).named(np.array([0, 10, 20, 4000])) | CURVE.at(n=4, metric="ic").named(curves)
    record = Record("reddy.interventions", "lab", vars(CONFIG) | {"windows": list(windows)}, {}, arrays)
    first, last = (delay(record, 4, f"cla_held_{i}") for i in (0, 10))
    np.testing.assert_allclose(first / last, 11)  # the same delay over another hold
    first, last = (remaining(4, f"cla_held_{i}")(record) for i in (0, 10))
    control = onset_of(record, 4, "control")
    np.testing.assert_allclose((first - last) * control, (windows[10] - windows[0]) * 4000)
