from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import alternating_layout, content_layout, item_label_layout, separate_layout
from icl_lab.prompts.positions import one_hot_positions, sinusoidal_positions

PROMPT = Prompt(x=jnp.array([[1.0, 2.0], [3.0, 4.0]]), y=jnp.array([[5.0], [6.0]]), x_query=jnp.array([7.0, 8.0]))


def test_separate_tokens_alternate_and_hold_the_label_in_the_last_content_channel():
    tokens = separate_layout(5, "one_hot").encode(PROMPT)
    assert np.array_equal(tokens[:, :2], [[1, 2], [0, 5], [3, 4], [0, 6], [7, 8]])
    assert np.array_equal(tokens[:, 2:], np.eye(5))


def test_the_read_out_is_minus_the_last_position_channel_or_minus_the_label_channel_of_the_query():
    tokens = jnp.arange(40.0).reshape(5, 8)
    assert np.array_equal(separate_layout(6, readout="position").decode(tokens, PROMPT), [-39.0])
    assert np.array_equal(separate_layout(6, readout="label").decode(tokens, PROMPT), [-33.0])


def test_sinusoidal_positions_are_sines_in_even_and_cosines_in_odd_channels_of_base_10000():
    positions = sinusoidal_positions(21, 4)
    t = np.arange(21)
    np.testing.assert_allclose(positions, np.stack([np.sin(t), np.cos(t), np.sin(t / 100), np.cos(t / 100)], axis=1))
    assert separate_layout(4).encode(PROMPT)[3, 2] == pytest.approx(np.sin(3))


def test_the_next_token_is_a_linear_map_of_sinusoidal_positions_but_even_tokens_are_not():
    positions = sinusoidal_positions(21, 10)
    residual = lambda target: np.linalg.lstsq(positions[:-1], target, rcond=None)[1]  # noqa: E731
    assert np.all(residual(positions[1:]) < 1e-20)
    assert residual((-1.0) ** np.arange(20)) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"position_size": 9}, "even position_size"),
        ({"position_size": 0}, "even position_size"),
        ({"position_size": 0, "positions": "one_hot"}, "at least 1"),
        ({"position_size": 10, "positions": "learned"}, "positions must be one of"),
        ({"position_size": 10, "readout": "content"}, "readout must be"),
    ],
)
def test_layouts_that_no_prompt_could_have_are_refused_at_once(arguments, said):
    with pytest.raises(ValueError, match=said):
        separate_layout(**arguments)


def test_prompts_that_do_not_fit_separate_tokens_are_refused():
    with pytest.raises(ValueError, match="position_size of at least 5, got 4"):
        separate_layout(4, "one_hot").encode(PROMPT)
    with pytest.raises(ValueError, match="one output, got 2"):
        separate_layout(6).encode(replace(PROMPT, y=jnp.ones((2, 2))))
    with pytest.raises(ValueError, match="even position_size"):
        sinusoidal_positions(3, 3)
    with pytest.raises(ValueError, match="at least 3, got 2"):
        one_hot_positions(3, 2)


def test_alternating_tokens_are_inputs_and_labels_in_the_first_channel_and_the_read_out_is_the_last_token():
    layout = alternating_layout()
    assert np.array_equal(layout.encode(PROMPT), [[1, 2], [5, 0], [3, 4], [6, 0], [7, 8]])
    assert np.array_equal(layout.decode(jnp.arange(5.0)[:, None], PROMPT), [4.0])
    with pytest.raises(ValueError, match="one output, got 2"):
        layout.encode(replace(PROMPT, y=jnp.ones((2, 2))))


def test_item_label_tokens_are_contents_in_order_behind_one_hot_positions_from_the_offset_on():
    prompt = replace(PROMPT, y=10 * PROMPT.x, offset=jnp.int32(2))
    contents = [[1, 2], [10, 20], [3, 4], [30, 40], [7, 8]]
    assert np.array_equal(content_layout().encode(prompt), contents)
    layout = item_label_layout(8)
    tokens = layout.encode(prompt)
    assert np.array_equal(tokens[:, 8:], contents)
    assert np.array_equal(tokens[:, :8], np.eye(8)[2:7])
    assert np.array_equal(layout.encode(replace(prompt, offset=None))[:, :8], np.eye(8)[:5])
    logits = jnp.arange(3.0)
    assert layout.decode(logits, prompt) is logits
    assert content_layout().decode(logits, prompt) is logits
    with pytest.raises(ValueError, match=r"slots must be at least 2N \+ 1 = 5, got 4"):
        item_label_layout(4).encode(prompt)
    with pytest.raises(ValueError, match="slots must be a whole number of at least 1, got 0"):
        item_label_layout(0)
