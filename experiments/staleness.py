"""Which records of the gallery the present code no longer vouches for, and anchors whose smoke preset has changed."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.progress import Progress

from experiments import anchoring
from icl_lab.lab import drift, flags, records
from icl_lab.lab.claims import NOT_JUDGED, Claim
from icl_lab.lab.command_line import console_progress
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import RecordError

PRESETS = ("lab", "paper")


def belongs(experiment: Experiment, preset: str, label: str, config: Mapping[str, Any]) -> bool:
    """Whether a record is of the present preset; more members are welcome, and so is one network of several."""
    wanted = flags.to_json(experiment.presets[preset])
    enough = config.get("members", 0) >= wanted["members"]
    free: dict[str, Any] = {name: wanted[name] for name in ("members", "only") if name in wanted}
    return label == preset and enough and {**config, **free} == wanted


def anchored(folder: Path) -> bool:
    """Whether the record of a gallery folder has an anchor that belongs to it; says so where one cannot be used."""
    try:
        return anchoring.load(folder) is not None
    except RecordError as error:
        print(f"anchor not used: {error}", file=sys.stderr)
        return False


def stale(gallery: Path, experiments: Mapping[str, Experiment]) -> list[str]:
    """What of the gallery the present code no longer vouches for, a line each; runs smoke presets."""
    lines = []
    with console_progress() as progress:
        folders = _folders(gallery, experiments)
        task = progress.add_task("records", total=len(folders))
        for name, folder in folders:
            lines += [f"{name} {folder.name}: {reason}" for reason in _why_stale(folder, experiments[name])]
            progress.advance(task)
    return lines


def _why_stale(folder: Path, experiment: Experiment) -> list[str]:
    try:
        record = records.load(folder, arrays=False)
        kept = anchoring.load(folder)
    except RecordError as error:
        return [str(error)]
    said = []
    if not belongs(experiment, folder.name, record.preset, record.config):
        differing = anchoring.changed(record.config, flags.to_json(experiment.presets[folder.name]))
        said.append(f"record is not of the present {folder.name} preset ({differing or record.preset})")
    if kept is None:
        said.append(f"not anchored, made at commit {anchoring.commit(record.provenance)}")
    elif reason := anchoring.not_compared(kept):
        print(f"{experiment.name} {folder.name}: smoke run not compared, {reason}", file=sys.stderr)
    else:
        said += anchoring.differing(kept, experiment, lambda: anchoring.todays(experiment))
    return said


def reanchor(gallery: Path, experiments: Mapping[str, Experiment]) -> list[str]:
    """Makes anchors whose smoke preset has changed anew; what could not be, a line each."""
    refused = []
    with console_progress() as progress:
        for name, folder in _folders(gallery, experiments):
            experiment = experiments[name]
            smoke = flags.to_json(experiment.presets["smoke"])
            try:
                kept = anchoring.load(folder)
                if kept is None:
                    raise RecordError("not anchored, and an anchor is only made with a new record")
                if dict(kept.smoke) == smoke:
                    continue
                if reason := anchoring.not_compared(kept):
                    raise RecordError(reason)
                anchoring.save(folder, anchoring.remade(kept, experiment, counted(progress, name)), smoke)
            except RecordError as error:
                refused.append(f"{name} {folder.name}: {error}")
            else:
                print(f"{name} {folder.name}: anchor made anew")
    return refused


def counted(progress: Progress, name: str) -> Callable[[int, int], None]:
    """Shows how many of the smoke runs of an anchor are done."""
    task = progress.add_task(f"anchor of {name}", total=None)
    return lambda done, of: progress.update(task, completed=done, total=of)


def _folders(gallery: Path, experiments: Mapping[str, Experiment]) -> list[tuple[str, Path]]:
    """Name of the binary and folder of every record in the gallery."""
    folders = [path.parent for path in sorted(gallery.glob("*/*/*/record.json")) if path.parent.name in PRESETS]
    named = [(".".join(folder.parts[-3:-1]), folder) for folder in folders]
    return [(name, folder) for name, folder in named if name in experiments]


NOT_KEPT = "the claim has changed and the record's arrays are not kept: to be judged in the next run"


def rejudge(gallery: Path, experiments: Mapping[str, Experiment]) -> list[str]:
    """Judges every record of the gallery by today's claims; a line for each verdict that changes.

    Of a record without its arrays the rows stay whose claims are as they were; the others are not judged any more.
    """
    changes = []
    for path in sorted(gallery.glob("*/*/*/record.json")):
        record, before = drift.committed(path.parent)
        experiment = experiments[record.experiment]
        then = {row["id"]: row for row in before}
        if (path.parent / "arrays.npz").exists():
            rows = experiment.judged(record)
        else:
            rows = [_kept(claim, then[claim.id]) for claim in experiment.claims if claim.id in then]
        for row in rows:
            was = then.get(row["id"], {"verdict": NOT_JUDGED, "interval": [None, None]})
            if row["verdict"] != was["verdict"]:
                verdicts = f"{was['verdict']} {was['interval']} -> {row['verdict']} {row['interval']}"
                changes.append(f"{path.parent.name}: {row['id']}: {verdicts} {row['note']}")
        records.replace_claims(path.parent, rows)
    return changes


def _kept(claim: Claim, row: dict) -> dict:
    if all(row[name] == value for name, value in claim.described().items()):
        return row
    changed = {"interval": [None, None], "verdict": NOT_JUDGED, "expected_verdict": None, "note": NOT_KEPT}
    return row | claim.described() | changed
