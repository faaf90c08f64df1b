"""Weights written by hand, in the same pytree as ``network.init`` (von Oswald et al. 2022, Prop. 1 and section 3)."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def gradient_descent_weights(
    learning_rates: ArrayLike, *, context_length: int, input_size: int, output_size: int = 1, w0: Array | None = None
) -> dict:
    """One-head LSA weights whose layer k is one gradient-descent step with learning rate eta_k (Proposition 1).

    The loss is L(W) = 1/(2N) sum_i |W^T x_i - y_i|^2 over the context; instead of W the layer moves the labels,
    y_j <- y_j - dW^T x_j.

    Args:
      learning_rates: eta: a scalar or (1,) gives one weight set (one layer, or a looped stack), (L,) one set a layer.
      context_length: N.
      input_size: D.
      output_size: O.
      w0: (D, O) weights from which gradient descent starts, None for zero; use it with ``joint_layout(w0)``.

    Returns:
      ``{"params": {"w_q", "w_k", "w_v", "w_p"}}``, each (S, 1, D + O, D + O), for ``parametrisation="separate"``.
    """
    return gd_plus_plus_weights(
        learning_rates,
        jnp.zeros_like(jnp.asarray(learning_rates, float)),
        context_length=context_length,
        input_size=input_size,
        output_size=output_size,
        w0=w0,
    )


def gd_plus_plus_weights(
    learning_rates: ArrayLike,
    gammas: ArrayLike,
    *,
    context_length: int,
    input_size: int,
    output_size: int = 1,
    w0: Array | None = None,
) -> dict:
    """One-head LSA weights whose layer k is one GD++ step (eta_k, gamma_k): von Oswald et al. 2022, section 3 and A.10.

    Beside the label update of ``gradient_descent_weights`` every token's input moves by
    x_j <- (I - gamma X^T X) x_j, with X^T X the *sum* over the context of x_i x_i^T.

    Args:
      learning_rates: eta, scalar or (S,).
      gammas: gamma, scalar or (S,).
      context_length: N.
      input_size: D.
      output_size: O.
      w0: (D, O) start of gradient descent, None for zero. With w0 the construction is exact for any number of steps
        only when gamma = 0: the labels start as y - W0^T x, and GD++ moves x as well.

    Returns:
      ``{"params": {"w_q", "w_k", "w_v", "w_p"}}``, each (S, 1, D + O, D + O).

    Raises:
      ValueError: if the two do not broadcast to one (S,).
    """
    eta, gamma = jnp.broadcast_arrays(jnp.atleast_1d(jnp.asarray(learning_rates, float)), jnp.asarray(gammas, float))
    if eta.ndim != 1:
        raise ValueError(f"learning_rates and gammas must be scalars or (S,), got shape {eta.shape}")
    d, o, sets = input_size, output_size, eta.shape[0]
    on_x = jnp.concatenate([jnp.ones(d), jnp.zeros(o)])
    value = jnp.diag(jnp.concatenate([jnp.ones(d), -jnp.ones(o)]))  # (x, y) -> (x, W0^T x - y)
    if w0 is not None:
        value = value.at[:d, d:].set(w0)
    out_x = jnp.outer(gamma, on_x)
    out_y = jnp.outer(eta / context_length, 1 - on_x)
    projection = jnp.eye(d + o)[None] * (out_y - out_x)[:, None, :]
    stack = lambda matrix: jnp.broadcast_to(matrix, (sets, 1, d + o, d + o))  # noqa: E731
    return {
        "params": {
            "w_q": stack(jnp.diag(on_x)),
            "w_k": stack(jnp.diag(on_x)),
            "w_v": stack(value),
            "w_p": projection[:, None],
        }
    }


def functional_gradient_descent_weights(
    features: Mapping[str, Array], learning_rates: ArrayLike, *, context_length: int, output_size: int = 1
) -> dict:
    """LSA weights behind an embedding with MLP whose layer k is one step of functional gradient descent.

    Tokens (x, y) become (m(x), y) and the layers are those of ``gradient_descent_weights`` on F features, so that the
    prediction is that of ``functional_gradient_descent(feature_kernel(embedding_features(features)), learning_rates)``.
    Embedding and MLP are block-diagonal: features never see the label, and the label passes both unchanged (von Oswald
    et al. 2022, section 4.1 and A.8).

    Args:
      features: weights of m as ``icl_lab.models.kernels.embedding_features`` takes them: ``embedding`` (D, F) alone, or
        with ``embedding_mlp_in`` (F, H), ``embedding_mlp_out`` (H, F), ``embedding_mlp_in_bias`` (H,) and
        ``embedding_mlp_out_bias`` (F,).
      learning_rates: eta, a scalar, (1,) or (L,).
      context_length: N.
      output_size: O.

    Returns:
      The pytree of ``LinearSelfAttention(embedding=F + O, embedding_mlp=H or 0)``.

    Raises:
      ValueError: if the MLP's weights are incomplete, or shapes do not fit together.
    """
    width = features["embedding"].shape[1]
    hidden = features["embedding_mlp_in"].shape[-1] if "embedding_mlp_in" in features else 0
    mlp = {"in": (width, hidden), "out": (hidden, width), "in_bias": (hidden,), "out_bias": (width,)}
    shapes: dict[str, tuple[int, ...]] = {"embedding": (features["embedding"].shape[0], width)}
    shapes |= {f"embedding_mlp_{part}": shape for part, shape in mlp.items()} if len(features) > 1 else {}
    if {name: value.shape for name, value in features.items()} != shapes:
        raise ValueError(f"features must have shapes {shapes}, got { {k: v.shape for k, v in features.items()} }")
    layers = gradient_descent_weights(
        learning_rates, context_length=context_length, input_size=width, output_size=output_size
    )
    o = output_size
    label = {"embedding": ((0, o), (0, o)), "in": ((0, o), (0, 0)), "out": ((0, 0), (0, o)), "out_bias": ((0, o),)}
    built = {
        name: jnp.pad(value, label.get(name.removeprefix("embedding_mlp_"), 0)) for name, value in features.items()
    }
    built["embedding"] = built["embedding"].at[-o:, -o:].set(jnp.eye(o))
    return {"params": layers["params"] | built}


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
    a loss above that of the gradient step: ``icl_lab.theory.copy_everything``.

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
    n, d, width = context_length, input_size, input_size + position_size
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
