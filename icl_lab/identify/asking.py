"""Whatever answers prompts, asked in batches of one size: functions of arrays, learners of one prompt or a batch."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.typing import NDArray

from icl_lab.prompts.prompt import Prompt

Floats = NDArray[np.float64]
Ask = Callable[[Floats, Floats, Floats], Floats]
"""``(x (B, N, D), y (B, N), x_query (B, D)) -> (B,)`` predictions, for any B."""

CHUNK = 2048  # prompts in one call, always: a compiled learner compiles once


class LearnerError(ValueError):
    """A learner that cannot be identified because of what it answers; the message names it."""


def asked(
    learner: Callable[..., Any], name: str, trial: tuple[Floats, Floats, Floats], channel: tuple[int, int] = (0, 1)
) -> Ask:
    """The learner as a function of any number of prompts, tried on some.

    Args:
      learner: ``Prompt -> (1,)``, the same for a batch, or a function of numpy arrays ``(x (B, N, D), y (B, N, 1),
        x_query (B, D)) -> (B, 1)``. It is told apart by how many arguments it must be given. One that answers
        (N + 1, 1) predicts from every prefix of the prompt; the last prediction counts.
      name: how messages call it.
      channel: which output is asked, of how many (O): labels of the others are zero. Shapes end in O instead of 1 then.
      trial: training prompts. On others, which may lie far outside of training, what is not finite counts as 1e30.

    Raises:
      LearnerError: for one that is no function, raises, returns another shape or, on the trial, numbers that are not
        finite, or answers the same prompts otherwise when asked again in another order.
    """
    if isinstance(learner, nn.Module) or (hasattr(learner, "learner") and not callable(learner)):
        hint = "give model.learner(params), or all that icl_lab.train returned"
        raise LearnerError(f"{name} is a {type(learner).__name__}, which has no parameters or holds many; {hint}")
    if not callable(learner):
        raise LearnerError(f"{name} is a {type(learner).__name__}, not a function")
    call = learner if _takes_arrays(learner) else _batched(learner, name, (*trial[0].shape[1:], channel[1]))

    def ask(x: Floats, y: Floats, q: Floats) -> Floats:
        answers = np.empty(len(x))
        for begin in range(0, len(x), CHUNK):
            rows = slice(begin, begin + CHUNK)
            answers[rows] = _checked(call, name, x[rows], y[rows], q[rows], channel)
        return np.nan_to_num(answers, nan=1e30, posinf=1e30, neginf=-1e30)

    x, y, q = trial
    first, again = ask(x, y, q), ask(x[::-1], y[::-1], q[::-1])[::-1]
    if np.abs(first).max() >= 1e30:
        raise LearnerError(f"{name} answers training prompts with numbers that are not finite")
    if np.abs(first - again).max() > max(1e-4, rounding(first)) * max(np.abs(first).max(), 1e-3 * np.abs(y).max()):
        raise LearnerError(
            f"{name} answers the same prompts differently when it is asked again in another order; a prediction must "
            "depend on nothing but its own prompt (no dropout, no statistics over the batch)"
        )
    return ask


def rounding(answers: Floats) -> float:
    """Relative spacing of answers that all are numbers of bfloat16 (1/128) or float16 (1/1024).

    0 for finer ones, and for answers that are all 0: they have no spacing.
    """
    if not answers.any():
        return 0.0
    with np.errstate(over="ignore"):
        for kind in (jnp.bfloat16, jnp.float16):
            if np.array_equal(answers, answers.astype(kind)):
                return float(jnp.finfo(kind).eps)
    return 0.0


def _takes_arrays(learner: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(learner).parameters.values()
    except (TypeError, ValueError):  # a builtin says nothing of its arguments
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    return len(required) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _batched(learner: Callable[[Prompt], Any], name: str, sizes_of: tuple[int, ...]) -> Callable[..., Any]:
    """A learner of prompts (N, D, O) as a compiled function of arrays, whether it takes one prompt or a batch."""
    n, d, outputs = sizes_of

    def prompts(*sizes: int) -> Prompt:
        of = jnp.result_type(float)  # float itself is float64, of which JAX warns where it computes in float32
        x, y, q = (jax.ShapeDtypeStruct((*sizes, *shape), of) for shape in ((n, d), (n, outputs), (d,)))
        return Prompt(x, y, q)  # type: ignore[arg-type]

    shapes: list[str] = []
    for sizes, run in (((), jax.vmap(learner)), ((n + d + 3,), learner)):
        try:
            shape = jax.eval_shape(learner, prompts(*sizes)).shape
        except Exception as error:  # whatever a foreign function raises
            shapes.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        if shape in ((*sizes, outputs), (*sizes, n + 1, outputs)):
            compiled = jax.jit(run)
            return lambda x, y, q: compiled(Prompt(jnp.asarray(x, float), jnp.asarray(y, float), jnp.asarray(q, float)))
        shapes.append(f"shape {shape}")
    raise LearnerError(
        f"{name}: allowed is a learner Prompt -> ({outputs},), of one prompt or a batch, that JAX can trace, or a "
        f"function of three numpy arrays; given one prompt it answered {shapes[0]}, given a batch {shapes[1]}"
    )


def _checked(call: Callable[..., Any], name: str, x: Floats, y: Floats, q: Floats, channel: tuple[int, int]) -> Floats:
    """(B,) predictions of at most a chunk, which is filled up with copies of its first prompt."""
    size, (at, outputs) = len(x), channel
    x, y, q = (np.concatenate([a, np.repeat(a[:1], CHUNK - size, 0)]) for a in (x, y, q))
    labels = np.zeros((*y.shape, outputs))
    labels[..., at] = y
    try:
        answers = np.asarray(call(x, labels, q))
    except Exception as error:
        raise LearnerError(f"{name} raised {type(error).__name__}: {error}") from error
    if answers.shape[1:] == (x.shape[1] + 1, outputs):  # from every prefix: the last one has seen the whole context
        answers = answers[:, -1]
    if answers.shape != (CHUNK, outputs) or not jnp.issubdtype(answers.dtype, jnp.floating):
        wanted = f"floats ({CHUNK}, {outputs})"
        raise LearnerError(f"{name} answered {CHUNK} prompts with {answers.dtype} {answers.shape}, not {wanted}")
    return answers[:size, at].astype(np.float64)
