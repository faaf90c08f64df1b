"""Experiments that are computed in the page, on the reader's own input (``icl_lab.pages`` says what a folder holds)."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icl_lab.lab.command_line import command
from icl_lab.lab.flags import setting
from icl_lab.lab.provenance import provenance
from icl_lab.lab.records import Record, save


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of the commands that make the records of explorables."""

    outdir: str = setting("", "folder of the record; empty: that of the committed one, which is replaced", path=True)


Made = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""Configuration, with its seed, facts and arrays of a record."""


def make(about: str | None, name: str, folder: Path, made: Callable[[], Made], argv: Sequence[str] | None) -> int:
    """The command line that makes the record ``page.<name>`` and keeps it in a folder; returns the exit status."""

    def keep(options: Options) -> int:
        began = time.monotonic()
        config, facts, values = made()
        arrays = {key: np.asarray(value) for key, value in values.items()}
        origin = provenance(time.monotonic() - began, config["seed"])
        save(Record(f"page.{name}", "lab", config, facts, arrays, origin), Path(options.outdir or folder), [])
        return 0

    return command(about, Options(), keep, argv)
