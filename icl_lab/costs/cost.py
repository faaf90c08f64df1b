"""What a run would cost: trainings are tried for a moment, all else is run at a small share of its sizes."""

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from icl_lab.costs.compiling import compiling
from icl_lab.costs.dry_session import DrySession
from icl_lab.costs.parts import Rest, Stage

SMALL = 0.01
"""Share of the sizes of evaluations that are run at first."""
RUN, LOOPED = 8.0, 15.0
"""Seconds for which evaluations are run at a larger share, and for which a loop goes on before it is left."""


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
    with compiling() as compiled:
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

            most = max(rest.compile_seconds, again.compile_seconds)  # what is kept is not compiled again
            seconds = whole(rest.seconds, again.seconds)
            rest = again._replace(seconds=seconds, compile_seconds=most, share=more)
            in_line = {name: _line(whole, stages.get(name, stage), stage) for name, stage in session.stages.items()}
            stages = stages | in_line  # a training that only one of the two came to counts as it was there
    return Cost(list(stages.values()), rest._replace(sizes=tuple(field.name for field in sizes)))


def _line(whole: Callable[[float, float], float], small: Stage, large: Stage) -> Stage:
    """A stage whose measurements see one of the sizes."""
    if small.operations != large.operations:  # of a grid, cells that only one of the two came to
        return max(small, large, key=lambda stage: stage.operations)
    measuring = whole(small.measure_seconds, large.measure_seconds)
    memory = int(whole(small.memory, large.memory))
    return large._replace(measure_seconds=measuring, memory=memory, step_seconds=small.step_seconds)


def _scaled(config: Any, sizes: list[dataclasses.Field], share: float) -> tuple[Any, float]:
    """A configuration with a share of its sizes, as little as is allowed where that is more; and the mean share."""
    whole = {f.name: getattr(config, f.name) for f in sizes}
    least = {f.name: math.ceil(f.metadata["at_least"] or 1) for f in sizes}
    taken = {name: min(value, max(least[name], math.ceil(share * value))) for name, value in whole.items()}
    shares = [taken[name] / whole[name] for name in whole]
    return dataclasses.replace(config, **taken), statistics.fmean(shares) if shares else 1.0
