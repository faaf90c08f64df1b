"""What ``reproduce`` says: a line as each run ends, every claim where asked, and one screen at the end."""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.papers import ORDER, paper_of
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED, is_identity
from icl_lab.lab.execution import Outcome
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.report import estimate, expected, unresolved, with_zeros

Row = Mapping[str, Any]
WIDTH, LINES = 100, 45
WORST_FIRST = (FAILS, NOT_RESOLVED, NOT_REACHED, HOLDS)
COUNTED = {
    HOLDS: "hold", FAILS: "fail", NOT_RESOLVED: "are not resolved", NOT_REACHED: "are not reached",
    NOT_JUDGED: "are not judged",
}  # fmt: skip
NO_LEDGER = "there is no committed ledger here (figures/claims.json), so nothing is said of lab"


def headlines(experiment: Experiment, rows: Sequence[Row]) -> list[Row]:
    """The rows of an experiment's headline claims, the first one first; of one without, all rows."""
    by_id = {row["id"]: row for row in rows}
    return [by_id[name] for name in experiment.headlines if name in by_id] or list(rows)


def foremost(experiment: Experiment, rows: Sequence[Row]) -> Row | None:
    """The headline that a line is about: the first of the worst verdict, claims first; None where there is none."""
    candidates = sorted(headlines(experiment, rows), key=is_identity)
    for verdict in (*WORST_FIRST, NOT_JUDGED):
        if matches := [row for row in candidates if row["verdict"] == verdict]:
            return matches[0]
    return None


def at_lab(claim: str, ledger: Mapping[str, Row]) -> str:
    """``judged at lab: holds 0.491 [0.477, 0.505]``."""
    if not ledger:
        return NO_LEDGER
    if claim not in ledger:
        return "no record at lab is committed"
    row = ledger[claim]
    return (
        "not judged at lab either"
        if row["verdict"] == NOT_JUDGED
        else f"judged at lab: {row['verdict']} {estimate(row)}"
    )


def finding(row: Row, most: int = 90) -> str:
    """A claim's sentence without what stands in parentheses at its end, cut between words."""
    return textwrap.shorten(
        re.sub(r"\s*\([^()]*\)\.?$", "", with_zeros(row["statement"])).rstrip("."), most, placeholder=" ..."
    )


def measured(row: Row, ledger: Mapping[str, Row]) -> str:
    """What was measured against what was expected; of a claim that is not judged here, what lab says of it."""
    lab = at_lab(row["id"], ledger)
    if row["verdict"] == NOT_JUDGED:
        return lab
    text = f"{estimate(row)}, expected {expected(row)}{unresolved(row)}"
    return text + (f"; {lab}" if row["preset"] != "lab" else "")


def line(experiment: Experiment, outcome: Outcome, ledger: Mapping[str, Row]) -> str:
    """One line for a run that has ended: verdict, name, finding, measured against expected, picture."""
    picture = str(outcome.figures[0]) if outcome.figures else "no picture"
    row = foremost(experiment, outcome.ledger)
    if row is None:
        return f"{'no claim':12} {experiment.name}  {picture}"
    verdict = row["verdict"] if row["verdict"] != NOT_JUDGED else "see lab"
    verdict = "identity" if is_identity(row) and verdict == HOLDS else verdict
    return f"{verdict:12} {experiment.name}: {finding(row)}: {measured(row, ledger)}  {picture}"


def every_claim(outcome: Outcome, ledger: Mapping[str, Row]) -> list[str]:
    """A line for every claim of a run."""
    return [f"  {row['id']}: {_verdict(row)}{measured(row, ledger)}" for row in outcome.ledger]


def _verdict(row: Row) -> str:
    return "" if row["verdict"] == NOT_JUDGED else f"{'identity, ' * is_identity(row)}{row['verdict']}, "


