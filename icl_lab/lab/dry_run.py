"""What a run would cost: every training compiled and timed for a moment, and all else from a run that is committed.

``cost`` follows what is measured on networks that were hardly trained, and nothing is written. A run that ends within
the budget is timed as it is; else the rest is what the committed run of that preset (``lab`` where there is none) took
beside its trainings, scaled by the speed of the trainings.
"""

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.lab import flags
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError
from icl_lab.lab.trainings import Fits, Unkept, Yield, collected
from icl_lab.training.ensembles import Ensemble, member_mesh
from icl_lab.training.fitting import Fit, member
from icl_lab.training.memory import GIB, DoesNotFitError
from icl_lab.training.plans import Training

BUDGET = 60.0
TRIED, CALLS, OPERATIONS = 1.0, 100, 5e9
"""Seconds or calls for which a program is tried, and floating-point operations of one call of the compiled steps."""
GALLERY = Path(__file__).resolve().parents[2] / "figures"


class Stage(NamedTuple):
    """What one training would cost, compilation and measurements included; ``memory`` is bytes on each device."""

    members: int
    steps: int
    seconds: float
    memory: int
    compiling: float = 0.0  # of the seconds


class Cost(NamedTuple):
    """What a run would cost: its trainings, seconds of all else (None: unknown), and where these come from."""

    stages: dict[str, Stage]
    rest: float | None
    note: str

    @property
    def seconds(self) -> float:
        """All that is known."""
        return sum(stage.seconds for stage in self.stages.values()) + (self.rest or 0.0)


class _Enough(BaseException):
    """The run has been followed for long enough; no ``except Exception`` of an experiment takes it."""


def cost(experiment: Experiment, preset: str, config: Any, limit: float | None = None, gallery: Path = GALLERY) -> Cost:
    """What a run of this configuration would cost here, with so many bytes on each device; nothing is written.

    Raises:
      DoesNotFitError: if a training does not fit into the limit.
    """
    folder, tried = gallery.joinpath(*experiment.name.split(".")), dict[str, Stage]()
    folder /= preset if (folder / preset / "provenance.json").exists() else "lab"
    origin, committed = (_json(folder / name) for name in ("provenance.json", "config.json"))
    differing = {k: v for k, v in flags.to_json(config).items() if v != committed.get(k) and k != "seed"}
    unlike = [f"{k}={committed.get(k)}" for k in differing]
    only_numbers = all(type(v) in (int, float) for v in differing.values())  # lists and words add trainings
    known = origin.get("stages", {"": {}})
    if not known and not unlike:
        return Cost({}, origin["seconds"], f"as in the committed {folder.name} run")
    if not all(one.get("memory") and "steps" in one and not one.get("resumed") for one in known.values()):
        known = {}  # an older record does not say all, and the seconds of a run that was resumed are not all
    began, trying = time.perf_counter(), 0.0

    def fit(stage: str, training: Training) -> Fit:
        nonlocal trying
        start = time.perf_counter()
        tried[stage], fitted = _tried(limit, training)
        trying += time.perf_counter() - start
        if known and only_numbers and folder.name == preset and known.keys() <= tried.keys():
            raise _Enough
        in_time()
        return fitted

    def in_time(*_: int) -> None:
        if time.perf_counter() - began > BUDGET:
            raise _Enough

    class Timed(Unkept):
        def save(self, tree: Callable[[], Any], finished: bool) -> None:
            in_time()

    def followed(pieces: Iterable[Yield]) -> Iterator[Yield]:
        for piece in pieces:
            yield piece
            in_time()

    try:
        with experiment.compiling(preset):
            fits = Fits(
                experiment.trainings(config), fit,
                bar=lambda label, total: contextlib.nullcontext(in_time), checkpoint=lambda name: Timed(),
            )  # fmt: skip
            collected(followed(experiment.measured(config, fits)))
        return Cost(tried, time.perf_counter() - began - trying, "timed just now")
    except _Enough:
        why = "stopped after its last training or its budget"
    except (FlagError, DoesNotFitError):
        raise
    except Exception as error:  # hardly trained networks may lack what a run looks for
        if not tried:
            raise
        why = f"stopped where it failed on hardly trained networks ({type(error).__name__}: {error})"
    both = [(known[name], stage) for name, stage in tried.items() if name in known]
    as_long = sum(one["seconds"] * stage.members * stage.steps / (one["members"] * one["steps"]) for one, stage in both)
    if not as_long:
        return Cost(tried, None, f"{why}; no committed run says what its trainings took")
    slower = sum(stage.seconds - stage.compiling for _, stage in both) / as_long
    rest = origin["seconds"] - sum(one["seconds"] for one, _ in both)
    left = f"with {len(known) - len(both)} trainings not tried, {rest:.0f} s of the committed {folder.name} run"
    note = f"{why}; {left} on {origin['device']} ({', '.join(unlike) or 'the same settings'}), times {slower:.2g}"
    return Cost(tried, rest * slower * config.members / committed["members"], note)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}


