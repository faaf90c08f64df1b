"""Joins runs that had some members each into one record, as one run would have written it.

    python -m experiments.join_members --outdir=FOLDER --runs=RUN,RUN

For binaries that number their members (``--first`` and on): apart from which members they have the runs must have one
configuration and the same package versions, and be of one commit, or of today: made by today's code, or with an anchor
beside them that today's smoke run repeats (docs/dev/anchors.md). The networks of Dai et al. are told apart by their
position encoding, too. Of ``pretrain`` the record has the parameters of the first --keep networks of each encoding (0:
of all); of other binaries it has none.

A record gets further members in the same way: run those with the next numbers and join them to it.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.binaries import discover
from experiments.dai.common import ENCODINGS
from experiments.dai.tables import tables
from experiments.tools import anchoring
from icl_lab.lab import Experiment, FlagError, anchors, flags, records, setting
from icl_lab.lab.combining import code_of, combine, differing_origins
from icl_lab.lab.command_line import DONE, check_writable, command
from icl_lab.lab.constraints import holds
from icl_lab.lab.execution import draw
from icl_lab.lab.provenance import commit_of
from icl_lab.lab.record import Record, below

SHARE = ("members", "first")
"""What runs that are joined may differ in: which members they have."""
OF_NETWORKS = ("positions", "fewer", "networks")
"""So may these, of networks of several position encodings: which encodings, and the folder they come from."""


def joined(runs: Sequence[Record], keep: int | None = None, folders: Sequence[Path] = ()) -> Record:
    """One record of all members, in the order of their numbers, the parameters of the first ``keep`` of an encoding.

    Args:
      runs: some members each.
      keep: None keeps the parameters of all.
      folders: of the runs, where their anchors are; without these all runs must be of one commit.

    Raises:
      FlagError: for runs that do not belong together, numbers with a gap, or parameters that no run has kept; naming
        what differs or lacks.
    """
    experiment = _experiment(runs[0])
    younger = flags.to_json(type(experiment.presets["lab"])())  # the defaults of settings that older records lack
    runs = [dataclasses.replace(run, config=younger | dict(run.config)) for run in runs]
    _check(runs)
    names = {name.split("/")[0] for run in runs for name in run.arrays}
    encodings = [one for one in ENCODINGS if one in names]
    first = min(run.config["first"] for run in runs)
    counts = {one: _check_numbers(runs, one, first) for one in encodings or ("",)}
    counts = dict(sorted(counts.items(), key=lambda item: -item[1]))  # a configuration begins with most networks
    encodings = [one for one in counts if one]
    _check_code(experiment, runs, folders)
    in_order = sorted(runs, key=lambda run: run.config["first"])
    try:
        whole = combine([_without_worlds(run, encodings[:1]) for run in in_order], along="member")
    except ValueError as error:
        raise FlagError(str(error)) from None
    most, *fewer = counts.values()
    config = dict(runs[0].config) | {"members": most, "first": first}
    if encodings:
        config |= {"positions": encodings, "fewer": fewer + config["fewer"][len(fewer) :]}
    preset = runs[0].preset.split(" ")[0]
    if len({run.config.get("networks") for run in runs}) > 1:  # the folder in which they are put together
        config["networks"] = flags.to_json(experiment.presets[preset])["networks"]
    label = experiment.label(preset, flags.from_json(type(experiment.presets[preset]), config))
    metrics = _metrics(runs, {one: below(whole.arrays, one) for one in encodings})
    params = {n: a for one in encodings for n, a in _kept(in_order, whole, one, keep or counts[one]).items()}
    return Record(experiment.name, label, config, metrics, whole.arrays, _provenance(runs, whole), whole.axes, params)


def _experiment(run: Record) -> Experiment:
    """That of a run; FlagError where its members have no numbers."""
    numbered = {name: one for name, one in discover().items() if "first" in flags.to_json(one.presets["lab"])}
    if run.experiment not in numbered:
        raise FlagError(f"a run of {run.experiment} was given; allowed are runs of one of {', '.join(numbered)}")
    return numbered[run.experiment]


def _metrics(runs: Sequence[Record], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the first run; of an analysis, tables of all networks, and where its networks come from."""
    metrics = dict(runs[0].metrics)
    if "networks" in metrics:
        metrics["networks"] = ", ".join(dict.fromkeys(run.metrics["networks"] for run in runs))
    if "by_task" in metrics:
        metrics |= tables(metrics["rows"], metrics["tasks"], arrays)
        reasons: dict[str, Counter[str]] = {positions: Counter() for positions in arrays}
        for run in runs:
            for positions, counts in run.metrics["undefined"].items():
                reasons[positions].update(counts)
        metrics["undefined"] = {positions: dict(counts) for positions, counts in reasons.items()}
    return metrics


def _check(runs: Sequence[Record]) -> None:
    share = SHARE + OF_NETWORKS * ("fewer" in runs[0].config)
    for run in runs:
        if run.experiment != runs[0].experiment:
            raise FlagError(f"runs of {run.experiment} and {runs[0].experiment} were given; allowed are runs of one")
        differing = [name for name in run.config if name not in share and run.config[name] != runs[0].config.get(name)]
        differing += [name for name in differing_origins([runs[0], run]) if name != "sources"]
        if not code_of(run)["sources"]:
            raise FlagError("a run names neither its sources nor a commit; allowed are runs that do")
        if differing:
            raise FlagError(f"the runs differ in {', '.join(differing)}; allowed are {', '.join(share)}")


