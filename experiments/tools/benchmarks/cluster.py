"""What it costs to run many members: in one program, in one process, on several devices.

Seconds of cores are CPU time of all threads, so that a form that keeps two cores busy is not taken for a faster one.
"""

import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tools.benchmarks.programs import by_fit
from experiments.tools.benchmarks.timing import Config, Row, chunks_of_fit
from experiments.von_oswald.common import Setting
from icl_lab.models import LinearSelfAttention

Tables = Iterator[tuple[str, list[Row]]]
Clocks = Callable[[], Sequence[float]]

BINARY = "experiments.von_oswald.roll_out"
SMALL = ("--preset=quick", "--eval_tasks=500", "--oracle_contexts=1000", "--applications=4", "--dampings=1")
"""A binary whose run is little but its training, once it is compiled."""


def cluster(config: Config) -> Tables:
    """Tables as they come: members by core-second, start-up, simulated devices."""
    yield f"members in one program, batch {config.ensemble_batch}, by core-seconds", by_core_seconds(config)
    title = f"{config.grown_members} members of {config.grown_steps} steps, batch {config.ensemble_batch}"
    yield f"{title}, start-up and compilation counted", whole_processes(config)
    yield f"{config.ensemble} members at batch {config.ensemble_batch} on simulated devices", simulated(config)


def by_core_seconds(config: Config) -> list[Row]:
    """A step of a member in core-milliseconds, after compilation: one member alone, and many in one program.

    The ratio is of member-steps per core-second.
    """
    network = LinearSelfAttention(layers=1, looped=True)
    setting = Setting(batch=config.ensemble_batch)
    many, chunk = config.ensemble, config.chunk
    alone, together = "1 member", f"{many} members in one program"
    forms = {
        alone: by_fit(network, setting, many * chunk),
        together: by_fit(network, setting, chunk, many),
    }
    with chunks_of_fit(forms) as fits:
        turns: dict[str, Clocks] = {name: _clocked(fits[name]) for name in forms}
        seconds = in_turns(turns, config.rounds, warm_up=2)
    units = many * chunk
    return [_row(name, s, seconds[alone], units, "member-steps") for name, s in seconds.items()]


def whole_processes(config: Config) -> list[Row]:
    """A run of the binary with all members in one process, against a process for each member; nothing is left out.

    Some processes of one member are run, spread over the rounds; their median is taken as many times as there are
    members. Cold: the folder of compiled programs is empty. Warm: it has those of an earlier run of the same sizes. The
    ratio is of core-seconds; ``wall s`` of the single processes is what they take one after the other.
    """
    found, members = [], config.grown_members
    words = [f"--batch={config.ensemble_batch}", f"--steps={config.grown_steps}"]
    words.append(f"--measure_every={config.grown_steps}")
    with tempfile.TemporaryDirectory() as root:
        for state in ("cold", "warm"):
            singles, together = [], []
            for i in range(config.processes):
                place = Path(root, "one" if state == "warm" else f"one_{i}")
                singles.append(_process([*words, "--members=1", f"--seed={i}"], place, f"{state}_{i}", state == "warm"))
                if i % 2 == 0:
                    place = Path(root, "all" if state == "warm" else f"all_{i}")
                    all_of = [*words, f"--members={members}"]
                    together.append(_process(all_of, place, f"{state}_{i}", state == "warm"))
            alone = members * np.median(singles, axis=0)
            one = np.median(together, axis=0)
            steps = members * config.grown_steps
            for name, seconds in ((f"{members} processes of 1 member", alone), (f"1 process of {members}", one)):
                found.append(_row(f"{name}, {state}", seconds[None], alone[None], steps, "member-steps"))
    return found


def simulated(config: Config) -> list[Row]:
    """The same ensemble on one device and on several simulated ones, after compilation.

    Every number of devices has a process of its own, as it cannot change within one; they take turns by chunks. The
    ratio is of seconds by the clock, which is what devices are for.
    """
    asked = {"members": config.ensemble, "batch": config.ensemble_batch, "chunk": config.chunk}
    with contextlib.ExitStack() as stack:
        turns = {n: stack.enter_context(trainer(asked | {"devices": n})) for n in config.devices}
        seconds = in_turns(turns, config.rounds, warm_up=2)
    base, units = seconds[config.devices[0]], config.ensemble * config.chunk
    rows = []
    for n, s in seconds.items():
        row = _row(f"{n} device{'s' * (n > 1)}", s, base, units, "member-steps")
        by_clock = float(np.median(base[:, 0] / s[:, 0]))
        rows.append(
            dataclasses.replace(row, ratio=by_clock, columns={**row.columns, "ratio of core-s": row.ratio or 0})
        )
    return rows


def in_turns(turns: Mapping, rounds: int, warm_up: int) -> dict:
    """(rounds, 2) seconds by the clock and of cores, of everything that takes turns, after what compiles."""
    for _ in range(warm_up):
        for run in turns.values():
            run()
    found = {name: np.empty((rounds, 2)) for name in turns}
    for r in range(rounds):
        for name, run in turns.items():
            found[name][r] = run()
    return found


def _clocked(run: Callable[[], None]) -> Clocks:
    def clocked() -> Sequence[float]:
        started = time.perf_counter(), time.process_time()
        run()
        return time.perf_counter() - started[0], time.process_time() - started[1]

    return clocked


def _row(name: str, seconds: np.ndarray, base: np.ndarray, units: int, unit: str) -> Row:
    """Core-milliseconds of a unit; the ratio is of units per core-second to those of the base."""
    wall, cores = np.median(seconds, axis=0)
    columns = {f"{unit}/core-s": units / cores, "core s": cores, "wall s": wall, "cores": cores / wall}
    ratio = float(np.median(base[:, 1] / seconds[:, 1]))
    return Row(name, float(1e3 * cores / units), ratio, {key: float(value) for key, value in columns.items()})


def _process(words: Sequence[str], place: Path, name: str, warm: bool) -> tuple[float, float]:
    """Seconds by the clock and of cores of one run; what it compiles is kept in ``place``, where it starts."""
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", BINARY, *SMALL, *words]
    if warm and not (place / "runs").exists():
        _run([*command, "--outdir=first"], place)
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    _run([*command, f"--outdir={name}"], place)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cores


def _run(command: Sequence[str], place: Path) -> None:
    done = subprocess.run(command, cwd=place, env=_environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-2000:]}")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


@contextlib.contextmanager
def trainer(asked: Mapping[str, Any]) -> Iterator[Clocks]:
    """A process of ``chunks_run``; calling it runs a chunk there."""
    command = [sys.executable, "-m", "experiments.tools.benchmarks.chunks_run", json.dumps(asked)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=_environment(), text=True, **pipes) as process:  # type: ignore[call-overload]

        def chunk() -> Sequence[float]:
            process.stdin.write("\n")
            process.stdin.flush()
            if not (answer := process.stdout.readline()):
                raise RuntimeError(f"the process of {asked['devices']} devices ended with status {process.wait()}")
            return json.loads(answer)

        yield chunk
        process.stdin.close()
