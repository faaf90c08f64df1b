"""What a run compiles: how many programs, for how long, in which training; ``--profile`` prints it."""

import collections
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax.monitoring
from rich.box import SIMPLE_HEAD
from rich.table import Table

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
"""Events of ``jax.monitoring``, and the part of compilation that each times; the last one ends a program."""
CACHED = "/jax/compilation_cache/cache_hits"
OUTSIDE = "outside trainings"
LONGEST = 15


class Profile:
    """Counts the programs that JAX compiles, by training and by name, while ``listening``."""

    def __init__(self):
        self.stage = OUTSIDE
        self.found: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
        self._cached = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Inside this block everything that is compiled counts."""
        jax.monitoring.register_event_duration_secs_listener(self._timed)
        jax.monitoring.register_event_listener(self._said)
        try:
            yield
        finally:
            jax.monitoring.unregister_event_duration_listener(self._timed)
            jax.monitoring.unregister_event_listener(self._said)

    @contextlib.contextmanager
    def training(self, stage: str) -> Iterator[None]:
        """What is compiled in this block belongs to this training."""
        self.stage = stage
        try:
            yield
        finally:
            self.stage = OUTSIDE

    def _said(self, event: str, **_: Any) -> None:
        self._cached += event == CACHED

    def _timed(self, event: str, duration_secs: float, **metadata: Any) -> None:
        if phase := PHASES.get(event):
            called = str(metadata.get("fun_name", ""))
            name = called if called.startswith("jit(") else f"jit({called})"
            one = self.found[self.stage, name]
            one[phase] += duration_secs  # type: ignore[assignment]
            if phase == "compiling":
                one.update(programs=1, cached=self._cached)
                self._cached = 0

    def summary(self) -> dict[str, Any]:
        """``stages``: {stage: {programs, cached, tracing, lowering, compiling}}, in seconds; ``longest``: programs."""
        stages: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for (stage, _), one in self.found.items():
            stages[stage].update(one)
        longest = sorted(self.found.items(), key=lambda item: -_seconds(item[1]))[:LONGEST]
        return {
            "stages": {stage: _plain(one) for stage, one in stages.items()},
            "longest": [{"stage": stage, "program": name} | _plain(one) for (stage, name), one in longest],
        }


def _plain(one: Mapping[str, float]) -> dict[str, float]:
    counts = {name: int(one.get(name, 0)) for name in ("programs", "cached")}
    return counts | {phase: round(one.get(phase, 0.0), 2) for phase in PHASES.values()}


def _seconds(one: Mapping[str, float]) -> float:
    return sum(one.get(phase, 0.0) for phase in PHASES.values())


def table(provenance: Mapping[str, Any]) -> Table:
    """The profile of a finished run: a line for each training and for all else, then for the slowest programs.

    Seconds of programs that were compiled side by side all count, so on several cores the parts may exceed the whole.
    Steps a second are those of all members together, in the seconds of a training beyond its compilation: measurements
    and checkpoints count, and for a training that is mostly compilation the number says little.
    """
    columns = ("", "seconds", *PHASES.values(), "programs", "from cache", "member-steps/s")
    found = Table(*columns, title="Compilation (seconds)", box=SIMPLE_HEAD, title_justify="left")
    summary, stages = provenance.get("compilation", {}), provenance["stages"]
    compiled, nothing = summary.get("stages", {}), _plain({})
    rest = provenance["seconds"] - sum(stage["seconds"] for stage in stages.values())
    total = collections.Counter()  # type: ignore[var-annotated]
    for name in (*stages, OUTSIDE):
        one, stage = compiled.get(name, nothing), stages.get(name, {"seconds": rest})
        running = stage["seconds"] - _seconds(one)
        rate = f"{stage['members'] * stage['steps'] / running:.0f}" if "steps" in stage and running > 0 else ""
        found.add_row(name, f"{stage['seconds']:.1f}", *_cells(one), rate)
        total.update(one)
    found.add_row("all", f"{provenance['seconds']:.1f}", *_cells(total), end_section=True)
    for one in summary.get("longest", []):
        found.add_row(f"{one['program']} in {one['stage']}", f"{_seconds(one):.1f}", *_cells(one), "")
    return found


def _cells(one: Mapping[str, float]) -> list[str]:
    return [f"{one[phase]:.1f}" for phase in PHASES.values()] + [str(one["programs"]), str(one["cached"])]
