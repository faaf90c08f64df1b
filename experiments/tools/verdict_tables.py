"""Verdicts of the ledger as tables in Markdown: ``figures/claims.md``, README.md, and the pages of the papers."""

import collections
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from experiments.page import numbers
from experiments.papers import Paper, paper_of
from icl_lab.lab import report
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED, is_identity

OUTCOMES = (HOLDS, FAILS, NOT_RESOLVED, NOT_REACHED)
BEGIN, END = "<!-- claims:begin -->", "<!-- claims:end -->"
PREDICTIONS = "<!-- predictions:begin -->", "<!-- predictions:end -->"
PUBLISHED = "<!-- published:begin -->", "<!-- published:end -->"
AGREES, DIFFERS = "agrees", "**differs**"


def ledger_page(rows: Sequence[Mapping]) -> str:
    """``figures/claims.md``: counts by record, every claim, and the identities apart."""
    return "\n\n".join(
        (
            "The claims of one record rest on the same trainings, so their intervals err together; *claims on members* "
            "says how many claims there are on how many members. *Predicted* is the verdict that was committed before "
            "the first record; a dash stands where none was. *First* is the verdict of that record. *Added* marks "
            "claims that an earlier record, with fewer members, had left not resolved.",
            by_binary(rows),
            table([row for row in rows if not is_identity(row)]),
            "## Identities\n\nTheorems, definitions and equal computations, to a tolerance. Only an error in the code "
            "could make one fail, so they are counted nowhere, and the tests fail if one of them does.",
            table([row for row in rows if is_identity(row)]),
        )
    )


def table(rows: Sequence[Mapping]) -> str:
    """Every judged row, one line each, in Markdown."""
    head = ("claim", "expected", "estimate [95 %]", "members", "preset", "predicted", "first", "verdict", "record")
    lines = [_line(head), "|---" * len(head) + "|"]
    for row in rows:
        if row["verdict"] != NOT_JUDGED:
            claim = f"`{row['id']}`: {report.with_zeros(row['statement'])}"
            members = report.size(row) if "unit" in row else report.size(row).split(" member")[0]
            members += ", added" if row.get("members_added") else ""
            words = (claim, report.expected(row), report.estimate(row), members, row["preset"])
            mark = "anchored" if row["anchored"] else f"not anchored, made at commit {row['commit']}"
            then = (row.get("predicted") or "–", row.get("first_verdict") or "–")
            lines.append(_line((*words, *then, row["verdict"], mark)))
    return "\n".join(lines)


def _binary(row: Mapping) -> str:
    return ".".join(row["id"].split(".", 2)[:2])  # a claim may have a point in its name: up_0.875_gd


def by_binary(rows: Sequence[Mapping]) -> str:
    """What holds and what does not, a line for each record, in Markdown; claims alone."""
    head = ("binary", "preset", "claims on members", *OUTCOMES, "anchored")
    lines = [_line(head), "|---" * len(head) + "|"]
    for (binary, preset), judged in _groups(rows, lambda row: (_binary(row), row["preset"])).items():
        named = [", ".join(f"`{row['id'].split('.', 2)[2]}`" for row in judged[outcome]) for outcome in OUTCOMES[1:]]
        every = [row for of_verdict in judged.values() for row in of_verdict]
        mark = "yes" if every[0]["anchored"] else f"no, `{every[0]['commit']}`"
        counts = f"{len(every)} on {every[0]['trainings']}"
        lines.append(_line((f"`{binary}`", preset, counts, len(judged[HOLDS]), *named, mark)))
    return "\n".join(lines)


def rewritten(readme: Path, rows: Sequence[Mapping]) -> dict[Path, str]:
    """README.md and the pages of the papers beside it with today's tables; without a README, nothing."""
    if not readme.exists():
        return {}
    pages = {
        page: with_published(page.read_text("utf-8"), paper_of(page.parent.name), rows)
        for page in readme.parent.glob("experiments/*/README.md")
    }
    trust = readme.parent / "docs/trust.md"
    pages |= {trust: with_predictions(trust.read_text("utf-8"), rows)} if trust.exists() else {}
    return pages | {readme: with_summary(readme.read_text("utf-8"), rows)}


def once(rows: Sequence[Mapping]) -> list[Mapping]:
    """One row of each judged claim: at the published size where the run reached its criterion, otherwise at lab."""
    chosen: dict[str, Mapping] = {}
    for row in sorted(rows, key=lambda row: row["preset"] == "paper"):
        reached = row["verdict"] != NOT_REACHED
        if row["verdict"] != NOT_JUDGED and (reached or row["id"] not in chosen):
            chosen[row["id"]] = row
    return list(chosen.values())


