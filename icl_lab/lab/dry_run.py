"""``--dry_run``: what a run would cost. Trainings are tried for a second; for all else see the committed run.

The experiment runs with a session whose trainings are compiled, timed for a second, and returned hardly trained. It is
stopped once every training of the committed run has been tried, or after ``BUDGET`` seconds. What it did not come to is
taken from the seconds in the committed provenance, scaled by how fast this machine ran the trainings.
"""

import contextlib
import json
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Group
from rich.table import Table

from icl_lab.lab import flags
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError
from icl_lab.training.devices import member_mesh
from icl_lab.training.ensembles import Ensemble
from icl_lab.training.fitting import Fit
from icl_lab.training.members import member
from icl_lab.training.memory import GIB

BUDGET = 60.0
"""Seconds after which the run is stopped, or twice as many until its first training; one that has begun is finished."""
TRIED, OPERATIONS = 1.0, 5e9
"""Seconds for which a training is tried, and floating-point operations of one call of its compiled steps."""
GALLERY = Path(__file__).resolve().parents[2] / "figures"


class Stage(NamedTuple):
    """What one training would cost: seconds are of all members, ``memory`` is bytes on each device."""

    members: int
    steps: int
    step_seconds: float
    measure_seconds: float
    measurements: int
    compile_seconds: float
    memory: int

    def of(self, other: Mapping[str, float]) -> float:
        """How many times the steps of all members of another training these are."""
        return self.members * self.steps / (other["members"] * other["steps"])

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compile_seconds + self.steps * self.step_seconds + self.measurements * self.measure_seconds


class Cost(NamedTuple):
    """What a run would cost.

    Attributes:
      stages: trainings that were tried, by name.
      others: seconds of those that were not, by name, as far as they are known.
      rest: seconds of all that is no training; None: unknown.
      notes: where these numbers come from.
      runs: how many runs cost this (cells of a grid).
      left: the run was broken off, and the device may still be at work for it.
    """

    stages: dict[str, Stage]
    others: dict[str, float]
    rest: float | None
    notes: tuple[str, ...]
    runs: int = 1
    left: bool = False

    @property
    def seconds(self) -> float:
        """All that is known, of all runs."""
        trainings = sum(stage.seconds for stage in self.stages.values()) + sum(self.others.values())
        return self.runs * (trainings + (self.rest or 0.0))


def cost(experiment: Experiment, preset: str, config: Any, limit: float | None = None, gallery: Path = GALLERY) -> Cost:
    """What ``experiment.run(config, session)`` would cost here; found in two minutes at most, nothing is written.

    Args:
      experiment: what to run.
      preset: whose committed run is looked up; where there is none, that of the lab preset.
      config: its configuration.
      limit: bytes that training may use on each device; None: no limit.
      gallery: folder of the committed runs.

    Raises:
      FlagError: if a training does not fit into the limit.
    """
    found = committed(experiment, preset, gallery) or committed(experiment, "lab", gallery)
    unlike = found.unlike(config) if found else ()
    known = (found and found.stages) or {}
    if found and found.stages == {} and not unlike:
        return Cost({}, {}, found.seconds, (f"no trainings; all else as in {found}",))
    session = _DrySession(limit, known.keys() if found and found.preset == preset else ())
    began = time.perf_counter()
    finished, notes = _followed(experiment, config, session)
    ran, tried = time.perf_counter() - began - session.inside, session.stages
    if finished:
        trained = ", on networks that are hardly trained" if tried else ""
        return Cost(tried, {}, ran, (f"all else: timed just now{trained}",))
    both = [name for name in known if name in tried and known[name]["seconds"] > 0]
    if not found or not both:
        why = f"{found} does not say how long these trainings took" if found else "there is no committed run"
        what = f"all else, and trainings that come later: unknown, as {why}; they ran for {ran:.0f} s here"
        return Cost(tried, {}, None, (*notes, what), left=True)
    there, here = (sum(seconds) for seconds in zip(*((known[name]["seconds"], tried[name].seconds) for name in both)))
    as_much = sum(known[name]["seconds"] * tried[name].of(known[name]) for name in both)  # there, of what is done here
    others = {name: one["seconds"] * here / there for name, one in known.items() if name not in tried}
    rest = max(found.seconds - sum(one["seconds"] for one in known.values()), 0.0)
    rest *= here / as_much * config.members / found.config["members"]
    scaled = (
        f"{len(both)} of {len(known)} trainings tried; they take {here / there:.2g} times what they took in {found}"
    )
    slower = f"all else: as there, times {here / as_much:.2g}, by which a step of a member takes longer here"
    return Cost(tried, others, rest, (*notes, scaled, slower, *unlike), left=True)


