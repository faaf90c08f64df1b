"""The vocabulary of the laboratory: what a learner may see, and what a sampler draws."""

import warnings
from collections.abc import Callable, Collection
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from icl_lab.prompts.naming import called, sizes
from icl_lab.prompts.randomness import PARTS, drawing, frozen_parts, same_program


@struct.dataclass
class Prompt:
    """All that a learner may see of one task: the context and the query. The answer is not in it.

    Attributes:
      x: (N, D) context inputs.
      y: (N, O) context outputs.
      x_query: (D,) the input whose output is asked for.
      offset: () int32 position slot of the first token, of prompts that do not start at the first slot.
      length: () int32 how many of the N rows are examples, of a context that is padded; the rows after them are zeros.
    """

    x: Array
    y: Array
    x_query: Array
    offset: Array | None = None
    length: Array | None = None

    def __repr__(self) -> str:
        more = {"offset": self.offset, "length": self.length}
        extra = "".join(f", {name} {sizes(part)}" for name, part in more.items() if part is not None)
        return f"Prompt(x {sizes(self.x)}, y {sizes(self.y)}, x_query {sizes(self.x_query)}{extra})"


@struct.dataclass
class Sample:
    """One drawn task: the prompt, its true answer, and what generated it.

    Attributes:
      prompt: what a learner sees.
      target: (O,) the true answer at the query; () int32 of a task whose answer is a label, predicted by logits.
      latent: what generated the task, by name (``w``: (D, O) for linear tasks), for solvers that are allowed to know.
    """

    prompt: Prompt
    target: Array
    latent: dict[str, Array]

    def __repr__(self) -> str:
        latent = [f"{name} {sizes(leaf)}" for name, leaf in list(self.latent.items())[:4]] if self.latent else ["none"]
        return f"Sample({self.prompt}, target {sizes(self.target)}, latent: {', '.join(latent)[:80]})"


Learner = Callable[[Prompt], Array]
"""In-context learner: one prompt in, prediction out: (O,) values, (L,) logits, or one of these for every prefix of the
context, (N + 1, ..). Unbatched; the caller vmaps."""

BatchLearner = Callable[[Prompt], Array]
"""The same for a whole batch: B prompts in, predictions (B, O) out; what it predicts for one depends on no other."""

Sampler = Callable[[Array, int], Sample]
"""``sampler(key, batch)`` draws ``batch`` independent tasks: every leaf has a leading batch axis."""


@runtime_checkable
class Members(Protocol):
    """M learners of one form, as ``icl_lab.train`` returns them."""

    def learners(self) -> list[Learner]:
        """Every member, as a learner of one prompt."""

    def over_members(self, function: Callable[[BatchLearner], Any]) -> Any:
        """What a function finds of every member, a learner of B prompts: pytrees of arrays (M, ...)."""

    def common_sampler(self) -> Sampler | None:
        """The task distribution of all; None where each has its own, or it is not known."""


class ShapeError(ValueError, AssertionError):
    """Arrays whose shapes do not belong together; the message names them, and says what is allowed."""


def check_prompt(prompt: Prompt, *, padded: bool = False) -> tuple[int, int, int]:
    """Checks the shapes of one prompt and returns (N, D, O).

    Args:
      prompt: one prompt.
      padded: whether a context of fewer examples than rows (``Prompt.length``) is taken.

    Raises:
      ShapeError: if the shapes do not belong to one (unbatched) prompt.
      ValueError: for a padded context where none is taken, which would count zeros as examples.
    """
    _check_shapes("prompt must be one prompt, x (N, D), y (N, O), x_query (D,)", prompt, 0)
    if prompt.length is not None and not padded:
        raise ValueError("prompt.length: this learner or layout takes no padded context; allowed is length=None")
    (n, d), o = prompt.x.shape, prompt.y.shape[1]
    return n, d, o


