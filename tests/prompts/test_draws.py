import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32
from scipy import stats

from icl_lab.prompts.draws import (
    BLOCK,
    QUANTILES,
    _centred,
    batch_first,
    block_last,
    block_shape,
    centred_uniforms,
    normals,
    threefry,
)

KEY = jax.random.key(11)
SIGMAS = 4  # standard errors


@pytest.fixture(scope="module")
def uniforms():
    """(rows, draws): the five rows of one drawing, of which the first three are first words, the others second ones."""
    drawn = jax.jit(centred_uniforms, static_argnums=1)(KEY, (100, 5, 4, BLOCK))
    assert drawn.dtype == jnp.float32
    return np.moveaxis(np.asarray(drawn, np.float64), 1, 0).reshape(5, -1)


@given(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=20))
def test_threefry_is_that_of_jax(words, counts):
    words, counts = (np.array(v, np.uint32) for v in (words, counts[: len(counts) // 2 * 2]))
    first, second = jax.jit(threefry)(words, *np.split(counts, 2))
    with jax.numpy_rank_promotion("allow"):
        expected = threefry_2x32(words, counts)
    np.testing.assert_array_equal(np.concatenate([first, second]), expected)


def test_uniforms_stay_inside_and_are_symmetric(uniforms):
    assert np.abs(uniforms).max() < 0.5
    cells = (uniforms + 0.5) * 2**22  # the middles of 2^22 cells: -u is as likely as u; 0 and -1/2 are never drawn
    np.testing.assert_array_equal(cells % 1, 0.5)


def test_uniforms_have_the_moments_of_the_law(uniforms):
    draws = uniforms.shape[1]
    for power, moment in ((1, 0), (2, 1 / 12), (3, 0), (4, 1 / 80)):
        spread = np.sqrt((0.5 ** (2 * power) / (2 * power + 1) - moment**2) / draws)
        assert np.abs((uniforms**power).mean(axis=1) - moment).max() < SIGMAS * spread


def test_uniforms_of_different_places_do_not_correlate(uniforms):
    rows = np.concatenate([uniforms, np.roll(uniforms, 1, axis=1), uniforms**2 - 1 / 12])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < SIGMAS / np.sqrt(uniforms.shape[1])
    assert np.unique(uniforms).size > uniforms.size * (1 - uniforms.size / 2**22)  # equal ones by chance only


@given(st.integers(1, 3 * BLOCK), st.integers(1, 3))
def test_blocks_hold_a_batch_in_order(batch, columns):
    blocks, tasks = block_shape(batch)
    assert blocks * tasks >= batch > (blocks - 1) * tasks
    values = np.arange(batch * columns, dtype=np.float32).reshape(batch, columns)
    divided, again = jax.jit(lambda v: (divided := block_last(v), batch_first(divided, batch)))(values)
    assert divided.shape == (blocks, columns, tasks)
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("law", QUANTILES)
def test_quantiles_are_those_of_the_law_and_finite_at_the_ends(law):
    known = {"uniform": stats.uniform(-0.5), "exponential": stats.expon, "laplace": stats.laplace, "normal": stats.norm}
    centred = np.linspace(-0.49, 0.49, 99, dtype=np.float32)
    np.testing.assert_allclose(QUANTILES[law](centred), known[law].ppf(centred + 0.5), atol=2e-6, rtol=2e-6)
    ends = _centred(jnp.uint32([0, 2**32 - 1]))
    assert -0.5 < ends[0] == -ends[1]
    assert np.isfinite(QUANTILES[law](ends)).all()


def test_normals_are_standard_and_independent():
    drawn = jax.jit(normals, static_argnums=1)(KEY, (401, 251))  # odd: the last pair is cut
    assert drawn.shape == (401, 251)
    assert drawn.dtype == jnp.float32
    values = np.asarray(drawn, np.float64).ravel()
    half = -(-values.size // 2)
    pairs = np.stack([values[: half - 1], values[half:]])
    assert stats.kstest(values, "norm").pvalue > 1e-4
    squared = (pairs**2).sum(0)
    assert stats.kstest(squared, "chi2", (2,)).pvalue > 1e-4
    assert stats.kstest(np.arctan2(pairs[1], pairs[0]), "uniform", (-np.pi, 2 * np.pi)).pvalue > 1e-4
    rows = np.concatenate([pairs, np.roll(pairs, 1, axis=1), pairs**2 - 1])
    assert np.abs(np.corrcoef(rows) - np.eye(6)).max() < SIGMAS / np.sqrt(half)
