"""Which algorithm did the networks of a finished run, or of a file, learn?

    python -m experiments.identification.of --run=figures/von_oswald/weight_maps/lab
    python -m experiments.identification.of --model=state.npz

**A run.** Every training of the run whose parameters were kept is identified (--stage names one), with the training
distribution that the run's configuration describes. The verdicts are printed, and how often the token clip acts where a
network has one; --plots=folder draws a fingerprint of each.

**A model.** --model takes a folder that icl_lab.train(..., folder=...) or trained.save has written, or the state of a
network of the code of Garg et al. 2022 (_backbone.h.*, _read_in, _read_out) as .npz or safetensors; of a .pt it says
how to convert it. Members are identified at half, once and twice the number of examples of training, as far as the
network has positions, or at --context_lengths. Prompts are those of training where the file says so (a
linear_regression), of Garg et al. for their layout, else standard normal. What was found is also written as JSON.

Exit status: 0 done; 2 refused, with a line that says why; where one of several trainings is refused the others are
identified all the same.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.identification.networks import clipped, identify_members, members_of, of_stage, prompts_of
from experiments.identification.saved import LEAST, as_json, opened
from icl_lab.identify import Identified
from icl_lab.lab import load_run, records, style
from icl_lab.lab.command_line import check_writable, command
from icl_lab.lab.constraints import holds
from icl_lab.lab.flags import FlagError, setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.identification.of``."""

    model: str = setting("", "folder of a saved training, or a file of Garg et al.'s layout", path=True)
    context_lengths: tuple[int, ...] = setting(
        (0,), "with --model: numbers of examples, each at least 2; 0: half, once and twice that of training", at_least=0
    )
    input_size: int = setting(0, "with --model: D, refused where the network has another; 0: its own", at_least=0)
    heads: int = setting(0, "heads of a state of Garg et al.; 0: one for every 32 channels", at_least=0)
    json: str = setting("", "with --model: the file of results; empty: identified.json beside it", path=True)
    run: str = setting("", "folder of a finished run that kept its parameters", path=True)
    stage: str = setting("", "the training to identify; empty: all of them")
    members: int = setting(0, "so many members of each; 0: all", at_least=0)
    seed: int = setting(0, "of prompts and rotations", at_least=0, at_most=2**32 - 1)
    plots: str = setting("", "folder of the figures; empty: none", path=True)


CONSTRAINTS = (
    holds("a folder", "plots", when=lambda o: not o.plots or not Path(o.plots).exists() or Path(o.plots).is_dir()),
    holds("--model, or --run with its --stage, not both", "model", when=lambda o: not (o.model and (o.run or o.stage))),
    holds(
        "the folder of a finished run", "run", when=lambda o: o.model or (o.run and Path(o.run, "record.json").exists())
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _identify, argv, CONSTRAINTS)


def _identify(options: Options) -> int:
    if options.model:
        return _of_model(options)
    folder = Path(options.run)
    run, members, refused = load_run(folder), options.members or None, []
    stages = [options.stage] if options.stage else run.stages()
    if not stages:
        raise FlagError(f"--run={folder}: this run kept no parameters that its binary can turn to learners")
    if stages[0] not in run.stages():
        raise FlagError(f"--stage={options.stage}: allowed is one of {', '.join(run.stages())}")
    for stage in stages:
        try:
            learners = members_of(run, stage, members)
            result = identify_members(learners, of_stage(run.record.config, stage), options.seed)
        except ValueError as error:  # RecordError and LearnerError are ValueErrors
            refused.append(f"{stage}: {error}")
            continue
        print(f"{stage}: {result}\n  prompts: {prompts_of(run.record.config, stage)}", flush=True)
        for factor, shares in clipped(run, stage, members, options.seed).items():
            print(f"  token clip acts on {np.median(shares):.1%} of prompts (median) at inputs times {factor:g}")
        if options.plots:
            _draw(result, Path(options.plots), stage.replace("/", "_"), f"{folder} · {stage}")
    if refused:
        raise FlagError("\n".join(refused))
    return 0


def _of_model(options: Options) -> int:
    path = Path(options.model)
    kept = Path(options.json) if options.json else (path if path.is_dir() else path.parent) / "identified.json"
    saved = opened(path, options.heads or None)
    if options.input_size not in (0, saved.input_size):
        raise FlagError(f"--input_size={options.input_size}: allowed is {saved.input_size}, that of the network")
    lengths = saved.lengths() if options.context_lengths == (0,) else options.context_lengths
    for length in lengths:
        if length < LEAST or (why := saved.refuses(length)):
            condition = f"is a number of examples from {LEAST} on" if length < LEAST else f"is what it can read: {why}"
            raise FlagError(f"--context_lengths={length}: allowed {condition}")
    if not lengths:
        raise FlagError(f"--model={path}: allowed is a network that reads {LEAST} examples or more")
    check_writable(kept.parent, "json")
    where = "as in the paper, since the file does not say it" if saved.assumed else "in training"
    print(f"{saved.name}\n  {saved.trained} examples {where}, D = {saved.input_size}; prompts: {saved.prompts()}")
    results = {}
    for length in lengths:
        try:
            results[length] = saved.identified(length, options.members or None, options.seed)
        except ValueError as error:  # LearnerError is one
            raise FlagError(f"{path}: {error}") from error
        print(f"\n{length} examples: {results[length]}", flush=True)
        if options.plots:
            _draw(results[length], Path(options.plots), f"{length}", f"{path.name} · {length} examples")
    kept.write_bytes(records.as_json(as_json(saved, results)))
    print(f"\nwritten: {kept}")
    return 0


def _draw(result: Identified, folder: Path, name: str, about: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with style.styled():
        style.save(result.plot(), folder / f"identify_{name}", about)


if __name__ == "__main__":
    sys.exit(main())
