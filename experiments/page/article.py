"""The article: its sentences with their numbers, what did not replicate, and what was predicted wrongly."""

import dataclasses
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from experiments.page import numbers
from experiments.page.reading import PaperView, Row, Run, Section
from experiments.page.words import Ledger, worded
from icl_lab.lab.claims import FAILS, HOLDS, is_identity

CITED = ("title", "version", "date-released", "repository-code", "url")
"""What is shown of CITATION.cff, beside its authors; what it does not say is not made up."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A section of the article: a question, what was found, the claims that say so, and the experiment."""

    key: str
    question: str
    text: str
    section: Section
    claims: list[Row]
    picture: Path | None
    view: PaperView


@functools.cache
def written() -> Mapping[str, Any]:
    """``article.toml``."""
    return tomllib.loads(resources.files(__package__).joinpath("article.toml").read_text("utf-8"))


def parts(papers: Iterable[PaperView], ledger: Ledger) -> list[Part]:
    """The sections whose experiment has a run that can be shown."""
    sections = {section.name: (view, section) for view in papers for section in view.sections}
    rows = {row.id: row for _, section in sections.values() for row in section.rows}
    return [
        Part(
            entry["key"], entry["question"], worded(entry["text"], entry["paper"], ledger), section,
            [rows[claim] for claim in entry["claims"] if claim in rows],
            next(iter(section.runs[0].pictures), None), view,
        )
        for entry in written()["sections"]
        if entry["experiment"] in sections
        for view, section in [sections[entry["experiment"]]]
    ]  # fmt: skip


def differences(ledger: Ledger) -> list[Mapping[str, Any]]:
    """What did not replicate, as far as the ledger has its numbers: cases of ``article.toml``, with ours."""
    return [
        case | {"measured": numbers.estimate(row), "source": row["paper"]}
        for case in written()["differs"]
        if (row := ledger.get((case["claim"], "lab"))) is not None
    ]


def wrong_predictions(ledger: Ledger) -> list[Mapping[str, Any]]:
    """Rows of the ledger that were predicted to hold and failed at first, or the other way round.

    Both are of the first record: ``predicted`` was committed before it (null where nothing was), ``first_verdict`` is
    its verdict. A later record may have changed it.
    """
    return [
        dict(row) | {"measured": numbers.estimate(row), "bound": numbers.bound(row)}
        for row in ledger.values()
        if {row["predicted"], row["first_verdict"]} == {HOLDS, FAILS} and not is_identity(row)
    ]


def newest(runs: Iterable[Run]) -> dict[str, str]:
    """Day and commit of the record that was finished last; empty where no record says it."""
    known = [run.record.provenance for run in runs if run.record.provenance.get("finished")]
    if not known:
        return {}
    last = max(known, key=lambda provenance: provenance["finished"])
    return {"day": last["finished"][:10], "commit": (last.get("commit") or "")[:9]}


def citation(path: Path) -> dict[str, str]:
    """What CITATION.cff says of the laboratory itself; empty where there is none."""
    try:
        text = path.read_text("utf-8").split("\nreferences:")[0]
    except OSError:
        return {}
    fields = dict(re.findall(rf'^({"|".join(CITED)}): *"?(.*?)"?$', text, re.M))
    names = re.findall(r'^ *- (?:name|family-names): *"?(.*?)"?$', text, re.M)
    return fields | ({"authors": ", ".join(names)} if names else {})