def check_prompts(prompts: Prompt) -> tuple[int, int, int, int]:
    """Checks the shapes of B prompts and returns (B, N, D, O).

    Raises:
      ShapeError: if the shapes do not belong to a batch of prompts.
    """
    _check_shapes("prompts must be B prompts at once, x (B, N, D), y (B, N, O), x_query (B, D)", prompts, 1)
    (batch, n, d), o = prompts.x.shape, prompts.y.shape[2]
    return batch, n, d, o


def _check_shapes(allowed: str, prompt: Prompt, axes: int) -> None:
    """ShapeError for what is no prompt with so many leading axes."""
    if not isinstance(prompt, Prompt):
        raise ShapeError(f"{allowed}; got {type(prompt).__name__}")
    x, y, query = (np.shape(part) for part in (prompt.x, prompt.y, prompt.x_query))
    good = [len(x), len(y), len(query)] == [axes + 2, axes + 2, axes + 1] and x[: axes + 1] == y[: axes + 1]
    if not good or query != (*x[:axes], x[-1]):
        several = "; jax.vmap(learner) takes B prompts" * (axes == 0 and len(x) == 3)
        one = "; jax.tree.map(lambda leaf: leaf[None], prompt) is a batch of one" * (axes == 1 and len(x) == 2)
        raise ShapeError(f"{allowed}; got {prompt}{several}{one}")


def divisor(prompt: Prompt) -> int | Array:
    """What means over the examples of a prompt divide by: how many there are, at least 1."""
    return max(len(prompt.x), 1) if prompt.length is None else jnp.maximum(prompt.length, 1)


def all_inputs(prompt: Prompt) -> Array:
    """(N + 1, D) x_1, .., x_N, x_query: what is asked after 0, 1, .., N examples (zeros after a padded context).

    Axes of tasks may follow, in all parts of the prompt.
    """
    return _appended(prompt.x, prompt.x_query, prompt.length)


def all_answers(sample: Sample) -> Array:
    """(N + 1, O) y_1, .., y_N, target: the answers to ``all_inputs``; with label noise the first N are noisy."""
    return _appended(sample.prompt.y, sample.target, sample.prompt.length)


def _appended(rows: Array, last: Array, length: Array | None) -> Array:
    """One more row after N, or after the first ``length`` of them."""
    if length is None:
        return jnp.concatenate([rows, last[None]], axis=0)
    place = jnp.arange(len(rows) + 1).reshape(-1, *(1 for _ in last.shape))
    padded = jnp.concatenate([rows, jnp.zeros_like(last)[None]], axis=0)
    return jnp.where(place == length.reshape(1, 1, *length.shape), last[None], padded)


def one_prompt(learner: BatchLearner) -> Learner:
    """A learner of B prompts at once as a learner of one prompt, which it is told apart from (``ShapeError``)."""

    def predict(prompt: Prompt) -> Array:
        if not isinstance(prompt, Prompt) or np.ndim(prompt.x) > 2:
            check_prompt(prompt)
        return learner(jax.tree.map(lambda leaf: leaf[None], prompt))[0]

    return called(predict, getattr(learner, "__name__", "learner"))


def same_tasks(sampler: Sampler, key: Array) -> Sampler:
    """A sampler whose draws are the same tasks every time, whatever the key: a fixed set of ``batch`` tasks.

    It says so (``repeats``); any other sampler that does not use its key is refused (``check_sampler``).
    von Oswald et al. 2022, A.11 and A.12 (``cycle_data`` of the released code).
    """

    def repeated(_: Array, batch: int) -> Sample:
        return sampler(key, batch)

    repeated.repeats = True  # type: ignore[attr-defined]
    return repeated


