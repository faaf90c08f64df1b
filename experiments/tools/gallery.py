"""Collects finished lab and paper runs into the committed gallery, and writes the ledger of claims.

    python -m experiments.gallery --runs=runs
    python -m experiments.gallery --rejudge

A run under --runs is taken if its record can be read and its configuration is the present lab or paper preset of its
binary. More members are allowed; the run with most is taken, at a tie the one that finished last. Where there is no
whole run and a binary names its parts (``Experiment.parts``), runs of all of them by --only are one record; a part
alone replaces no record. Its figures are drawn and its claims judged anew from the record; only its anchor trains
anything. Final parameters are kept if they take less than 2 MB. ``figures/claims.json``, ``figures/claims.md`` (the
same to read), the summary in README.md and the tables of what is published on the pages of the papers are made from the
whole gallery; the ledger says which records have no anchor. ``figures/costs.md`` says what every binary takes.
--rejudge collects nothing and judges the gallery's records by the present claims. --redraw only draws their pictures
anew.

A new record gets an anchor, from five smoke runs of the code that made it: the present one, or that of the commit that
the record names, in a clone of its own (docs/dev/anchors.md). The records that the present code no longer reproduces
are listed, each with the reason, by

    python -m experiments.gallery --check --only=reddy.clamping

Exit status: 0 done, nothing stale; 1 something is stale; 2 the command line is refused.
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax

from experiments.binaries import belongs, choose, discover
from experiments.tools import anchoring, costs
from experiments.tools.joining import is_whole, joined
from experiments.tools.redrawing import pictures, redraw
from experiments.tools.verdict_tables import ledger_page, rewritten
from icl_lab.lab import anchors, drift, provenance, records, report
from icl_lab.lab.claims import NOT_JUDGED, NOT_RESOLVED, is_identity
from icl_lab.lab.combining import code_of
from icl_lab.lab.command_line import command, console_progress, use_compilation_cache
from icl_lab.lab.constraints import holds
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.record import Record, RecordError

PRESETS = ("lab", "paper")
LARGEST_ARRAYS, LARGEST_PARAMS = 2_500_000, 2_000_000  # bytes
NOT_KEPT = "claim or preset have changed and the record has not what the claim needs: to be judged in the next run"


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.gallery``."""

    runs: str = setting("runs", "folder to look for runs in", path=True)
    figures: str = setting("figures", "folder of the gallery", path=True)
    readme: str = setting("README.md", "file whose summary of claims is rewritten, with pages beside it", path=True)
    check: bool = setting(False, "list what is stale and change nothing")
    only: str = setting("", "binaries to --check or --redraw, or folders of them as dai, comma-separated; empty: all")
    rejudge: bool = setting(False, "judge the gallery's own records anew")
    redraw: bool = setting(False, "draw the pictures of the gallery's own records anew, and change nothing else")


MODES = ("check", "redraw", "rejudge")
CONSTRAINTS = (
    holds("one of them", *MODES, when=lambda o: sum(getattr(o, mode) for mode in MODES) <= 1),
    holds("with --check or --redraw", "only", when=lambda o: not o.only or o.check or o.redraw),
    holds("a folder", "runs", when=lambda o: any(getattr(o, mode) for mode in MODES) or Path(o.runs).is_dir()),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _carry_out, argv, CONSTRAINTS)


def _carry_out(options: Options) -> int:
    runs, gallery, readme = Path(options.runs), Path(options.figures), Path(options.readme)
    experiments = choose(discover(), options.only)
    every = [(".".join(path.parts[-4:-2]), path.parent) for path in sorted(gallery.glob("*/*/*/record.json"))]
    if options.redraw:
        for name, folder in every:
            if name in experiments:
                print(redraw(experiments[name], folder), flush=True)
        return 0
    named = [(name, folder) for name, folder in every if folder.name in PRESETS]
    if options.check:
        targets = [(name, folder) for name, folder in named if name in experiments]
        with console_progress() as progress:
            checked = progress.track(targets, description="records checked")
            stale = [(*one, reason) for one in checked for reason in anchoring.why_stale(one[1], experiments[one[0]])]
        lines = [f"{name} {folder.name}: {reason}" for name, folder, reason in stale]
        print("\n".join(lines or ["nothing is stale"]))
        return 1 if lines else 0
    entered: dict[tuple[str, str], str] = {}
    if options.rejudge:
        for name, folder in named:
            print("".join(f"{line}\n" for line in rejudge(folder, experiments[name])), end="")
    else:
        use_compilation_cache(runs)
        for (name, preset), record in sorted(collect(runs, experiments).items()):
            print(f"{name} {preset}: {record.config['members']} members")
            folder = gallery.joinpath(*name.split("."), preset)
            if (folder / "record.json").exists() and not is_whole(experiments[name], preset, record.config):
                print(f"left out: a run of a part, {record.config['only']}: there is {folder}", file=sys.stderr)
                continue
            put(experiments[name], preset, record, folder)
            entered[name, preset] = committed_before(record)
            anchor(experiments[name], record, folder)
    rows = ledger(gallery, experiments, entered)
    gallery.mkdir(parents=True, exist_ok=True)
    records.write_atomically(gallery / "claims.json", (json.dumps(rows, indent=1) + "\n").encode())
    records.write_atomically(gallery / "claims.md", f"{ledger_page(rows)}\n".encode())
    records.write_atomically(gallery / "costs.md", costs.page(experiments, gallery).encode())
    for page, text in rewritten(readme, rows).items():
        records.write_atomically(page, text.encode())
    return 0


