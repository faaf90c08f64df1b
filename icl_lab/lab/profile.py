"""What a run compiles: how many programs, for how long, in which training; ``--profile`` prints it.

``JAX_LOG_COMPILES=1`` in the environment names every program.
"""

import collections
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax.monitoring
from rich.table import Table

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
"""Events of ``jax.monitoring``, and the part of compilation that each times; the last one ends a program."""
CACHED = "/jax/compilation_cache/cache_hits"
COUNTED = (*PHASES.values(), "programs", "cached")
OUTSIDE = "outside trainings"


class Profile:
    """Counts the programs that JAX compiles, by training, while ``listening``: ``found[training][counted]``."""

    def __init__(self):
        self.stage = OUTSIDE
        self.found: dict[str, dict[str, float]] = collections.defaultdict(lambda: dict.fromkeys(COUNTED, 0))

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
        self.found[self.stage]["cached"] += event == CACHED

    def _timed(self, event: str, duration_secs: float, **_: Any) -> None:
        if phase := PHASES.get(event):
            self.found[self.stage][phase] += duration_secs
            self.found[self.stage]["programs"] += phase == "compiling"

    def summary(self) -> dict[str, Any]:
        """``stages``: {stage: {tracing, lowering, compiling (seconds), programs, cached}}."""
        stages = self.found.items()
        return {"stages": {stage: {name: round(value, 2) for name, value in one.items()} for stage, one in stages}}


def table(provenance: Mapping[str, Any]) -> Table:
    """The profile of a finished run: a line for each training and for all else.

    Seconds of programs that were compiled side by side all count, so on several cores the parts may exceed the whole.
    Steps a second are those of all members together, in the seconds of a training beyond its compilation: measurements
    and checkpoints count, and for a training that is mostly compilation the number says little.
    """
    profile = Table("", "seconds", *COUNTED, "member-steps/s", title="Compilation (seconds)")
    stages = provenance["stages"]
    rest = provenance["seconds"] - sum(stage["seconds"] for stage in stages.values())
    for name, stage in (stages | {OUTSIDE: {"seconds": rest}}).items():
        one = provenance.get("compilation", {}).get("stages", {}).get(name, dict.fromkeys(COUNTED, 0))
        running = stage["seconds"] - sum(one[phase] for phase in PHASES.values())
        taken = stage.get("members", 0) * (stage.get("steps", 0) - stage.get("resumed", 0))
        rate = f"{taken / running:.0f}" if taken and running > 0 else ""
        profile.add_row(name, f"{stage['seconds']:.1f}", *(f"{one[of]:.4g}" for of in COUNTED), rate)
    return profile
