import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.models.language import LanguageModel
from icl_lab.models.language_capture import captured, local_logits
from icl_lab.solvers.finetuning import TUNED, finetune, random_update, trained_embeddings, untrained, update_norms

NETWORK = LanguageModel(
    vocabulary=11, layers=2, heads=2, width=8, positions=6, rotary=100.0, mixer="momentum", eta=0.3, learned_eta=True
)
EXAMPLES = np.asarray([[1, 5, 6, 7, 3], [1, 8, 3, 0, 0], [1, 9, 4, 0, 0]], np.int32)
LENGTHS = np.asarray([5, 3, 3], np.int32)
RATE = 0.3


@pytest.fixture(scope="module")
def params():
    shapes, rng = jax.eval_shape(lambda: untrained(jax.random.key(0), NETWORK)), np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.7 * rng.normal(size=leaf.shape), jnp.float32), shapes)


def tuned(params, rate=RATE, examples=EXAMPLES, lengths=LENGTHS, *, objective="all", sequential=True):
    return finetune(NETWORK, params, examples, lengths, rate, objective=objective, sequential=sequential)


compiled = jax.jit(tuned, static_argnames=("objective", "sequential"))


def run(params, rate=RATE, examples=EXAMPLES, lengths=LENGTHS, **options):
    return compiled(params, np.broadcast_to(np.float32(rate), 3), examples, lengths, **options)


def close(a, b, **bounds):
    for name in TUNED:
        np.testing.assert_allclose(
            a["params"][name], b["params"][name], err_msg=name, **{"rtol": 1e-4, "atol": 1e-6} | bounds
        )


def text_loss(logits, tokens, length):
    chosen = jax.nn.log_softmax(logits[:-1], axis=-1)[jnp.arange(4), tokens[1:]]
    return -jnp.where(jnp.arange(4) < length - 1, chosen, 0).sum() / (length - 1)


@jax.jit
def by_hand(params, tokens, length):
    """Gradient by name, attention queries (T, L, H, K)."""
    weights = params["params"]

    def loss(tuned):
        return text_loss(NETWORK.apply({"params": weights | tuned}, tokens)[0], tokens, length)

    queries = captured(NETWORK, params, tokens, 0).queries.swapaxes(0, 1)
    return jax.grad(loss)({name: weights[name] for name in TUNED}), queries


@jax.jit
def local_gradient(params, tokens, length):
    weights = params["params"]

    def loss(tuned):
        logits = local_logits(NETWORK, {"params": weights | tuned}, tokens)
        return jax.vmap(text_loss, (0, None, None))(logits, tokens, length).sum()

    return jax.grad(loss)({name: weights[name] for name in TUNED})


def moved(params, gradients, rate):
    weights = params["params"]
    return {"params": weights | {name: weights[name] - rate * gradients[name] for name in TUNED}}


def test_sequential_is_a_python_loop_of_sgd(params):
    now, found = params, run(params)
    for n, (tokens, length) in enumerate(zip(EXAMPLES, LENGTHS)):
        gradient, queries = by_hand(now, tokens, length)
        np.testing.assert_allclose(found.queries[n, :length], queries[:length], rtol=1e-4, atol=1e-5)
        stale = by_hand(params, tokens, length)[1]
        assert n == 0 or np.abs(stale - queries)[:length].max() > 0.01
        now = moved(now, gradient, RATE)
    close(found.params, now)
    for name in TUNED:
        change = np.asarray(now["params"][name] - params["params"][name]).reshape(2, -1)
        np.testing.assert_allclose(found.update_norms[name], np.linalg.norm(change, axis=1), rtol=1e-4)


def test_full_batch_adds_the_gradients_of_the_start(params):
    gradients, queries = zip(*(by_hand(params, tokens, length) for tokens, length in zip(EXAMPLES, LENGTHS)))
    total = jax.tree.map(lambda *leaves: sum(leaves), *gradients)
    found = run(params, sequential=False)
    close(found.params, moved(params, total, RATE))
    np.testing.assert_allclose(found.queries[1, :3], queries[1][:3], rtol=1e-4, atol=1e-5)


