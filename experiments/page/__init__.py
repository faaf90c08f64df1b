"""The page: what was found, in one file that asks nothing of any network.

``python -m experiments.page`` writes it from the committed records, ``experiments.reproduce`` from its own runs.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments.page import article
from experiments.page.drawing import AXIS, HEIGHT, RADIUS, UNIT, WIDTH, Picture, picture
from experiments.page.explorables.contexts import contexts
from experiments.page.numbers import formula
from experiments.page.reading import counted, papers_of, read
from icl_lab.identify import explorable
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import RecordError
from icl_lab.lab.records import read_json, write_atomically
from icl_lab.pages import written

TEMPLATES = Path(__file__).with_name("templates")
CITATION = Path(__file__).parents[2] / "CITATION.cff"
LARGEST = 3_500_000  # bytes of the page
SIZES = ((800, 25), (640, 25), (600, 25), (560, 25), (480, 25))
"""Width in pixels and quality of its pictures: the first with which the page is not larger than that."""
LEADS = (1500, 50)
"""Of the pictures that stand open in the article: sharp on a screen of twice as many pixels."""


def write_page(
    records: Path | Iterable[Path],
    ledger: Path,
    out: Path,
    experiments: Mapping[str, Experiment],
    failures: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Writes the page; nothing is trained or drawn, and the same records give the same bytes.

    Args:
      records: a gallery (``<paper>/<figure>/<preset>`` below it), or the run folders themselves.
      ledger: ``claims.json`` of the committed records: numbers in findings, verdicts at lab.
      out: the file.
      experiments: the binaries that the page is about, by name.
      failures: binaries that did not finish, with the reason.

    Returns:
      What was left out, with the reason: folders, pictures, the ledger, binaries without a record.

    Raises:
      OSError: if the file cannot be written.
    """
    failures = dict(failures or {})
    folders = [p.parent for p in sorted(records.glob("*/*/*/record.json"))] if isinstance(records, Path) else records
    committed, left_out = _ledger(ledger)
    runs, unread = read(folders, experiments, committed)
    left_out |= unread | {n: "no record" for n in experiments if n not in runs and n not in failures}
    papers, shown = papers_of(runs, experiments, committed), [run for group in runs.values() for run in group]
    parts, texts = article.parts(papers, committed), article.written()
    context = contexts() | {
        "width": WIDTH, "height": HEIGHT, "radius": RADIUS, "axis": AXIS, "unit": UNIT,
        "title": f"{texts['thesis']} · icl_lab", "article": texts, "parts": parts, "papers": papers, "runs": shown,
        "leads": _pictures({part.picture: LEADS for part in parts if part.picture})[0],
        "differences": article.differences(committed), "wrong": article.wrong_predictions(committed),
        "counts": counted(row for view in papers for row in view.rows), "failures": failures,
        "surprises": {claim: words for run in shown for claim, words in run.surprises.items()},
        "newest": article.newest(shown), "citation": article.citation(CITATION),
    }  # fmt: skip
    filters: dict[str, Callable[..., Any]] = {"formula": formula, "counted": counted}
    for size in SIZES:
        pictures, broken = _pictures({path: size for run in shown for path in run.pictures})
        context |= {"pictures": pictures, "left_out": left_out | broken}
        page = written("page.html", TEMPLATES / "page.js", [TEMPLATES, explorable.FOLDER], context, filters)
        if len(page) <= LARGEST:
            break
    write_atomically(out, page)
    return left_out | broken


def _ledger(path: Path) -> tuple[dict[tuple[str, str], dict], dict[str, str]]:
    """Rows of the committed ledger by id and preset; none, and why, where it cannot be used."""
    try:
        rows = read_json(path)
        return {(row["id"], row["preset"]): row for row in rows if isinstance(row["estimate"], float | None)}, {}
    except RecordError as error:
        reason = str(error)
    except (KeyError, TypeError):
        reason = "not a list of claims"
    return {}, {str(path): f"{reason}; findings are shown without numbers"}


def _pictures(sizes: Mapping[Path, tuple[int, int]]) -> tuple[dict[Path, Picture], dict[str, str]]:
    """Pictures of a width and quality by path, and those that cannot be read, with the reason."""

    def made(path: Path) -> Picture | str:
        try:
            return picture(path, *sizes[path])
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on a file that is no picture
            return f"not a picture ({error})"

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(sizes, pool.map(made, sizes)))
    pictures = {path: result for path, result in results.items() if isinstance(result, Picture)}
    return pictures, {str(path): result for path, result in results.items() if isinstance(result, str)}
