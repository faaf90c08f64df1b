import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import values_and_slopes

from icl_lab.models import GPT, learner, prefix_predictions, traced
from icl_lab.prompts import Prompt, gaussian_regression
from icl_lab.prompts.layouts import alternating_layout

KEY = jax.random.key(3)
N, D = 4, 3
LAYOUT = alternating_layout()
PROMPTS = jax.jit(lambda key: gaussian_regression(context_length=N, covariance=np.eye(D))(key, 5).prompt)(KEY)
PROMPT = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), PROMPTS)


def built(positions=0, layers=2, spread=0.3):
    """A network and weights so large that every part of it matters, biases and offsets too."""
    network = GPT(layers, 2, 8, positions)
    shapes = jax.eval_shape(network.init, KEY, jnp.zeros((2, D)))
    draw = np.random.default_rng(0).normal
    return network, jax.tree.map(lambda leaf: jnp.asarray(spread * draw(size=leaf.shape), leaf.dtype), shapes)


def plain(network, params):
    """Every prefix of one prompt by the network as it is written down, unbatched: (N + 1, 1)."""
    return lambda prompt: network.apply(params, LAYOUT.encode(prompt))[0][::2]


def initial(network, width):
    return jax.jit(network.init)(KEY, jnp.zeros((2, width)))["params"]


@pytest.mark.parametrize(("layers", "positions"), [(1, 0), (2, 2 * N + 3)])
def test_batched_prefix_predictions_are_those_of_the_network_in_value_and_gradient(layers, positions):
    network, params = built(positions, layers)
    values, found = values_and_slopes(lambda p: prefix_predictions(network, p, PROMPTS), params)
    references, wanted = values_and_slopes(lambda p: jax.vmap(plain(network, p))(PROMPTS), params)
    assert values.shape == (5, N + 1, 1)
    np.testing.assert_allclose(values, references, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * (1 + np.abs(b).max())), found, wanted)


def test_the_prediction_of_a_prefix_is_that_of_the_prompt_cut_there():
    network, params = built(positions=2 * N + 1)
    prefixes = jax.jit(lambda p: prefix_predictions(network, p, PROMPTS))(params)
    run = jax.jit(jax.vmap(learner(network, params, LAYOUT)))
    points = jnp.concatenate([PROMPTS.x, PROMPTS.x_query[:, None]], axis=1)
    for k in (1, N - 1):
        cut = Prompt(PROMPTS.x[:, :k], PROMPTS.y[:, :k], points[:, k])
        np.testing.assert_allclose(run(cut), prefixes[:, k], atol=1e-5)


def test_the_order_of_the_examples_matters_with_positions_and_even_without_but_not_to_one_layer_without():
    # one layer sees the earlier tokens as a set; two see through earlier tokens, which saw different sets
    order = jnp.array([2, 0, 3, 1])
    shuffled = PROMPT.replace(x=PROMPT.x[order], y=PROMPT.y[order])
    for positions, layers, same in ((0, 1, True), (0, 2, False), (2 * N + 1, 1, False)):
        network, params = built(positions, layers)
        run = jax.jit(learner(network, params, LAYOUT))
        assert np.allclose(run(shuffled), run(PROMPT), atol=1e-5) == same


def test_a_prompt_longer_than_the_positions_is_refused():
    network, params = built(positions=2 * N)
    said = "positions must be at least the 9 tokens"
    with pytest.raises(ValueError, match=said):
        learner(network, params, LAYOUT)(PROMPT)
    with pytest.raises(ValueError, match=said):
        prefix_predictions(network, params, PROMPTS)


@pytest.mark.parametrize(
    ("option", "value"),
    [("layers", 0), ("heads", 0), ("heads", 3), ("width", 0), ("positions", -1)]
    + [("spread", value) for value in (-0.1, np.nan, np.inf)],
)
def test_sizes_and_spreads_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match="spread must be" if option == "spread" else "heads must divide width"):
        GPT(**({"layers": 1, "heads": 2, "width": 8} | {option: value})).init(KEY, jnp.zeros((2, D)))


@pytest.mark.parametrize(("spread", "given"), [(0.02, {}), (0.125, {"spread": 0.125})])
def test_initial_weights_have_the_spread_and_the_position_table_changes_no_other(spread, given):
    params, without = (initial(GPT(4, 2, 64, positions, **given), width=40) for positions in (50, 0))
    for name in ("read_in", "w_qkv", "mlp_in", "position"):
        assert params[name].std() == pytest.approx(spread, rel=0.05), name
    for name in ("w_p", "mlp_out"):
        assert params[name].std() == pytest.approx(spread / np.sqrt(8), rel=0.05), name
    assert all(not np.any(value) for name, value in params.items() if name.endswith(("bias", "offset")))
    assert set(params) - set(without) == {"position"}
    assert all(np.array_equal(params[name], value) for name, value in without.items())


def test_the_trace_adds_up():
    network, params = built()
    _, trace = jax.jit(traced(network, params, LAYOUT))(PROMPT)
    np.testing.assert_allclose(trace.attention.sum(-1), 1.0, rtol=1e-6)
    assert np.all(trace.attention == np.tril(trace.attention))
    assert trace.head_output.shape == (2, 2, 2 * N + 1, 8)
    assert trace.residual.shape == (3, 2 * N + 1, 8)
    off = params["params"] | {name: 0 * params["params"][name] for name in ("mlp_out", "mlp_out_bias", "p_bias")}
    _, bare = jax.jit(traced(network, {"params": off}, LAYOUT))(PROMPT)  # the heads are all that is added
    np.testing.assert_allclose(jnp.diff(bare.residual, axis=0), bare.head_output.sum(1), atol=1e-5)