def check_shapes(name: str, sampler: Sampler, batch: int, program: Callable[[Array], Any] | None = None) -> Sample:
    """Shapes of a batch, as a sampler would draw it inside a program; nothing is compiled.

    Args:
      name: what the sampler is called in messages.
      sampler: ``(key, batch) -> Sample``.
      batch: how many tasks it is asked for.
      program: ``key -> Sample`` that calls it, where there is one; traced once, it is not traced again.

    Raises:
      TypeError: for what is no function of a key and a batch.
      ValueError: naming the sampler, for what cannot be drawn inside a program, is no ``Sample``, or another number of
        tasks.
    """
    with drawing(name, sampler, batch):
        drawn = jax.eval_shape(program or (lambda key: sampler(key, batch)), jax.eval_shape(lambda: jax.random.key(0)))
    if not isinstance(drawn, Sample):
        raise ValueError(f"{name} must give a Sample, got {type(drawn).__name__}")
    check_batch(name, drawn, batch)
    return drawn


def check_sampler(name: str, sampler: Sampler, batch: int, parts: Collection[str] = tuple(PARTS)) -> Sample:
    """Checks what a sampler would draw inside a program, where what Python does happens once; nothing is compiled.

    Args:
      name: what the sampler is called in messages.
      sampler: ``(key, batch) -> Sample``.
      batch: how many tasks it is asked for.
      parts: those that are used, each of which should follow the key.

    Returns:
      Shapes of a batch.

    Warns:
      RuntimeWarning: naming a part of the prompts that does not depend on the key, or a sampler that is not the same
        program each time: what is random in it is drawn once, and then stays.

    Raises:
      TypeError: as ``check_shapes``.
      ValueError: as ``check_shapes``, and for tasks that do not depend on the key, unless ``same_tasks`` made it.
    """
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0)))
    program, again = (jax.jit(lambda key: sampler(key, batch)) for _ in range(2))  # each is traced once
    drawn = check_shapes(name, sampler, batch, program)
    if getattr(sampler, "repeats", False):
        return drawn
    with drawing(name, sampler, batch):
        frozen = frozen_parts(program, keys)
    if frozen == list(PARTS):
        raise ValueError(REPEATS.format(name))
    if frozen := [part for part in frozen if part in parts and PARTS[part](drawn).size]:
        warnings.warn(FROZEN.format(name, " and ".join(frozen)), RuntimeWarning, 2)
    elif not same_program(program, again, jax.eval_shape(lambda keys: keys[0], keys)):
        warnings.warn(DRAWN_ONCE.format(name), RuntimeWarning, 2)
    return drawn


def check_batch(name: str, drawn: Sample, batch: int) -> None:
    """Raises ValueError, naming the sampler, where prompts and targets are not so many."""
    if wrong := [part.shape for part in jax.tree.leaves(_of_task(drawn)) if part.shape[:1] != (batch,)]:
        raise ValueError(f"{name} must draw as many tasks as it is asked for, {batch}; got an array {wrong[0]}")


def check_differ(name: str, sampler: Sampler, drawn: Sample, other: Sample) -> None:
    """Raises ValueError, naming the sampler, where draws with two keys are the same, unless ``same_tasks`` made it."""
    both = zip(*(jax.tree.leaves(_of_task(sample)) for sample in (drawn, other)), strict=True)
    if not getattr(sampler, "repeats", False) and all(np.array_equal(a, b) for a, b in both):
        raise ValueError(REPEATS.format(name))


def _of_task(drawn: Sample) -> tuple[Prompt, Array]:
    return drawn.prompt, drawn.target


REPEATS = (
    "{} draws the same tasks whatever its key, so every step and every member would see one batch; it must take all "
    "randomness from the key that it is given, and a fixed set of tasks is same_tasks(sampler, key)"
)
FROZEN = (
    "{} draws the same {} whatever its key, for every step and every member: what numpy draws is drawn once, when the "
    "program is made, and a sampler takes its randomness from the key (this may be ignored where it is meant)"
)
DRAWN_ONCE = (
    "{} is another program each time it is traced, so it has a source of randomness beside its key, as numpy.random, "
    "which is drawn from once, for every step and every member; a sampler takes its randomness from the key"
)
