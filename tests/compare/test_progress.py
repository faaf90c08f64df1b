"""The progress measures against what uniform attention and a perfect induction head must give."""

import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.compare import progress_measures

N, LABELS = 4, 16
CONTEXT = jnp.array([3, 7, 1, 12])
MATCH = jnp.array([False, False, True, False])


def causal(scores: np.ndarray) -> np.ndarray:
    weights = np.tril(np.exp(scores))
    return weights / weights.sum(1, keepdims=True)


def test_uniform_attention_gives_the_values_of_the_paper():
    uniform = causal(np.zeros((2 * N + 1, 2 * N + 1)))
    found = progress_measures(jnp.asarray(np.stack([uniform, uniform])[:, None]), jnp.zeros(LABELS), CONTEXT, MATCH)
    expected: dict[str, float] = {
        "ila1": float(np.mean([1 / (2 * i) for i in range(1, N + 1)])),
        "tila2": 1 / (2 * N + 1),
        "tla2": N / (2 * N + 1),
        "cla": 0,  # the first of equal logits is label 0
        "cla_mass": N / LABELS,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_an_induction_head_has_all_of_them_and_nothing_is_read_off_other_entries():
    """Layer 1 label to its item, layer 2 target to the right label; every other entry is noise."""
    noise = np.random.default_rng(0).random((2, 2, 2 * N + 1, 2 * N + 1))
    for i in range(N):
        noise[0, :, 2 * i + 1, 2 * i] = 1
        noise[1, :, -1, 2 * i + 1] = MATCH[i]
    logits = jnp.zeros(LABELS).at[12].set(50)
    found = progress_measures(jnp.asarray(noise), logits, CONTEXT, MATCH)
    assert all(found[name] == pytest.approx(1) for name in ("ila1", "tila2", "tla2", "cla", "cla_mass")), found


def test_labels_that_repeat_count_once_and_heads_are_averaged():
    attention = np.zeros((2, 2, 2 * N + 1, 2 * N + 1))
    attention[1, 0, -1, [1, 5]] = 0.5  # the first of two heads
    twice, match = jnp.array([3, 7, 3, 7]), jnp.array([True, False, True, False])
    found = progress_measures(jnp.asarray(attention), jnp.zeros(LABELS), twice, match)
    assert found["tila2"] == pytest.approx(0.5)
    assert found["cla_mass"] == pytest.approx(2 / LABELS)


def test_another_number_of_tokens_is_refused():
    with pytest.raises(AssertionError):
        progress_measures(jnp.zeros((2, 1, N + 1, N + 1)), jnp.zeros(LABELS), CONTEXT, MATCH)
