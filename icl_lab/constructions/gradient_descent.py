"""Gradient descent and GD++ as weights (von Oswald et al. 2022, Prop. 1, section 3 and A.8)."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.tracing import check_number, check_sizes


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
        learning_rates, 0.0, context_length=context_length, input_size=input_size, output_size=output_size, w0=w0
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
      ValueError: if the two do not broadcast to one (S,), for a context without examples, sizes below 1, or a w0 of
        another shape.
    """
    check_number("context_length", context_length, at_least=1)
    check_number("learning_rates", learning_rates)
    check_number("gammas", gammas)
    input_size, output_size = check_sizes(input_size=input_size, output_size=output_size)
    if w0 is not None and np.shape(w0) != (input_size, output_size):
        raise ValueError(f"w0 must be (D, O) = ({input_size}, {output_size}), got {np.shape(w0)}")
    shape = jnp.broadcast_shapes((1,), np.shape(learning_rates), np.shape(gammas))
    if len(shape) != 1:
        raise ValueError(f"learning_rates and gammas must be scalars or (S,), got shape {shape}")
    eta, gamma = (jnp.broadcast_to(jnp.asarray(values, float), shape) for values in (learning_rates, gammas))
    return _gd_plus_plus_weights(eta, gamma, w0, context_length, input_size, output_size)


@partial(jax.jit, static_argnums=(4, 5))  # built outside other programs, its parts would be compiled one by one
def _gd_plus_plus_weights(eta: Array, gamma: Array, w0: Array | None, context_length: Array, d: int, o: int) -> dict:
    sets = eta.shape[0]
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
    """LSA weights after an embedding with MLP whose layer k is one step of functional gradient descent.

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
    if not isinstance(features, Mapping) or getattr(features.get("embedding"), "ndim", 0) != 2:
        raise ValueError(f"features must be a dict of weights with an embedding (D, F), got {type(features).__name__}")
    (output_size,) = check_sizes(output_size=output_size)
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
