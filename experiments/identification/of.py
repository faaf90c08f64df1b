"""Which algorithm did the networks of a finished run learn?

    python -m experiments.identification.of --run=figures/von_oswald/weight_maps/lab

Every training of the run whose parameters were kept is identified (--stage names one), with the training distribution
that the run's configuration describes. The verdicts are printed, and how often the token clip acts where a network has
one; --plots=folder draws a fingerprint of each.

Exit status: 0 done; 2 refused, with a line that says why; where one of several trainings is refused the others are
identified all the same.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags as absl_flags

from experiments.identification.networks import clipped, identified, prompts_of
from experiments.reproduce import help_text
from icl_lab.lab import command_line as lab
from icl_lab.lab import flags, load_run, style


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    values = absl_flags.FlagValues()
    absl_flags.DEFINE_string("run", "", "folder of a finished run that kept its parameters", flag_values=values)
    absl_flags.DEFINE_string("stage", "", "the training to identify; empty: all of them", flag_values=values)
    absl_flags.DEFINE_integer("members", 0, "so many members of each; 0: all", lower_bound=0, flag_values=values)
    absl_flags.DEFINE_integer("seed", 0, "of prompts and rotations", flag_values=values)
    absl_flags.DEFINE_string("plots", "", "folder of the figures; empty: none", flag_values=values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    try:
        lab.parse_words(values, sys.argv if argv is None else argv)
        if values.help:
            print(help_text(__doc__, values))
            return lab.DONE
        folder = Path(values.run)
        if not values.run or not (folder / "record.json").exists():
            raise flags.FlagError(f"--run={values.run}: allowed is the folder of a finished run")
        run, members = load_run(folder), values.members or None
        stages = [values.stage] if values.stage else run.stages()
        if not stages:
            raise flags.FlagError(
                f"--run={values.run}: this run kept no parameters that its binary can turn to learners"
            )
        refused = []
        for stage in stages:
            try:
                found = identified(folder, stage, members, values.seed)
            except ValueError as error:  # RecordError and LearnerError are such
                refused.append(f"{stage}: {error}")
                continue
            print(f"{stage}: {found}\n  prompts: {prompts_of(run.record.config, stage)}", flush=True)
            for factor, shares in clipped(run, stage, members, values.seed).items():
                print(f"  token clip acts on {np.median(shares):.1%} of prompts (median) at inputs times {factor:g}")
            if values.plots:
                Path(values.plots).mkdir(parents=True, exist_ok=True)
                with style.styled():
                    name = stage.replace("/", "_")
                    style.save(found.plot(), Path(values.plots) / f"identify_{name}", f"{folder} · {stage}")
        if refused:
            return lab.refused("\n".join(refused))
    except (absl_flags.Error, ValueError, OSError) as error:  # RecordError and LearnerError are ValueErrors
        return lab.refused(f"{error}\nTry --help.")
    return lab.DONE


if __name__ == "__main__":
    sys.exit(main())
