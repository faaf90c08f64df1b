"""What a run would cost: every training is compiled and tried for a second or two, the rest is run on a small scale."""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.devices import member_mesh
from icl_lab.ensembles import Ensemble
from icl_lab.members import Member, member
from icl_lab.operations import operations
from icl_lab.training import Fit

SMALL = 0.01
"""Share of the sizes of evaluations that are run at first."""
FIRST_OPERATIONS = 5e9
"""Operations of the compiled chunk that is timed, at most those between two measurements: its start must not matter."""
TRIED, RUN, LOOPED = 0.5, 8.0, 15.0
"""Seconds for which a training is tried, evaluations are run, and a loop goes on before it is extrapolated."""


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


class Cost(NamedTuple):
    """What a run would cost."""

    stages: list[Stage]
    rest: Rest

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(stage.seconds for stage in self.stages) + self.rest.seconds + self.rest.compile_seconds


def cost(run: Callable[[Any, Any], Any], config: Any, memory_limit: float | None = None) -> Cost:
    """What ``run(config, session)`` of an experiment would cost here. Nothing is written.

    Trainings are compiled, and a few steps and a measurement of each are timed. All else is run twice with the sizes
    that ``setting(..., scales=True)`` marks at small shares of what they are, and extrapolated in a straight line.
    """
    with _compiling() as compiled:
        session = DrySession(memory_limit, compiled)
        sizes = [f for f in dataclasses.fields(config) if f.metadata["scales"]]
        small, share = _scaled(config, sizes, SMALL)
        rest = session.tried(run, small, LOOPED if share == 1 else 3 * LOOPED)
        stages = session.stages
        if share < 1:
            large, more = _scaled(config, sizes, min(1.0, max(4 * share, share * RUN / max(rest.seconds, 1e-3))))
            again = session.tried(run, large, LOOPED)

            def whole(small: float, large: float) -> float:
                """In a straight line from two shares to all; never less than at the larger share."""
                return large + max(0.0, large - small) * (1 - more) / (more - share)

            compiling = max(rest.compile_seconds, again.compile_seconds)  # what is kept is not compiled again
            seconds = whole(rest.seconds, again.seconds)
            rest = again._replace(seconds=seconds, compile_seconds=compiling, share=more)
            stages = {name: _line(whole, stages[name], stage) for name, stage in session.stages.items()}
    return Cost(list(stages.values()), rest._replace(sizes=tuple(field.name for field in sizes)))


def _line(whole: Callable[[float, float], float], small: Stage, large: Stage) -> Stage:
    """A stage whose measurements see one of the sizes."""
    measuring = whole(small.measure_seconds, large.measure_seconds)
    memory = int(whole(small.memory, large.memory))
    return large._replace(measure_seconds=measuring, memory=memory, step_seconds=small.step_seconds)


class DrySession:
    """Stands in for ``Session``: trainings are tried instead of done, long loops are left after their first items."""

    def __init__(self, memory_limit: float | None, compiled: "_Compiled"):
        self.stages: dict[str, Stage] = {}
        self._limit, self._compiled = memory_limit, compiled
        self._known: dict[tuple, tuple[Stage, Fit]] = {}
        self._loops: dict[str, dict[int, float]] = {}
        self._longest = LOOPED
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
        with contextlib.suppress(_Enough):
            run(config, self)
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


class _Compiled:
    """Seconds that this process has traced and compiled for, counted while it lasts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._spans: list[tuple[float, float]] = []

    def __call__(self, event: str, start_time: float, end_time: float, **_: Any) -> None:
        if not event.startswith("/jax/core/compile/"):
            return
        while self._spans and self._spans[-1][0] >= start_time:  # tracing inside tracing: each moment counts once
            inner = self._spans.pop()
            self.seconds -= inner[1] - inner[0]
        self._spans.append((start_time, end_time))
        self.seconds += end_time - start_time


@contextlib.contextmanager
def _compiling() -> Iterator[_Compiled]:
    """Counts seconds of tracing and compilation; programs kept on disk are left out, so that all is compiled."""
    counted, kept = _Compiled(), jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    jax.monitoring.register_event_time_span_listener(counted)
    try:
        yield counted
    finally:
        jax.monitoring.unregister_event_time_span_listener(counted)
        jax.config.update("jax_enable_compilation_cache", kept)


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


def _scaled(config: Any, sizes: list[dataclasses.Field], share: float) -> tuple[Any, float]:
    """A configuration with a share of its sizes, as little as is allowed where that is more; and the mean share."""
    whole = {f.name: getattr(config, f.name) for f in sizes}
    least = {f.name: math.ceil(f.metadata["at_least"] or 1) for f in sizes}
    taken = {name: min(value, max(least[name], math.ceil(share * value))) for name, value in whole.items()}
    shares = [taken[name] / whole[name] for name in whole]
    return dataclasses.replace(config, **taken), statistics.fmean(shares) if shares else 1.0
