"""How a prompt becomes tokens, and how the answer is read off the last layer."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from icl_lab.prompts.positions import POSITIONS
from icl_lab.prompts.prompt import Prompt, all_inputs, check_prompt
from icl_lab.prompts.tracing import check_sizes


class Layout(NamedTuple):
    """A way to write prompts as tokens.

    Attributes:
      encode: ``Prompt -> (T, E)`` tokens; the query is the last token.
      decode: ``((T, E) tokens of the last layer, Prompt) -> (O,)`` prediction; it reads the last token only. Logits
        (L,), where the output of the network is the prediction, pass as they are.
      joint_sign: the sign of ``joint_layout`` where W0 = 0, 0 for any other layout: of such tokens ``batch_learner``
        computes only the query's label channels in the last layer.
      prefixes: ``decode`` gives a prediction for every prefix of the context, (N + 1, O), that for the query last.
      causal: N context tokens, then a query token for each of the N + 1 prefixes: for ``Transformer(causal=True)``,
        whose queries see the examples before them.
      length: the tokens do not say how many of them are examples; a padded context needs a network that is told.
      encode_tasks: ``encode`` of tasks that are the last axis of all parts, -> (T, E, tasks): the same numbers without
        transposing tokens, for ``batch_learner``; None: it transposes.
    """

    encode: Callable[[Prompt], Array]
    decode: Callable[[Array, Prompt], Array]
    joint_sign: int = 0
    encode_tasks: Callable[[Prompt], Array] | None = None
    prefixes: bool = False
    causal: bool = False
    length: bool = False


def joint_layout(w0: Array | None = None, sign: int = -1) -> Layout:
    """Joint tokens e_j = (x_j, y_j), query token (x_q, -W0 x_q), prediction = ``sign`` times its y-block.

    von Oswald et al. 2022, section 2 and Proposition 1, and Ahn et al. 2023 read minus the y-block; Zhang, Frei and
    Bartlett 2023, and Zhang et al. 2025 the y-block. ``E = D + O``, ``T = N + 1``.

    Args:
      w0: (D, O) initial weights of the gradient descent that the tokens carry; None means W0 = 0 (the paper's setting),
        where the query token is (x_q, 0).
      sign: -1 or 1.

    Raises:
      ValueError: for another sign, or W0 with sign 1: the tokens carry minus what they predict.
    """
    if sign not in (-1, 1):
        raise ValueError(f"sign must be -1 or 1, got {sign}")
    if sign == 1 and w0 is not None:
        raise ValueError("w0 needs sign=-1: the tokens carry minus what they predict")

    def encode(prompt: Prompt) -> Array:
        check_prompt(prompt, padded=True)
        return encode_tasks(prompt)

    def encode_tasks(prompt: Prompt) -> Array:
        start = jnp.zeros(prompt.y.shape[1:], prompt.y.dtype) if w0 is None else -prompt.x_query @ w0
        context = jnp.concatenate([prompt.x, prompt.y], axis=1)  # (N, D + O)
        query = jnp.concatenate([prompt.x_query, start])  # (D + O,)
        return jnp.concatenate([context, query[None]], axis=0)

    def decode(tokens: Array, prompt: Prompt) -> Array:
        return sign * tokens[-1, -prompt.y.shape[1] :]  # after an embedding too, its last channels are the label's

    fast = Layout(encode, decode, sign, encode_tasks, length=True)
    return fast if w0 is None else fast._replace(joint_sign=0, encode_tasks=None)


def causal_layout(sign: int = -1) -> Layout:
    """Joint tokens for every prefix: e_1, .., e_N, then query tokens (x_1, 0), .., (x_N, 0), (x_query, 0).

    Of ``Transformer(causal=True)``, where example j sees the first j examples and query k the first k, one pass
    predicts all prefixes k = 0 .. N: a layer does for each what it does on a prompt that ends there (``joint_layout``).
    ``E = D + O``, ``T = 2N + 1``.

    Args:
      sign: the prediction is ``sign`` times a query's y-block, as in ``joint_layout``.

    Raises:
      ValueError: for another sign than -1 or 1.
    """
    if sign not in (-1, 1):
        raise ValueError(f"sign must be -1 or 1, got {sign}")

    def encode(prompt: Prompt) -> Array:
        check_prompt(prompt, padded=True)
        return encode_tasks(prompt)

    def encode_tasks(prompt: Prompt) -> Array:
        queries = all_inputs(prompt)
        silent = jnp.zeros((len(queries), *prompt.y.shape[1:]), prompt.y.dtype)
        pairs = ([prompt.x, prompt.y], [queries, silent])
        return jnp.concatenate([jnp.concatenate(pair, axis=1) for pair in pairs], axis=0)

    def decode(tokens: Array, prompt: Prompt) -> Array:
        n, o = prompt.y.shape
        return sign * tokens[-n - 1 :, -o:]

    return Layout(encode, decode, encode_tasks=encode_tasks, prefixes=True, causal=True)


def separate_layout(position_size: int, positions: str = "sinusoidal", readout: str = "position") -> Layout:
    """Separate tokens x_1, (0, .., 0, y_1), x_2, .., (0, .., 0, y_N), x_q, each followed by its positional encoding.

    ``E = D + position_size``, ``T = 2N + 1``: x_j is token 2j - 2, y_j token 2j - 1, counted from 0. The label shares
    the last content channel, D - 1, with the last coordinate of the inputs. von Oswald et al. 2022, section 5 and
    Proposition 3; the released code has ten sinusoidal channels and reads the last of them.

    Args:
      position_size: channels of the positional encoding.
      positions: ``sinusoidal`` or ``one_hot``.
      readout: the prediction is minus the last channel (``position``, the released code) or minus the channel of the
        labels, D - 1 (``label``), of the query token.

    Raises:
      ValueError: for an unknown choice or an odd size of sinusoidal positions; when a prompt is encoded, for more than
        one output or fewer one-hot positions than tokens.
    """
    if positions not in POSITIONS:
        raise ValueError(f"positions must be one of {sorted(POSITIONS)}, got {positions!r}")
    if readout not in ("position", "label"):
        raise ValueError(f"readout must be 'position' or 'label', got {readout!r}")
    POSITIONS[positions](1, position_size)  # refuses a size that no prompt could have

    def encode(prompt: Prompt) -> Array:
        check_prompt(prompt)
        return encode_tasks(prompt)

    def encode_tasks(prompt: Prompt) -> Array:
        (n, d, *tasks), o = prompt.x.shape, prompt.y.shape[1]
        if o != 1:
            raise ValueError(f"separate tokens hold one output, got {o}")
        labels = jnp.concatenate([jnp.zeros((n, d - 1, *tasks), prompt.y.dtype), prompt.y], axis=1)  # (N, D)
        context = jnp.stack([prompt.x, labels], axis=1).reshape(2 * n, d, *tasks)
        content = jnp.concatenate([context, prompt.x_query[None]], axis=0)
        encoding = jnp.asarray(POSITIONS[positions](2 * n + 1, position_size), content.dtype)
        encoding = jnp.broadcast_to(encoding.reshape(*encoding.shape, *(1 for _ in tasks)), (*encoding.shape, *tasks))
        return jnp.concatenate([content, encoding], axis=1)

    def decode(tokens: Array, prompt: Prompt) -> Array:
        channel = tokens.shape[1] if readout == "position" else prompt.x.shape[1]
        return -tokens[-1, channel - 1 : channel]

    return Layout(encode, decode, encode_tasks=encode_tasks)


def alternating_layout(prefixes: bool = False) -> Layout:
    """Alternating tokens x_1, (y_1, 0, .., 0), x_2, .., (y_N, 0, .., 0), x_q; prediction = last token's read-out.

    ``E = D``, ``T = 2N + 1``: x_j is token 2j - 2, its label token 2j - 1, counted from 0. Of a causal network the
    read-outs at tokens 0, 2, .., 2N are the predictions of all prefixes. Garg et al. 2022, section 2; Zhang, Frei &
    Bartlett 2023, section 6.

    Args:
      prefixes: all of them are read, (N + 1, 1), instead of the last.

    Raises:
      ValueError: when a prompt of more than one output is encoded.
    """

    def encode(prompt: Prompt) -> Array:
        n, d, o = check_prompt(prompt, padded=True)
        if o != 1:
            raise ValueError(f"alternating tokens hold one output, got {o}")
        labels = jnp.concatenate([prompt.y, jnp.zeros((n, d - 1), prompt.y.dtype)], axis=1)  # (N, D)
        inputs = all_inputs(prompt)
        context = jnp.stack([inputs[:-1], labels], axis=1).reshape(2 * n, d)
        return jnp.concatenate([context, inputs[-1:]], axis=0)

    def decode(tokens: Array, prompt: Prompt) -> Array:
        if prefixes:
            return tokens[::2]
        return tokens[-1] if prompt.length is None else tokens[2 * prompt.length]

    return Layout(encode, decode, prefixes=prefixes)


def content_layout() -> Layout:
    """Item and label contents x_1, y_1, x_2, .., y_N, x_q alone, tokens (2N + 1, D), of one width (Reddy 2023, eq. 4).

    The network's output is the prediction: (L,) logits.
    """

    def encode(prompt: Prompt) -> Array:
        n, d, _ = check_prompt(prompt)
        items = jnp.concatenate([prompt.x, prompt.x_query[None]], axis=0)
        labels = jnp.pad(prompt.y, ((0, 1), (0, 0)))  # one more, which is cut off: the query has none
        return jnp.stack([items, labels], axis=1).reshape(2 * n + 2, d)[:-1]

    return Layout(encode, lambda logits, prompt: logits)


def item_label_layout(slots: int) -> Layout:
    """Item and label contents after one-hot positions, tokens (2N + 1, P + D) (Reddy 2023, section 2).

    Token i has position slot offset + i, which the first P dimensions hold; a prompt without offset starts at slot 0.
    The network's output is the prediction: (L,) logits.

    Args:
      slots: P, number of position slots.

    Raises:
      ValueError: for fewer than one slot; when a prompt is encoded, for fewer slots than tokens.
    """
    (slots,) = check_sizes(slots=slots)
    contents = content_layout()

    def encode(prompt: Prompt) -> Array:
        content = contents.encode(prompt)  # (T, D)
        tokens = content.shape[0]
        if tokens > slots:
            raise ValueError(f"slots must be at least 2N + 1 = {tokens}, got {slots}")
        first = 0 if prompt.offset is None else prompt.offset
        positions = (first + jnp.arange(tokens))[:, None] == jnp.arange(slots)[None]
        return jnp.concatenate([positions.astype(content.dtype), content], axis=1)

    return Layout(encode, contents.decode)
