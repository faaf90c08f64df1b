"""Experiments that are computed in the page, on the reader's own input.

A room holds ``model.js`` (pure: numbers in, numbers out; each function names the one of Python that it equals),
``view.js``, ``data.py`` (record to what the page holds) and ``fallback.py`` (the figure without a script).
"""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np

IMPORT = re.compile(r'^import (\{[^}]*\}) from "([^"]+)";\n', re.M)
COMMENT = re.compile(r"^ *(?://.*|/\*\*(?s:.*?)\*/)\n", re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.M)


def bundle(entry: Path) -> str:
    """One script of an ES module and what it imports: every module is a function, called once, in order of need.

    Comments that have lines of their own are left out. Only ``import { a, b as c } from "./file.js";`` and ``export``
    before a declaration (of one name) are understood.

    Raises:
      ValueError: for a circle of imports, and where ``import`` or ``export`` is left in another form.
    """
    done: dict[Path, str] = {}

    def add(path: Path, above: tuple[Path, ...]) -> None:
        if path in above:
            raise ValueError(f"{path.name} imports itself by way of {', '.join(p.name for p in above)}")
        if path in done:
            return
        text = COMMENT.sub("", path.read_text("utf-8"))
        for _, place in IMPORT.findall(text):
            add((path.parent / place).resolve(), (*above, path))
        names = EXPORT.findall(text)
        body = IMPORT.sub(
            lambda m: f"const {m[1].replace(' as ', ': ')} = {_name((path.parent / m[2]).resolve())};\n", text
        )
        body = EXPORT.sub("", body)
        if found := re.search(r"^(import|export)\b.*", body, re.M):
            raise ValueError(f"{path.name}: {found[0]!r} is a form of {found[1]} that is not bundled")
        done[path] = f"const {_name(path)} = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"

    add(entry.resolve(), ())
    return '"use strict";\n' + "".join(done.values())


def _name(path: Path) -> str:
    return f"{path.parent.name}_{path.stem}"


def packed(values: Any) -> str:
    """An array as base64 of its float32 numbers, little endian, row by row."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
