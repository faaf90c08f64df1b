import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.layouts import alternating_layout
from icl_lab.models import GPT, Intervention, learner, prefix_predictions, traced
from icl_lab.prompts import Prompt, gaussian_regression

KEY = jax.random.key(3)
N, D = 4, 3
LAYOUT = alternating_layout()
PROMPTS = gaussian_regression(context_length=N, covariance=np.eye(D))(KEY, 5).prompt
PROMPT = jax.tree.map(lambda leaf: leaf[0], PROMPTS)


def built(positions=0, layers=2, spread=0.3):
    """A network and weights large enough that every part matters, biases and offsets too."""
    network = GPT(layers, 2, 8, positions)
    params = network.init(KEY, jnp.zeros((2, D)))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(KEY, len(leaves))
    return network, tree.unflatten([x + spread * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves)])


def plain(network, params):
    """Every prefix of one prompt by the network as it is written down, unbatched: (N + 1, 1)."""
    return lambda prompt: network.apply(params, LAYOUT.encode(prompt))[0][::2]


@pytest.mark.parametrize("positions", [0, 2 * N + 1])
def test_a_read_out_depends_on_its_own_and_earlier_tokens_only(positions):
    network, params = built(positions)
    tokens = LAYOUT.encode(PROMPT)
    felt = np.any(jax.jacobian(lambda t: network.apply(params, t)[0][:, 0])(tokens) != 0, axis=2)
    assert np.array_equal(felt, np.tril(np.ones((2 * N + 1, 2 * N + 1), bool)))


@pytest.mark.parametrize("positions", [0, 2 * N + 3])
@pytest.mark.parametrize("layers", [1, 3])
def test_batched_prefix_predictions_are_those_of_the_network_in_value_and_gradient(positions, layers):
    network, params = built(positions, layers)
    loss = lambda predict: lambda p: jnp.sum(jnp.sin(3 * predict(p)))  # noqa: E731
    batched = lambda p: prefix_predictions(network, p, PROMPTS)  # noqa: E731
    one_by_one = lambda p: jax.vmap(plain(network, p))(PROMPTS)  # noqa: E731
    assert batched(params).shape == (5, N + 1, 1)
    np.testing.assert_allclose(batched(params), one_by_one(params), atol=1e-5)
    found, wanted = jax.grad(loss(batched))(params), jax.grad(loss(one_by_one))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * (1 + np.abs(b).max())), found, wanted)


@pytest.mark.parametrize("positions", [0, 2 * N + 1])
def test_the_prediction_of_a_prefix_is_that_of_the_prompt_cut_there(positions):
    network, params = built(positions)
    prefixes = prefix_predictions(network, params, PROMPTS)
    points = jnp.concatenate([PROMPTS.x, PROMPTS.x_query[:, None]], axis=1)
    for k in range(1, N + 1):
        cut = Prompt(PROMPTS.x[:, :k], PROMPTS.y[:, :k], points[:, k])
        np.testing.assert_allclose(jax.vmap(learner(network, params, LAYOUT))(cut), prefixes[:, k], atol=1e-5)


def test_the_order_of_the_examples_matters_with_positions_and_even_without_but_not_to_one_layer_without():
    # one layer sees the earlier tokens as a set; two see through earlier tokens, which saw different sets
    order = jnp.array([2, 0, 3, 1])
    shuffled = PROMPT.replace(x=PROMPT.x[order], y=PROMPT.y[order])
    for positions, layers, same in ((0, 1, True), (0, 2, False), (2 * N + 1, 1, False)):
        network, params = built(positions, layers)
        run = learner(network, params, LAYOUT)
        assert np.allclose(run(shuffled), run(PROMPT), atol=1e-5) == same


def test_positions_beyond_the_prompt_have_no_gradient_and_those_of_the_prompt_have():
    network, params = built(positions=2 * N + 5)
    gradient = jax.grad(lambda p: jnp.sum(prefix_predictions(network, p, PROMPTS) ** 2))(params)
    rows = np.abs(gradient["params"]["position"]).max(axis=1)
    assert np.all(rows[: 2 * N + 1] > 0)
    assert np.all(rows[2 * N + 1 :] == 0)


def test_a_prompt_longer_than_the_positions_is_refused():
    network, params = built(positions=2 * N)
    for run in (lambda: learner(network, params, LAYOUT)(PROMPT), lambda: prefix_predictions(network, params, PROMPTS)):
        with pytest.raises(ValueError, match="positions must be at least the 9 tokens"):
            run()


@pytest.mark.parametrize(
    "options", [{"layers": 0}, {"heads": 0}, {"heads": 3}, {"width": 0}, {"positions": -1}], ids=lambda o: str(o)
)
def test_sizes_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="heads must divide width"):
        GPT(**({"layers": 1, "heads": 2, "width": 8} | options)).init(KEY, jnp.zeros((2, D)))


def test_initial_weights_have_the_spread_of_gpt_2():
    params = GPT(4, 2, 64, 50).init(KEY, jnp.zeros((2, 40)))["params"]
    for name in ("read_in", "w_qkv", "mlp_in", "position"):
        assert params[name].std() == pytest.approx(0.02, rel=0.05), name
    for name in ("w_p", "mlp_out"):
        assert params[name].std() == pytest.approx(0.02 / np.sqrt(8), rel=0.05), name
    assert all(not np.any(value) for name, value in params.items() if name.endswith(("bias", "offset")))


def test_without_the_position_table_the_other_weights_start_the_same():
    with_, without = (GPT(2, 2, 8, positions).init(KEY, jnp.zeros((2, D)))["params"] for positions in (9, 0))
    assert set(with_) - set(without) == {"position"}
    assert all(np.array_equal(with_[name], value) for name, value in without.items())


@pytest.mark.parametrize("name", ["attention", "head_output", "residual"])
def test_replacing_a_part_by_itself_changes_nothing_and_by_another_does(name):
    network, params = built(positions=2 * N + 1)
    run = traced(network, params, LAYOUT)
    prediction, trace = run(PROMPT)
    value = getattr(trace, name)
    everywhere = {name: jnp.ones(value.shape, bool)}
    same, again = run(PROMPT, Intervention({name: value}, everywhere))
    assert np.array_equal(same, prediction)
    assert jax.tree.all(jax.tree.map(np.array_equal, again, trace))
    other, _ = run(PROMPT, Intervention({name: value * 0.5}, everywhere))
    assert not np.allclose(other, prediction)
    later, _ = run(PROMPT, Intervention({name: value * 0.5}, everywhere, start=1), 0)
    assert np.array_equal(later, prediction)


def test_the_trace_adds_up():
    network, params = built()
    _, trace = traced(network, params, LAYOUT)(PROMPT)
    np.testing.assert_allclose(trace.attention.sum(-1), 1.0, rtol=1e-6)
    assert np.all(trace.attention == np.tril(trace.attention))
    assert trace.head_output.shape == (2, 2, 2 * N + 1, 8)
    assert trace.residual.shape == (3, 2 * N + 1, 8)
    own = jax.tree.map(lambda leaf: leaf, params["params"])
    off = own | {"mlp_out": 0 * own["mlp_out"], "mlp_out_bias": 0 * own["mlp_out_bias"], "p_bias": 0 * own["p_bias"]}
    _, bare = traced(network, {"params": off}, LAYOUT)(PROMPT)  # without MLP the heads are all that is added
    np.testing.assert_allclose(jnp.diff(bare.residual, axis=0), bare.head_output.sum(1), atol=1e-5)
