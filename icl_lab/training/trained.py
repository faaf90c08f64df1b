"""The front door: members of a network trained on a sampler in one call."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from flax import linen as nn

from icl_lab.prompts import BatchLearner, Learner, Sampler, one_prompt
from icl_lab.training.fitting import Fit, Resume
from icl_lab.training.model import Model
from icl_lab.training.plans import Training, training


class Trained(NamedTuple):
    """Trained members, as learners.

    Attributes:
      model: what was trained.
      fit: final parameters with leading member axis, and what was measured: ``fit.steps`` (R,), ``fit.metrics``.
      call: the arguments of ``training``, from which it came.
    """

    model: Model
    fit: Fit
    call: Mapping[str, Any] = MappingProxyType({})

    def params(self, member: int = 0) -> dict:
        """Final parameters of a member, from 0.

        Raises:
          IndexError: if there is no such member.
        """
        members = self.fit.diverged_at.size
        if not 0 <= member < members:
            raise IndexError(f"there is no member {member}; allowed is 0 to {members - 1}")
        return jax.tree.map(lambda leaf: leaf[member], self.fit.params)

    def batch_learner(self, member: int = 0) -> BatchLearner:
        """A member as a learner of B prompts at once; raises as ``params``."""
        return self.model.learner(self.params(member))

    def learner(self, member: int = 0) -> Learner:
        """A member as a learner, ``Prompt -> prediction``; raises as ``params``."""
        return one_prompt(self.batch_learner(member))

    def learners(self) -> list[Learner]:
        """Every member as a learner."""
        return [self.learner(member) for member in range(self.fit.diverged_at.size)]

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Writes the members and what was measured into a folder, for ``icl_lab.load`` and ``icl_lab.load_run``.

        Raises:
          RecordError: where the folder holds a run (unless it may be overwritten), or other files.
        """
        import icl_lab

        icl_lab.save(self, folder, overwrite)


def train(
    network: nn.Module | Model, sampler: Sampler | Callable[[Any], Sampler], *, progress: bool = True, **options: Any
) -> Trained:
    """Trains independent members of one network on fresh tasks, all in one compiled program; keeps nothing.

    Args:
      network: a ``Transformer`` or another module that ``models.learner`` takes, or a ``Model``.
      sampler: the task distribution, ``(key, batch) -> Sample``; with ``settings``, ``setting -> sampler``.
      progress: shows a progress bar on a terminal.
      options: of ``training``: ``members``, ``steps``, ``batch``, ``learning_rate`` or ``optimizer``, ``layout``,
        ``seed``, ``settings``, ``objective``, ``references``, ``extra``, ``eval_tasks``, ``measure_every``, ...

    Returns:
      The members, with their final parameters and what was measured: ``fit.metrics``, as ``training`` says.

    Warns:
      RuntimeWarning: naming the members whose loss or gradient was not finite; they are stopped before that step
        (``fit.diverged_at``).

    Raises:
      ValueError: as ``training``, or where ``fit`` refuses the optimizer.
    """
    call = {"network": network, "sampler": sampler, **options}
    return carried_out(training(**call), call, progress=progress)


def carried_out(
    planned: Training, call: Mapping[str, Any], *, progress: bool = True, resume: Resume | None = None
) -> Trained:
    """Carries out what ``training(**call)`` planned; ``resume`` is where it leaves and finds its state (``fit``)."""
    assert planned.model is not None, "a training with a loss of its own is no Trained"
    with _bar(progress) as advance:
        return Trained(planned.model, planned.carried_out(progress=advance, resume=resume), call)


@contextlib.contextmanager
def _bar(shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal; gives what ``fit`` calls with ``(done, total)``, or None."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("training")
        yield lambda done, total: bar.update(task, completed=done, total=total)
