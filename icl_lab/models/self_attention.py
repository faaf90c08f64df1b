"""Attention as a part of any Flax module, whose inside ``traced`` then shows without the module's help."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.extend.core import get_opaque_trace_state
from jax.nn.initializers import Initializer, lecun_normal
from jax.typing import ArrayLike

from icl_lab.models.attention import ATTENTIONS, seen_pattern
from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened, keeps_share


class SelfAttention(nn.Module):
    """What the heads add to tokens: sum_h pattern_h(e W_q, e W_k) (e W_v) W_p; the caller adds it to its stream.

    ``w_q``, ``w_k`` and ``w_v`` are (H, E, K), ``w_p`` is (H, K, E), in row-vector convention; no biases.

    Attributes:
      heads: H.
      key_size: K; None means E / H, rounded down.
      attention: a name in ``ATTENTIONS``.
      causal: a token sees itself and those before it; otherwise all.
      initial: how weights are drawn; by default each head's with a variance of 1 over its inputs.
    """

    heads: int = 1
    key_size: int | None = None
    attention: str = "softmax"
    causal: bool = False
    initial: Initializer = lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0,))

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        """(T, E) tokens -> (T, E).

        Raises:
          ValueError: for fewer heads or channels of a key than 1, an unknown attention, or tokens of another rank.
        """
        if self.attention not in ATTENTIONS:
            raise ValueError(f"attention must be one of {sorted(ATTENTIONS)}, got {self.attention!r}")
        size = self.key_size or tokens.shape[-1] // max(self.heads, 1)
        if self.heads < 1 or size < 1 or tokens.ndim != 2:
            raise ValueError(f"need heads and key_size of at least 1 and tokens (T, E), got {self} of {tokens.shape}")
        into, out = (self.heads, tokens.shape[1], size), (self.heads, size, tokens.shape[1])
        q, k, v = (
            jnp.einsum("te,hek->htk", tokens, self.param(name, self.initial, into)) for name in ("w_q", "w_k", "w_v")
        )
        return self.head_output(self.patterns(q, k), v, self.param("w_p", self.initial, out)).sum(0)

    def patterns(self, queries: Array, keys: Array) -> Array:
        """(H, T, T) patterns of the heads; ``traced`` records and replaces them."""
        kind, t = ATTENTIONS[self.attention], keys.shape[1]
        if not self.causal:
            return jax.vmap(kind.pattern)(queries, keys)
        seen = jnp.tril(jnp.ones((t, t), bool))
        return jax.vmap(lambda q, k: seen_pattern(kind, q, k, seen))(queries, keys)

    def head_output(self, patterns: Array, values: Array, projection: Array) -> Array:
        """(H, T, E) what each head adds; ``traced`` records and replaces it."""
        return jnp.einsum("htn,hnk,hke->hte", patterns, values, projection)


FIELDS = {"patterns": "attention", "head_output": "head_output"}
"""Fields of a trace by the method that computes them."""


def observed(
    run: Callable[[], Array], intervention: Intervention | None = None, step: ArrayLike = 0
) -> tuple[Array, Trace | None]:
    """What a call of a Flax module gives, and the trace of every ``SelfAttention`` in it, in the order of the calls.

    The trace's ``residual`` is (L, T, E), what each attention reads. None where there is no attention.

    Raises:
      ValueError: for an intervention that does not fit (``check_intervention``), replaces the residual stream, which
        the module has to itself, or keeps a share where rows do not sum to one; for attentions of other shapes, or
        inside ``nn.remat``, ``nn.jit``, ``nn.scan`` or ``nn.vmap``.
    """
    outside = get_opaque_trace_state(convention="flax")
    fields: dict[str, list[Array]] = {"attention": [], "head_output": [], "residual": []}

    def interceptor(method: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        name = context.method_name
        if not isinstance(context.module, SelfAttention) or name not in (*FIELDS, "__call__"):
            return method(*args, **kwargs)
        if get_opaque_trace_state(convention="flax") != outside:
            raise ValueError(
                "an attention inside nn.remat, nn.jit, nn.scan or nn.vmap computes in a program of its own, into which "
                "traced cannot see; allowed is the network without it"
            )
        if name == "__call__":
            fields["residual"].append(args[0])
            if keeps_share(intervention) and not ATTENTIONS[context.module.attention].normalised:
                raise ValueError(f"a share is of rows that sum to one, not of {context.module.attention!r} attention")
            return method(*args, **kwargs)
        of_field = fields[FIELDS[name]]
        of_field.append(intervened(method(*args, **kwargs), FIELDS[name], len(of_field), intervention, step))
        return of_field[-1]

    if _replaces(intervention, "residual"):
        raise ValueError("residual: only networks that return (tokens, Trace) have a stream that can be replaced")
    with nn.intercept_methods(interceptor):
        value = run()
    check_intervention(intervention, len(fields["attention"]))
    if not fields["attention"]:
        return value, None
    if shapes := {
        name: {part.shape for part in parts} for name, parts in fields.items() if len({p.shape for p in parts}) > 1
    }:
        raise ValueError(f"a trace needs attentions of one shape, got {shapes}")
    return value, Trace(*(jnp.stack(parts) for parts in fields.values()))


def attending(run: Callable[[], Array]) -> tuple[Array, bool]:
    """What a call of a Flax module gives, and whether it calls ``SelfAttention``, be it inside ``nn.remat``."""
    calls = []

    def interceptor(method: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        calls.append(isinstance(context.module, SelfAttention))
        return method(*args, **kwargs)

    with nn.intercept_methods(interceptor):
        value = run()
    return value, any(calls)


def attends(network: nn.Module, tokens: Any) -> bool:
    """Whether a module ``tokens -> tokens`` computes with ``SelfAttention``; nothing is compiled."""
    counted = []

    def init(key: Array, tokens: Array) -> Array:
        value, found = attending(lambda: network.init_with_output(key, tokens)[0])
        counted.append(found)
        return value

    try:
        jax.eval_shape(init, jax.eval_shape(lambda: jax.random.key(0)), tokens)
    except TypeError:  # called with something else
        return False
    except AttributeError as error:  # of the tokens, which it takes for prompts
        if not isinstance(error.obj, Array):
            raise
        return False
    return counted[-1]


def _replaces(intervention: Intervention | None, name: str) -> bool:
    if intervention is None:
        return False
    return name in intervention.replace or any(_replaces(other, name) for other in intervention.also)