def test_local_moves_each_layer_by_its_own_loss(params):
    gradient, plain = local_gradient(params, EXAMPLES[0], 5), by_hand(params, EXAMPLES[0], 5)[0]
    found = run(params, [RATE, 0, 0], objective="local").params
    close(found, moved(params, gradient, RATE))
    for name in TUNED:  # the last layer's own loss is that of the network
        lower, last = np.asarray(found["params"][name] - moved(params, plain, RATE)["params"][name])
        assert np.abs(last).max() < 1e-5
        assert np.abs(lower).max() > 1e-3 or name == "k_bias"


def test_only_keys_and_values_move(params):
    for sequential in (True, False):
        found = run(params, sequential=sequential).params["params"]
        for name, before in params["params"].items():
            assert np.array_equal(found[name], before) != (name in TUNED), name


@pytest.mark.parametrize("sequential", [True, False])
def test_a_learning_rate_of_zero_changes_no_bit(params, sequential):
    found = run(params, 0.0, sequential=sequential)
    jax.tree.map(np.testing.assert_array_equal, found.params, params)
    assert not any(norms.any() for norms in found.update_norms.values())


def test_order_has_a_part_in_sequential_alone(params):
    order = [2, 0, 1]
    one, other = (
        [run(params, examples=EXAMPLES[o], lengths=LENGTHS[o], sequential=s).params for o in ([0, 1, 2], order)]
        for s in (False, True)
    )
    close(*one)
    assert np.abs(other[0]["params"]["w_v"] - other[1]["params"]["w_v"]).max() > 1e-2


def test_zero_rates_behind_the_first_are_fine_tuning_on_it_alone(params):
    found = run(params, [RATE, 0, 0]).params
    close(found, moved(params, by_hand(params, EXAMPLES[0], 5)[0], RATE))


def test_a_grid_is_a_loop(params):
    rates = jnp.asarray([0.0, 1e-3, 0.1, 1.0])
    grid = jax.jit(jax.vmap(tuned, (None, 0)))(params, rates)
    for i, rate in enumerate(rates):
        alone = run(params, rate)
        close({"params": {name: grid.params["params"][name][i] for name in TUNED}}, alone.params)
        np.testing.assert_allclose(grid.queries[i], alone.queries, rtol=1e-3, atol=1e-4)


def test_padding_is_never_read(params):
    other = np.where(np.arange(5) < LENGTHS[:, None], EXAMPLES, 10)
    close(run(params).params, run(params, examples=other).params, rtol=0, atol=0)


def test_random_update_has_the_norms_and_another_direction(params):
    after = run(params).params
    noisy = jax.jit(random_update)(jax.random.key(3), params, after)
    for (name, one), other in zip(update_norms(params, after).items(), update_norms(params, noisy).values()):
        np.testing.assert_allclose(one, other, rtol=1e-4, err_msg=name)
    changes = [np.ravel(p["params"]["w_v"] - params["params"]["w_v"]) for p in (after, noisy)]
    assert abs(np.corrcoef(changes)[0, 1]) < 0.5
    assert all(np.array_equal(noisy["params"][n], params["params"][n]) for n in params["params"] if n not in TUNED)


def test_trained_embeddings_keep_embeddings_and_norms(params):
    fresh = jax.tree.map(lambda leaf: leaf + 1, params)
    mixed = trained_embeddings(params, fresh)["params"]
    trained = {name for name in mixed if np.array_equal(mixed[name], params["params"][name])}
    norms = {f"{where}_{what}" for where in ("norm", "attention", "mlp") for what in ("scale", "offset")}
    assert trained == {"embedding", "position"} | norms
    assert all(np.array_equal(mixed[name], fresh["params"][name]) for name in mixed if name not in trained)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective": "label"}, "objective must be one of .* got 'label'"),
        ({"lengths": LENGTHS[:2]}, "lengths"),
        ({"examples": EXAMPLES[:, :1]}, "S at least 2"),
        ({"rate": np.ones(2)}, "learning_rate must be a scalar or one an example"),
    ],
)
def test_what_does_not_fit_is_refused(params, changes, named):
    with pytest.raises(ValueError, match=named):
        tuned(params, **changes)