def anchor(experiment: Experiment, record: Record, folder: Path) -> None:
    """Makes the anchor of a record just put into the gallery, by the record's own code; says so where that cannot be.

    A record that was made again, to the same bits, by other code than its anchor gets a new anchor too.
    """
    kept = anchoring.load(folder)
    if anchoring.is_of_this_code(record, experiment):
        if kept is None or code_of(kept)["sources"] != code_of(record)["sources"]:
            anchoring.make(experiment, folder)
    elif kept is None and (reason := anchoring.make_at_its_commit(record, folder)):
        commit = provenance.commit_of(record.provenance)
        print(f"{experiment.name} {folder.name}: no anchor is made, the record is of commit {commit}: {reason}")


def collect(runs: Path, experiments: Mapping[str, Experiment]) -> dict[tuple[str, str], Record]:
    """The best run of each binary and preset: of most members, at a tie the last; or all parts together."""
    best: dict[tuple[str, str], Record] = {}
    parts: dict[tuple[str, str], list[Record]] = {}
    for path in sorted(runs.rglob("record.json")):
        try:
            record = records.load(path.parent)
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if record.axes.keys() != record.arrays.keys():
            print(f"left out: {path.parent} has arrays without axes; run it again", file=sys.stderr)
            continue
        key = (record.experiment, record.preset)
        if record.preset not in PRESETS or record.experiment not in experiments:
            continue
        if not belongs(experiments[record.experiment], record.preset, record.preset, record.config):
            print(f"left out: {path.parent} is not the present {record.preset} preset", file=sys.stderr)
            continue
        if not is_whole(experiments[record.experiment], record.preset, record.config):
            parts.setdefault(key, []).append(record)
        elif key not in best or _rank(record) > _rank(best[key]):
            best[key] = record
    for (name, preset), pieces in parts.items():
        if (name, preset) not in best:
            try:
                best[name, preset] = pieces[0] if len(pieces) == 1 else joined(experiments[name], preset, pieces)
            except ValueError as error:
                print(f"left out: the runs of parts of {name} {preset} are not one record: {error}", file=sys.stderr)
    return best


def _rank(record: Record) -> tuple[int, str]:
    return record.config["members"], record.provenance.get("finished", "")


