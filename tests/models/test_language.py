import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import values_and_slopes

from icl_lab.models import Intervention, LanguageModel, captured, language_logits, local_logits
from icl_lab.models.attention import momentum_pattern, recent_pattern
from icl_lab.models.language import last_residual, sinusoids
from icl_lab.models.language_capture import Capture

KEY = jax.random.key(5)
V, L, H, E, T, AT = 11, 2, 2, 8, 6, 3
SMALL = {"vocabulary": V, "layers": L, "heads": H, "width": E, "positions": 0}
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, V, (3, T)))
PROMPT = TOKENS[0]
NETWORKS = {
    "learned positions": LanguageModel(**SMALL | {"positions": T + 2}),
    "learned positions from a later row": LanguageModel(**SMALL | {"positions": T + 3, "start": 2}),
    "sinusoids": LanguageModel(**SMALL, sinusoidal=30.0, scaled=True),
    "rotary, scaled, momentum": LanguageModel(**SMALL, rotary=20.0, scaled=True, mixer="momentum", eta=0.6),
    "learned momentum": LanguageModel(**SMALL | {"positions": T}, mixer="momentum", eta=0.4, learned_eta=True),
    "recent": LanguageModel(**SMALL | {"positions": T}, mixer="recent", window=2),
}
both = pytest.mark.parametrize("name", NETWORKS)


@functools.cache
def built(network):
    """Weights so large that every part of the network matters, biases and offsets too."""
    shapes = jax.eval_shape(network.init, KEY, PROMPT)
    draw = np.random.default_rng(0).normal
    return jax.tree.map(lambda leaf: jnp.asarray(0.4 * draw(size=leaf.shape), leaf.dtype), shapes)


@functools.cache
def run(network):
    return jax.jit(network.apply)


@functools.cache
def read(network):
    return jax.jit(functools.partial(captured, network))


def mixer(network, params):
    """(L, H, T, T) what is added to the patterns, from the attention's own functions."""
    if network.mixer == "none":
        return np.zeros((L, H, T, T))
    if network.mixer == "recent":
        return np.broadcast_to(recent_pattern(T, network.window), (L, H, T, T))
    etas = np.full((L, H), network.eta)
    if network.learned_eta:
        etas = 1 / (1 + np.exp(-np.asarray(params["params"]["eta"])))
    return np.stack([np.stack([momentum_pattern(T, float(eta)) for eta in row]) for row in etas])


def every_capture(network, params):
    captures = [read(network)(params, PROMPT, at) for at in range(T)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *captures)


@both
def test_the_batched_form_is_the_network_in_value_and_gradient(name):
    network = NETWORKS[name]
    params = built(network)
    values, found = values_and_slopes(lambda p: language_logits(network, p, TOKENS), params)
    wanted_values, wanted = values_and_slopes(lambda p: jax.vmap(lambda t: network.apply(p, t)[0])(TOKENS), params)
    assert values.shape == (3, T, V)
    np.testing.assert_allclose(values, wanted_values, atol=2e-5)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(wanted))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * (1 + np.abs(b).max())), found, wanted)


@both
def test_what_is_captured_is_what_the_network_computes(name):
    network = NETWORKS[name]
    params = built(network)
    logits, trace = run(network)(params, PROMPT)
    found = every_capture(network, params)
    close = functools.partial(np.testing.assert_allclose, atol=2e-5)
    close(found.logits, logits)
    close(found.residual.swapaxes(0, 1), trace.residual)
    close(found.output.swapaxes(0, 1), trace.head_output.sum(1) + params["params"]["p_bias"][:, None])
    scores = found.scores.transpose(1, 2, 0, 3)
    close(scores, np.einsum("lthk,lshk->lhts", found.queries[0], found.keys[0]) / np.sqrt(E / H))
    masked = jnp.where(np.tril(np.ones((T, T), bool))[None, None], scores, -np.inf)
    close(trace.attention, jax.nn.softmax(masked, -1) + mixer(network, params))
    heads = np.einsum("lhts,lshk->lthk", trace.attention, found.values[0]).reshape(L, T, E) @ params["params"]["w_p"]
    close(found.output.swapaxes(0, 1), heads + params["params"]["p_bias"][:, None])