def said(found: Cost, runs: int = 1) -> str:
    """A line for each training and for all else, and the sum of so many runs like this one."""
    lines = [
        f"{name}: {one.members} members x {one.steps} steps x {1e3 * one.seconds / one.members / one.steps:.3g} ms = "
        f"{one.seconds:.0f} s with compilation, {one.memory / GIB:.3g} GiB on each device"
        for name, one in found.stages.items()
    ]
    lines.append(f"all else: {'unknown' if found.rest is None else f'{found.rest:.0f} s'}; {found.note}")
    seconds, word = runs * found.seconds, "at least" if found.rest is None else "about"
    size, unit = (3600, "h") if seconds >= 5400 else (60, "min") if seconds >= 90 else (1, "s")
    where = f"{jax.device_count()} x {jax.devices()[0].device_kind}, without start-up, checkpoints and figures"
    cells = f", for {runs} cells like the first" if runs > 1 else ""
    return "\n".join([*lines, f"{word} {seconds / size:.3g} {unit} on {where}{cells}"])


def _tried(limit: float | None, training: Training) -> tuple[Stage, Fit]:
    """What a training costs, and what it would give after a few steps."""
    began = time.perf_counter()
    keys, steps, settings = training.keys, training.steps, jax.tree.map(jnp.asarray, training.settings)
    one = member(
        training.init, training.loss, training.optimizer, training.measure, training.schedule,
        training.measure_schedule,
    )  # fmt: skip
    of_one = jax.tree.map(lambda leaf: leaf[0], (keys, settings))
    step = jax.jit(one.step).lower(jax.eval_shape(one.begin, *of_one), *of_one)
    operations = (step.cost_analysis() or {}).get("flops", 0.0) * len(keys)
    every = training.measure_every or steps
    chunk = min(every, 1000, max(1, int(OPERATIONS / max(operations, 1.0))))  # of small steps 1000 are enough
    ensemble = Ensemble(
        one.begin, one.chunk(chunk), one.observe, keys, settings,
        members_at_once=training.members_at_once, mesh=member_mesh(), memory_limit=limit,
    )  # fmt: skip
    state = jax.block_until_ready(ensemble.begin())
    compiling = time.perf_counter() - began
    (state, _), advancing = _timed(lambda: ensemble.advance(state))
    values, measuring = _timed(lambda: ensemble.gathered(jax.device_get(ensemble.observe(state))))
    count = -(-steps // every) + 1
    values = {"train_loss": np.full(len(keys), np.nan)} | values
    rows = {name: np.repeat(np.asarray(value)[:, None], count, axis=1) for name, value in values.items()}
    params = jax.tree.map(jnp.asarray, ensemble.gathered(state).params)
    fitted = Fit(params, np.minimum(every * np.arange(count), steps), rows, np.full(len(keys), -1), ensemble.memory)
    seconds = compiling + advancing * steps / chunk + measuring * count
    return Stage(len(keys), steps, seconds, ensemble.memory, compiling), fitted


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its median seconds; the first call only counts where it takes long."""
    taken: list[float] = []
    spent = 0.0
    while (spent < TRIED and len(taken) < CALLS) or (len(taken) == 1 and spent < 5 * TRIED):
        began = time.perf_counter()
        result = jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
        spent += taken[-1]
    return result, statistics.median(taken[1:] or taken)
