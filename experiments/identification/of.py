"""Which algorithm did the networks of a finished run learn?

    python -m experiments.identification.of --run=figures/von_oswald/weight_maps/lab

Every training of the run whose parameters were kept is identified (--stage names one), with the training distribution
that the run's configuration describes. The verdicts are printed; --plots=folder draws a fingerprint of each.

Exit status: 0 done; 2 refused, with a line that says why.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.identification.networks import identified
from icl_lab.lab import load_run, style
from icl_lab.lab.command_line import command
from icl_lab.lab.flags import FlagError, setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.identification.of``."""

    run: str = setting("", "folder of a finished run that kept its parameters")
    stage: str = setting("", "the training to identify; empty: all of them")
    members: int = setting(0, "so many members of each; 0: all", at_least=0)
    seed: int = setting(0, "of prompts and rotations")
    plots: str = setting("", "folder of the figures; empty: none")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _identify, argv)


def _identify(options: Options) -> int:
    folder = Path(options.run)
    if not options.run or not (folder / "record.json").exists():
        raise FlagError(f"--run={options.run}: allowed is the folder of a finished run")
    try:
        stages = [options.stage] if options.stage else load_run(folder).stages()
        if not stages:
            raise FlagError(f"--run={folder}: this run kept no parameters that its binary can turn to learners")
        for stage in stages:
            found = identified(folder, stage, options.members or None, options.seed)
            print(f"{stage}: {found}", flush=True)
            if options.plots:
                Path(options.plots).mkdir(parents=True, exist_ok=True)
                with style.styled():
                    style.save(found.plot(), Path(options.plots) / f"identify_{stage}", f"{folder} · {stage}")
    except ValueError as error:  # RecordError and LearnerError are ValueErrors
        raise FlagError(str(error)) from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
