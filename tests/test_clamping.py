"""Training under an intervention, on linear, softmax and induction-head attention: what is clamped, and when."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.models import InductionNetwork, Intervention, LinearSelfAttention, Transformer, traced
from icl_lab.models.inspection import intervened
from icl_lab.prompts import Prompt, Sample
from icl_lab.prompts.layouts import item_label_layout
from icl_lab.training.clamping import (
    by_member,
    combined,
    fit_clamped,
    frozen,
    kept_share,
    pinned_attention,
    zeroed_head,
)
from icl_lab.training.fitting import Fit, fit

N, D, BATCH, STEPS, START, STOP = 3, 3, 4, 4, 1, 3
SHARE = 0.8
OPTIMISER = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.02, momentum=0.5))
KEY = jax.random.key(5)


class Case(NamedTuple):
    """One architecture: the module, its loss, heads, and a parameter that is frozen."""

    network: Any
    objective: Callable
    heads: int
    frozen: str
    layout: Any = None


def squared(prediction, sample):
    return ((prediction - sample.target) ** 2).sum()


def entropy(logits, sample):
    return optax.softmax_cross_entropy_with_integer_labels(logits, sample.latent["label"])


CASES = {
    "linear": Case(LinearSelfAttention(layers=2, heads=2, init_scale=0.5), squared, 2, "w_q"),
    "softmax": Case(Transformer(layers=2, heads=2, init_scale=0.5), squared, 2, "w_p"),
    "induction": Case(InductionNetwork(labels=4, slots=8, hidden=8), entropy, 1, "mlp_0", item_label_layout(8)),
}


def law_of(case: Case):
    outputs = 1 if case.layout is None else D

    def sampler(key, batch):
        """Numbers that look random enough: jax.random compiles for longer than all else here."""
        state = jax.random.key_data(key)[1]

        def draw(i, shape):
            size = batch * int(np.prod(shape))
            bits = (jnp.arange(100 * i, 100 * i + size, dtype=jnp.uint32) ^ state) * jnp.uint32(0x9E3779B1)
            bits = (bits ^ (bits >> 15)) * jnp.uint32(0x85EBCA77)
            return ((bits >> 8) / jnp.float32(2**23) - 1).reshape(batch, *shape)

        prompt = Prompt(draw(0, (N, D)), draw(1, (N, outputs)), draw(2, (D,)))
        return Sample(prompt, draw(3, (1,)), {"label": (draw(4, ()) > 0).astype(int)})

    return lambda _: sampler


class Trained(NamedTuple):
    """A case, its clamped fit of M members, the pinned pattern, and how often the network was traced."""

    case: Case
    fitted: Fit
    pattern: np.ndarray
    traces: int
    members: int


CONTROL, PINNED, ZEROED, FROZEN, KEPT = range(5)
GROUP = slice(1, 3)
"""Keys that share the attention of the last token."""


@pytest.fixture(scope="module", params=CASES)
def trained(request) -> Trained:
    """Members: control, first layer pinned, a head of the second zeroed, a parameter of the second layer frozen.

    And where attention is softmax: in the second layer a share of the last token's attention kept for a group.
    """
    case, traces = CASES[request.param], 0
    members = 4 if request.param == "linear" else 5
    init, run = program(case)
    sample = jax.tree.map(lambda leaf: leaf[0], law_of(case)(None)(KEY, 1))
    shape = run(init(KEY, None), sample.prompt)[1].attention.shape[1:]
    pattern = jax.random.uniform(KEY, shape)
    group = jnp.zeros(shape[1:], bool).at[-1, GROUP].set(True)
    mask = {case.frozen: jnp.array(True) if case.layout else jnp.array([False, True])[:, None, None, None]}

    def clamp(member):
        stops = [STOP if member == kind else START for kind in range(5)]
        clamps = [
            pinned_attention(jnp.asarray(pattern), 0, layers=2, start=START, stop=stops[PINNED]),
            zeroed_head(1, 0, layers=2, heads=case.heads, start=START, stop=stops[ZEROED]),
            frozen(mask, start=START, stop=stops[FROZEN]),
            kept_share(SHARE, group, 1, layers=2, start=START, stop=stops[KEPT]),
        ]
        return combined(*clamps[: members - 1])

    def counted(*args):
        nonlocal traces
        traces += 1
        return run(*args)

    def measure(params, key, setting, intervention, step):
        sample = jax.tree.map(lambda leaf: leaf[0], law_of(case)(None)(KEY, 1))

        def loss(params):
            prediction, trace = counted(params, sample.prompt, intervention, step)
            return case.objective(prediction, sample), trace.attention

        gradient, attention = jax.grad(loss, has_aux=True)(params)
        return {"attention": attention, "params": params["params"], "gradient": gradient["params"]}

    fitted = fit_clamped(
        init, counted, case.objective, law_of(case), OPTIMISER, jnp.stack([KEY] * members),
        by_member(clamp(m) for m in range(members)), batch=BATCH, steps=STEPS, measure=flat(measure), measure_every=1,
    )  # fmt: skip
    return Trained(case, fitted, np.asarray(pattern), traces, members)


def program(case: Case):
    empty = Prompt(jnp.zeros((N, D)), jnp.zeros((N, D if case.layout else 1)), jnp.zeros(D))
    encode = case.layout.encode if case.layout else lambda prompt: jnp.zeros((N + 1, D + 1))

    def run(params, prompt, intervention=None, step=0):
        return traced(case.network, params, case.layout)(prompt, intervention, step)

    draw, shapes = np.random.default_rng(1), jax.eval_shape(case.network.init, KEY, encode(empty))
    params = jax.tree.map(lambda leaf: 0.3 * draw.standard_normal(leaf.shape, np.float32), shapes)
    return lambda *_: params, run


def flat(measure):
    """Measurements by path."""

    def measured(*args):
        leaves = jax.tree_util.tree_leaves_with_path(measure(*args))
        return {".".join(str(part.key) for part in path): leaf for path, leaf in leaves}

    return measured


def assert_acts(trained, kind, seen, name=""):
    """These (M, STEPS + 1, ...) truths hold in the member of this kind from start to stop, and nowhere else."""
    steps = np.arange(STEPS + 1)
    acting = (np.arange(trained.members) == kind)[:, None] & (steps >= START) & (steps < STOP)
    np.testing.assert_array_equal(seen.reshape(*acting.shape, -1).all(-1), acting, err_msg=name)


def test_a_pinned_pattern_is_what_the_trace_shows_from_start_to_stop(trained):
    assert_acts(trained, PINNED, trained.fitted.metrics["attention"][:, :, 0] == trained.pattern)


def test_a_pinned_pattern_stops_the_gradients_to_queries_and_keys(trained):
    for name in ("w_q", "w_k"):
        gradient = trained.fitted.metrics[f"gradient.{name}"][:, :, 0]  # of the first layer
        assert_acts(trained, PINNED, gradient == 0, name)


def test_a_kept_share_is_what_the_group_gets_from_start_to_stop(trained):
    if trained.members <= KEPT:
        pytest.skip("linear attention refuses a share")
    attention = trained.fitted.metrics["attention"][:, :, 1, :, -1]  # (M, R, H, keys)
    assert_acts(trained, KEPT, np.abs(attention[..., GROUP].sum(-1) - SHARE) < 1e-5)
    np.testing.assert_allclose(attention[KEPT].sum(-1), 1, atol=1e-5)


def test_a_zeroed_head_gets_no_gradient_from_start_to_stop(trained):
    names = {"w_q", "w_k", "w_v", "w_p"} & {name.split(".")[1] for name in trained.fitted.metrics if "." in name}
    for name in names:
        gradient = trained.fitted.metrics[f"gradient.{name}"][:, :, 1]  # of the second layer
        head = gradient[:, :, 0] if trained.case.heads > 1 else gradient
        assert_acts(trained, ZEROED, head == 0, name)


def test_frozen_parameters_are_bit_identical_and_others_move(trained):
    for name in (key for key in trained.fitted.metrics if key.startswith("params.")):
        values = trained.fitted.metrics[name]
        for step in range(STEPS):
            for member in range(trained.members):
                held = name == f"params.{trained.case.frozen}" and member == FROZEN and START <= step < STOP
                now, then = values[member, step], values[member, step + 1]
                if held and not trained.case.layout:  # of the second layer only
                    assert not np.array_equal(now[0], then[0])
                    now, then = now[1], then[1]
                assert np.array_equal(now, then) == held, (name, member, step)


def test_members_start_alike_and_part_only_when_the_clamp_acts(trained):
    for name in (key for key in trained.fitted.metrics if key.startswith("params.")):
        values = trained.fitted.metrics[name]
        assert np.array_equal(values[1:, : START + 1], np.broadcast_to(values[:1], values[1:].shape)[:, : START + 1])
    moved = np.concatenate(
        [leaf.reshape(trained.members, -1) for leaf in jax.tree.leaves(trained.fitted.params)], axis=1
    )
    assert len(np.unique(moved, axis=0)) == trained.members


def test_all_members_and_steps_are_one_traced_program(trained):
    assert trained.traces == 2  # the training loss and the measurement


def test_without_an_intervention_it_is_fit_to_the_bit_and_a_control_is_it_to_rounding(trained):
    case = trained.case
    init, run = program(case)

    def loss(params, key, _):
        samples = law_of(case)(None)(key, BATCH)
        return jax.vmap(lambda s: case.objective(run(params, s.prompt)[0], s))(samples).mean()

    plain = fit(init, loss, OPTIMISER, KEY[None], steps=STEPS)
    clamped = fit_clamped(init, run, case.objective, law_of(case), OPTIMISER, KEY[None], None, batch=BATCH, steps=STEPS)
    many = jax.vmap(run, in_axes=(None, 0, None, None))
    objective = jax.vmap(case.objective)
    batched = fit_clamped(
        init, many, objective, law_of(case), OPTIMISER, KEY[None], None, batch=BATCH, batched=True, steps=STEPS
    )
    leaves = jax.tree.leaves
    for one, other in zip(leaves(batched.params), leaves(plain.params)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    for none, reference, control in zip(leaves(clamped.params), leaves(plain.params), leaves(trained.fitted.params)):
        np.testing.assert_array_equal(none, reference)
        np.testing.assert_allclose(control[CONTROL], reference[0], rtol=1e-4, atol=1e-6)


def test_a_kept_share_leaves_the_shape_within_the_group_and_rows_without_one():
    group = jnp.zeros((3, 3), bool).at[2, :2].set(True)
    pattern = jnp.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.1, 0.3, 0.6]])[None]
    kept = kept_share(0.8, group, 1, layers=2, start=3, stop=5)
    found = intervened(pattern, "attention", 1, kept, 3)
    np.testing.assert_allclose(found[0], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.6, 0.2]], rtol=1e-6)
    for layer, step in ((0, 3), (1, 2), (1, 5)):
        np.testing.assert_array_equal(intervened(pattern, "attention", layer, kept, step), pattern)
    first = jax.jit(lambda scores: intervened(jax.nn.softmax(scores), "attention", 1, kept, 3)[0, 2, 0])
    gradient = jax.grad(first)(pattern)
    assert np.isfinite(gradient).all()
    assert gradient[0, 2, :2].any()
    assert abs(gradient[0, 2, 2]) < 1e-6  # the third token's score changes neither share


def test_rows_choose_the_tokens_whose_attention_is_pinned():
    pattern = jnp.full((2, 3, 3), 1 / 3)
    last = pinned_attention(pattern, 1, layers=2, rows=jnp.array([False, False, True]))
    found = intervened(jnp.eye(3)[None] * jnp.ones((2, 1, 1)), "attention", 1, last, 0)
    np.testing.assert_array_equal(found[:, :2], np.eye(3)[None, :2].repeat(2, 0))
    np.testing.assert_array_equal(found[:, 2], pattern[:, 2])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pinned_attention(jnp.eye(3)[None], 2, layers=2), "layer must be one of 0 .. 1, got 2"),
        (lambda: pinned_attention(jnp.eye(3), 0, layers=2), "pattern must be .* got shape"),
        (lambda: kept_share(0.5, jnp.ones((1, 3, 3), bool), 0, layers=2), "group must be .* got shape"),
        (lambda: kept_share(3.0, jnp.ones((3, 3), bool), 0, layers=2), r"share must be in \[0, 1\], got 3.0"),
        (lambda: kept_share(float("nan"), jnp.ones((3, 3), bool), 0, layers=2), r"share must be in \[0, 1\], got nan"),
        (lambda: clamped_by(combined(kept_share(0.5, jnp.ones((4, 3), bool), 1, layers=2))), "rows sum to one"),
        (lambda: zeroed_head(0, 2, layers=2, heads=2), "head must be one of 0 .. 1, got 2"),
        (lambda: by_member([frozen(["a"]), frozen(["b"])]), "must be of the same kinds"),
        (lambda: clamped_by(frozen(["w_x"])), "frozen must name parameters.*'w_k'.*got ..w_x"),
        (lambda: clamped_by(zeroed_head(0, 0, layers=1, heads=1)), "another number of layers: head_output has 1"),
        (lambda: clamped_by(pinned_attention(jnp.eye(3)[None], 2, layers=3)), "attention has 3, .* it has 2 entries"),
        (lambda: clamped_by(kept_share(0.5, jnp.ones((4, 3), bool), 0, layers=1)), "group has 1"),
        (lambda: clamped_by(Intervention({"atention": jnp.ones(1)}, {"atention": jnp.ones(1)})), "same names, of att"),
        (lambda: clamped_by(Intervention({"attention": jnp.ones(1)})), "mask has \\[\\]"),
        (lambda: clamped_by(Intervention(share=jnp.ones((2, 1, 1, 1)))), "needs the group"),
        (lambda: clamped_by(Intervention(), batch=0), "batch must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_clamped_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def clamped_by(intervention, batch=BATCH):
    case = CASES["linear"]
    init, run = program(case)
    fit_clamped(init, run, squared, law_of(case), OPTIMISER, KEY[None], by_member([intervention]), batch=batch, steps=1)
