"""Networks as learners: ``Prompt -> prediction``."""

import inspect
from collections.abc import Callable
from typing import Any, cast

from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.inspection import Intervention, Trace
from icl_lab.models.self_attention import observed
from icl_lab.models.transformer import Transformer
from icl_lab.prompts.layouts import Layout, joint_layout
from icl_lab.prompts.prompt import Learner, Prompt


def learner(network: nn.Module, params: dict, layout: Layout | None = None) -> Learner:
    """The in-context learner that a network with these parameters is.

    Args:
      network: a module ``(T, E) tokens -> ((T, E) tokens, Trace)``, or ``tokens -> tokens`` that uses
        ``SelfAttention``.
      params: the pytree of ``network.init``, learned or hand-built.
      layout: how prompts become tokens; None means joint tokens with W0 = 0.

    Returns:
      ``Prompt -> (O,)`` values, or what else the layout reads off the tokens: (L,) logits.
    """
    run = traced(network, params, layout)
    return lambda prompt: run(prompt)[0]


def traced(network: nn.Module, params: dict, layout: Layout | None = None) -> Callable[..., tuple[Array, Trace]]:
    """Like ``learner``, with the inside visible and open to intervention.

    Returns:
      ``(prompt, intervention=None, step=0) -> ((O,) prediction, Trace)``.

    Raises:
      ValueError: when it is called, for a network that returns something else.
    """
    layout = layout or joint_layout()

    def run(prompt: Prompt, intervention: Intervention | None = None, step: ArrayLike = 0) -> tuple[Array, Trace]:
        tokens, extra = layout.encode(prompt), told(network, layout, prompt)
        if takes_interventions(network):
            found = network.apply(params, tokens, intervention, step, **extra)
        else:
            found = observed(lambda: cast(Array, network.apply(params, tokens)), intervention, step)
        if not isinstance(found, tuple) or len(found) != 2 or found[1] is None:
            name = type(network).__name__
            raise ValueError(f"{name} must return (tokens, Trace), or be called with tokens and use SelfAttention")
        found, trace = cast(tuple[Array, Trace], found)
        return layout.decode(found, prompt), trace

    return run


def takes_interventions(network: nn.Module) -> bool:
    """Whether a module is called with ``(tokens, intervention, step)``."""
    try:
        inspect.signature(network.__call__).bind(None, None, 0)
    except TypeError:
        return False
    return True


def told(network: nn.Module, layout: Layout, prompt: Prompt) -> dict[str, Any]:
    """What a network must know beside the tokens: the ``length`` of a padded context that they do not say.

    Raises:
      ValueError: for a network and a layout of which one is causal and the other is not, or a padded context that this
        network cannot be told of.
    """
    name, stack = type(network).__name__, isinstance(network, Transformer)
    if getattr(network, "causal", False) != layout.causal or (stack and layout.prefixes and not layout.causal):
        raise ValueError(
            f"layout and {name} must both be causal or neither; allowed are Transformer(causal=True) with "
            "causal_layout(), and alternating_layout(prefixes=True) with GPT"
        )
    if prompt.length is None or layout.causal or not (layout.length or stack):
        return {}
    if not (layout.length and stack):
        raise ValueError(f"{name}: a padded context (Prompt.length) needs a Transformer with joint_layout(), or GPT")
    return {"length": prompt.length}
