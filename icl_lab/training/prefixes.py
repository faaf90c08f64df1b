"""Training on every prefix of a prompt, by a curriculum: as Garg et al. 2022 train."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.prompt import Sample, all_answers
from icl_lab.prompts.tracing import check_number, is_traced


def every_prefix(predictions: Array, samples: Sample) -> Array:
    """(B,) half the squared error of every task, mean over its prefixes k = 0 .. N (Garg et al. 2022, eq. 2).

    An objective for ``train`` and ``training``. Of a padded context (``Prompt.length``) the prefixes up to its length
    count.

    Args:
      predictions: (B, N + 1, O), of a network that predicts from every prefix: ``GPT`` with
        ``alternating_layout(prefixes=True)``, ``Transformer(causal=True)`` with ``causal_layout()``.
      samples: B tasks.

    Raises:
      ValueError: for predictions of another shape.
    """
    (b, n, o), length = samples.prompt.y.shape, samples.prompt.length
    if predictions.shape != (b, n + 1, o):
        raise ValueError(
            f"objective=every_prefix needs predictions {(b, n + 1, o)} from every prefix, got {predictions.shape}; "
            "allowed are GPT with alternating_layout(prefixes=True), Transformer(causal=True) with causal_layout(), "
            "and any other learner as from_every_prefix(learner)"
        )
    errors = 0.5 * jnp.sum((predictions - jax.vmap(all_answers)(samples)) ** 2, axis=2)
    if length is None:
        return errors.mean(1)
    counted = jnp.arange(n + 1)[None] <= length[:, None]
    return jnp.where(counted, errors, 0).sum(1) / (length + 1)


def rising(start: ArrayLike, end: ArrayLike, *, by: ArrayLike = 1, every: ArrayLike = 1) -> Callable[[Array], Array]:
    """A number that rises from ``start`` by ``by`` each ``every`` steps, up to ``end``: step -> number.

    Raises:
      ValueError: for a number that does not rise, or ``every`` below 1; what is traced is not looked at.
    """
    check_number("end", end)
    check_number("start", start, at_most=np.inf if is_traced(end) else float(np.min(end)))
    check_number("by", by, above=0)
    check_number("every", every, at_least=1)
    return lambda step: jnp.minimum(start + by * (step // every), end)


def curriculum(**numbers: Callable[[Array], Array]) -> Callable[[Any, Array], dict]:
    """A ``schedule`` of training: numbers of a member's setting, by name, as functions of the step.

    ``curriculum(inputs=rising(5, 20, every=2000), examples=rising(10, 40, by=2, every=2000))`` is that of Garg et al.
    2022, A.2, for a sampler ``lambda now: linear_regression(context_length=40, input_size=20, examples=now["examples"],
    used_inputs=now["inputs"])``. Settings that it does not name stay; measurements see all settings as they are.

    Raises:
      ValueError: for what is no function of the step.
    """
    for name, of in numbers.items():
        if not callable(of):
            raise ValueError(f"{name} must be a function of the step, as rising(5, 20) is, got {of!r}")
    return lambda setting, step: dict(setting or {}) | {name: of(step) for name, of in numbers.items()}
