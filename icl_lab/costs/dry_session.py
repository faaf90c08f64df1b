"""A session that tries trainings instead of doing them, and says what they and all else take."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.costs.compiling import Compiled
from icl_lab.costs.operations import operations
from icl_lab.devices import member_mesh
from icl_lab.ensembles import Ensemble
from icl_lab.flags import FlagError
from icl_lab.members import Member, member
from icl_lab.training import Fit

FIRST_OPERATIONS = 5e9
"""Operations of the compiled chunk that is timed, at most those between two measurements: its start must not matter."""
TRIED = 0.5
"""Seconds for which a training is tried."""


class Stage(NamedTuple):
    """What one training would cost.

    Attributes:
      name: of the stage.
      members: M.
      steps: of each member.
      operations: of all steps of all members.
      memory: bytes on each device.
      step_seconds: of one step of all members.
      measure_seconds: of one measurement of all members.
      measurements: how many there are.
      compile_seconds: tracing, compilation and the start.
    """

    name: str
    members: int
    steps: int
    operations: float
    memory: int
    step_seconds: float
    measure_seconds: float
    measurements: int
    compile_seconds: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compile_seconds + self.steps * self.step_seconds + self.measurements * self.measure_seconds


class Rest(NamedTuple):
    """What all else would cost: evaluations, theory, flows.

    Attributes:
      seconds: without compilation.
      measured: seconds of it that were run for this.
      compile_seconds: tracing and compilation.
      share: of the sizes in ``sizes``, the share that was run; 1: nothing is extrapolated.
      sizes: settings that it was assumed to be proportional to.
      notes: what is extrapolated otherwise, or not covered.
    """

    seconds: float
    measured: float
    compile_seconds: float
    share: float
    sizes: tuple[str, ...]
    notes: tuple[str, ...]


class DrySession:
    """Stands in for ``Session``: trainings are tried instead of done, long loops are left after their first items."""

    def __init__(self, memory_limit: float | None, compiled: Compiled):
        self.stages: dict[str, Stage] = {}
        self._limit, self._compiled = memory_limit, compiled
        self._known: dict[tuple, tuple[Stage, Fit]] = {}
        self._loops: dict[str, dict[int, float]] = {}
        self._longest = float("inf")
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
        """A loop that is left when it has taken long; its other items are as before, at a smaller share, or alike."""
        began, compiled, before = time.perf_counter(), self._compiled.seconds, self._loops.get(label, {})
        now = self._loops[label] = dict[int, float]()

        def advance(done: int, total: int) -> None:
            now[done] = time.perf_counter() - began - (self._compiled.seconds - compiled)
            if now[done] > self._longest and 0 < done < total:
                known = total in before and done in before
                others = before[total] / before[done] - 1 if known else total / done - 1
                self._left = now[done] * others
                self._notes.append(f"{label}: {done} of {total} run, the others {'as before' if known else 'alike'}")
                raise _Enough

        yield advance

    def tried(self, run: Callable[[Any, Any], Any], config: Any, longest: float) -> Rest:
        """Runs an experiment and says what it took beside its trainings, which are in ``stages`` then.

        Loops are left when they have taken ``longest`` seconds.
        """
        self.stages, self._longest = {}, longest
        self._inside, self._inside_compiled, self._left, self._notes = 0.0, 0.0, 0.0, []
        began, compiled = time.perf_counter(), self._compiled.seconds
        try:
            run(config, self)
        except _Enough:
            pass
        except FlagError:
            raise
        except Exception as error:  # untrained networks may lack what a run looks for
            self._notes.append(f"not covered: what follows where it stopped ({type(error).__name__}: {error})")
        compiling = self._compiled.seconds - compiled - self._inside_compiled
        taken = time.perf_counter() - began - compiling - self._inside
        return Rest(taken + self._left, taken, compiling, 1.0, (), tuple(self._notes))

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
            name, members, steps, of_step * members * steps, ensemble.memory.total, seconds / chunk, measuring,
            steps // measure_every + 1, preparing,
        )  # fmt: skip
        rows = {k: np.repeat(np.asarray(value)[:, None], tried.measurements, axis=1) for k, value in found.items()}
        rows = {"train_loss": np.full((members, tried.measurements), np.nan)} | rows
        params = jax.tree.map(jnp.asarray, ensemble.gathered(state).params)
        at = measure_every * np.arange(tried.measurements)
        return tried, Fit(params, at, rows, np.full(members, -1), ensemble.memory.total)


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
