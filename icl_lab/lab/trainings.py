"""The trainings of a run by stage, each carried out when its result is first asked for; and what is measured."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from icl_lab.lab.quantities import Quantity
from icl_lab.lab.record import flat
from icl_lab.training.fitting import Fit
from icl_lab.training.plans import Training


@dataclasses.dataclass(frozen=True)
class After:
    """A training that is planned when it is asked for: it needs other fits, or takes long to prepare.

    Attributes:
      plan: ``fits -> training``; None: those results leave nothing to train, and ``fits[stage]`` is None.
      learner, sampler: as of a ``Training``, known without any result, so a finished run can be asked; a sampler that
        reads a member's setting is that of the planned training (None).
    """

    plan: Callable[["Fits"], Training | None]
    learner: Callable[[Any], Any] | None = None
    sampler: Callable[[Any], Any] | None = None


Table = Mapping[str, Training | After]
"""Trainings by stage: the name of the checkpoint and of the progress bar."""
Yield = tuple[Quantity | str, Any] | Mapping[str, Any]
"""What ``measured`` yields, see ``collected``."""


class Unkept:
    """A checkpoint of work that is not kept (``Session.checkpoint`` keeps it)."""

    def load(self, like: Callable[[], Any]) -> None:
        """There is none."""

    def save(self, tree: Callable[[], Any], finished: bool) -> None:
        """Nothing is saved."""


def unseen(label: str, total: int) -> AbstractContextManager[Callable[..., None]]:
    """A progress bar that nobody sees (``Session.bar`` shows one)."""
    return nullcontext(lambda done, of: None)


class Fits(Mapping[str, Any]):
    """``fits[stage]`` is the ``Fit`` of a training, carried out when it is first asked for.

    Args:
      table: the trainings by stage.
      fit: carries one out, ``(stage, training) -> Fit``.
      bar: ``(label, total)`` -> a context of ``advance(done, total)``, for work that is no training.
      perturbed: what anchors do to loaded parameters: they change the last bits. Other runs take them as they are.
      checkpoint: by name, where work that is no training keeps its state.
    """

    def __init__(
        self,
        table: Table,
        fit: Callable[[str, Training], Fit],
        *,
        bar: Callable[[str, int], AbstractContextManager[Callable[..., None]]] = unseen,
        perturbed: Callable[[Any], Any] = lambda params: params,
        checkpoint: Callable[[str], Any] = lambda name: Unkept(),
    ):
        self.bar, self.perturbed, self.checkpoint = bar, perturbed, checkpoint
        self._table, self._fit = table, fit
        self._done: dict[str, Fit | None] = {}
        self._planned: dict[str, Training] = {}
        self._waiting: list[str] = []

    def __getitem__(self, stage: str) -> Any:
        if stage in self._waiting:
            raise ValueError(f"training {stage!r} waits for itself ({' -> '.join([*self._waiting, stage])})")
        if stage not in self._done:
            entry = self._table[stage]
            self._waiting.append(stage)
            training = entry.plan(self) if isinstance(entry, After) else entry
            self._waiting.pop()
            self._done[stage] = None if training is None else self._fit(stage, training)
            if training is not None:
                self._planned[stage] = training
        return self._done[stage]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def params(self) -> dict[str, Any]:
        """Final parameters of the trainings that keep theirs, on the host, by stage."""
        by_stage = {stage: self._done[stage].params for stage, one in self._planned.items() if one.kept}  # type: ignore[union-attr]
        return {stage: host(params) for stage, params in by_stage.items() if isinstance(params, Mapping)}

    def check_all_asked(self) -> None:
        """Raises ValueError naming the stages that nothing asked for."""
        if unasked := [stage for stage in self._table if stage not in self._done]:
            raise ValueError(f"nothing asks for the trainings {', '.join(unasked)}")


def host(tree: Any) -> Any:
    """A tree of numpy arrays."""
    return jax.tree.map(np.asarray, tree)


def collected(pieces: Iterable[Yield]) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any] | None]:
    """Facts, arrays by name, and parameters (None: those of the trainings) of what ``measured`` yields.

    A piece is ``(quantity, array or dict of arrays)``, a nested dict of arrays, ``("facts", {...})`` (numbers that a
    person reads, for the record's metrics) or ``("params", {...})`` (what the record keeps in place of the trainings'
    parameters).

    Raises:
      ValueError: for an array that is measured twice.
    """
    facts: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    params: dict[str, Any] | None = None
    for piece in pieces:
        where, value = piece if isinstance(piece, tuple) else ("", piece)
        if where == "facts":
            facts |= value
        elif where == "params":
            params = (params or {}) | host(value)
        else:
            new = where.named(value) if isinstance(where, Quantity) else flat(value)
            if twice := arrays.keys() & new.keys():
                raise ValueError(f"{', '.join(sorted(twice))}: measured twice")
            arrays |= new
    return facts, {name: np.asarray(value) for name, value in arrays.items()}, params
