import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.training.fitting import fit

pytestmark = pytest.mark.usefixtures("compile_fully")

STEPS = 12
KEYS = jax.random.split(jax.random.key(3), 3)
SETTINGS = {"rate": jnp.array([0.05, 0.1, 0.2]), "start": jnp.array([-1.0, 0.0, 2.0])}
SAME = {"rtol": 0, "atol": 0}
FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}  # sums in another order, twelve steps of a well-conditioned problem


def draw(key, rows, columns):
    """Numbers in [-1, 1) that look random enough: jax.random compiles for longer than all else here."""
    first, second = jax.random.key_data(key)
    bits = (jnp.arange(rows * columns, dtype=jnp.uint32) ^ first) * jnp.uint32(0x9E3779B1) + second
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x85EBCA77)
    return ((bits >> 8) / jnp.float32(2**23) - 1).reshape(rows, columns)


def init(key, setting):
    return {"w": draw(key, 4, 2), "b": setting["start"] * jnp.ones(2)}


def loss(params, key, setting):
    x, y = jnp.split(draw(key, 8, 6), [4], axis=1)
    return jnp.mean((x @ params["w"] + params["b"][None] - y) ** 2)


def measure(params, key, setting):
    return {"loss": loss(params, key, setting), "b": params["b"]}


def optimizer(setting):
    return optax.sgd(setting["rate"], momentum=0.5)


def train(keys=KEYS, settings=SETTINGS, **options):
    return fit(
        init, loss, optimizer, keys, settings, **({"steps": STEPS, "measure": measure, "measure_every": 4} | options)
    )


@pytest.fixture(scope="module")
def whole():
    return train()


