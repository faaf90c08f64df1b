"""The pictures of a record of the gallery."""

from pathlib import Path

from experiments.page.drawing import shrink
from icl_lab.lab import execution as lab
from icl_lab.lab import records
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import Record

LARGEST_PICTURE = 400_000  # bytes


def pictures(experiment: Experiment, record: Record, folder: Path) -> set[Path]:
    """Draws the figures of a record into a folder, as PNG of limited size."""
    drawn = lab.draw(experiment, record, folder)
    for path in drawn:
        if path.suffix == ".png":
            shrink(path, LARGEST_PICTURE)
        else:
            path.unlink()
    return {path for path in drawn if path.suffix == ".png"}


def redraw(experiment: Experiment, folder: Path) -> str:
    """Draws the figures of a folder of the gallery anew and removes those that are no more; returns what was done."""
    if not (folder / "arrays.npz").exists():
        return f"{folder}: arrays are not kept, the pictures stay"
    try:
        drawn = pictures(experiment, records.load(folder), folder)
    except KeyError as error:  # a quantity that a record of older sources has not; nothing was drawn yet
        return f"{folder}: the record holds no {error}, the pictures stay"
    for path in set(folder.glob("[!.]*.png")) - drawn:
        path.unlink()
    return f"{folder}: {', '.join(sorted(path.name for path in drawn))}"
