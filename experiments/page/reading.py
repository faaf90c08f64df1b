"""Records -> what the page says: a section for each experiment, a row for each claim; what cannot be read is named."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.binaries import belongs
from experiments.page import numbers
from experiments.page.drawing import Dots, Place, dots, on_common_axis
from experiments.page.words import Ledger, worded
from experiments.papers import ORDER, Paper, finding_of, paper_of, pictures
from icl_lab.lab import drift, report
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED, Claim, is_identity
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import Record, RecordError

VERDICTS = (HOLDS, NOT_RESOLVED, NOT_REACHED, FAILS, NOT_JUDGED)
BEST_FIRST = ("lab", "paper", "quick", "smoke")


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim on one record, in words."""

    id: str
    source: str
    statement: str
    preset: str
    expected: str
    estimate: str
    members: int
    size: str
    verdict: str
    why: str
    control: str
    elsewhere: list[str]  # preset, verdict and estimate of its other records
    dots: Dots | None
    place: Place | None
    published: str  # the value that the paper prints, and where
    beside: str
    falsified_by: str
    identity: bool  # shown, and not counted

    @property
    def kind(self) -> str:
        """The verdict as a word for the style sheet."""
        return self.verdict.replace(" ", "-")


@dataclasses.dataclass(frozen=True)
class Run:
    """A record that can be shown."""

    folder: Path
    record: Record
    rows: list[Row]
    surprises: dict[str, str]  # verdicts other than those of the committed record, by id
    command: str
    pictures: list[Path]

    def folded(self) -> dict[str, str]:
        """Configuration and provenance, a line for each entry; numbers and arrays are in the record."""
        sections = {"Configuration": self.record.config, "Provenance": self.record.provenance}
        return {
            title: "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in entries.items())
            for title, entries in sections.items()
            if entries
        }


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment; the first of its runs is the one that is shown, others are folded away."""

    name: str
    title: str
    source: str
    finding: str
    headlines: list[Row]
    runs: list[Run]
    rows: list[Row]  # one of each claim, by which it is counted


@dataclasses.dataclass(frozen=True)
class PaperView:
    """One paper: its words and its sections."""

    paper: Paper
    answer: str
    sections: list[Section]

    @property
    def rows(self) -> list[Row]:
        """One of each claim, by which it is counted."""
        return [row for section in self.sections for row in section.rows]

    def caption(self, path: Path) -> str:
        """What is seen in a picture, in ``<paper>/<figure>/<run>/``; its name where nobody has said it."""
        return self.paper.captions.get(f"{path.parts[-3]}/{path.stem}", path.stem.replace("_", " "))


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """Number of claims (identities left out) by verdict, in the order of ``VERDICTS``, without those that none has."""
    verdicts = [row.verdict for row in rows if not row.identity]
    return {v: verdicts.count(v) for v in (*VERDICTS, *sorted({*verdicts} - {*VERDICTS})) if v in verdicts}


def read(
    folders: Iterable[Path], experiments: Mapping[str, Experiment], ledger: Ledger
) -> tuple[dict[str, list[Run]], dict[str, str]]:
    """Runs by experiment, the best first, with pictures that no better one has; what was left out: folder -> reason."""
    runs: dict[str, list[Run]] = {}
    left_out = {}
    for folder in folders:
        try:
            run = _run(folder, experiments, ledger)
        except RecordError as error:
            left_out[str(folder)] = str(error)
        else:
            runs.setdefault(run.record.experiment, []).append(run)
    for group in runs.values():
        group.sort(key=lambda run: BEST_FIRST.index(p) if (p := run.record.preset) in BEST_FIRST else len(BEST_FIRST))
        known: set[str] = set()
        for i, run in enumerate(group):  # a page of one file holds each picture once
            group[i] = dataclasses.replace(run, pictures=[path for path in run.pictures if path.name not in known])
            known.update(path.name for path in run.pictures)
    return runs, left_out


def _run(folder: Path, experiments: Mapping[str, Experiment], ledger: Ledger) -> Run:
    record, rows = drift.committed(folder)
    if record.experiment not in experiments:
        raise RecordError(f"{folder} holds a record of {record.experiment}, which is no binary here")
    experiment = experiments[record.experiment]
    preset = record.preset
    if preset in BEST_FIRST and not belongs(experiment, preset, preset, record.config):
        raise RecordError(f"{folder} is of an earlier {preset} preset, whose verdicts are in no ledger")
    claims = {claim.id: claim for claim in experiment.claims}
    try:
        shown = [_row(row, record, claims.get(row["id"]), ledger.get((row["id"], "lab"))) for row in rows]
        surprises = {}
        for row in rows:
            entry = ledger.get((row["id"], preset))
            before = entry["verdict"] if entry else row["expected_verdict"]
            if before not in (None, NOT_JUDGED, row["verdict"]):
                surprises[row["id"]] = f"{row['verdict']}, committed: {before}"
        if preset not in BEST_FIRST:  # claims are of presets; other settings are shown by their pictures
            shown = []
        return Run(
            folder, record, shown, surprises, report.command(experiment, record), pictures(experiment.name, folder)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{folder} holds claims or settings that this code does not know ({error})") from error


def _row(row: Mapping[str, Any], record: Record, claim: Claim | None, at_lab: Mapping[str, Any] | None) -> Row:
    elsewhere = []
    if at_lab is not None and row["preset"] != "lab":
        elsewhere = [f"committed at lab: {at_lab['verdict']}, {numbers.estimate(at_lab)}"]
    return Row(
        id=row["id"],
        source=row["paper"],
        statement=row["statement"],
        preset=row["preset"],
        expected=numbers.bound(row),
        estimate=numbers.estimate(row),
        members=row["members"],
        size=report.size(row),
        verdict=row["verdict"],
        why=_why(row),
        control="" if row["control"] is None else numbers.plain(row["control"]),
        beside=_beside(row, claim),
        elsewhere=elsewhere,
        dots=dots(row, _members(row, record, claim)),
        place=on_common_axis(row),
        published=_published(claim),
        falsified_by=claim.falsified_by if claim else "",
        identity=is_identity(row),
    )


def _beside(row: Mapping[str, Any], claim: Claim | None) -> str:
    """What is shown for comparison, with the reason why it is no control."""
    value = row.get("beside")
    return f"{numbers.plain(value)}, {claim.beside.reason}" if value is not None and claim and claim.beside else ""


def _published(claim: Claim | None) -> str:
    """Of the claim of today: a record is older than what was found out about its paper since."""
    value, where = (claim and claim.published) or ("", "")
    return ", ".join(filter(None, [numbers.plain(value, 5) if isinstance(value, float | int) else value, where]))


def _why(row: Mapping[str, Any]) -> str:
    """What explains a verdict, in sentences."""
    note = row["note"]
    if row["verdict"] == NOT_REACHED:
        note = f"The training ended before this criterion was met: {note}. The numbers are those of its end"
    return ". ".join(filter(None, [note, f"Tolerance: {row['reason']}"])) + "."


def _members(row: Mapping[str, Any], record: Record, claim: Claim | None) -> np.ndarray:
    """The values that the estimate is of; none where arrays are not kept or the statistic is another one by now."""
    if claim is None or not record.arrays:
        return np.array([])
    try:
        values = np.atleast_1d(np.asarray(claim.statistic(record), np.float64))
    except Exception:  # whatever a statistic of today raises on a record of former days: the row has its interval
        return np.array([])
    values = values[~np.isnan(values)]
    of_row = values.size == row["members"] or row["interval_kind"] == "exact"  # exact: the farthest may stand alone
    return values if values.ndim == 1 and of_row else np.array([])


def papers_of(runs: Mapping[str, list[Run]], experiments: Mapping[str, Experiment], ledger: Ledger) -> list[PaperView]:
    """What there is to show of each paper, in ``ORDER``, and of other folders, those that have no run yet included."""
    views = []
    for key in [*ORDER, *sorted({name.split(".")[0] for name in [*runs, *experiments]} - {*ORDER})]:
        paper = paper_of(key)
        order = {f"{key}.{figure}": place for place, figure in enumerate(paper.figures)}
        names = sorted((n for n in runs if n.startswith(f"{key}.")), key=lambda n: (order.get(n, len(order)), n))
        if names or (paper.question and key not in ORDER):
            sections = [_section(experiments[name], runs[name], ledger) for name in names]
            views.append(PaperView(paper, worded(paper.answer, key, ledger), sections))
    return views


def _section(experiment: Experiment, runs: list[Run], ledger: Ledger) -> Section:
    first = experiment.about.strip().splitlines()[0].removesuffix(".")
    title, source = match.groups() if (match := re.fullmatch(r"(.*) \(([^()]*)\)", first)) else (first, "")
    rows = once(runs)
    headlines = [row for row in rows if row.id in experiment.headlines]
    headlines = headlines or [row for row in rows if row.verdict == HOLDS][:3] or rows[:3]
    finding = worded(finding_of(experiment), experiment.name, ledger)
    finding = finding or "".join(row.statement for row in headlines[:1])
    return Section(experiment.name, title, source.removesuffix("."), finding, headlines, runs, rows)


def once(runs: Iterable[Run]) -> list[Row]:
    """One row of each claim, with what its other records say: the one by which it is counted.

    At the published size where it was judged there and the run reached its criterion, otherwise at the best preset at
    which it is judged, as in the tables of README.md.
    """
    by_claim: dict[str, list[Row]] = {}
    for run in runs:
        for row in run.rows:
            by_claim.setdefault(row.id, []).append(row)
    rows = []
    for same in by_claim.values():
        judged = [row for row in same if row.verdict != NOT_JUDGED]
        published = [row for row in judged if row.preset == "paper" and row.verdict != NOT_REACHED]
        best = [*published, *judged, *same][0]
        others = [f"at {row.preset}: {row.verdict}, {row.estimate}" for row in same if row is not best]
        at_lab = any(row.preset == "lab" for row in same)  # what is committed at lab is among the others, or is best
        rows.append(dataclasses.replace(best, elsewhere=others if at_lab else [*best.elsewhere, *others]))
    return rows
