"""Experiments that are computed in the page, on the reader's own input (``icl_lab.pages`` says what a folder holds)."""

import dataclasses

from icl_lab.lab.flags import setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of the commands that make the records of explorables."""

    outdir: str = setting("", "folder of the record; empty: that of the committed one, which is replaced", path=True)
