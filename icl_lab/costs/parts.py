"""What a dry run says of each part of a run: its trainings, and all else."""

from typing import NamedTuple


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