def _check_code(experiment: Experiment, runs: Sequence[Record], folders: Sequence[Path]) -> None:
    """Refuses runs of several commits, but where today's smoke run repeats the anchor of each of another code."""
    if "sources" not in differing_origins(runs):
        return
    commits = ", ".join(dict.fromkeys(commit_of(run.provenance) for run in runs))
    allowed = "allowed are runs of one commit, or of today's code, or with an anchor that it repeats"
    if not folders:
        raise FlagError(f"the runs differ in sources (commits {commits}); {allowed}")
    smoke = cache(partial(anchoring.smoke_run, experiment))
    for run, folder in zip(runs, folders, strict=True):
        if anchoring.is_of_this_code(run, experiment):
            continue
        anchor = anchoring.load(folder)
        why = anchoring.not_compared(anchor)
        if anchor is not None and not why:
            why = "; ".join(anchoring.differs_from_anchor(anchor, experiment, smoke))
        if why:
            raise FlagError(f"the runs differ in sources (commits {commits}), and of {folder}: {why}; {allowed}")


def _numbers(run: Record, encoding: str) -> range:
    """Of the members of a run, of those of an encoding if one is given."""
    arrays = [array for name, array in run.arrays.items() if name.startswith(f"{encoding}/")]
    count = (len(arrays[0]) if arrays else 0) if encoding else run.config["members"]
    return range(run.config["first"], run.config["first"] + count)


def _check_numbers(runs: Sequence[Record], encoding: str, first: int) -> int:
    """How many members there are, whose numbers must be those from ``first`` on, each once."""
    noun = f"{encoding} network" if encoding else "member"
    counts = Counter(number for run in runs for number in _numbers(run, encoding))
    if twice := [number for number, times in counts.items() if times > 1]:
        raise FlagError(f"{noun} {twice[0]} is in two of the runs; allowed is one")
    if lacking := sorted(set(range(first, max(counts, default=first - 1) + 1)) - counts.keys()):
        raise FlagError(f"no run has the {noun}s {lacking}; allowed are numbers in a row")
    return len(counts)


def _without_worlds(run: Record, leading: Sequence[str]) -> Record:
    """The run without what it has of every member, where it has none of the encoding of which there are most.

    That is of the worlds of its networks, which those of the leading encoding have too.
    """
    if all(_numbers(run, encoding) for encoding in leading):
        return run
    arrays = {name: array for name, array in run.arrays.items() if "member" not in run.axes[name]}
    return dataclasses.replace(run, arrays=arrays, axes={name: run.axes[name] for name in arrays})


def _kept(runs: Sequence[Record], whole: Record, encoding: str, keep: int) -> dict[str, np.ndarray]:
    """The parameters of the first networks of an encoding; none where no run has any."""
    params = {name: values for name, values in whole.params.items() if name.startswith(f"{encoding}/")}
    count = 0
    for run in runs:
        kept = [len(run.params[name]) for name in params if name in run.params]
        count += min(kept, default=0)
        if params and count < keep and min(kept, default=0) < len(_numbers(run, encoding)):
            raise FlagError(f"the runs have the parameters of the first {count} {encoding} networks, not of {keep}")
    return {name: values[:keep] for name, values in params.items()}


def _provenance(runs: Sequence[Record], whole: Record) -> dict[str, Any]:
    """That of the last run that was made, with stages and seconds of the whole; ``joined`` says what each run took."""
    entries: list[dict[str, Any]] = []
    for run in runs:
        one = {name: run.provenance.get(name) for name in ("commit", "sources", "seconds", "started", "finished")}
        # without folders, which are of one machine
        one["command"] = [word for word in run.provenance.get("command") or () if "/" not in word]
        entries += run.provenance.get("joined", [one])
    of_all = {name: whole.provenance[name] for name in ("stages", "seconds")}
    last = max(runs, key=lambda run: run.provenance.get("finished") or "")
    return dict(last.provenance) | of_all | {"joined": entries}


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.join_members``."""

    runs: tuple[str, ...] = setting((), "folders of the finished runs", path=True)
    outdir: str = setting("", "folder of the record", path=True)
    keep: int = setting(0, "networks of each encoding whose parameters stay; 0: all", at_least=0)


def _fresh(outdir: Path) -> bool:
    return not outdir.exists() or (outdir.is_dir() and not any(outdir.iterdir()))


CONSTRAINTS = (
    holds("both, not empty", "runs", "outdir", when=lambda o: o.runs and o.outdir),
    holds("a new or an empty folder", "outdir", when=lambda o: _fresh(Path(o.outdir))),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _join, argv, CONSTRAINTS)


def _join(options: Options) -> int:
    folders, outdir = [Path(folder) for folder in options.runs], Path(options.outdir)
    check_writable(outdir)
    if lacking := [folder for folder in folders if not (folder / "record.json").exists()]:
        raise FlagError(f"--runs: {lacking[0]} holds no record.json; allowed are folders of finished runs")
    runs = [records.load(folder) for folder in folders]
    record = joined(runs, options.keep or None, folders)
    experiment = _experiment(record)
    records.save(record, outdir, experiment.judged(record))
    draw(experiment, record, outdir)
    print(f"{record.preset}: {len(options.runs)} runs joined in {outdir}")
    return DONE


def start() -> int:
    """``main`` in a process of its own: on the CPU, compiled as anchors are made."""
    anchors.set_flags()
    jax.config.update("jax_platforms", "cpu")
    return main()
