"""Joins runs that had some networks each into one record, as one run would have written it.

    python -m experiments.dai.join_networks --outdir=FOLDER --runs=RUN,RUN

Runs of ``pretrain``, or of a binary that analyses its networks. Networks are told apart by their position encoding and
their number (``--first`` and on); apart from these the runs must have one configuration, and the same sources and
versions. With --keep=5 the record keeps the parameters of the first five networks of each encoding only, and the arrays
of all.

A record gets further networks in the same way: train and analyse those with the next numbers and join them to it. If
the sources are younger by then, --anchored asks the anchor of the record whether they still compute what its sources
did (docs/anchors.md); a run of the same sources as such a record counts too.
"""

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import anchoring
from experiments.dai import implicit_finetuning, layers, pretrain
from experiments.dai.common import ENCODINGS
from experiments.dai.tables import tables
from icl_lab.lab import Experiment, FlagError, anchors, flags, records, setting
from icl_lab.lab.command_line import DONE, command
from icl_lab.lab.experiment import draw
from icl_lab.lab.provenance import source_version
from icl_lab.lab.record import Record, below

BINARIES = {binary.EXPERIMENT.name: binary for binary in (pretrain, implicit_finetuning, layers)}
SHARE = ("positions", "members", "fewer", "first", "networks")
"""What runs that are joined may differ in: which networks they have."""
SAME = ("sources", "versions", "precision")
"""Of the provenance, what decides the numbers."""


def joined(runs: Sequence[Record], keep: int | None = None) -> Record:
    """One record of all networks, in the order of their numbers, the parameters of the first ``keep`` of an encoding.

    Raises:
      FlagError: for runs that do not belong together, or numbers with a gap; naming what differs or lacks.
    """
    experiment = _experiment(runs[0])
    younger = flags.to_json(type(experiment.presets["lab"])())  # the defaults of settings that older records lack
    runs = [dataclasses.replace(run, config=younger | dict(run.config)) for run in runs]
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
    config["fewer"] = counts[1:] + config["fewer"][len(counts) - 1 :]
    preset = runs[0].preset.split(" ")[0]
    if len({run.config.get("networks") for run in runs}) > 1:  # the folder in which they are put together
        config["networks"] = flags.to_json(experiment.presets[preset])["networks"]
    label = experiment.label(preset, flags.from_json(type(experiment.presets[preset]), config))
    metrics = _metrics(runs, {positions: below(arrays, positions) for positions in there})
    return Record(experiment.name, label, config, metrics, arrays, _provenance(runs), axes, params)


def vouched(runs: Sequence[Record], folders: Sequence[Path]) -> list[Record]:
    """The runs, as made by the present sources where a record of theirs has an anchor that these repeat.

    Raises:
      FlagError: where the sources of a run have no such record, or the anchor disagrees; naming what differs.
    """
    present, asked = source_version(), {run.provenance["sources"] for run in runs}
    for run, folder in zip(runs, folders):
        anchor = anchoring.load(folder) if run.provenance["sources"] in asked - {present} else None
        if anchor is None:
            continue
        if reason := anchoring.not_compared(anchor):
            raise FlagError(f"--anchored: the anchor of {folder} is not compared, {reason}")
        experiment = _experiment(run)
        with anchoring.compiling_quickly():
            if said := anchoring.differing(anchor, experiment, partial(anchoring.smoke_run, experiment)):
                raise FlagError(f"--anchored: the present sources do not compute what those of {folder} did: {said[0]}")
        asked.discard(run.provenance["sources"])
    if asked - {present}:
        raise FlagError("--anchored: allowed are runs of the present sources, or of those of an anchored record")
    return [dataclasses.replace(run, provenance=dict(run.provenance) | {"sources": present}) for run in runs]


def _experiment(run: Record) -> Experiment:
    if run.experiment not in BINARIES:
        raise FlagError(f"a run of {run.experiment} was given; allowed are runs of one of {', '.join(BINARIES)}")
    return BINARIES[run.experiment].EXPERIMENT


def _metrics(runs: Sequence[Record], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the first run; of an analysis, tables of all networks, and where its networks come from."""
    found = dict(runs[0].metrics)
    if "networks" in found:
        found["networks"] = ", ".join(dict.fromkeys(run.metrics["networks"] for run in runs))
    if "by_task" in found:
        found |= tables(found["rows"], found["tasks"], arrays)
        reasons: dict[str, Counter[str]] = {positions: Counter() for positions in arrays}
        for run in runs:
            for positions, counts in run.metrics["undefined"].items():
                reasons[positions].update(counts)
        found["undefined"] = {positions: dict(counts) for positions, counts in reasons.items()}
    return found


def _check(runs: Sequence[Record]) -> None:
    for run in runs:
        if run.experiment != runs[0].experiment:
            raise FlagError(f"runs of {run.experiment} and {runs[0].experiment} were given; allowed are runs of one")
        differing = [name for name in run.config if name not in SHARE and run.config[name] != runs[0].config.get(name)]
        differing += [name for name in SAME if run.provenance.get(name) != runs[0].provenance.get(name)]
        if differing:
            raise FlagError(f"the runs differ in {', '.join(differing)}; allowed are {', '.join(SHARE)}")


def _where(runs: Sequence[Record], positions: str, first: int) -> list[tuple[Record, int]]:
    """The run of every network of an encoding and its place there, in the order of their numbers."""
    found: dict[int, tuple[Record, int]] = {}
    for run in runs:
        if positions in run.config["positions"]:
            for place in range(len(next(run.arrays[name] for name in run.arrays if name.startswith(f"{positions}/")))):
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
    for one, run in zip(own, runs):  # without folders, which are of one machine
        one["command"] = [word for word in run.provenance.get("command") or () if "/" not in word]
    stages = {name: stage for run in runs for name, stage in run.provenance.get("stages", {}).items()}
    seconds = round(sum(one["seconds"] or 0.0 for one in own), 1)
    return dict(runs[0].provenance) | {"stages": stages, "seconds": seconds, "joined": own}


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.dai.join_networks``."""

    runs: tuple[str, ...] = setting((), "folders of the finished runs")
    outdir: str = setting("", "folder of the record")
    keep: int = setting(0, "networks of each encoding whose parameters stay; 0: all", at_least=0)
    anchored: bool = setting(False, "sources may be older where an anchor says that they compute the same")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _join, argv)


def _join(options: Options) -> int:
    if not options.runs or not options.outdir:
        raise FlagError(f"--runs={','.join(options.runs)} --outdir={options.outdir}: allowed are both, not empty")
    folders, outdir = [Path(folder) for folder in options.runs], Path(options.outdir)
    runs = [records.load(folder) for folder in folders]
    record = joined(vouched(runs, folders) if options.anchored else runs, options.keep or None)
    experiment = _experiment(record)
    records.save(record, outdir, experiment.judged(record))
    draw(experiment, record, outdir)
    print(f"{record.preset}: {len(options.runs)} runs joined in {outdir}")
    return DONE


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = anchors.XLA_FLAGS  # as anchors are made; before JAX starts
    sys.exit(main())
