"""The learning rate is the smallest that is as good as any, and changes no more than demonstrations do."""

import numpy as np

from experiments.dai.rates import chosen_rate, rms_over_layers, smoothed

RATES = 7


def scores(means, spread=0.0, questions=400):
    """(R, I) with these means; the part of the spread that all rates share does not count."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(means), questions)) * spread
    noise -= noise.mean(1, keepdims=True)
    return np.asarray(means, float)[:, None] + noise + 5 * rng.normal(size=(1, questions))


def test_smoothing_keeps_constants_and_lines_inside():
    line = np.arange(6.0)[:, None] * np.ones((1, 3))
    found = smoothed(line)
    np.testing.assert_allclose(found[1:-1], line[1:-1], rtol=1e-12)
    np.testing.assert_allclose(found[[0, -1], 0], [1 / 3, 5 - 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(smoothed(np.full((4, 2), -3.0)), -3, rtol=1e-12)


def test_a_clear_best_is_taken_and_a_plateau_at_its_lower_end():
    everything = np.zeros(RATES)
    assert chosen_rate(scores([-3, -2.5, -2, -1, -2, -3, -4]), everything, 1.0).rate == 3
    plateau = scores([-3, -2, -1, -1, -1, -1, -2], spread=0.5)
    found = chosen_rate(plateau, everything, 1.0)
    assert found.rate == 3  # the first whose neighbours are good as well
    assert found.rate <= found.free <= 4


def test_one_lucky_rate_is_not_the_best():
    lucky = scores([-2, -1.9, -1.8, -1.9, -2, -2, -1.75])
    lucky[6] -= 0.5  # its neighbours are bad
    assert chosen_rate(lucky, np.zeros(RATES), 1.0).rate in (1, 2, 3)


def test_a_rate_that_changes_more_than_demonstrations_is_left_out():
    sizes = 10.0 ** np.arange(-3, 4)
    found = chosen_rate(scores([-7, -6, -5, -4, -3, -2, -1]), sizes, 0.5)
    assert (found.rate, found.free) == (2, 6)
    assert chosen_rate(scores([-7, -6, -5, -4, -3, -2, -1]), sizes, 1e-4).rate == 0  # every one changes more


def test_networks_that_diverged_are_never_chosen():
    broken = scores([-3, -2, -1, -2, -3, -4, -4])
    broken[4:] = np.nan
    sizes = np.where(np.arange(RATES) < 4, 0.1, np.nan)
    found = chosen_rate(broken, sizes, 1.0)
    assert found.rate < 3
    assert found.free < 3
    assert np.isfinite(smoothed(broken)).all()


def test_sizes_over_layers():
    np.testing.assert_allclose(rms_over_layers([[3.0, 4.0], [1.0, 1.0]]), [np.sqrt(12.5), 1], rtol=1e-12)
