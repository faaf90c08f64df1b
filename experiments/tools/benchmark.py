"""Times the laboratory: training steps, members in one program, start-up, the page. Compilation is timed apart.

    python -m experiments.benchmark

The baseline is plain JAX: the same network, batch and optimizer, one task vmapped, a Python loop that calls a jitted
per-task sampler and then a jitted step. What is compared takes turns in rounds; milliseconds are medians over rounds
and ratios are medians of the ratio within a round. One run says how fast one machine was on one day: the record names
it, with its load.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.table import Table

from experiments.tools.benchmarks.first_answer import first_answer
from experiments.tools.benchmarks.induction import induction
from experiments.tools.benchmarks.startup import startup
from experiments.tools.benchmarks.timing import PARTS, Config, Row
from experiments.tools.benchmarks.training import members, others, steps
from icl_lab.lab import flags, records
from icl_lab.lab.command_line import Screen, command
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.provenance import provenance

RUN: dict[str, Callable[[Config], dict[str, list[Row]]]] = {
    "steps": steps,
    "others": others,
    "induction": induction,
    "members": members,
    "startup": startup,
    "page": first_answer,
}


def chosen(config: Config, given: bool) -> list[str]:
    """The parts to run: those named, or the default, which on an accelerator has ``members`` too."""
    names = set(config.only)
    if not given and jax.default_backend() != "cpu":
        names.add("members")
    return [name for name in PARTS if name in names]


def benchmark(config: Config, parts: Sequence[str], show: Callable[[str, list[Row]], None]) -> dict[str, Any]:
    """Runs the parts; the record of tables of rows, configuration, machine and load."""
    started, load, tables = time.perf_counter(), [os.getloadavg()], {}
    for part in parts:
        for title, rows in RUN[part](config).items():
            tables[title] = rows
            show(title, rows)
    origin = provenance(time.perf_counter() - started)
    load.append(os.getloadavg())
    machine = {"backend": jax.default_backend(), "load_before": load[0], "load_after": load[1]}
    return {"config": flags.to_json(config), "tables": tables, "machine": machine, "provenance": origin}


def as_table(title: str, rows: list[Row]) -> Table:
    """A rich table with a column for everything that some row has."""
    table = Table(title=title, title_justify="left")
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if value is not None))
    for column in columns:
        table.add_column(column, justify="left" if column == "name" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    return table


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclasses.dataclass(frozen=True)
class Options(Config):
    """Flags of ``python -m experiments.benchmark``."""

    save: str = setting("", "file for the record, as JSON; empty: none", path=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status (0 done, 2 refused, 130 interrupted)."""
    return command(__doc__, Options(), _carry_out, argv)


def _carry_out(options: Options) -> int:
    path = Path(options.save)
    if options.save and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise FlagError(f"--save={path}: allowed is a file in a folder that exists and can be written")
    config = Config(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Config)})
    console = Screen() if sys.stdout.isatty() else Screen(width=200)
    parts = chosen(config, config.only != Config().only)
    try:
        record = benchmark(config, parts, lambda title, rows: console.print(as_table(title, rows)))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    loads = " to ".join(f"{record['machine'][f'load_{when}'][0]:.1f}" for when in ("before", "after"))
    origin = record["provenance"]
    console.print(f"{origin['seconds']} s on {origin['device']}, {origin['cpus']} CPUs, load average {loads}")
    if options.save:
        records.write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    return 0
