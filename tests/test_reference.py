"""``make docs``: the reference has every public name."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

pdoc = pytest.importorskip("pdoc", reason="pdoc is of the lock; this environment is older")

ROOT = Path(__file__).parents[1]
(NAMES,) = re.findall(r"^PUBLIC := \$\(addprefix icl_lab\.,(.*?)\)$", (ROOT / "Makefile").read_text(), re.M | re.S)
PUBLIC = [f"icl_lab.{name}" for name in NAMES.replace("\\", "").split()]


def test_every_package_is_in_the_reference():
    packages = {f"icl_lab.{path.parent.name}" for path in (ROOT / "icl_lab").glob("[!.]*/__init__.py")}
    assert packages < set(PUBLIC)
    shown = {one for name in PUBLIC for one in pdoc.doc.Module(importlib.import_module(name)).members}
    assert set(importlib.import_module("icl_lab").__all__) <= shown


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference_with_its_docstring(name):
    module = importlib.import_module(name)
    shown = pdoc.doc.Module(module).members
    public = [one for one in getattr(module, "__all__", ()) if not one.startswith("__")]
    assert [one for one in public if one not in shown] == []
    described = [
        one for one in public if inspect.isclass(getattr(module, one)) or inspect.isfunction(getattr(module, one))
    ]
    assert [one for one in described if not shown[one].docstring] == []
