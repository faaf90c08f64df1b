"""An experiment and what surrounds it; here is what a binary needs of it."""

from icl_lab.lab.claims import Claim, NotRun, claims_of
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, arguments, from_json, setting
from icl_lab.lab.record import Record
from icl_lab.lab.runs import load_run
from icl_lab.lab.session import Session

__all__ = ["Claim", "Experiment", "FlagError", "NotRun", "Record", "Session"]
__all__ += ["arguments", "claims_of", "from_json", "load_run", "main", "setting"]
