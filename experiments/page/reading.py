"""Records -> what the page says: a section for each experiment, a row for each claim; what cannot be read is named."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.binaries import belongs
from experiments.page.drawing import Dots, dots
from experiments.page.words import Estimates, powers, worded
from experiments.papers import ORDER, Paper, finding_of, paper_of, pictures
from icl_lab.lab import drift, report
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_RESOLVED, Claim, is_identity
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import Record, RecordError

VERDICTS = (HOLDS, NOT_RESOLVED, "not reached", FAILS, NOT_JUDGED)
BEST_FIRST = ("lab", "paper", "quick", "smoke")


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim on one record, in words."""

    key: str  # of its place in the page
    id: str
    name: str
    paper: str
    experiment: str
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
    at_lab: str  # verdict and estimate of the committed lab record, where this is another preset
    dots: Dots | None
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
    surprises: dict[str, str]  # verdicts other than the committed ones, by id
    command: str
    pictures: list[Path]

    def counts(self) -> dict[str, int]:
        """Number of claims by verdict."""
        return counted(self.rows)

    def folded(self) -> dict[str, str]:
        """Configuration, numbers and provenance, as JSON."""
        found = {
            "Configuration": self.record.config,
            "Numbers": self.record.metrics,
            "Provenance": self.record.provenance,
        }
        return {title: json.dumps(dict(value), indent=1) for title, value in found.items() if value}


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment; the first of its runs is the one that is shown, others are folded away."""

    name: str
    title: str
    source: str
    finding: str
    headlines: list[Row]
    runs: list[Run]


@dataclasses.dataclass(frozen=True)
class PaperView:
    """One paper: its card and its sections."""

    paper: Paper
    answer: str
    sections: list[Section]

    @property
    def rows(self) -> list[Row]:
        """All claims, of every run."""
        return [row for section in self.sections for run in section.runs for row in run.rows]

    @property
    def picture(self) -> Path | None:
        """The picture of the card; the first that there is where it has not been drawn."""
        found = {_name(path): path for section in self.sections for path in section.runs[0].pictures}
        return found.get(self.paper.picture) or next(iter(found.values()), None)

    def counts(self) -> dict[str, int]:
        """How much held, of the runs that are shown."""
        return counted(row for section in self.sections for row in section.runs[0].rows)

    def caption(self, path: Path) -> str:
        """What is seen in a picture; its name where nobody has said it."""
        return self.paper.captions.get(_name(path), path.stem.replace("_", " "))


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """Number of claims (identities left out) by verdict, in the order of ``VERDICTS``, without those that none has."""
    verdicts = [row.verdict for row in rows if not row.identity]
    return {v: verdicts.count(v) for v in (*VERDICTS, *sorted({*verdicts} - {*VERDICTS})) if v in verdicts}


def read(
    folders: Iterable[Path], experiments: Mapping[str, Experiment], ledger: Mapping[tuple[str, str], Mapping]
) -> tuple[dict[str, list[Run]], dict[str, str]]:
    """Runs by experiment, the best first, and what was left out: folder -> reason."""
    runs: dict[str, list[Run]] = {}
    left_out = {}
    for folder in folders:
        try:
            run = _run(folder, experiments, ledger)
        except RecordError as error:
            left_out[str(folder)] = str(error)
        else:
            runs.setdefault(run.record.experiment, []).append(run)
    for found in runs.values():
        found.sort(key=lambda run: BEST_FIRST.index(p) if (p := run.record.preset) in BEST_FIRST else len(BEST_FIRST))
    return runs, left_out


def _run(folder: Path, experiments: Mapping[str, Experiment], ledger: Mapping[tuple[str, str], Mapping]) -> Run:
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
        surprises = {
            row["id"]: f"{row['verdict']}, committed: {row['expected_verdict']}"
            for row in rows
            if report.is_surprise(row)
        }
        judged = record.preset in BEST_FIRST  # claims are of presets; other settings are shown by their pictures
        return Run(
            folder,
            record,
            shown if judged else [],
            surprises,
            report.command(experiment, record),
            pictures(experiment.name, folder),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{folder} holds claims or settings that this code does not know ({error})") from error


def _name(path: Path) -> str:
    """``figure/picture``, of a picture in ``<paper>/<figure>/<run>/``."""
    return f"{path.parts[-3]}/{path.stem}"


def _row(row: Mapping[str, Any], record: Record, claim: Claim | None, at_lab: Mapping[str, Any] | None) -> Row:
    paper, figure, name = row["id"].split(".", 2)
    committed = ""
    if at_lab is not None and row["preset"] != "lab":
        committed = f"{at_lab['verdict']} {powers(report.estimate(at_lab))}"
    return Row(
        key=f"claim-{row['id']}" + ("" if row["preset"] == "lab" else f"-{row['preset'].replace(' ', '_')}"),
        id=row["id"],
        name=name,
        paper=paper,
        experiment=f"{paper}.{figure}",
        source=row["paper"],
        statement=row["statement"],
        preset=row["preset"],
        expected=powers(report.expected(row)),
        estimate=powers(report.estimate(row)),
        members=row["members"],
        size=report.size(row),
        verdict=row["verdict"],
        why=". ".join(filter(None, [row["note"], f"Tolerance: {row['reason']}"])),
        control="" if row["control"] is None else powers(f"{row['control']:.3g}"),
        at_lab=committed,
        dots=dots(row, _members(row, record, claim)),
        identity=is_identity(row),
    )


def _members(row: Mapping[str, Any], record: Record, claim: Claim | None) -> np.ndarray:
    """The values that the estimate is of; none where arrays are not kept or the statistic is another one by now."""
    if claim is None or not record.arrays:
        return np.array([])
    try:
        values = np.atleast_1d(np.asarray(claim.statistic(record), np.float64))
    except Exception:  # whatever a statistic of today raises on a record of former days: the row has its interval
        return np.array([])
    values = values[~np.isnan(values)]
    sizes = {
        row["members"],
        values.size if row["interval_kind"] == "exact" else 0,
    }  # exact: the farthest may stand alone
    return values if values.ndim == 1 and values.size in sizes else np.array([])


def papers_of(
    runs: Mapping[str, list[Run]], experiments: Mapping[str, Experiment], ledger: Mapping[tuple[str, str], Mapping]
) -> list[PaperView]:
    """What there is to show of each paper, in ``ORDER``, and of other folders, those that have no run yet included."""
    estimates = {key: row["estimate"] for key, row in ledger.items()}
    views = []
    for key in [*ORDER, *sorted({name.split(".")[0] for name in [*runs, *experiments]} - {*ORDER})]:
        paper = paper_of(key)
        order = {f"{key}.{figure}": place for place, figure in enumerate(paper.figures)}
        names = sorted((n for n in runs if n.startswith(f"{key}.")), key=lambda n: (order.get(n, len(order)), n))
        if names or (paper.question and key not in ORDER):
            sections = [_section(experiments[name], runs[name], estimates) for name in names]
            views.append(PaperView(paper, worded(paper.answer, key, estimates), sections))
    return views


def _section(experiment: Experiment, runs: list[Run], estimates: Estimates) -> Section:
    first = experiment.about.strip().splitlines()[0].removesuffix(".")
    title, source = found.groups() if (found := re.fullmatch(r"(.*) \(([^()]*)\)", first)) else (first, "")
    wanted, rows = experiment.headlines, runs[0].rows
    headlines = [row for row in rows if row.id in wanted]
    headlines = headlines or [row for row in rows if row.verdict == HOLDS][:3] or rows[:3]
    finding = worded(finding_of(experiment), experiment.name, estimates)
    finding = finding or "".join(row.statement for row in headlines[:1])
    return Section(experiment.name, title, source.removesuffix("."), finding, headlines, runs)
