"""Verdicts of the ledger as tables in Markdown: ``figures/claims.md`` and the counts in README.md."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from icl_lab.lab import report
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED, is_identity

OUTCOMES = (HOLDS, FAILS, NOT_RESOLVED, NOT_REACHED)
BEGIN, END = "<!-- claims:begin -->", "<!-- claims:end -->"


def ledger_page(rows: Sequence[Mapping]) -> str:
    """``figures/claims.md``: counts by record, every claim, and the identities apart."""
    return "\n\n".join(
        (
            "The claims of one record rest on the same trainings, so their intervals err together; *claims on members* "
            "says how many claims there are on how many members. *Predicted* is the verdict that was committed before "
            "the first record; a dash stands where none was. *Added* marks claims that an earlier record, with fewer "
            "members, had left not resolved.",
            by_binary(rows),
            table([row for row in rows if not is_identity(row)]),
            "## Identities\n\nTheorems, definitions and equal computations, to a tolerance. Only an error in the code "
            "could make one fail, so they are counted nowhere, and the tests fail if one of them does.",
            table([row for row in rows if is_identity(row)]),
        )
    )


def table(rows: Sequence[Mapping]) -> str:
    """Every judged row, one line each, in Markdown."""
    head = ("claim", "expected", "estimate [95 %]", "members", "preset", "predicted", "verdict", "record")
    lines = [_line(head), "|---" * len(head) + "|"]
    for row in rows:
        if row["verdict"] != NOT_JUDGED:
            claim = f"`{row['id']}`: {report.with_zeros(row['statement'])}"
            members = report.size(row) if "unit" in row else str(row["members"])
            members += ", added" if row.get("members_added") else ""
            words = (claim, report.expected(row), report.estimate(row), members, row["preset"])
            mark = "anchored" if row["anchored"] else f"not anchored, made at commit {row['commit']}"
            lines.append(_line((*words, row.get("predicted") or "–", row["verdict"], mark)))
    return "\n".join(lines)


def _binary(row: Mapping) -> str:
    return ".".join(row["id"].split(".", 2)[:2])  # a claim may have a point in its name: up_0.875_gd


def by_binary(rows: Sequence[Mapping]) -> str:
    """What holds and what does not, a line for each record, in Markdown; claims alone."""
    head = ("binary", "preset", "claims on members", *OUTCOMES, "anchored")
    lines = [_line(head), "|---" * len(head) + "|"]
    for (binary, preset), judged in _groups(rows, lambda row: (_binary(row), row["preset"])).items():
        named = [", ".join(f"`{row['id'].split('.', 2)[2]}`" for row in judged[which]) for which in OUTCOMES[1:]]
        every = [row for of_verdict in judged.values() for row in of_verdict]
        mark = "yes" if every[0]["anchored"] else f"no, `{every[0]['commit']}`"
        rest = f"{len(every)} on {every[0]['trainings']}"
        lines.append(_line((f"`{binary}`", preset, rest, len(judged[HOLDS]), *named, mark)))
    return "\n".join(lines)


def with_summary(text: str, rows: Sequence[Mapping]) -> str:
    """The text with the verdicts by paper between its markers; the text as it is where it has none."""
    if BEGIN not in text or END not in text:
        return text
    lines = [_line(("paper", *OUTCOMES)), "|---" * (1 + len(OUTCOMES)) + "|"]
    for paper, judged in _groups(rows, lambda row: row["id"].split(".")[0]).items():
        page = f"[{paper}](experiments/{paper}/README.md)"
        lines.append(_line((page, *(len(judged[verdict]) for verdict in OUTCOMES))))
    before, after = text.split(BEGIN)[0], text.split(END, 1)[1]
    return "\n".join([before + BEGIN, *lines, END + after])


def _groups(rows: Sequence[Mapping], by: Callable[[Mapping], Any]) -> dict[Any, dict[str, list[Mapping]]]:
    """Judged claims by group and verdict; identities are not counted."""
    groups: dict[Any, dict[str, list[Mapping]]] = {}
    for row in rows:
        if row["verdict"] != NOT_JUDGED and not is_identity(row):
            groups.setdefault(by(row), collections.defaultdict(list))[row["verdict"]].append(row)
    return groups


def _line(words: Sequence[Any]) -> str:
    return "| " + " | ".join(str(word).replace("|", "\\|") for word in words) + " |"
