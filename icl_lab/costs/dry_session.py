"""A session that tries trainings instead of doing them, and says what they and all else take."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.costs.compiling import Compiled
from icl_lab.costs.operations import operations
from icl_lab.costs.parts import Rest, Stage
from icl_lab.devices import member_mesh
from icl_lab.ensembles import Ensemble
from icl_lab.flags import FlagError
from icl_lab.members import Member, member
from icl_lab.training import Fit

FIRST_OPERATIONS = 5e9
"""Operations of the compiled chunk that is timed, at most those between two measurements: its start must not matter."""
TRIED = 0.5
"""Seconds for which a training is tried."""


class DrySession:
    """Stands in for ``Session``: trainings are tried instead of done, long loops are left after their first items."""

    def __init__(self, memory_limit: float | None, compiled: Compiled):
        self.stages: dict[str, Stage] = {}
        self._limit, self._compiled = memory_limit, compiled
        self._known: dict[tuple, tuple[Stage, Fit]] = {}
        self._loops: dict[str, dict[int, float]] = {}
        self._longest, self._cells = float("inf"), 0
        self._inside, self._inside_compiled, self._left, self._notes = 0.0, 0.0, 0.0, list[str]()

    def fit(self, stage: str, *args: Any, **options: Any) -> Fit:
        """A ``Fit`` of the right shapes: parameters after a few steps, one measurement again and again."""
        began, compiled = time.perf_counter(), self._compiled.seconds
        self.stages[stage], fitted = self._once(stage, *args, **options)
        self._inside += time.perf_counter() - began
        self._inside_compiled += self._compiled.seconds - compiled
        return fitted

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[int, int], None]]:
        """A loop that is left when it has taken long; its other items are as before, at a smaller share, or alike.

        What follows it is not run, for want of what the loop finds; the cells of a grid share its time evenly.
        """
        began, before = self._worked(), self._loops.get(label, {})
        now = self._loops[label] = dict[int, float]()

        def advance(done: int, total: int) -> None:
            now[done] = self._worked() - began
            if now[done] > self._longest / max(self._cells, 1) and 0 < done < total:
                known = total in before and done in before
                others = before[total] / before[done] - 1 if known else total / done - 1
                self._left += now[done] * others
                self._notes.append(
                    f"{label}: {done} of {total} run, the others {'as before' if known else 'alike'}; "
                    "what follows the loop is not counted"
                )
                raise _Enough

        yield advance

    def of_cell(self, label: str, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``run`` of one cell of a grid, for which the others go on where it ends early; then it gives None."""
        self._cells += 1
        return lambda ask: self._as_far_as_it_goes(lambda: run(ask), f"{label}: ")

    def tried(self, run: Callable[[Any, Any], Any], config: Any, longest: float) -> Rest:
        """Runs an experiment and says what it took beside its trainings, which are in ``stages`` then.

        Loops are left when they have taken ``longest`` seconds.
        """
        self.stages, self._longest, self._cells = {}, longest, 0
        self._inside, self._inside_compiled, self._left, self._notes = 0.0, 0.0, 0.0, []
        began, compiled = self._worked(), self._compiled.seconds
        self._as_far_as_it_goes(lambda: run(config, self))
        taken, compiling = self._worked() - began, self._compiled.seconds - compiled - self._inside_compiled
        return Rest(taken + self._left, taken, compiling, 1.0, (), tuple(self._notes))

    def _worked(self) -> float:
        """Seconds on a clock that stands still in trainings and compilation."""
        return time.perf_counter() - self._inside - (self._compiled.seconds - self._inside_compiled)

    def _as_far_as_it_goes(self, run: Callable[[], Any], where: str = "") -> Any:
        """What it returns; None where a loop in it was left, or where it fails, which is noted."""
        try:
            return run()
        except _Enough:
            return None
        except FlagError:
            raise
        except Exception as error:  # untrained networks may lack what a run looks for
            self._notes.append(f"{where}not covered: what follows where it stopped ({type(error).__name__}: {error})")
            return None

    def _once(
        self, name: str, init: Any, loss: Any, optimizer: Any, keys: jax.Array, settings: Any = None, *, steps: int,
        measure: Any = None, measure_every: int | None = None, members_at_once: int | None = None,
        schedule: Any = None, measure_schedule: Any = None, adapt: Any = None,
    ) -> tuple[Stage, Fit]:  # fmt: skip
        """A training, tried unless one of this name with the same operations has been."""
        one = member(init, loss, optimizer, measure, schedule, measure_schedule)
        settings = jax.tree.map(jnp.asarray, settings)
        of_one = jax.tree.map(lambda leaf: leaf[0], (keys, settings))
        state = jax.eval_shape(one.begin, *of_one)
        counted = tuple(operations(function, state, *of_one) for function in (one.step, one.observe))
        place = (name, len(keys), steps, *counted)
        if place not in self._known:
            self._known[place] = self._tried(
                name, one, keys, settings, counted[0], steps, measure_every or steps, members_at_once
            )
        return self._known[place]

    def _tried(
        self, name: str, one: Member, keys: jax.Array, settings: Any, of_step: float, steps: int, measure_every: int,
        members_at_once: int | None,
    ) -> tuple[Stage, Fit]:  # fmt: skip
        members = len(keys)
        chunk = min(measure_every, max(1, int(FIRST_OPERATIONS / (of_step * members))))
        began = time.perf_counter()
        ensemble = Ensemble(
            one.begin, one.chunk(chunk), one.observe, keys, settings,
            members_at_once=members_at_once, mesh=member_mesh(), memory_limit=self._limit,
        )  # fmt: skip
        state = jax.block_until_ready(ensemble.begin(settings))
        preparing = time.perf_counter() - began
        (state, _), seconds = _timed(lambda: ensemble.advance(state, settings))
        found, measuring = _timed(lambda: ensemble.gathered(jax.device_get(ensemble.observe(state, settings))))
        tried = Stage(
            name, members, steps, of_step * members * steps, ensemble.memory, seconds / chunk, measuring,
            steps // measure_every + 1, preparing,
        )  # fmt: skip
        rows = {k: np.repeat(np.asarray(value)[:, None], tried.measurements, axis=1) for k, value in found.items()}
        rows = {"train_loss": np.full((members, tried.measurements), np.nan)} | rows
        params = jax.tree.map(jnp.asarray, ensemble.gathered(state).params)
        at = measure_every * np.arange(tried.measurements)
        return tried, Fit(params, at, rows, np.full(members, -1), ensemble.memory)


class _Enough(Exception):  # noqa: N818
    """A loop has been seen for long enough."""


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and seconds of one: the median of calls for ``TRIED`` seconds, 3 at least and 30 at most.

    The first, which finds nothing in the caches, does not count, unless one call takes much longer than that.
    """
    taken: list[float] = []
    while len(taken) < 4 or (sum(taken[1:]) < TRIED and len(taken) <= 30):
        began = time.perf_counter()
        found = jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
        if sum(taken) > 6 * TRIED:
            break
    return found, statistics.median(taken[1:] or taken)
