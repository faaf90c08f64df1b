"""Joins runs that had some members each into one record, as one run would have written it.

    python -m experiments.join_members --outdir=FOLDER --runs=RUN,RUN

For binaries that number their members (``--first`` and on): apart from which members they have the runs must have one
configuration, and the same sources and versions. The networks of Dai et al. are told apart by their position encoding,
too. Of ``pretrain`` the record has the parameters of the first --keep networks of each encoding (0: of all); of other
binaries it has none.

A record gets further members in the same way: run those with the next numbers and join them to it.
"""

import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.binaries import discover
from experiments.dai.common import ENCODINGS
from experiments.dai.tables import tables
from experiments.tools.joining import stages
from icl_lab.lab import Experiment, FlagError, anchors, flags, records, setting
from icl_lab.lab.command_line import DONE, check_writable, command
from icl_lab.lab.execution import draw
from icl_lab.lab.record import Record, below

SHARE = ("members", "first")
"""What runs that are joined may differ in: which members they have,"""
OF_NETWORKS = ("positions", "fewer", "networks")
"""and where these are networks of several position encodings, of which encodings, and the folder they come from."""
SAME = ("sources", "versions", "precision")
"""Of the provenance, what decides the numbers."""


def joined(runs: Sequence[Record], keep: int | None = None) -> Record:
    """One record of all members, in the order of their numbers, the parameters of the first ``keep`` of an encoding.

    Raises:
      FlagError: for runs that do not belong together, or numbers with a gap; naming what differs or lacks.
    """
    experiment = _experiment(runs[0])
    younger = flags.to_json(type(experiment.presets["lab"])())  # the defaults of settings that older records lack
    runs = [dataclasses.replace(run, config=younger | dict(run.config)) for run in runs]
    _check(runs)
    axes = {name: own for run in runs for name, own in run.axes.items()}
    first = min(run.config["first"] for run in runs)
    encodings = [one for one in ENCODINGS if any(name.startswith(f"{one}/") for name in axes)]
    where = {one: _where(runs, one, first) for one in encodings or ("",)}
    where = dict(sorted(where.items(), key=lambda item: -len(item[1])))  # a configuration begins with most networks
    encodings, counts = [one for one in where if one], [len(found) for found in where.values()]
    whole = next(iter(where.values()))
    sources = {name: where.get(name.split("/")[0], whole if "member" in own else None) for name, own in axes.items()}
    arrays = {name: _stack(of, "arrays", name, axes[name]) if of else _same(runs, name) for name, of in sources.items()}
    params = {
        name: _stack(where[one][:keep], "params", name)
        for one in encodings
        for name in where[one][0][0].params
        if name.startswith(f"{one}/")
    }
    config = dict(runs[0].config) | {"members": counts[0], "first": first}
    if encodings:
        config |= {"positions": encodings, "fewer": counts[1:] + config["fewer"][len(counts) - 1 :]}
    preset = runs[0].preset.split(" ")[0]
    if len({run.config.get("networks") for run in runs}) > 1:  # the folder in which they are put together
        config["networks"] = flags.to_json(experiment.presets[preset])["networks"]
    label = experiment.label(preset, flags.from_json(type(experiment.presets[preset]), config))
    metrics = _metrics(runs, {one: below(arrays, one) for one in encodings})
    return Record(experiment.name, label, config, metrics, arrays, _provenance(runs), axes, params)


def _experiment(run: Record) -> Experiment:
    """That of a run; FlagError where its members have no numbers."""
    numbered = {name: one for name, one in discover().items() if "first" in flags.to_json(one.presets["lab"])}
    if run.experiment not in numbered:
        raise FlagError(f"a run of {run.experiment} was given; allowed are runs of one of {', '.join(numbered)}")
    return numbered[run.experiment]


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
    share = SHARE + OF_NETWORKS * ("fewer" in runs[0].config)
    for run in runs:
        if run.experiment != runs[0].experiment:
            raise FlagError(f"runs of {run.experiment} and {runs[0].experiment} were given; allowed are runs of one")
        differing = [name for name in run.config if name not in share and run.config[name] != runs[0].config.get(name)]
        differing += [name for name in SAME if run.provenance.get(name) != runs[0].provenance.get(name)]
        if not run.provenance.get("sources"):
            raise FlagError("a run does not say its sources; allowed are runs that do")
        if differing:
            raise FlagError(f"the runs differ in {', '.join(differing)}; allowed are {', '.join(share)}")


