"""Which algorithm did the networks of a finished run learn?

    python -m experiments.identification.of --run=figures/von_oswald/weight_maps/lab

Every training of the run whose parameters were kept is identified (--stage names one), with the training distribution
that the run's configuration describes. The verdicts are printed, and how often the token clip acts where a network has
one; --plots=folder draws a fingerprint of each.

Exit status: 0 done; 2 refused, with a line that says why; where one of several trainings is refused the others are
identified all the same.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.identification.networks import clipped, identified, prompts_of
from icl_lab.lab import load_run, style
from icl_lab.lab.command_line import command
from icl_lab.lab.flags import FlagError, setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.identification.of``."""

    run: str = setting("", "folder of a finished run that kept its parameters", path=True)
    stage: str = setting("", "the training to identify; empty: all of them")
    members: int = setting(0, "so many members of each; 0: all", at_least=0)
    seed: int = setting(0, "of prompts and rotations", at_least=0, at_most=2**32 - 1)
    plots: str = setting("", "folder of the figures; empty: none", path=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _identify, argv)


def _identify(options: Options) -> int:
    folder = Path(options.run)
    if not options.run or not (folder / "record.json").exists():
        raise FlagError(f"--run={options.run}: allowed is the folder of a finished run")
    run, members, refused = load_run(folder), options.members or None, []
    stages = [options.stage] if options.stage else run.stages()
    if not stages:
        raise FlagError(f"--run={folder}: this run kept no parameters that its binary can turn to learners")
    if stages[0] not in run.stages():
        raise FlagError(f"--stage={options.stage}: allowed is one of {', '.join(run.stages())}")
    if options.plots and Path(options.plots).exists() and not Path(options.plots).is_dir():
        raise FlagError(f"--plots={options.plots}: allowed is a folder; this is a file")
    for stage in stages:
        try:
            found = identified(folder, stage, members, options.seed)
        except ValueError as error:  # RecordError and LearnerError are ValueErrors
            refused.append(f"{stage}: {error}")
            continue
        print(f"{stage}: {found}\n  prompts: {prompts_of(run.record.config, stage)}", flush=True)
        for factor, shares in clipped(run, stage, members, options.seed).items():
            print(f"  token clip acts on {np.median(shares):.1%} of prompts (median) at inputs times {factor:g}")
        if options.plots:
            Path(options.plots).mkdir(parents=True, exist_ok=True)
            with style.styled():
                name = stage.replace("/", "_")
                style.save(found.plot(), Path(options.plots) / f"identify_{name}", f"{folder} · {stage}")
    if refused:
        raise FlagError("\n".join(refused))
    return 0


if __name__ == "__main__":
    sys.exit(main())
