"""Networks as learners: ``Prompt -> prediction``."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import errors
from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.inspection import Intervention, Trace, parameter_name
from icl_lab.models.self_attention import attending, observed
from icl_lab.models.transformer import Transformer
from icl_lab.prompts.layouts import Layout, joint_layout
from icl_lab.prompts.naming import called, sizes
from icl_lab.prompts.prompt import Learner, Prompt, ShapeError

NO_TRACE = "network {} must return (tokens, Trace), or be called with tokens and use SelfAttention"


def learner(network: nn.Module, params: dict, layout: Layout | None = None) -> Learner:
    """The in-context learner that a network with these parameters is.

    Args:
      network: a module ``(T, E) tokens -> ((T, E) tokens, Trace)``, or ``tokens -> tokens`` that uses
        ``SelfAttention``.
      params: the pytree of ``network.init``, learned or hand-built.
      layout: how prompts become tokens; None means joint tokens with W0 = 0.

    Returns:
      ``Prompt -> (O,)`` values, or what else the layout reads off the tokens: (L,) logits.

    Raises:
      ValueError: for a module that is called with something else, params that are no pytree of parameters, or a layout
        that is none; when it is called, for parameters of another network, a batch of prompts (``ShapeError``), or a
        network that returns something else.
    """
    run = traced(network, params, layout)
    if takes_interventions(network):
        return called(lambda prompt: run(prompt)[0], f"learner({type(network).__name__})")
    layout = check_layout(layout)

    def predict(prompt: Prompt) -> Array:  # looks at nothing inside, so it may be inside nn.remat
        tokens, _ = _tokens(network, params, layout, prompt)
        outputs, attends = attending(lambda: cast(Array, network.apply(params, tokens)))
        if not attends:
            raise ValueError(NO_TRACE.format(type(network).__name__))
        return layout.decode(outputs, prompt)

    return called(predict, f"learner({type(network).__name__})")


def traced(network: nn.Module, params: dict, layout: Layout | None = None) -> Callable[..., tuple[Array, Trace]]:
    """Like ``learner``, with the inside visible and open to intervention.

    Returns:
      ``(prompt, intervention=None, step=0) -> ((O,) prediction, Trace)``.

    Raises:
      ValueError: as ``learner``.
    """
    check_network_call(network)
    layout = check_layout(layout)
    if not isinstance(params, Mapping):
        raise ValueError(f"params must be the pytree of network.init, a dict; got {type(params).__name__}")

    def run(prompt: Prompt, intervention: Intervention | None = None, step: ArrayLike = 0) -> tuple[Array, Trace]:
        tokens, extra = _tokens(network, params, layout, prompt)
        if takes_interventions(network):
            outputs = network.apply(params, tokens, intervention, step, **extra)
        else:
            outputs = observed(lambda: cast(Array, network.apply(params, tokens)), intervention, step)
        if not isinstance(outputs, tuple) or len(outputs) != 2 or outputs[1] is None:
            raise ValueError(NO_TRACE.format(type(network).__name__))
        outputs, trace = cast(tuple[Array, Trace], outputs)
        return layout.decode(outputs, prompt), trace

    return run


def _tokens(network: nn.Module, params: dict, layout: Layout, prompt: Prompt) -> tuple[Array, dict[str, Any]]:
    """The tokens of a prompt and what the network must know beside them, for one that has these parameters."""
    tokens, extra = layout.encode(prompt), told(network, layout, prompt)
    check_params(network, params, tokens.shape)
    return tokens, extra


def takes_interventions(network: nn.Module) -> bool:
    """Whether a module is called with ``(tokens, intervention, step)``."""
    return not _refusal(network, None, None, 0)


def _refusal(network: nn.Module, *arguments: Any) -> str:
    """Why a module cannot be called with these arguments; empty where it can."""
    try:
        inspect.signature(network.__call__).bind(*arguments)
    except TypeError as error:
        return str(error)
    return ""


def told(network: nn.Module, layout: Layout, prompt: Prompt) -> dict[str, Any]:
    """What a network must know beside the tokens: the ``length`` of a padded context that they do not say.

    Raises:
      ValueError: for a network and a layout of which one is causal and the other is not, or a padded context that this
        network cannot be told of.
    """
    name, stack, causal = type(network).__name__, isinstance(network, Transformer), getattr(network, "causal", False)
    if (layout.causal and not causal) or (stack and (causal or layout.prefixes) != layout.causal):
        raise ValueError(
            f"layout and {name} must both be causal or neither; allowed are Transformer(causal=True) with "
            "causal_layout(), and alternating_layout(prefixes=True) with GPT"
        )
    if prompt.length is None or layout.causal or not (layout.length or stack):
        return {}
    if not (layout.length and stack):
        raise ValueError(f"{name}: a padded context (Prompt.length) needs a Transformer with joint_layout(), or GPT")
    return {"length": prompt.length}


def check_network_call(network: nn.Module) -> None:
    """ValueError for what is no Flax module that is called as those of this library are."""
    if not isinstance(network, nn.Module):
        name, reason = getattr(network, "__name__", type(network).__name__), "it is no instance of one"
        if isinstance(network, type) and issubclass(network, nn.Module):
            raise ValueError(f"network must be an instance, {name}(...); got the class {name}")
    else:
        name, reason = type(network).__name__, _refusal(network, None) and _refusal(network, None, None, 0)
    if reason:
        raise ValueError(
            "network must be a Flax module that is called with (tokens, intervention, step) and returns (tokens, "
            f"Trace), or with tokens and uses SelfAttention, got {name} ({reason}); allowed for any other is "
            "icl_lab.training.Model(init, predict)"
        )


def check_layout(layout: Layout | None) -> Layout:
    """The layout, joint tokens for None; ValueError for what is none."""
    if layout is not None and not isinstance(layout, Layout):
        raise ValueError(f"layout must be a Layout of icl_lab.prompts.layouts (joint_layout()) or None, got {layout!r}")
    return layout or joint_layout()


def check_params(network: nn.Module, params: Mapping[str, Any], tokens: tuple[int, ...]) -> None:
    """ShapeError for parameters that are not those of the network on tokens (T, E); says which differ."""
    try:
        allowed = {name: leaf.shape for name, leaf in _by_name(variables_of(network, tokens)).items()}
    except (TypeError, errors.FlaxError):  # a module that has no hash, or whose init wants more than a key
        return
    except AttributeError as error:
        message = f"network {type(network).__name__} must take tokens (T, E), got one that raised: {error}"
        raise ShapeError(f"{message}; a module that takes a Prompt is given as icl_lab.training.Model") from error
    given = _by_name(params)
    wrong = [
        f"{name} {sizes(given[name]) if name in given else 'missing'}, not {allowed.get(name, 'there')}"
        for name in dict.fromkeys([*allowed, *given])
        if name not in given or name not in allowed or jnp.shape(given[name]) != allowed[name]
    ]
    if wrong:
        of = f"{type(network).__name__} on tokens {tokens}"
        raise ShapeError(f"params are not those of this {of}: {'; '.join(wrong[:3])}{'; ...' * (len(wrong) > 3)}")


def variables_of(network: nn.Module, tokens: tuple[int, ...]) -> Mapping[str, Any]:
    """Shapes of what a network initialises on such tokens, by collection; kept where the network has a hash."""
    try:
        hash(network)
    except TypeError:
        return _variables.__wrapped__(network, tokens)
    return _variables(network, tokens)


@functools.lru_cache(maxsize=256)
def _variables(network: nn.Module, tokens: tuple[int, ...]) -> Mapping[str, Any]:
    return dict(jax.eval_shape(lambda: network.init(jax.random.key(0), jnp.zeros(tokens))))


def _by_name(params: Mapping[str, Any]) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(params.get("params", {}))
    return {parameter_name(path): leaf for path, leaf in leaves}