def _where(runs: Sequence[Record], positions: str, first: int) -> list[tuple[Record, int]]:
    """The run of every member, of an encoding if one is given, and its place there, in the order of their numbers."""
    found: dict[int, tuple[Record, int]] = {}
    what = f"{positions} network" if positions else "member"
    for run in runs:
        of_encoding = [array for name, array in run.arrays.items() if name.startswith(f"{positions}/")]
        there = len(of_encoding[0]) if of_encoding else 0
        for place in range(there if positions else run.config["members"]):
            number = run.config["first"] + place
            if number in found:
                raise FlagError(f"{what} {number} is in two of the runs; allowed is one")
            found[number] = run, place
    if lacking := sorted(set(range(first, max(found, default=first - 1) + 1)) - found.keys()):
        raise FlagError(f"no run has the {what}s {lacking}; allowed are numbers in a row")
    return [found[number] for number in sorted(found)]


def _stack(sources: Sequence[tuple[Record, int]], kind: str, name: str, axes: Sequence[str] = ()) -> np.ndarray:
    along = list(axes).index("member") if "member" in axes else 0  # that of an encoding leads
    return np.stack([getattr(run, kind)[name].take(place, along) for run, place in sources], along)


def _same(runs: Sequence[Record], name: str) -> np.ndarray:
    """An array that is of no member; FlagError where the runs do not agree on it."""
    found = [run.arrays[name] for run in runs if name in run.arrays]
    if not all(np.array_equal(one, found[0], equal_nan=True) for one in found):
        raise FlagError(f"the array {name} is not the same in all runs")
    return found[0]


def _provenance(runs: Sequence[Record]) -> dict[str, Any]:
    """That of the first run, with all stages and the seconds of all; ``joined`` says what each run took."""
    own: list[dict[str, Any]] = []
    for run in runs:
        one = {name: run.provenance.get(name) for name in ("commit", "seconds", "started", "finished")}
        # without folders, which are of one machine
        one["command"] = [word for word in run.provenance.get("command") or () if "/" not in word]
        own += run.provenance.get("joined", [one])
    seconds = round(sum(one["seconds"] or 0.0 for one in own), 1)
    return dict(runs[0].provenance) | {"stages": stages(runs), "seconds": seconds, "joined": own}


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.join_members``."""

    runs: tuple[str, ...] = setting((), "folders of the finished runs", path=True)
    outdir: str = setting("", "folder of the record", path=True)
    keep: int = setting(0, "networks of each encoding whose parameters stay; 0: all", at_least=0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _join, argv)


def _join(options: Options) -> int:
    if not options.runs or not options.outdir:
        raise FlagError(f"--runs={','.join(options.runs)} --outdir={options.outdir}: allowed are both, not empty")
    folders, outdir = [Path(folder) for folder in options.runs], Path(options.outdir)
    if outdir.exists() and not (outdir.is_dir() and not any(outdir.iterdir())):
        raise FlagError(f"--outdir={outdir}: allowed is a new or an empty folder")
    check_writable(outdir)
    if lacking := [folder for folder in folders if not (folder / "record.json").exists()]:
        raise FlagError(f"--runs: {lacking[0]} holds no record.json; allowed are folders of finished runs")
    runs = [records.load(folder) for folder in folders]
    record = joined(runs, options.keep or None)
    experiment = _experiment(record)
    records.save(record, outdir, experiment.judged(record))
    draw(experiment, record, outdir)
    print(f"{record.preset}: {len(options.runs)} runs joined in {outdir}")
    return DONE


def start() -> int:
    """``main`` in a process of its own, compiled as anchors are made."""
    anchors.set_flags()
    return main()


if __name__ == "__main__":
    sys.exit(start())