def with_summary(text: str, rows: Sequence[Mapping]) -> str:
    """The text with the verdicts by paper between its markers, each claim once; as it is where it has none."""
    lines = [_line(("paper", *OUTCOMES)), "|---" * (1 + len(OUTCOMES)) + "|"]
    for paper, judged in _groups(once(rows), lambda row: row["id"].split(".")[0]).items():
        page = f"[{paper}](experiments/{paper}/README.md)"
        lines.append(_line((page, *(len(judged[verdict]) for verdict in OUTCOMES))))
    return _between(text, BEGIN, END, lines)


def with_predictions(text: str, rows: Sequence[Mapping]) -> str:
    """The page on verdicts with how predictions came out between its markers; as it is where it has none.

    A prediction is held against the verdict of the first record, whatever later records say.
    """
    judged = [row for row in rows if row["verdict"] != NOT_JUDGED and not is_identity(row)]
    predicted = [row for row in judged if row["predicted"]]
    right = [row for row in predicted if row["predicted"] == row["first_verdict"]]
    changed = [row for row in predicted if row["first_verdict"] != row["verdict"]]
    added = sum(row["members_added"] for row in judged)
    words = (
        f"Of {len(judged)} judged claims {len(predicted)} have a prediction. The first record of {len(right)} came "
        f"out as predicted. Later records changed the first verdict of {len(changed)} claims that have a prediction. "
        f"Members were added to {added} claims until they resolved."
    )
    return _between(text, *PREDICTIONS, textwrap.wrap(words, 120))


def with_published(text: str, paper: Paper, rows: Sequence[Mapping]) -> str:
    """The page of a paper with "published / here / verdict / why" between its markers; as it is where it has none.

    A line for each place of the paper and each verdict and reason there. The reason is that of the paper's
    ``words.toml``; without one, what the ledger notes. Each claim at one preset, as ``once`` chooses it.
    """
    groups: dict[tuple[str, str, str], list[Mapping]] = {}
    for row in once(rows):
        key, _, name = row["id"].partition(".")
        if key == paper.key and "published" in row:
            groups.setdefault((row["published"][1], *_of_the_paper(paper, name, row)), []).append(row)
    lines = [_line(("published", "here", "verdict", "why")), "|---" * 4 + "|"]
    for (place, verdict, why), claims in sorted(groups.items(), key=lambda group: _in_order(group[0][0])):
        values = dict.fromkeys(str(row["published"][0]) for row in claims)
        lines.append(_line((f"{place}: {'; '.join(values)}", _here(claims), verdict, report.with_zeros(why))))
    return _between(text, *PUBLISHED, lines)


def _of_the_paper(paper: Paper, name: str, row: Mapping) -> tuple[str, str]:
    """Whether the paper is agreed with, which a claim that holds ``against`` it does not, and why not."""
    verdict = row["verdict"]
    if verdict in (HOLDS, FAILS):
        verdict = AGREES if (verdict == HOLDS) != (name in paper.against) else DIFFERS
    noted = {NOT_REACHED: "not yet converged", NOT_RESOLVED: row["note"].removesuffix(" at this estimate")}.get(
        verdict, ""
    )
    return verdict, next((why for pattern, why in paper.why.items() if fnmatchcase(name, pattern)), noted)


def _in_order(place: str) -> list[str | int]:
    """Sorts Fig. 2 before Fig. 13."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", place)]


def _here(rows: Sequence[Mapping]) -> str:
    """Estimates with their intervals; of more than two, the estimates."""
    estimates = [numbers.estimate(row) for row in rows]
    estimates = estimates[:1] if len(set(estimates)) == 1 else estimates
    return "; ".join(estimates if len(estimates) < 3 else (words.split(" [")[0] for words in estimates))


def _between(text: str, begin: str, end: str, lines: Sequence[str]) -> str:
    """The text with these lines between two markers; as it is where it has none."""
    if begin not in text or end not in text:
        return text
    return "\n".join([text.split(begin)[0] + begin, *lines, end + text.split(end, 1)[1]])


def _groups(rows: Sequence[Mapping], by: Callable[[Mapping], Any]) -> dict[Any, dict[str, list[Mapping]]]:
    """Judged claims by group and verdict; identities are not counted."""
    groups: dict[Any, dict[str, list[Mapping]]] = {}
    for row in rows:
        if row["verdict"] != NOT_JUDGED and not is_identity(row):
            groups.setdefault(by(row), collections.defaultdict(list))[row["verdict"]].append(row)
    return groups


def _line(words: Sequence[Any]) -> str:
    return "| " + " | ".join(str(word).replace("|", "\\|") for word in words) + " |"
