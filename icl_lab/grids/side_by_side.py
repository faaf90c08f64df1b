"""A grid in one process: an experiment whose run is that of all cells, trained together where programs are alike."""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from icl_lab import flags
from icl_lab.axes import resolved
from icl_lab.experiment import Experiment
from icl_lab.grids import report as grid_report
from icl_lab.grids.cells import Cell, Grid, cells, with_grid, without_grid
from icl_lab.grids.combining import axes_of_cells, combined
from icl_lab.grids.lockstep import in_lockstep
from icl_lab.grids.merging import Request, merge, split
from icl_lab.records import Record
from icl_lab.session import Session
from icl_lab.training import Fit

log = logging.getLogger("icl_lab")


def side_by_side(experiment: Experiment, grid: Grid) -> Experiment:
    """The experiment of all cells of a grid; its configurations are those of ``grids.with_grid``.

    The cells run in lockstep. Where they wait for a training, those whose programs differ in constants alone train as
    members of one program (``merging``); settings that change shapes or operations are programs of their own. A cell's
    numbers are those that it has alone, but for rounding. Nothing is judged: claims are about presets.
    """

    def run(config: Any, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        chosen = cells(grid, without_grid(config), experiment)
        found = in_lockstep([_of_cell(experiment, cell, session) for cell in chosen], _trainer(session))
        if None in found:  # a dry run has left a cell: there is nothing to combine
            return {}, {}
        records = [
            Record(
                experiment.name, "", flags.to_json(cell.config), metrics, arrays,
                axes=resolved(experiment.axes, arrays, cell.config.members),
            )
            for cell, (metrics, arrays) in zip(chosen, found)
        ]  # fmt: skip
        return combined(experiment, chosen, records)

    def check(config: Any) -> None:
        cells(grid, without_grid(config), experiment)

    return dataclasses.replace(
        experiment,
        presets={name: with_grid(config, {}) for name, config in experiment.presets.items()},
        run=run,
        figures=lambda record: grid_report.figures(record, experiment),
        claims=(),
        check=check,
        axes=axes_of_cells(experiment.axes, grid),
    )


class _CellSession(Session):
    """The session of one cell: it trains when all cells do."""

    def __init__(self, cell: Cell, session: Session, ask: Callable[[Request], Fit]):
        self._cell, self._session, self._ask = cell, session, ask

    def fit(self, stage: str, *args, **options) -> Fit:
        """``Session.fit``, together with the other cells."""
        return self._ask(Request.of(stage, args, options))

    def bar(self, label: str, total: int):
        """``Session.bar`` that names the cell."""
        return self._session.bar(f"{self._cell.label}: {label}", total)


def _of_cell(experiment: Experiment, cell: Cell, session: Session) -> Callable:
    def run(ask: Callable[[Request], Fit]) -> Any:
        return experiment.run(cell.config, _CellSession(cell, session, ask))

    of_cell = getattr(session, "of_cell", None)  # of a dry run, in which a cell may end before the others
    return of_cell(cell.label, run) if of_cell else run


def _trainer(session: Session) -> Callable[[list[tuple[int, Request]]], list[Fit]]:
    """Trains all that wait, in as few programs as there can be; each has a checkpoint of its own."""
    count = 0

    def train(waiting: list[tuple[int, Request]]) -> list[Fit]:
        nonlocal count
        requests = [request for _, request in waiting]
        found: dict[int, Fit] = {}
        for which, arguments in merge(requests):
            count += 1
            stage = requests[which[0]].stage
            log.info("%s: %d of %d cells in one program", stage, len(which), len(waiting))
            fitted = session.fit(f"{count:04d}_{stage}", **arguments)
            found |= dict(zip(which, split(fitted, [requests[i] for i in which])))
        return [found[i] for i in range(len(requests))]

    return train
