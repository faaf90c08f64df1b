"""What decides the numbers of a binary: the transitive imports of its module, read from the sources; nothing is run."""

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from icl_lab.prompts.corpus import source_files

ROOTS = ("icl_lab", "experiments")
MACHINERY = "icl_lab.lab"
"""The room that carries a run out and decides no number, but for ``NUMBERS``."""
NUMBERS = ("icl_lab.lab.flags", "icl_lab.lab.trainings")
"""Those that decide numbers: ``flags.arguments`` makes settings, ``trainings`` says what is trained after what."""


def texts(home: Path) -> dict[str, str]:
    """The source of every module of the laboratory by its name, of a package that of its ``__init__``.

    Args:
      home: the folder that holds the packages ``ROOTS``.
    """
    sources = {}
    for root in ROOTS:
        for name, path in source_files(home / root).items():
            words = [root, *name.removesuffix(".py").split("/")]
            sources[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text("utf-8")
    return sources


def needed(start: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Names of the modules that these import, directly or not, themselves included, sorted.

    Imports inside functions count, and packages on the way, whose ``__init__`` runs. What a package resolves by name
    (``__getattr__``) does not: it is found where it is used.
    """
    modules: set[str] = set()
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        if module in modules or module not in texts or (is_machinery(module) and module not in NUMBERS):
            continue
        modules.add(module)
        waiting += imported(texts[module])
        words = module.split(".")
        waiting += [".".join(words[:n]) for n in range(1, len(words))]
    return sorted(modules)


def is_machinery(module: str) -> bool:
    """Whether a module only carries runs out."""
    return module == MACHINERY or module.startswith(f"{MACHINERY}.")


_STATEMENT = re.compile(r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n(]+))", re.MULTILINE)
"""An import on lines of its own, wherever it stands. To parse whole files takes twenty times as long: .3 s."""


@functools.cache
def imported(text: str) -> tuple[str, ...]:
    """Names that a source imports from the laboratory: modules, and what may be one."""
    names: list[str] = []
    for statement in _STATEMENT.findall(text):
        try:
            (node,) = ast.parse(statement).body
        except SyntaxError:  # prose
            continue
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(name for name in dict.fromkeys(names) if name.split(".")[0] in ROOTS)
