import jax
import numpy as np
import pytest

from icl_lab.models.attention import momentum_pattern, recent_pattern
from icl_lab.prompts import linear_regression
from icl_lab.theory import one_step_optimum
from icl_lab.theory.linear_attention.momentum import copied_pairs, mixed_step_optimum, mixer_penalty

N, D, V = 5, 3, 1 / 12


def tasks(count=100_000):
    samples = linear_regression(context_length=N, input_size=D)(jax.random.key(0), count)
    prompts = samples.prompt
    return (np.asarray(part, np.float64) for part in (prompts.x, prompts.y, prompts.x_query, samples.target))


@pytest.mark.parametrize("mixer", ["momentum", "recent"])
def test_a_mixer_adds_its_penalty_to_the_loss_of_any_weights(mixer):
    x, y, query, target = tasks()
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(D, D + 1)), rng.normal(size=D + 1)
    context = np.concatenate([x, y], axis=2)
    patterns = {"momentum": momentum_pattern(N + 1, 0.6, keys=N), "recent": recent_pattern(N + 1, 2, keys=N)}
    mixing = np.asarray(patterns[mixer])[-1]
    plain = np.einsum("bd,de,bne,bnf,f->b", query, a, context, context, b)
    mixed = plain + np.einsum("n,bnf,f->b", mixing, context, b)
    added = 0.5 * ((mixed - target[:, 0]) ** 2 - (plain - target[:, 0]) ** 2)
    expected = mixer_penalty(mixing, b, input_variance=V)
    assert abs(added.mean() - expected) < 4 * added.std() / added.size**0.5
    assert added.std() / added.size**0.5 < 0.05 * expected  # the test can tell
    np.testing.assert_allclose(mixer_penalty(mixing, np.stack([b, 2 * b]), input_variance=V), [expected, 4 * expected])


def test_the_best_mixed_step():
    x, y, query, target = tasks()
    pairs = np.random.default_rng(2).normal(size=(N, N)) / 4 + np.eye(N)
    rate, loss = mixed_step_optimum(pairs, input_size=D, input_variance=V)
    step = np.einsum("ij,bi,bjd,bd->b", pairs, y[:, :, 0], x, query)
    losses = {factor: 0.5 * (factor * rate * step - target[:, 0]) ** 2 for factor in (0.8, 1.0, 1.2)}
    assert abs(losses[1.0].mean() - loss) < 4 * losses[1.0].std() / step.size**0.5
    assert min(losses[0.8].mean(), losses[1.2].mean()) > losses[1.0].mean()


def test_equal_weights_are_gradient_descent_and_unequal_ones_a_shorter_context():
    law = {"input_size": D, "input_variance": V}
    rate, loss = mixed_step_optimum(np.eye(N) / N, **law)
    np.testing.assert_allclose((rate, loss), one_step_optimum(context_length=N, **law), rtol=1e-12)
    half = np.diag([1.0, 1, 1, 0, 0])
    assert mixed_step_optimum(half, **law)[1] == pytest.approx(float(one_step_optimum(context_length=3, **law)[1]))


def test_what_mixers_copy_of_alternating_tokens():
    np.testing.assert_array_equal(copied_pairs(recent_pattern(2 * N + 1, 1, keys=2 * N)), np.eye(N))
    lag = np.arange(N)[:, None] - np.arange(N)[None]
    expected = np.where(lag >= 0, 0.5 ** np.maximum(2 * lag + 1.0, 0), 0)
    np.testing.assert_allclose(copied_pairs(momentum_pattern(2 * N + 1, 0.5, keys=2 * N)), expected, rtol=1e-6)
    losses = [
        mixed_step_optimum(copied_pairs(momentum_pattern(2 * N + 1, eta, keys=2 * N)), input_size=D, input_variance=V)[
            1
        ]
        for eta in (0.1, 0.5, 0.9)
    ]
    assert losses == sorted(losses)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="trace"):
        mixed_step_optimum(np.eye(3, k=1), input_size=D, input_variance=V)
    with pytest.raises(ValueError, match=r"\(2N \+ 1, 2N\)"):
        copied_pairs(np.ones((4, 3)))
