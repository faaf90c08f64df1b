"""The blocks of one linear attention layer that its prediction can see (Zhang, Frei and Bartlett 2023, section 3)."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.tracing import check_number


def linear_attention_weights(
    u11: ArrayLike, u: ArrayLike, u12: ArrayLike | None = None, u21: ArrayLike | None = None
) -> dict:
    """Weights of the linear self-attention of Zhang, Frei and Bartlett 2023 with given blocks, all other entries 0.

        W_KQ = [[U11, 0], [u21^T, 0]],   W_PV = [[0, 0], [u12^T, u]]   (their columns; section 3)

    With both vectors 0 it predicts u h^T U11 x_q, h = (1/N) sum_i y_i x_i, where Gamma^{-1} = u U11 is what training
    on N examples reaches (Theorem 4.1).

    Args:
      u11: (D, D).
      u: scalar.
      u12: (D,), None for 0.
      u21: (D,), None for 0.

    Returns:
      ``{"params": {"w_kq", "w_pv"}}``, each (1, 1, D + 1, D + 1), of ``LinearSelfAttention(parametrisation="merged",
      query_as_key=True, averaged=True)``, to be read with ``joint_layout(sign=1)``. Rows are tokens: w_kq = W_KQ^T and
      w_pv = W_PV^T.

    Raises:
      ValueError: for shapes that do not fit.
    """
    for name, block in (("u11", u11), ("u", u), ("u12", u12), ("u21", u21)):
        if block is not None or name in ("u11", "u"):
            check_number(name, block)
    u11, u = jnp.asarray(u11, float), jnp.asarray(u, float)
    d = u11.shape[0] if u11.ndim else 0
    u12, u21 = (jnp.zeros(d) if vector is None else jnp.asarray(vector, float) for vector in (u12, u21))
    shapes = {"u11": u11.shape, "u": u.shape, "u12": u12.shape, "u21": u21.shape}
    if d < 1 or shapes != {"u11": (d, d), "u": (), "u12": (d,), "u21": (d,)}:
        raise ValueError(f"blocks must be u11 (D, D), u (), u12 (D,) and u21 (D,), got {shapes}")
    w_kq = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(u11.T).at[:d, d].set(u21)
    w_pv = jnp.zeros((d + 1, d + 1)).at[:d, d].set(u12).at[d, d].set(u)
    return {"params": {"w_kq": w_kq[None, None], "w_pv": w_pv[None, None]}}


def linear_attention_blocks(params: dict) -> dict[str, Array]:
    """The blocks of one merged layer with one head: the inverse of ``linear_attention_weights``.

    The other entries of w_kq and w_pv never reach the prediction: their gradient is 0.

    Args:
      params: ``{"params": {"w_kq", "w_pv"}}``, each (..., 1, 1, D + 1, D + 1); leading axes are members.

    Returns:
      ``u11`` (..., D, D), ``u`` (...), ``u12`` (..., D), ``u21`` (..., D).

    Raises:
      ValueError: for several layers or heads, or another parametrisation.
    """
    weights = params.get("params", {}) if isinstance(params, Mapping) else {}
    if set(weights) != {"w_kq", "w_pv"} or any(w.ndim < 4 or w.shape[-4:-2] != (1, 1) for w in weights.values()):
        shapes = {name: w.shape for name, w in weights.items()}
        raise ValueError(
            f"params must be those of one merged layer with one head (..., 1, 1, E, E), got {shapes or params!r}"
        )
    w_kq, w_pv = weights["w_kq"][..., 0, 0, :, :], weights["w_pv"][..., 0, 0, :, :]
    return {
        "u11": w_kq[..., :-1, :-1].swapaxes(-1, -2),
        "u": w_pv[..., -1, -1],
        "u12": w_pv[..., :-1, -1],
        "u21": w_kq[..., :-1, -1],
    }
