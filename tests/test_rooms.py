"""The rooms of icl_lab lie one above the other: what is below imports nothing of what is above.

In experiments what runs a binary imports nothing of what shows its records, and no binary what another one shows; the
page lies above the papers, and the tools above both.
"""

import ast
import functools
import importlib
from pathlib import Path

import pytest

from experiments.binaries import discover
from icl_lab.lab.provenance import HOME, texts
from icl_lab.prompts.corpus import source_files

LIBRARY = Path(__file__).parents[1] / "icl_lab"
ROOMS = ("pages", "prompts", "models", "fast", "constructions", "theory", "solvers", "compare", "identify", "training")
ROOMS += ("lab",)


@functools.cache
def imported(text):
    """Names of the modules, and of what is taken from them, that a source imports anywhere."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def test_every_room_has_its_place():
    assert sorted(path.parent.name for path in LIBRARY.glob("[!.]*/__init__.py")) == sorted(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_no_import_goes_upwards(room):
    # public names, which may lead anywhere; what leads nowhere is below all rooms
    files = LIBRARY.glob("[!.]*.py")
    beside = {path.stem for path in files if any(name.startswith("icl_lab") for name in imported(path.read_text()))}
    above = {*ROOMS[ROOMS.index(room) + 1 :], *beside}
    wrong = [
        f"{path.relative_to(LIBRARY)} imports {name}"
        for path in source_files(LIBRARY / room).values()
        for name in imported(path.read_text())
        if name.partition(".")[0] == "experiments"
        or name == "icl_lab"  # which leads to any room
        or (name.startswith("icl_lab.") and name.split(".")[1] in above)
    ]
    assert wrong == []


TEXTS = texts(HOME)
TOOLS = ("benchmark", "gallery", "join_members", "reproduce")
"""Commands of the tools, by their short names."""
SHOWN = [name for name in TEXTS if name.endswith("_shown")]


def needed(name):
    """The modules that a module imports, directly or not, itself included; not what ``icl_lab.lab`` imports."""
    modules, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in TEXTS and module not in modules:
            modules.add(module)
            waiting.append(module.rpartition(".")[0])
            if module.split(".")[:2] != ["icl_lab", "lab"]:
                waiting += [part for taken in imported(TEXTS[module]) for part in (taken, taken.rpartition(".")[0])]
    return modules


def test_rules_between_settings_are_data():
    """What is refused by hand needs more than the settings: a file, a folder, a long computation."""
    assert sum(text.count("raise FlagError") + text.count("raise flags.FlagError") for text in TEXTS.values()) <= 60


def test_every_binary_has_what_it_shows_beside_it():
    assert {f"experiments.{name}_shown" for name in discover()} == set(SHOWN)


@pytest.mark.parametrize("name", discover())
def test_what_runs_imports_nothing_that_is_shown(name):
    assert needed(f"experiments.{name}") & {*SHOWN, "icl_lab.lab.style", "experiments.panels"} == set()


@pytest.mark.parametrize("name", SHOWN)
def test_no_binary_imports_what_another_one_shows(name):
    assert needed(name) & set(SHOWN) == {name}


def test_no_paper_imports_the_page_or_a_tool_and_the_page_no_tool():
    above = ("page", "tools", *TOOLS)
    wrong = [
        f"{name} imports {one}"
        for name, text in TEXTS.items()
        if name.startswith("experiments.") and (room := name.split(".")[1]) not in ("tools", *TOOLS)
        for one in imported(text)
        if one.startswith("experiments.") and one.split(".")[1] in above[room == "page" :] and one.split(".")[1] != room
    ]
    assert wrong == []


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_a_command_by_its_short_name(name):
    tool, short = (importlib.import_module(f"experiments.{room}{name}") for room in ("tools.", ""))
    assert short.main is tool.main
    assert f"python -m experiments.{name}" in tool.__doc__
