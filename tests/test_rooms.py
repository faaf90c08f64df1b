"""The rooms of icl_lab lie one above the other: what is below imports nothing of what is above."""

import ast
from pathlib import Path

import pytest

from icl_lab.prompts.corpus import source_files

LIBRARY = Path(__file__).parents[1] / "icl_lab"
ROOMS = ("prompts", "models", "fast", "constructions", "theory", "solvers", "compare", "identify", "training", "lab")


def imported(path):
    """Names of the modules, and of what is taken from them, that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_room_has_its_place():
    assert sorted(path.parent.name for path in LIBRARY.glob("[!.]*/__init__.py")) == sorted(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_no_import_goes_upwards(room):
    # public names, which may lead anywhere; what leads nowhere is below all rooms
    files = LIBRARY.glob("[!.]*.py")
    beside = {path.stem for path in files if any(name.startswith("icl_lab") for name in imported(path))}
    above = {*ROOMS[ROOMS.index(room) + 1 :], *beside}
    wrong = [
        f"{path.relative_to(LIBRARY)} imports {name}"
        for path in source_files(LIBRARY / room).values()
        for name in imported(path)
        if name.partition(".")[0] == "experiments" or (name.startswith("icl_lab.") and name.split(".")[1] in above)
    ]
    assert wrong == []
