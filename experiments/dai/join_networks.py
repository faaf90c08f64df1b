"""Joins runs of ``pretrain`` that trained some networks each into one record, as one run would have written it.

    python -m experiments.dai.join_networks --outdir=FOLDER --runs=RUN,RUN

Networks are told apart by their position encoding and their number (``--first`` and on); apart from these the runs must
have one configuration, and the same sources and versions. With --keep=5 the record keeps the parameters of the first
five networks of each encoding only, and the arrays of all.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dai import pretrain
from experiments.dai.common import ENCODINGS
from icl_lab.lab import FlagError, flags, records, setting
from icl_lab.lab.command_line import DONE, command
from icl_lab.lab.experiment import draw
from icl_lab.lab.record import Record

SHARE = ("positions", "members", "fewer", "first")
"""What runs that are joined may differ in: which networks they have."""
SAME = ("sources", "versions", "precision")
"""Of the provenance, what decides the numbers."""


def joined(runs: Sequence[Record], keep: int | None = None) -> Record:
    """One record of all networks, in the order of their numbers, the parameters of the first ``keep`` of an encoding.

    Raises:
      FlagError: for runs that do not belong together, or numbers with a gap; naming what differs or lacks.
    """
    _check(runs)
    first = min(run.config["first"] for run in runs)
    where = {positions: _where(runs, positions, first) for positions in ENCODINGS}
    there = [positions for positions in ENCODINGS if where[positions]]
    counts = [len(where[positions]) for positions in there]
    whole = max(there, key=lambda positions: len(where[positions]))
    of_worlds = [name for name, axes in runs[0].axes.items() if axes[0] == "member"]
    arrays = {name: _stack(where[whole], lambda run, name=name: run.arrays[name]) for name in of_worlds}
    axes = {name: runs[0].axes[name] for name in of_worlds}
    params: dict[str, np.ndarray] = {}
    for positions in there:
        sources = where[positions]
        names = [name for name in sources[0][0].arrays if name.startswith(f"{positions}/")]
        arrays |= {name: _stack(sources, lambda run, name=name: run.arrays[name]) for name in names}
        axes |= {name: sources[0][0].axes[name] for name in names}
        kept = [name for name in sources[0][0].params if name.startswith(f"{positions}/")]
        params |= {name: _stack(sources[:keep], lambda run, name=name: run.params[name]) for name in kept}
    config = dict(runs[0].config) | {"positions": there, "members": max(counts), "first": first}
    config["fewer"] = counts[1:] or config["fewer"]
    preset = runs[0].preset.split(" ")[0]
    label = pretrain.EXPERIMENT.label(preset, flags.from_json(pretrain.Config, config))
    return Record(pretrain.EXPERIMENT.name, label, config, runs[0].metrics, arrays, _provenance(runs), axes, params)


def _check(runs: Sequence[Record]) -> None:
    for run in runs:
        if run.experiment != pretrain.EXPERIMENT.name:
            raise FlagError(f"a run of {run.experiment} was given; allowed are runs of {pretrain.EXPERIMENT.name}")
        differing = [name for name in run.config if name not in SHARE and run.config[name] != runs[0].config.get(name)]
        differing += [name for name in SAME if run.provenance.get(name) != runs[0].provenance.get(name)]
        if differing:
            raise FlagError(f"the runs differ in {', '.join(differing)}; allowed are {', '.join(SHARE)}")


def _where(runs: Sequence[Record], positions: str, first: int) -> list[tuple[Record, int]]:
    """The run of every network of an encoding and its place there, in the order of their numbers."""
    found: dict[int, tuple[Record, int]] = {}
    for run in runs:
        if positions in run.config["positions"]:
            for place in range(len(run.arrays[f"{positions}/reached"])):
                number = run.config["first"] + place
                if number in found:
                    raise FlagError(f"{positions} network {number} is in two of the runs; allowed is one")
                found[number] = run, place
    if lacking := sorted(set(range(first, max(found, default=first - 1) + 1)) - found.keys()):
        raise FlagError(f"no run has the {positions} networks {lacking}; allowed are numbers in a row")
    return [found[number] for number in sorted(found)]


def _stack(sources: Sequence[tuple[Record, int]], values: Any) -> np.ndarray:
    return np.stack([values(run)[place] for run, place in sources])


def _provenance(runs: Sequence[Record]) -> dict[str, Any]:
    """That of the first run, with all stages and the seconds of all; ``joined`` says what each run took."""
    own = [{name: run.provenance.get(name) for name in ("commit", "seconds", "started", "finished")} for run in runs]
    for one, run in zip(own, runs):  # without the folder, which is of one machine
        one["command"] = [word for word in run.provenance.get("command") or () if not word.startswith("--outdir")]
    stages = {name: stage for run in runs for name, stage in run.provenance.get("stages", {}).items()}
    seconds = round(sum(one["seconds"] or 0.0 for one in own), 1)
    return dict(runs[0].provenance) | {"stages": stages, "seconds": seconds, "joined": own}


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.dai.join_networks``."""

    runs: tuple[str, ...] = setting((), "folders of the finished runs of dai.pretrain")
    outdir: str = setting("", "folder of the record")
    keep: int = setting(0, "networks of each encoding whose parameters stay; 0: all", at_least=0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _join, argv)


def _join(options: Options) -> int:
    if not options.runs or not options.outdir:
        raise FlagError(f"--runs={','.join(options.runs)} --outdir={options.outdir}: allowed are both, not empty")
    record = joined([records.load(Path(folder)) for folder in options.runs], options.keep or None)
    outdir = Path(options.outdir)
    records.save(record, outdir, pretrain.EXPERIMENT.judged(record))
    draw(pretrain.EXPERIMENT, record, outdir)
    print(f"{record.preset}: {len(options.runs)} runs joined in {outdir}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