@both
def test_what_follows_a_token_changes_nothing_that_is_read_there(name):
    network = NETWORKS[name]
    params = built(network)
    found, other = (read(network)(params, prompt, AT) for prompt in (PROMPT, PROMPT.at[AT + 1 :].set(0)))
    cut = read(network)(params, PROMPT[: AT + 1], AT)
    for name in Capture.__dataclass_fields__:
        value, padded, short = (getattr(capture, name) for capture in (found, other, cut))
        if name in ("queries", "keys", "values"):
            value, padded = value[:, : AT + 1], padded[:, : AT + 1]
        if name == "scores":
            value, padded = value[..., : AT + 1], padded[..., : AT + 1]
        np.testing.assert_array_equal(value, padded, err_msg=name)
        np.testing.assert_allclose(value, short, atol=2e-5, err_msg=name)


def test_momentum_without_a_coefficient_is_attention_and_one_without_decay_is_the_last_value():
    plain = NETWORKS["learned positions"]
    params = built(plain)
    base, none, shifted, last = (
        jax.jit(functools.partial(language_logits, network))(params, PROMPT[None])
        for network in (
            plain,
            plain.clone(mixer="momentum"),
            plain.clone(mixer="momentum", normalised=True),
            plain.clone(mixer="recent"),
        )
    )
    np.testing.assert_allclose(none, base, atol=1e-6)
    np.testing.assert_allclose(shifted, last, atol=1e-5)
    assert not np.allclose(shifted, base, atol=1e-2)


def test_mixers_given_beside_the_parameters_replace_the_networks_own():
    plain = NETWORKS["learned positions"]
    network = plain.clone(mixer="recent", window=2)
    params = built(plain)
    given = jax.jit(lambda p, beside: language_logits(plain, p, PROMPT[None], beside))
    own = jax.jit(functools.partial(language_logits, network))(params, PROMPT[None])
    np.testing.assert_allclose(given(params, jnp.asarray(mixer(network, params), jnp.float32)), own, atol=1e-5)


def test_a_learned_coefficient_starts_where_it_is_told_and_gives_the_fixed_network():
    learned = NETWORKS["learned momentum"]
    fixed = learned.clone(learned_eta=False)
    start = jax.jit(lambda key: learned.init(key, PROMPT))(KEY)
    np.testing.assert_allclose(jax.nn.sigmoid(start["params"]["eta"]), np.full((L, H), 0.4), rtol=1e-6)
    params = built(fixed)
    with_eta = {"params": params["params"] | {"eta": start["params"]["eta"]}}
    wanted = jax.jit(functools.partial(language_logits, fixed))(params, PROMPT[None])[0]
    np.testing.assert_allclose(run(learned)(with_eta, PROMPT)[0], wanted, atol=2e-5)


