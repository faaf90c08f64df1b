"""The cells of docs/tutorial.ipynb run from top to bottom, and what each ends with is short enough to be shown."""

import ast
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

NOTEBOOK = json.loads((Path(__file__).parents[1] / "docs" / "tutorial.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def shown(code, names):
    """What a notebook would show of a cell, run in this namespace; None where it ends with a statement."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


def test_the_cells_of_the_tutorial_run_from_top_to_bottom(folder, capsys):
    names = {"__name__": "tutorial"}
    fewer = {"members=4": "members=2", "steps=1500": "steps=40", "steps=100": "steps=4", "batch=256": "batch=64"}
    for cell in CELLS:
        for printed, used in fewer.items():  # the rest is as it is printed
            cell = cell.replace(printed, used)
        found = shown(cell, names)
        assert len(repr(found)) < 1000, cell
        if (page := getattr(found, "_repr_html_", lambda: None)()) is not None:  # of a figure, which has it for itself
            assert page.startswith("<pre>")
    assert capsys.readouterr().out.startswith(str(names["found"]).splitlines()[0])
    assert len(names["found"].members) == 2
    assert not names["found"].units.assumed
    losses = names["trained"].fit.metrics["loss"]
    assert (losses[:, -1] < losses[:, 0]).all()
    assert np.isfinite(names["mine"].fit.metrics["loss"]).all()
    assert (folder / "runs" / "tutorial" / "record.json").exists()


def test_the_notebook_is_kept_without_outputs():
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
