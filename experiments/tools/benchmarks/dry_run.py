"""What ``--dry_run`` says of whole runs, against what they take."""

import tempfile
from pathlib import Path

import jax

from experiments.binaries import discover
from experiments.tools.benchmarks.timing import Config, Row
from icl_lab.lab.dry_run import cost
from icl_lab.lab.execution import execute

PRESET = "lab"
BINARIES = (
    "reddy.curriculum", "von_oswald.label_couplings", "von_oswald.roll_out", "von_oswald.softmax",
    "von_oswald.weight_maps",
)  # fmt: skip


def dry_run(_: Config) -> dict[str, list[Row]]:
    """Five lab presets: seconds of the run, and of what was said before it. ``said over taken``: from 2/3 to 1.5.

    A row in which part of the run was unknown (no committed record says what its trainings took) counts as ``known`` 0.
    """
    rows, experiments = [], discover()
    for name in BINARIES:
        experiment = experiments[name]
        config = experiment.presets[PRESET]
        jax.clear_caches()
        said = cost(experiment, PRESET, config)
        jax.clear_caches()
        with tempfile.TemporaryDirectory() as folder:
            taken = execute(experiment, PRESET, config, Path(folder)).seconds
        columns = {
            "said s": said.seconds,
            "said over taken": said.seconds / taken,
            "known": float(said.rest is not None),
        }
        rows.append(Row(name, 1e3 * taken, None, columns))
    return {f"dry runs at the {PRESET} preset": rows}