def of_cells(experiment: Experiment, preset: str, configs: Sequence[Any], limit: float | None = None) -> list[Cost]:
    """What the cells of a grid would cost; those that differ in real numbers or the seed alone are tried once."""
    alike: dict[str, list[Any]] = {}
    for config in configs:
        plain = flags.to_json(config).items()
        sizes = {name: value for name, value in plain if name != "seed" and not isinstance(value, float)}
        alike.setdefault(json.dumps(sizes), []).append(config)
    return [cost(experiment, preset, cells[0], limit)._replace(runs=len(cells)) for cells in alike.values()]


class Committed(NamedTuple):
    """A run of the gallery; ``stages`` is None where it does not say what its trainings took."""

    preset: str
    config: dict[str, Any]
    seconds: float
    device: str
    stages: dict[str, dict[str, float]] | None

    def __str__(self) -> str:
        return f"the committed {self.preset} run ({duration(self.seconds)} on {self.device})"

    def unlike(self, config: Any) -> tuple[str, ...]:
        """A line that names the settings in which a configuration differs, where there are any."""
        now = flags.to_json(config)
        names = [f"{k}={self.config.get(k)} there" for k in now if now[k] != self.config.get(k) and k != "seed"]
        return (f"other settings than here: {', '.join(names)}",) if names else ()


def committed(experiment: Experiment, preset: str, gallery: Path = GALLERY) -> Committed | None:
    """The run of a binary and preset that is in the gallery, None where there is none."""
    folder = gallery.joinpath(*experiment.name.split("."), preset)
    try:
        origin, config = (json.loads((folder / f"{name}.json").read_text()) for name in ("provenance", "config"))
    except OSError:
        return None
    stages = origin.get("stages")
    if stages and not all(one["memory"] and "steps" in one for one in stages.values()):
        stages = None  # an older record, or a run that was resumed: these seconds are not all
    return Committed(preset, config, origin["seconds"], f"{origin['device']} with {origin['cpus']} cores", stages)


def table(costs: Sequence[Cost]) -> Group:
    """A row a training, all else, where the numbers come from, and the sum."""
    shown = Table("", "members", "steps", "ms a step", "ms a measurement", "GiB", "compile", "seconds")
    for column in shown.columns[1:]:
        column.justify = "right"
    notes = [
        "trainings: steps and measurements of all members were timed; GiB: of the compiled programs, on each device"
    ]
    for found in costs:
        for name, one in found.stages.items():
            times = f"{1e3 * one.step_seconds:.3g}", f"{1e3 * one.measure_seconds:.3g} x {one.measurements}"
            memory = f"{one.memory / GIB:.3g}", f"{one.compile_seconds:.1f}", f"{one.seconds:.0f}"
            shown.add_row(name, f"{one.members}", f"{one.steps}", *times, *memory)
        if found.others:
            shown.add_row(f"{len(found.others)} other trainings", *[""] * 6, f"{sum(found.others.values()):.0f}")
        shown.add_row("all else", *[""] * 6, "unknown" if found.rest is None else f"{found.rest:.0f}")
        if found.runs > 1:
            shown.add_row(f"{found.runs} cells like this", *[""] * 6, f"{found.seconds:.0f}")
        shown.add_section()
        notes += [note for note in found.notes if note not in notes]
    word = "at least" if any(found.rest is None for found in costs) else "about"
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    total = f"{word} {duration(sum(found.seconds for found in costs))} on {devices}; nothing of it is done yet"
    return Group(shown, *notes, "not counted: start-up, figures", total)


def duration(seconds: float) -> str:
    """``40 s``, ``4 min``, ``3.2 h`` or ``120 h``."""
    size, unit = (3600, "h") if seconds >= 5400 else (60, "min") if seconds >= 90 else (1, "s")
    return f"{seconds / size:.0f} {unit}" if size == 1 or seconds >= 100 * size else f"{seconds / size:.2g} {unit}"


