import jax
import numpy as np
import pytest

from icl_lab.models.attention import ATTENTIONS, momentum_pattern, recent_pattern

T, V, K = 7, 3, 4
TIGHT = {"rtol": 0, "atol": 1e-12}
RNG = np.random.default_rng(0)
Q, KEYS, VALUES = RNG.normal(size=(T, K)), RNG.normal(size=(T, K)), RNG.normal(size=(T, V))
toeplitz = jax.jit(momentum_pattern, static_argnums=0, static_argnames=("keys", "normalised"))


def attend(pattern, values, eta):
    return (pattern + toeplitz(len(pattern), eta, keys=len(values))) @ values


def by_hand(values, eta, normalised=False):
    past = [sum((eta ** (t - i) * values[i] for i in range(t)), np.zeros(V)) for t in range(len(values))]
    return np.stack(past) * ((1 - eta) / eta if normalised else 1)


@pytest.mark.parametrize("normalised", [False, True])
def test_the_toeplitz_form_is_the_sum_over_the_strict_past(normalised, x64):
    for eta in (0.3, 0.9):
        matrix = np.asarray(toeplitz(T, eta, normalised=normalised))
        np.testing.assert_allclose(matrix @ VALUES, by_hand(VALUES, eta, normalised), **TIGHT)
        np.testing.assert_array_equal(matrix != 0, np.tril(np.ones((T, T), bool), -1))
        mass = eta * (1 - eta ** np.arange(T)) / (1 - eta) * ((1 - eta) / eta if normalised else 1)
        np.testing.assert_allclose(matrix.sum(1), mass, **TIGHT)
        np.testing.assert_array_equal(toeplitz(T, eta, keys=T - 1, normalised=normalised), matrix[:, :-1])


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_momentum_adds_the_past_values_to_any_attention(kind, x64):
    pattern = np.tril(jax.jit(ATTENTIONS[kind].pattern)(Q, KEYS))
    vanilla = pattern @ VALUES
    for eta in (0.3, 0.9):
        np.testing.assert_allclose(attend(pattern, VALUES, eta), vanilla + by_hand(VALUES, eta), **TIGHT)
    np.testing.assert_allclose(attend(pattern, VALUES, 0.0), vanilla, **TIGHT)
    context = attend(pattern[:, :-1], VALUES[:-1], 0.5)  # the query is no key
    own = np.append(VALUES[:-1], np.zeros((1, V)), 0)
    np.testing.assert_allclose(context, pattern @ own + by_hand(own, 0.5), **TIGHT)


@pytest.mark.parametrize("normalised", [False, True])
def test_the_limit_of_no_momentum(normalised, x64):
    shifted = np.append(np.zeros((1, V)), VALUES[:-1], 0)
    expected = shifted if normalised else np.zeros_like(shifted)
    np.testing.assert_array_equal(toeplitz(T, 0.0, normalised=normalised) @ VALUES, expected)
    np.testing.assert_allclose(toeplitz(T, 1e-9, normalised=normalised) @ VALUES, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("normalised", [False, True])
def test_a_learned_coefficient_gets_its_gradient_also_at_zero(normalised, x64):
    target = RNG.normal(size=(T, V))
    loss = jax.jit(lambda eta: ((momentum_pattern(T, eta, normalised=normalised) @ VALUES - target) ** 2).sum())
    slope = jax.jit(jax.grad(loss))
    for eta in (0.0, 0.4):
        values = [float(loss(eta + step)) for step in (0, 1e-4, 2e-4)]  # one-sided: eta must not be negative
        differences = (4 * values[1] - 3 * values[0] - values[2]) / 2e-4
        np.testing.assert_allclose(differences, slope(eta), rtol=1e-4, atol=1e-4)


def test_the_local_mixer_without_momentum(x64):
    for window in (1, 3):
        mixed = recent_pattern(T, window) @ VALUES
        padded = np.append(np.zeros((window, V)), VALUES, 0)
        np.testing.assert_allclose(mixed, [padded[t : t + window].mean(0) for t in range(T)], **TIGHT)
    np.testing.assert_array_equal(recent_pattern(T, 1), toeplitz(T, 0.0, normalised=True))
    np.testing.assert_array_equal(recent_pattern(T, 3, keys=4), recent_pattern(T, 3)[:, :4])


REFUSED = {
    r"eta must be .* got 1\.0": lambda: momentum_pattern(T, 1.0),
    r"eta must be .* got -0\.1": lambda: momentum_pattern(T, -0.1),
    "eta must be .* got nan": lambda: momentum_pattern(T, float("nan")),
    "eta must be a scalar": lambda: jax.jit(momentum_pattern, static_argnums=0)(T, np.asarray([0.5, 0.2])),
    "tokens": lambda: momentum_pattern(0, 0.5),
    "keys": lambda: momentum_pattern(3, 0.5, keys=4),
    "window": lambda: recent_pattern(T, 0),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(ValueError, match=what):
        REFUSED[what]()
