"""The pictures of a record of the gallery."""

from pathlib import Path

from experiments.page import article
from experiments.page.drawing import shrink
from experiments.papers import paper_of
from icl_lab.lab import execution as lab
from icl_lab.lab import records
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import Record

LARGEST_PICTURE = 400_000  # bytes of a PNG


def lead_of(experiment: str) -> str | None:
    """The picture of an experiment that opens its paper's page, or a section of the article."""
    key, _, figure = experiment.partition(".")
    paper = paper_of(key)
    opens = paper.figures[:1] == [figure] or experiment in {one["experiment"] for one in article.written()["sections"]}
    shown = [name.partition("/")[2] for name in paper.captions if name.startswith(f"{figure}/")]
    return next(iter(shown), None) if opens else None


def pictures(experiment: Experiment, record: Record, folder: Path) -> set[Path]:
    """Draws the figures of a record into a folder, as PNG of limited size; the lead at lab as SVG, too, for print."""
    lead = lead_of(experiment.name) if record.preset == "lab" else None
    drawn = set(lab.draw(experiment, record, folder, pdf=False, svg=lead))
    for path in drawn:
        if path.suffix == ".png":
            shrink(path, LARGEST_PICTURE)
    return drawn


def redraw(experiment: Experiment, folder: Path) -> str:
    """Draws the figures of a folder of the gallery anew and removes those that are no more; returns what was done."""
    if not (folder / "arrays.npz").exists():
        return f"{folder}: arrays are not kept, the pictures stay"
    try:
        drawn = pictures(experiment, records.load(folder), folder)
    except KeyError as error:  # a quantity that a record of older sources has not; nothing was drawn yet
        return f"{folder}: the record holds no {error}, the pictures stay"
    for path in {*folder.glob("[!.]*.png"), *folder.glob("[!.]*.svg")} - drawn:
        path.unlink()
    return f"{folder}: {', '.join(sorted(path.name for path in drawn))}"