class _DrySession:
    """Stands in for ``Session``: trainings are tried instead of done."""

    def __init__(self, limit: float | None, wanted: Any):
        self.stages: dict[str, Stage] = {}
        self.inside, self.trying, self.late = 0.0, False, False
        self._limit, self._wanted = limit, set(wanted)

    def fit(self, stage: str, *args: Any, **options: Any) -> Fit:
        """A ``Fit`` of the right shapes: parameters after a few steps, one measurement again and again."""
        began, self.trying = time.perf_counter(), True
        self.stages[stage], fitted = _tried(self._limit, *args, **options)
        self.inside, self.trying = self.inside + time.perf_counter() - began, False
        if self.late or (self._wanted and self._wanted <= self.stages.keys()):
            raise _Enough
        return fitted

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[int, int], None]]:
        """``Session.bar`` that shows nothing."""
        yield lambda done, total: None


class _Enough(BaseException):
    """The run has been followed for long enough; no ``except Exception`` of an experiment takes it."""


def _followed(experiment: Experiment, config: Any, session: Any) -> tuple[bool, list[str]]:
    """Runs the experiment until its end or that of the budget; whether it came to its end, and what is to be said."""

    def late(*_: Any) -> None:
        first, session.late = not session.late, True
        if first and not session.stages:
            signal.setitimer(signal.ITIMER_REAL, BUDGET)
        elif not session.trying:
            raise _Enough

    before = signal.signal(signal.SIGALRM, late)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, BUDGET)
            experiment.run(config, session)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    except _Enough:
        return False, []
    except FlagError:
        raise
    except Exception as error:  # hardly trained networks may lack what a run looks for
        if not session.stages or session.trying:
            raise
        return False, [f"stopped where it failed on hardly trained networks ({type(error).__name__}: {error})"]
    return True, []


def _tried(
    limit: float | None, init: Any, loss: Any, optimizer: Any, keys: jax.Array, settings: Any = None, *, steps: int,
    measure: Any = None, measure_every: int | None = None, members_at_once: int | None = None, schedule: Any = None,
    measure_schedule: Any = None, adapt: Any = None,
) -> tuple[Stage, Fit]:  # fmt: skip
    """What ``fit`` with these arguments costs, and what it would return after a few steps."""
    began = time.perf_counter()
    one = member(init, loss, optimizer, measure, schedule, measure_schedule)
    settings = jax.tree.map(jnp.asarray, settings)
    of_one = jax.tree.map(lambda leaf: leaf[0], (keys, settings))
    step = jax.jit(one.step).lower(jax.eval_shape(one.begin, *of_one), *of_one)
    operations = (step.cost_analysis() or {}).get("flops", 0.0) * len(keys)
    every = measure_every or steps
    chunk = min(every, 1000, max(1, int(OPERATIONS / max(operations, 1.0))))  # of small steps 1000 are enough
    ensemble = Ensemble(
        one.begin, one.chunk(chunk), one.observe, keys, settings,
        members_at_once=members_at_once, mesh=member_mesh(), memory_limit=limit,
    )  # fmt: skip
    state = jax.block_until_ready(ensemble.begin(settings))
    compiling = time.perf_counter() - began
    (state, _), advancing = _timed(lambda: ensemble.advance(state, settings))
    found, measuring = _timed(lambda: ensemble.gathered(jax.device_get(ensemble.observe(state, settings))))
    count = steps // every + 1
    rows = {name: np.repeat(np.asarray(value)[:, None], count, axis=1) for name, value in found.items()}
    params = jax.tree.map(jnp.asarray, ensemble.gathered(state).params)
    fitted = Fit(
        params, every * np.arange(count), {"train_loss": np.full((len(keys), count), np.nan)} | rows,
        np.full(len(keys), -1), ensemble.memory,
    )  # fmt: skip
    return Stage(len(keys), steps, advancing / chunk, measuring, count, compiling, ensemble.memory), fitted


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its median seconds; the first call only counts where it takes long."""
    taken: list[float] = []
    while sum(taken) < TRIED or (len(taken) == 1 and taken[0] < 5 * TRIED):
        began = time.perf_counter()
        found = jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
    return found, statistics.median(taken[1:] or taken)