def put(experiment: Experiment, preset: str, record: Record, folder: Path) -> None:
    """A folder of the gallery from a record: pictures, record, provenance without paths, arrays if small or needed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary) / preset
        command = [_without_path(word) for word in record.provenance.get("command", [])]
        record = dataclasses.replace(record, provenance={**record.provenance, "command": command})
        records.save(record, fresh, experiment.judged(record))
        arrays = fresh / "arrays.npz"
        if (size := arrays.stat().st_size) >= LARGEST_ARRAYS and not experiment.feeds_others:
            arrays.unlink()
            line = f"arrays.npz ({size / 1e6:.1f} MB) is not kept here; {report.command(experiment, record)} makes it"
            (fresh / "arrays.txt").write_text(line + "\n", "utf-8")
            print(line)
        kept = fresh / "params.npz"
        if kept.exists() and kept.stat().st_size >= LARGEST_PARAMS and not experiment.feeds_others:
            kept.unlink()
        pictures(experiment, record, fresh)
        if anchoring.anchored(folder) and anchoring.identity(folder) == anchoring.identity(fresh):
            shutil.copytree(folder / anchoring.ANCHOR, fresh / anchoring.ANCHOR)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def rejudge(folder: Path, experiment: Experiment) -> list[str]:
    """Judges a record of the gallery by today's claims; a line for each verdict that changes.

    Of a record without its arrays, or of an earlier preset, the rows stay whose claims are as they were, without a
    verdict where this preset gives none any more; the others are not judged.
    """
    record, before = drift.committed(folder)
    then = {row["id"]: row for row in before}
    if record.arrays and belongs(experiment, folder.name, record.preset, record.config):
        rows = experiment.judged(record)
    else:
        rows, unjudged = [], {"verdict": NOT_JUDGED, "expected_verdict": None}
        for claim in (claim for claim in experiment.claims if claim.id in then):
            row, described = dict(then[claim.id]), claim.described()
            row.pop("kind", None)  # another kind is no other judgement
            row |= {"kind": claim.kind} if is_identity(described) else {}
            if row | described != row:
                row = row | described | unjudged | {"interval": [None, None], "note": NOT_KEPT}
            elif row["verdict"] != NOT_JUDGED and folder.name not in claim.expected_verdict:
                row = row | unjudged | {"note": ""}
            rows.append(row)
    records.replace_claims(folder, rows)
    changes = []
    for row in rows:
        was = then.get(row["id"], {"verdict": NOT_JUDGED, "interval": [None, None]})
        if row["verdict"] != was["verdict"]:
            verdicts = f"{was['verdict']} {was['interval']} -> {row['verdict']} {row['interval']}"
            changes.append(f"{folder.name}: {row['id']}: {verdicts} {row['note']}")
    return changes


def ledger(
    gallery: Path, experiments: Mapping[str, Experiment], entered: Mapping[tuple[str, str], str] | None = None
) -> list[dict]:
    """The rows of every record that still is its binary's present preset, sorted by claim and preset.

    A folder whose name is no preset (paper-60000-steps) has a run at another setting, for a page: no line is about it.
    ``entered``: records that are new, by binary and preset, with what ``committed_before`` says of them.
    """
    rows, entered = [], entered or {}
    kept = records.read_json(gallery / "claims.json") if (gallery / "claims.json").exists() else []
    then = {(row["id"], row["preset"]): row for row in kept}
    for path in sorted(gallery.glob("*/*/*/record.json")):
        if (preset := path.parent.name) not in PRESETS:
            continue
        record = records.load(path.parent, arrays=False)
        experiment = experiments.get(record.experiment)
        if experiment and belongs(experiment, preset, record.preset, record.config):
            origin = {"anchored": anchoring.anchored(path.parent), "commit": provenance.commit_of(record.provenance)}
            origin |= {"trainings": record.config["members"]}
            about = {claim.id: claim.about() for claim in experiment.claims}
            for row in records.read_json(path)["claims"]:
                past = _past(row, then.get((row["id"], preset), {}), entered.get((record.experiment, preset)))
                rows.append({"kind": "claim"} | row | about.get(row["id"], {}) | origin | past)
        else:
            print(f"out of date, not in the ledger: {path.parent}", file=sys.stderr)
    return sorted(rows, key=lambda row: (row["id"], row["preset"]))


def _past(row: Mapping, then: Mapping, entered: str | None) -> dict:
    """What was expected before the first record of a claim, and its first verdict: written once, never edited.

    ``members_added`` says whether members came until it resolved.

    Args:
      row: of the ledger now.
      then: the former row, empty where there was none.
      entered: the commit that had the expectation before a new record, "" if none had; None: the record is not new.
    """
    verdict = row["expected_verdict"] if entered else None
    predicted = {"predicted": verdict, "predicted_commit": entered if verdict else None}
    added = entered is not None and then.get("verdict") == NOT_RESOLVED and row["members"] > then["members"]
    first = then.get("first_verdict") or (row["verdict"] if row["verdict"] != NOT_JUDGED else None)
    kept = {name: then[name] for name in predicted if name in then} | {"first_verdict": first}
    return predicted | kept | {"members_added": added or then.get("members_added", False)}


def committed_before(record: Record) -> str:
    """The commit that was there when a record was made, if its binary's files, claims included, are still the same."""
    home, commit = provenance.HOME, record.provenance.get("commit")
    files = sorted(home.glob(f"experiments/{record.experiment.replace('.', '/')}*.py"))
    same = [
        provenance.git("show", f"{commit}:{path.relative_to(home)}") == path.read_text("utf-8").strip()
        for path in files
        if commit
    ]
    return commit[:9] if commit and same and all(same) else ""


def _without_path(word: str) -> str:
    """A command-line word whose path is taken out: a path says something about a machine, not about a number."""
    if "/" not in word:
        return word
    return f"{word.split('=')[0]}=..." if "=" in word else "..."


def start() -> int:
    """``main`` in a process of its own: on the CPU, compiled as anchors are made."""
    anchors.set_flags()
    jax.config.update("jax_platforms", "cpu")
    return main()
