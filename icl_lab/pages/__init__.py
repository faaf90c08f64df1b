"""Pages of one offline file whose figures compute in the browser: style, shared scripts and the bundler.

The page of the laboratory (``experiments.page``) and ``icl_lab.identify.Identified.page`` are made of them. A figure
lies in a folder with ``model.js`` (pure: numbers in, numbers out; each function names the one of Python that it
equals), ``view.js``, and Python that makes what the page holds and the figure that stands where no script runs.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

HERE = Path(__file__).parent
SPACE = re.compile(r"(?:\s|//.*|/\*(?s:.*?)\*/)+")
QUOTED = re.compile(r"""("|')(?:\\.|(?!\1)[^\\\n])*\1""")
TEMPLATE = re.compile(r"(?s:[`}](?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{))")
PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+/")
CODE = re.compile(r"""[^\s"'`{}/]+|[{}/]""")
APART = re.compile(r"[\w$]{2}|\+\+|--|//")
IMPORT = re.compile(r'^import(\{[^}]*\})from"([^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.M)


def written(
    template: str,
    script: Path,
    folders: Sequence[Path],
    context: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> bytes:
    """A page: a template, filled in, with the style and a script, and nothing that needs a network.

    Style and script are named by their digests in the page's policy, so that no other ones are carried out.

    Args:
      template: its name; it begins with ``{% include "head.html" %}`` and has ``<script>{{ script }}</script>`` once.
      script: the module that is bundled with what it imports.
      folders: where templates lie, besides this one.
      context: what the template shows; ``title`` is that of the page.
      filters: of the template.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, HERE]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters or {}
    parts = {"style": (HERE / "page.css").read_text("utf-8"), "script": bundle(script)}
    variables: dict[str, str] = {name: Markup(text) for name, text in parts.items()}
    variables |= {f"{name}_digest": _digest(text) for name, text in parts.items()}
    return environment.get_template(template).render(variables, **context).encode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def bundle(entry: Path) -> str:
    """One script of an ES module and what it imports: every module is a function, called once, in order of need.

    Modules are stripped of comments and spaces. Only ``import { a, b as c } from "./file.js";`` and ``export`` before
    a declaration (of one name) are understood.

    Raises:
      ValueError: for a circle of imports, and where ``import`` or ``export`` is left in another form.
    """
    done: dict[Path, str] = {}

    def add(path: Path, above: tuple[Path, ...]) -> None:
        if path in above:
            raise ValueError(f"{path.name} imports itself by way of {', '.join(p.name for p in above)}")
        if path in done:
            return
        text = stripped(path.read_text("utf-8"))
        for _, place in IMPORT.findall(text):
            add((path.parent / place).resolve(), (*above, path))
        names = EXPORT.findall(text)
        body = IMPORT.sub(
            lambda m: f"const{m[1].replace(' as ', ':')}={_name((path.parent / m[2]).resolve())};\n", text
        )
        body = EXPORT.sub("", body)
        if match := re.search(r"^(import|export)\b.*", body, re.M):
            raise ValueError(f"{path.name}: {match[0]!r} is a form of {match[1]} that is not bundled")
        done[path] = f"const {_name(path)}=(()=>{{\n{body}return{{{','.join(names)}}};\n}})();\n"

    add(entry.resolve(), ())
    return '"use strict";\n' + "".join(done.values())


def stripped(script: str) -> str:
    """A script without comments, indentation, and spaces that separate nothing; its lines and its texts stay.

    A slash begins a regular expression where it stands after an opening bracket, a comma or an equals sign, and
    divides elsewhere. (rjsmin takes a template within a template for code, and strips its text.)

    Raises:
      ValueError: where a text or a regular expression has no end.
    """
    kept, place, last = [], 0, "\n"
    braces = [0]  # how many are open, outside and in each ${...} of a template
    while place < len(script):
        first = script[place]
        template = first == "`" or (first == "}" and len(braces) > 1 and not braces[-1])
        if space := SPACE.match(script, place):
            place = space.end()
            if "\n" in space[0]:
                piece = "" if last == "\n" else "\n"
            else:
                piece = " " if APART.fullmatch(last + script[place : place + 1]) else ""
        else:
            pattern = first == "/" and last in "([,="
            kind = TEMPLATE if template else QUOTED if first in "\"'" else PATTERN if pattern else CODE
            match = kind.match(script, place)
            if not match:
                raise ValueError(f"a text or pattern has no end: {script[place : place + 40]!r}")
            piece, place = match[0], match.end()
            if template and first == "}":
                braces.pop()
            if template and piece.endswith("${"):
                braces.append(0)
            if not template:
                braces[-1] += (piece == "{") - (piece == "}")
        kept.append(piece)
        last = piece[-1:] or last
    return "".join(kept)


def _name(path: Path) -> str:
    return f"{path.parent.name}_{path.stem}"


def packed(values: Any) -> str:
    """An array as base64 of its float32 numbers, little endian, row by row."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