def screen(
    results: Sequence[tuple[Experiment, Outcome]],
    failures: Mapping[str, str],
    ledger: Mapping[str, Row],
    page: Path | str,
    minutes: float,
) -> list[str]:
    """What was found, in at most ``LINES`` lines of ``WIDTH``: by paper what held, what did not, what was not judged.

    Args:
      results: of the runs that ended well.
      failures: of the others, name -> what is known.
      ledger: rows at lab, by claim.
      page: where all of it is, or why there is none.
      minutes: that it took.
    """
    for most in (4, 3, 2, 1, 0):
        body = []
        for paper in [*ORDER, *sorted({e.name.split(".")[0] for e, _ in results} - {*ORDER})]:
            outcomes = [(e, o) for e, o in results if e.name.split(".")[0] == paper]
            body += _of_paper(paper, outcomes, {n: w for n, w in failures.items() if n.split(".")[0] == paper}, most)
        lines = [*body, *_end(results, failures, ledger, page, minutes)]
        if len(lines) <= LINES:
            break
    return lines


def _of_paper(
    paper: str, results: Sequence[tuple[Experiment, Outcome]], failures: Mapping[str, str], most: int
) -> list[str]:
    """The lines of one paper; each kind of verdict in at most so many, with 0 only what failed or is missing."""
    if not results and not failures:
        return []
    named: dict[str, list[str]] = {verdict: [] for verdict in WORST_FIRST}
    elsewhere, judged = [], Counter[str]()
    identities: list[str] = []
    for experiment, outcome in results:
        rows = [row for row in headlines(experiment, outcome.ledger) if row["verdict"] != NOT_JUDGED]
        claims = [row for row in rows if not is_identity(row)]
        judged.update(row["verdict"] for row in claims)
        figure = experiment.name.split(".", 1)[-1]
        if not rows:
            elsewhere.append(figure)
        elif all(row["verdict"] == HOLDS for row in rows):
            (named[HOLDS] if claims else identities).append(figure)
        for row in rows:
            short = row["id"].split(".", 1)[-1]
            if row["verdict"] == FAILS:
                named[FAILS].append(f"{short} {estimate(row)}, expected {expected(row)}")
            elif row["verdict"] == NOT_RESOLVED:
                named[NOT_RESOLVED].append(f"{short} {estimate(row)}")
            elif row["verdict"] == NOT_REACHED:
                named[NOT_REACHED].append(f"{figure} (before {row['note']})")
    total = sum(judged.values())
    counts = f"{judged[HOLDS]} of {total} headline claims judged here hold" if total else "no claim is judged here"
    lines = [f"{paper_of(paper).source}: {counts}"]
    kinds = (
        ("held", named[HOLDS]), ("identities", identities), ("failed", named[FAILS]),
        ("not resolved", named[NOT_RESOLVED]), ("not reached", named[NOT_REACHED]), ("at lab only", elsewhere),
        ("no record", [f"{name.split('.', 1)[-1]} ({words})" for name, words in failures.items()]),
    )  # fmt: skip
    for kind, words in kinds:
        if most or kind in ("failed", "no record"):
            lines += _listed(f"  {kind:13}", words, max(1, most))
    return lines


def _listed(head: str, words: Sequence[str], most: int) -> list[str]:
    """Words in at most so many lines; where they are more, as many words as fit, and how many others there are."""
    for kept in range(len(words), -1, -1):
        rest = [] if kept == len(words) else [f"{len(words) - kept} more"]
        text = "; ".join([*words[:kept], *rest])
        lines = textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
        if len(lines) <= most:
            return lines
    return lines


def _end(
    results: Sequence[tuple[Experiment, Outcome]], failures: Mapping[str, str], ledger: Mapping[str, Row],
    page: Path | str, minutes: float,
) -> list[str]:  # fmt: skip
    rows = [row for _, outcome in results for row in outcome.ledger]
    left = [row["id"] for row in rows if row["verdict"] == NOT_JUDGED and not is_identity(row)]
    text = ""
    if left and ledger:
        verdicts = Counter(ledger[name]["verdict"] for name in left if name in ledger)
        counts = ", ".join(f"{verdicts[verdict]} {word}" for verdict, word in COUNTED.items() if verdicts[verdict])
        text = f"{len(left)} claims are not judged by so short a run; at lab: {counts} (--verbose names each)."
    elif left:
        text = f"{len(left)} claims are not judged by so short a run; {NO_LEDGER}."
    lines = textwrap.wrap(text, WIDTH)
    return [*lines, f"{len(results)} runs ended well, {len(failures)} did not, in {minutes:.1f} min.", f"Page: {page}"]