def test_rotary_scores_depend_on_distances_alone():
    network = LanguageModel(**SMALL, rotary=20.0)
    vectors = np.random.default_rng(2).normal(size=(2, H, E // H)).astype(np.float32)
    queries, keys = (np.tile(vector, (T, 1, 1)) for vector in vectors)
    scores = np.einsum("thk,shk->hts", network.rotated(queries), network.rotated(keys))
    for lag in range(-T + 1, T):
        np.testing.assert_allclose(np.ptp(np.diagonal(scores, lag, 1, 2), axis=-1), 0, atol=1e-5)
    assert np.ptp(scores, axis=-1).min() > 0.1
    np.testing.assert_allclose(network.rotated(queries)[0], queries[0], rtol=1e-6)  # the first token is not turned
    norms = [np.linalg.norm(part, axis=-1) for part in (network.rotated(queries), queries)]
    np.testing.assert_allclose(*norms, rtol=1e-5)


def test_sinusoids_turn_by_the_same_angle_from_token_to_token_and_are_as_large_as_embeddings():
    width, base = 64, 100.0
    waves = np.asarray(sinusoids(50, width, base), np.float64)
    angle = base ** (-2 * np.arange(width // 2) / width)
    turned = waves[:, : width // 2] + 1j * waves[:, width // 2 :]  # sin + i cos: a token later is a turn backwards
    np.testing.assert_allclose(turned[1:], turned[:-1] * np.exp(-1j * angle), atol=1e-5)
    np.testing.assert_allclose(waves[0], np.repeat([0, 1], width // 2))
    np.testing.assert_allclose((waves**2).mean(1), 0.5, atol=1e-6)
    for scaled in (False, True):
        network = LanguageModel(64, 1, 1, width, 0, sinusoidal=base, scaled=scaled)
        params = jax.jit(network.init)(KEY, PROMPT[:1])
        start = np.asarray(run(network)(params, jnp.zeros(50, int))[1].residual[0])
        word = np.asarray(run(network.clone(sinusoidal=0.0))(params, jnp.zeros(50, int))[1].residual[0])
        assert np.sqrt(((start - word) ** 2).mean() * 2) == pytest.approx(word.std(), rel=0.25)


def test_prompts_that_begin_at_a_row_read_the_table_from_there_on():
    network = NETWORKS["learned positions"]
    params = built(network)
    starts = jnp.array([0, 1, 2])
    found = last_residual(network, params, TOKENS, starts=starts)
    for own, tokens, first in zip(found, TOKENS, range(3)):
        moved = network.clone(start=first)
        np.testing.assert_allclose(own, run(moved)(params, tokens)[1].residual[-1], atol=2e-5)
    with pytest.raises(ValueError, match="1 longer than the context"):
        network.clone(start=3).check(PROMPT, 1)


def test_a_prompt_moved_along_the_context_looks_the_same_with_rotary_positions_only():
    repeated = jnp.tile(PROMPT, 2)
    for name, same in (("rotary, scaled, momentum", True), ("learned positions", False)):
        network = NETWORKS[name].clone(positions=2 * T * bool(NETWORKS[name].positions))
        first = read(network)(built(network), repeated, T - 1).scores[0, :, :T]
        second = read(network)(built(network), repeated, 2 * T - 1).scores[0, :, T:]
        assert np.allclose(first, second, atol=1e-5) == same, name


@pytest.mark.parametrize("name", ["learned positions", "rotary, scaled, momentum"])
def test_layer_causal_logits_read_the_stream_and_move_their_own_block_alone(name):
    network = NETWORKS[name]
    params = built(network)
    logits, trace = run(network)(params, PROMPT)
    weights = jax.tree.map(np.asarray, params["params"])
    stream = np.asarray(trace.residual[1:], np.float64)
    unit = (stream - stream.mean(-1, keepdims=True)) / np.sqrt(stream.var(-1, keepdims=True) + 1e-5)
    wanted = (unit * weights["norm_scale"] + weights["norm_offset"]) @ weights["embedding"].T
    found = jax.jit(functools.partial(local_logits, network))(params, PROMPT)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(found[-1], logits, atol=2e-5)

    def losses(p):
        return jnp.sum(jax.nn.log_softmax(local_logits(network, p, PROMPT))[:, :, 0] ** 2, axis=1)

    slopes = jax.jit(jax.jacrev(losses))(params)["params"]
    for parameter, slope in slopes.items():
        felt = np.abs(slope).reshape(L, slope.shape[1], -1).max(-1) > 0  # loss, layer
        if parameter in ("embedding", "position", "norm_scale", "norm_offset"):
            assert not felt.any(), parameter
        else:
            np.testing.assert_array_equal(felt, np.eye(L, dtype=bool), err_msg=parameter)


def test_a_tied_embedding_is_read_in_and_out_and_scaled_on_the_way_in_only():
    network = NETWORKS["learned positions"]
    params = built(network)
    assert params["params"]["embedding"].shape == (V, E)
    double = {"params": params["params"] | {"embedding": params["params"]["embedding"].at[:, 0].mul(2)}}
    stream, doubled = (run(network)(p, PROMPT)[1].residual[0] for p in (params, double))
    assert not np.allclose(stream, doubled)
    rows = params["params"]["embedding"][PROMPT] + params["params"]["position"][:T]
    np.testing.assert_allclose(stream, rows, rtol=1e-6)
    scaled = network.clone(scaled=True)
    np.testing.assert_allclose(run(scaled)(params, PROMPT)[1].residual[0], rows * np.sqrt(E), rtol=1e-5)
    last = Intervention({"residual": jnp.zeros((L + 1, T, E))}, {"residual": jnp.ones((L + 1, 1, 1), bool)})
    logits = network.apply(params, PROMPT, last)[0]  # a stream of zeros leaves the norm's offset
    np.testing.assert_allclose(logits[0], params["params"]["embedding"] @ params["params"]["norm_offset"], atol=1e-5)


def test_initial_weights():
    network = LanguageModel(64, 4, 2, 64, 32)
    plain, scaled = (
        jax.jit(lambda key, n=n: n.init(key, PROMPT[:1]))(KEY)["params"] for n in (network, network.clone(scaled=True))
    )
    for name in ("embedding", "position", "w_q", "w_k", "w_v", "mlp_in"):
        assert plain[name].std() == pytest.approx(0.02, rel=0.05), name
    for name in ("w_p", "mlp_out"):
        assert plain[name].std() == pytest.approx(0.02 / np.sqrt(8), rel=0.05), name
    for name, value in plain.items():
        if name in ("embedding", "position"):
            assert scaled[name].std() == pytest.approx(1 / 8, rel=0.05), name
        else:
            np.testing.assert_array_equal(value, scaled[name])
    assert all(not np.any(value) for name, value in plain.items() if name.endswith(("bias", "offset")))


REFUSED = {
    "heads must divide width.* width=7": {"width": 7},
    "must be at least 1.* layers=0": {"layers": 0},
    "must not be negative.* positions=-1": {"positions": -1},
    r"rotary must be .* got rotary=0\.5": {"rotary": 0.5},
    "channels of a head even": {"rotary": 20.0, "width": 6},
    r"mixer must be one of \('none', 'momentum', 'recent'\), got 'mean'": {"mixer": "mean"},
    r"eta must be in \[0, 1\).* eta=1.0": {"mixer": "momentum", "eta": 1.0},
    "to be learned above 0.* eta=0.0, learned_eta=True": {"mixer": "momentum", "learned_eta": True},
    "of mixer='momentum'": {"eta": 0.5, "learned_eta": True},
    "window=0": {"mixer": "recent", "window": 0},
    "6 tokens is 1 longer than the context .* positions=5": {"positions": 5},
}


@pytest.mark.parametrize("said", REFUSED)
def test_attributes_out_of_range_and_long_prompts_are_refused_by_every_form(said):
    network = LanguageModel(**SMALL | REFUSED[said])
    params = {"params": {}}
    for form in (
        lambda: network.init(KEY, PROMPT),
        lambda: language_logits(network, params, TOKENS),
        lambda: captured(network, params, PROMPT, 0),
        lambda: local_logits(network, params, PROMPT),
    ):
        with pytest.raises(ValueError, match=said):
            form()


def test_what_is_no_prompt_is_refused():
    network = NETWORKS["rotary, scaled, momentum"]
    params = built(network)
    with pytest.raises(ValueError, match=r"integers \(T,\) .* got float32 \(3, 6\)"):
        network.apply(params, TOKENS.astype(float))
    with pytest.raises(ValueError, match=r"integers \(B, T\) .* got int32 \(6,\)"):
        language_logits(network, params, PROMPT)
    with pytest.raises(ValueError, match=r"at must be in \[0, 6\).* got 6"):
        captured(network, params, PROMPT, T)
    with pytest.raises(ValueError, match=r"tokens must be in \[0, 11\), the vocabulary; got 11"):
        language_logits(network, params, TOKENS.at[1, 2].set(V))
    share = Intervention(share=jnp.ones((L, H, T, 1)), group=jnp.ones((L, H, T, T), bool))
    with pytest.raises(ValueError, match="a share is of attention whose rows sum to one; mixer='momentum'"):
        network.apply(params, PROMPT, share)
