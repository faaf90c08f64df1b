"""A copy layer before gradient descent, as weights (von Oswald et al. 2022, Prop. 3)."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icl_lab.prompts.tracing import check_number, check_sizes


def copy_then_gradient_descent_weights(
    learning_rate: ArrayLike, *, context_length: int, input_size: int, position_size: int, attention: str = "softmax"
) -> dict:
    """Two layers of one head on separate tokens: the first copies y_j to x_j, the second is one gradient step.

    The first layer looks by position: x_j and y_j both attend to y_j alone and write it into a label slot, the channel
    that marks the query's position, which is zero on every context token. The second is ``gradient_descent_weights``
    on (x_j, slot), up to one entry. Proposition 3 of von Oswald et al. 2022 has a second head, which erases the
    y-tokens after they were copied, because they too have a key, y_j in the channel that they share with x_j. Here they
    cancel instead (this lab): with (1, -1/2) of (content, slot) as that channel of every key, x_j has the key
    x_jD - y_j/2 and the y-token y_j - y_j/2, both have the value y_j, and

        (x_jD - y_j/2) y_j + (y_j - y_j/2) y_j = x_jD y_j.

    Rows of a softmax sum to one: a token cannot copy nothing. That y_j copies itself is what makes one softmax head
    enough. It does take positions that tell x- from y-tokens. A head that copies the next token for all of them leaves
    a loss above that of the gradient step: ``icl_lab.theory.gradient_descent.copy_everything``.

    For ``Transformer(layers=2, attention=(attention, "linear"))`` and ``separate_layout(position_size, "one_hot")``.

    Args:
      learning_rate: eta, a scalar.
      context_length: N.
      input_size: D.
      position_size: at least 2N + 2: a position for every token, and a free last channel for the prediction.
      attention: of the first layer, ``softmax`` or ``linear``; the logits of softmax are 1000 apart, which leaves
        exp(-1000) = 0 for all tokens but one.

    Returns:
      ``{"params": {"w_q", "w_k", "w_v", "w_p"}}``, each (2, 1, E, E) with E = D + position_size.

    Raises:
      ValueError: for too few positions or another attention.
    """
    n, d, position_size = check_sizes(context_length=context_length, input_size=input_size, position_size=position_size)
    check_number("learning_rate", learning_rate, scalar=True)
    width = d + position_size
    if position_size < 2 * n + 2:
        raise ValueError(f"copying needs a position_size of at least 2N + 2 = {2 * n + 2}, got {position_size}")
    if attention not in ("softmax", "linear"):
        raise ValueError(f"attention must be 'softmax' or 'linear', got {attention!r}")
    score = 1.0 if attention == "linear" else 1000 * width**0.5
    label, slot, prediction = d - 1, d + 2 * n, width - 1
    y_tokens = d + 1 + 2 * jnp.arange(n)  # position channels of y_1, .., y_N
    on_x = jnp.diag((jnp.arange(width) < d).astype(float))
    zero = jnp.zeros((width, width))
    copy = {
        "w_q": zero.at[y_tokens - 1, y_tokens].set(score).at[y_tokens, y_tokens].set(score),
        "w_k": jnp.eye(width) - on_x,
        "w_v": zero.at[label, slot].set(1),
        "w_p": zero.at[slot, slot].set(1),
    }
    step = {
        "w_q": on_x,
        "w_k": on_x.at[slot, label].set(-0.5),
        "w_v": zero.at[slot, prediction].set(-1),
        "w_p": zero.at[prediction, prediction].set(jnp.asarray(learning_rate, float) / n),
    }
    return {"params": {name: jnp.stack([copy[name], step[name]])[:, None] for name in copy}}
