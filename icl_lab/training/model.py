"""What is trained: how parameters are initialised, and how they predict."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from icl_lab.fast import batch_learner
from icl_lab.fast.batched import check_network
from icl_lab.models import GPT, Transformer, learner, prefix_predictions
from icl_lab.models.learner import check_layout, check_network_call, takes_interventions, variables_of
from icl_lab.models.self_attention import attends
from icl_lab.prompts import BatchLearner, Prompt
from icl_lab.prompts.layouts import Layout, joint_layout
from icl_lab.prompts.naming import called, shortened


class Model(NamedTuple):
    """What is trained: parameters, and the learner that they are.

    Attributes:
      init: ``key -> params``.
      predict: ``(params, B prompts) -> (B, O)``.
      layers: how deep it is, which decides how many members are vectorised together.
      name: what it is called where it is shown.
    """

    init: Callable[[Array], dict]
    predict: Callable[[dict, Prompt], Array]
    layers: int = 1
    name: str = "Model"

    def __repr__(self) -> str:
        return f"Model({shortened(self.name)}, {self.layers} layer{'s' * (self.layers != 1)})"

    def learner(self, params: dict) -> BatchLearner:
        """The learner that these parameters are, for a whole batch of prompts."""
        return called(lambda prompts: self.predict(params, prompts), f"batch learner of {self.name}")


def model_of(network: nn.Module, prompt: Prompt, layout: Layout | None = None) -> Model:
    """A network on prompts of these shapes, in a layout.

    Args:
      network: a ``Transformer``, which trains in its form for batches (``fast.batch_learner``), or any module that
        ``models.learner`` takes, whose plain form is vectorised over prompts.
      prompt: one prompt, of which only shapes matter.
      layout: how prompts become tokens; None means joint tokens.

    Raises:
      ValueError: for a module that is called with something else, or whose plain and fast form disagree.
    """
    check_network_call(network)
    tokens = jax.eval_shape(check_layout(layout).encode, prompt)
    if not takes_interventions(network) and not attends(network, tokens):
        raise ValueError(
            f"{type(network).__name__}: a network is called with (tokens, intervention, step) and returns (tokens, "
            "Trace), or with tokens and uses SelfAttention; allowed for any other is icl_lab.training.Model(init, "
            "predict)"
        )
    check_collections(type(network).__name__, variables_of(network, tokens.shape))
    if isinstance(network, Transformer):  # here, as it computes, which the programs of several devices do not allow
        one_prompt = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), prompt)
        check_network(network, layout or joint_layout(), one_prompt)
    init = lambda key: dict(network.init(key, jnp.zeros(tokens.shape, tokens.dtype)))  # noqa: E731
    return Model(init, partial(_predict, network, layout), getattr(network, "layers", 1), type(network).__name__)


def check_collections(name: str, variables: Any) -> None:
    """Refuses a network with Flax collections beside ``params``, which would all be trained as weights.

    Args:
      name: of the network.
      variables: what it initialises, or the shapes; any dict with ``params`` in it is taken for the variables of a Flax
        module.

    Raises:
      ValueError: naming the collections.
    """

    def beside(tree: Any) -> Iterator[str]:
        if isinstance(tree, Mapping) and "params" in tree:
            yield from (str(other) for other in tree if other != "params" and jax.tree.leaves(tree[other]))
        elif isinstance(tree, Mapping | list | tuple):
            for part in tree.values() if isinstance(tree, Mapping) else tree:
                yield from beside(part)

    if others := sorted(set(beside(variables))):
        raise ValueError(
            f"network {name} has the collection{'s' * (len(others) > 1)} {', '.join(others)} beside params, which "
            "would be trained as weights; allowed is params alone: constants are arrays of the module, and "
            "nn.LayerNorm has no running statistics"
        )


def in_dtype(model: Model, dtype: Any) -> Model:
    """The model whose predictions are computed in another type, as ``bfloat16``.

    Parameters and what the optimizer adds up stay in their own; predictions have the type of the labels.

    Raises:
      ValueError: for what is no type of real numbers.
    """
    try:
        kind = jnp.dtype(dtype)
    except TypeError:
        kind = None
    if kind is None or not jnp.issubdtype(kind, jnp.floating):
        raise ValueError(f"dtype must be a type of real numbers, as jax.numpy.bfloat16, got {dtype!r}")
    if jax.dtypes.canonicalize_dtype(kind) != kind:
        raise ValueError(f"dtype={kind} is float32 here: JAX_ENABLE_X64 is off (jax_enable_x64); allowed is on")

    def predict(params: dict, prompts: Prompt) -> Array:
        of_kind = lambda leaf: leaf.astype(kind) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf  # noqa: E731
        return model.predict(*jax.tree.map(of_kind, (params, prompts))).astype(prompts.y.dtype)

    return model._replace(predict=predict)


def _predict(network: nn.Module, layout: Layout | None, params: dict, prompts: Prompt) -> Array:
    if isinstance(network, Transformer):
        return batch_learner(network, params, layout)(prompts)
    if isinstance(network, GPT) and layout is not None and layout.prefixes:  # the same numbers, faster
        return prefix_predictions(network, params, prompts)
    return jax.vmap(learner(network, params, layout))(prompts)
