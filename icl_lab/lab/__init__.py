"""An experiment and what surrounds it. What a binary needs of it is here, imported when it is asked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl_lab.lab.claims import Claim, NotRun, claims_of
    from icl_lab.lab.command_line import main
    from icl_lab.lab.experiment import Experiment
    from icl_lab.lab.flags import FlagError, arguments, from_json, setting
    from icl_lab.lab.record import Record
    from icl_lab.lab.runs import load_run
    from icl_lab.lab.session import Session

_HOMES = {
    "claims": ("Claim", "NotRun", "claims_of"),
    "command_line": ("main",),
    "experiment": ("Experiment",),
    "flags": ("FlagError", "arguments", "from_json", "setting"),
    "record": ("Record",),
    "runs": ("load_run",),
    "session": ("Session",),
}
__all__ = [
    "Claim",
    "Experiment",
    "FlagError",
    "NotRun",
    "Record",
    "Session",
    "arguments",
    "claims_of",
    "from_json",
    "load_run",
    "main",
    "setting",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"icl_lab.lab.{home}"), name)
    raise AttributeError(f"module 'icl_lab.lab' has no attribute {name!r}")
