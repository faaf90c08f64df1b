"""A network on the prompts that a sampler draws: both are asked for their shapes, and refused by name."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from icl_lab.prompts import Prompt, Sample, Sampler
from icl_lab.prompts.layouts import Layout
from icl_lab.prompts.prompt import check_sampler
from icl_lab.prompts.tracing import whole
from icl_lab.training.measuring import asked
from icl_lab.training.model import Model, check_collections, in_dtype, model_of


def built(
    network: nn.Module | Model, sampler: Any, settings: Any = None, layout: Layout | None = None,
    eval_tasks: int = 2000, dtype: Any = None,
) -> Model:  # fmt: skip
    """A network on the prompts that a sampler draws; a ``Model`` as it is. The arguments are those of ``training``.

    Raises:
      ValueError: for a layout beside a ``Model``, or a sampler that gives no ``Sample``.
    """
    if isinstance(sampler, nn.Module | Model) and not isinstance(network, nn.Module | Model):
        raise ValueError(
            f"network and sampler are given in the wrong order: got {type(sampler).__name__} as sampler; allowed is "
            "(network, sampler, ...)"
        )
    if isinstance(network, Model) and layout is not None:
        raise ValueError("layout: a Model brings its own, so none can be given beside it")
    eval_tasks = whole("eval_tasks", eval_tasks)
    prompt = zero_prompt("sampler", of_setting(sampler, settings), settings, eval_tasks)
    if isinstance(network, Model):
        check_collections(network.name, jax.eval_shape(network.init, jax.eval_shape(lambda: jax.random.key(0))))
    model = network if isinstance(network, Model) else model_of(network, prompt, layout)
    return model if dtype is None else in_dtype(model, dtype)


def of_setting(sampler: Any, settings: Any, schedule: Any = None) -> Callable[[Any], Sampler]:
    """``setting -> sampler``, of a sampler where there is neither a setting nor a schedule."""
    return (lambda _: sampler) if settings is None and schedule is None else sampler


def zero_prompt(
    name: str,
    tasks_of: Callable[[Any], Sampler],
    settings: Any,
    batch: int,
    schedule: Any = None,
    check: Callable[[str, Sampler, int], Sample] = check_sampler,
) -> Prompt:
    """A prompt of zeros, with the shapes of those that the sampler draws; raises as ``check``."""
    first = jax.tree.map(
        lambda leaf: jnp.asarray(jax.device_get(leaf)[0]), settings
    )  # cut on the host: compiles nothing
    if schedule is not None:
        first = asked("schedule", "(setting, step) -> setting", schedule)(first, jnp.int32(0))
    try:
        drawn = check(name, tasks_of(first), batch)
    except TypeError as error:
        usual = "(key, batch) -> Sample"
        if settings is not None or schedule is not None:
            usual = f"setting -> sampler, as there {'are settings' if schedule is None else 'is a schedule'}"
        raise ValueError(f"{name} must be a function {usual} ({error})") from error
    parts = (drawn.prompt.x, drawn.prompt.y, drawn.prompt.x_query)
    if [part.ndim for part in parts] != [3, 3, 2]:
        got = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"{name} must give x (B, N, D), y (B, N, O) and x_query (B, D), got {got} for B = {batch}")
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), drawn.prompt)
