"""docs/tutorial.ipynb runs from top to bottom in a kernel, and what it shows is there and short."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

PLACE = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"
FEWER = {"members=4": "members=2", "steps=1500": "steps=40", "steps=100": "steps=4", "batch=256": "batch=64"}
"""For the test; the rest is as it is printed."""
BEFORE = "from icl_lab.training import progress; progress.SECONDS = 0.0  # between two lines"
AFTER = """
losses = trained.fit.metrics["loss"]
assert (losses[:, -1] < losses[:, 0]).all()
assert jnp.isfinite(mine.fit.metrics["loss"]).all()
assert len(found.members) == 2 and not found.units.assumed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def cells(folder):
    """The code cells with their outputs, after the notebook has run in this folder."""
    notebook = nbformat.read(PLACE, as_version=4)
    for cell in notebook.cells:
        for printed, used in FEWER.items():
            cell.source = cell.source.replace(printed, used)
    notebook.cells = [new_code_cell(BEFORE), *notebook.cells, new_code_cell(AFTER)]
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"][1:-1]


def outputs(cells, ending):
    """By kind, what was shown of the first cell with this last line."""
    cell = next(cell for cell in cells if cell.source.splitlines()[-1] == ending)
    return {
        kind: said for one in cell.outputs for kind, said in one.get("data", {one.get("name"): one.get("text")}).items()
    }


def test_every_cell_shows_something_and_all_text_is_short(cells, folder):
    assert [cell.source for cell in cells if not cell.outputs] == []
    shown = [one for cell in cells for one in cell.outputs]
    plain = [one.text if one.output_type == "stream" else one.data["text/plain"] for one in shown]
    assert sum(map(len, plain)) < 20_000
    assert (folder / "runs" / "tutorial" / "record.json").exists()


def test_trained_members_are_a_table_and_a_picture_and_their_loss_is_seen_on_the_way(cells):
    shown = outputs(cells, "trained")
    assert shown["text/plain"].startswith("Trained(LinearSelfAttention, 2 members, 40 steps, loss ")
    assert "training: 40 of 40, loss 0." in shown["stderr"]
    page, _, picture = shown["text/html"].partition('<img src="data:image/png')
    assert page.startswith("<pre>Trained(")
    assert "<td>one step_loss</td>" in page
    assert picture
    assert len(page) < 20_000
    assert "image/png" in outputs(cells, "figure")


def test_the_notebook_is_kept_without_outputs():
    cells = nbformat.read(PLACE, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert len({cell.id for cell in cells}) == len(cells)