def assert_same(a, b, bound=SAME):
    """Two fits agree in everything that both measured."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **bound), a.params, b.params)
    common, rows_a, rows_b = np.intersect1d(a.steps, b.steps, return_indices=True)
    assert common.size
    for name in set(a.metrics) - {"train_loss"}:
        np.testing.assert_allclose(a.metrics[name][:, rows_a], b.metrics[name][:, rows_b], **bound)
    np.testing.assert_array_equal(a.diverged_at, b.diverged_at)


@pytest.mark.parametrize("measure_every", [2, 5, 12, 50])
def test_training_in_chunks_is_training_at_once(whole, measure_every):
    assert_same(train(measure_every=measure_every), whole)


def test_resumed_is_uninterrupted(whole, tmp_path):
    def interrupted_at(chunk):
        def progress(done, steps):
            begun.append(done)
            if done == chunk:
                raise KeyboardInterrupt

        begun = []
        with pytest.raises(KeyboardInterrupt):
            train(resume=Checkpoint(tmp_path, "this", 0), progress=progress)
        return begun

    assert interrupted_at(8) == [0, 4, 8]
    assert interrupted_at(12) == [8, 12]
    begun = []
    finished = train(resume=Checkpoint(tmp_path, "this", 0), progress=lambda done, steps: begun.append(done))
    assert begun == [STEPS]
    assert (finished.resumed, whole.resumed) == (STEPS, 0)
    assert_same(finished, whole)
    np.testing.assert_array_equal(finished.metrics["train_loss"], whole.metrics["train_loss"])


def one(tree, m):
    """Member m alone, the leading axis kept."""
    return jax.tree.map(lambda leaf: leaf[m : m + 1], tree)


def member(fitted, m):
    return fitted._replace(
        params=one(fitted.params, m), metrics=one(fitted.metrics, m), diverged_at=fitted.diverged_at[m : m + 1]
    )


def test_member_in_an_ensemble_is_the_member_alone(whole):
    in_turn = train(members_at_once=1)
    assert_same(train(KEYS[1:2], one(SETTINGS, 1), members_at_once=1), member(in_turn, 1))
    assert_same(in_turn, whole, FLOAT32)


@pytest.mark.parametrize("members_at_once", [2, 5])
def test_groups_of_members_change_nothing(whole, members_at_once):
    assert_same(train(members_at_once=members_at_once), whole, FLOAT32)


def test_a_step_can_be_replayed_by_hand(whole):
    init_key, data_key, eval_key = jax.random.split(KEYS[1], 3)
    setting = jax.tree.map(lambda leaf: leaf[1], SETTINGS)
    params = init(init_key, setting)
    momentum = jax.tree.map(jnp.zeros_like, params)
    slope = jax.jit(jax.grad(loss))
    for t in range(STEPS):
        gradient = slope(params, jax.random.fold_in(data_key, t), setting)
        momentum = jax.tree.map(lambda v, g: 0.5 * v + g, momentum, gradient)
        params = jax.tree.map(lambda p, v: p - setting["rate"] * v, params, momentum)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q[1], **FLOAT32), params, whole.params)
    np.testing.assert_allclose(whole.metrics["loss"][1, -1], loss(params, eval_key, setting), **FLOAT32)


def test_training_ends_where_it_is_told_to_and_is_not_taken_up_again(whole, tmp_path):
    until = lambda row: bool(row["loss"][0] == whole.metrics["loss"][0, 2])  # noqa: E731
    ended = train(until=until, resume=Checkpoint(tmp_path, "run", 0))
    np.testing.assert_array_equal(ended.steps, whole.steps[:3])
    assert_same(ended, train(steps=8))
    again = train(until=until, resume=Checkpoint(tmp_path, "run", 0))
    assert_same(again, ended)
    assert again.memory == 0  # nothing was compiled


def test_measurements_have_members_and_rows(whole):
    np.testing.assert_array_equal(whole.steps, [0, 4, 8, 12])
    assert {name: value.shape for name, value in whole.metrics.items()} == {
        "train_loss": (3, 4),
        "loss": (3, 4),
        "b": (3, 4, 2),
    }
    np.testing.assert_array_equal(np.isnan(whole.metrics["train_loss"]), [[True, False, False, False]] * 3)
    np.testing.assert_array_equal(whole.metrics["b"][:, 0, 0], SETTINGS["start"])  # before the first step
    assert (whole.diverged_at == -1).all()


def test_nothing_measured_leaves_the_training_loss():
    fitted = fit(init, loss, optax.adam(0.1), KEYS, SETTINGS, steps=2)
    assert list(fitted.metrics) == ["train_loss"]
    assert fitted.metrics["train_loss"].shape == (3, 2)


def test_a_diverging_member_is_stopped_and_the_others_go_on(whole):
    with pytest.warns(RuntimeWarning, match="1 of 3 members diverged and were stopped: 1"):
        fitted = train(settings=SETTINGS | {"rate": SETTINGS["rate"].at[1].set(1e30)})
    np.testing.assert_array_equal(fitted.diverged_at, [-1, 1, -1])  # the loss overflows where the first update led
    for m in (0, 2):
        assert_same(member(fitted, m), member(whole, m))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fitted.params))


def test_a_member_whose_gradient_is_not_finite_keeps_its_parameters():
    def root(params, key, start):
        return jnp.sqrt(params)  # finite at 0, its derivative is not

    with pytest.warns(RuntimeWarning, match="1 of 2 members"):
        fitted = fit(lambda key, start: start, root, optax.sgd(0.1), KEYS[:2], jnp.array([0.0, 4.0]), steps=3)
    np.testing.assert_array_equal(fitted.diverged_at, [0, -1])
    assert fitted.params[0] == 0
    assert 3.95 > fitted.params[1] > 3.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"measure_every": 0}, "measure_every must be a whole number of at least 1, got 0"),
        ({"members_at_once": 0}, "members_at_once must be at least 1, got 0"),
        ({"settings": SETTINGS["rate"][:2]}, r"leading axis M = 3, got shape \(2,\)"),
        ({"settings": [0.0, 1.0, 2.0]}, r"leading axis M = 3, got shape \(\)"),
        ({"keys": KEYS[0]}, r"keys must be \(M,\)"),
        ({"keys": KEYS[:0]}, r"M >= 1, got \(0,\)"),
    ],
)
def test_refuses_what_does_not_fit_together(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)
