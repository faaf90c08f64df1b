"""Networks of finished runs as functions of arrays: the members of one training share one compiled program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icl_lab.identify import Identified, identify
from icl_lab.lab.runs import FinishedRun, load_run
from icl_lab.prompts import BatchLearner, Prompt, Sampler, linear_regression

LAW = {"input_range": "input_range", "input_law": "input_law", "label_noise": "label_noise"}
"""Arguments of ``linear_regression`` by the configuration's field of the same meaning."""


def sampler_of(config: Any) -> Sampler:
    """The training distribution that a configuration describes.

    Raises:
      ValueError: for a configuration without N and D: its prompts are no regression prompts.
    """
    if "context_length" not in config or "input_size" not in config:
        raise ValueError("identify needs prompts of linear regression: the run's configuration has no context_length "
                         "and input_size")  # fmt: skip
    given = {argument: config[field] for field, argument in LAW.items() if isinstance(config.get(field), float | str)}
    return linear_regression(context_length=config["context_length"], input_size=config["input_size"], **given)


def members_of(run: FinishedRun, stage: str, members: int | None = None) -> list[Callable]:
    """The members of a training as functions ``(x, y, x_query) -> (B, 1)``, all of them or the first few.

    Raises:
      RecordError: for a training whose parameters were not kept.
    """
    run.batch_learner(0, stage)  # says what is missing
    count = next(len(leaf) for name, leaf in run.record.params.items() if name.startswith(f"{stage}/"))
    chosen = range(min(count, members or count))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(run.params(member, stage) for member in chosen))
    return functions(lambda params: run.with_params(params, stage), stacked, len(chosen))


def functions(learner: Callable[[Any], BatchLearner], params: Any, members: int) -> list[Callable]:
    """Members, whose parameters have a leading axis, as functions of arrays that share one compiled program."""

    @jax.jit
    def program(own: Any, x: Any, y: Any, q: Any) -> Any:
        return learner(own)(Prompt(x, y, q))

    def one(own: Any, name: str) -> Callable:
        def answer(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
            return np.asarray(program(own, *(np.asarray(part, np.float32) for part in (x, y, q))))

        answer.__name__ = name
        return answer

    return [one(jax.tree.map(lambda leaf: leaf[m], params), f"member {m}") for m in range(members)]  # noqa: B023


def identify_members(learners: list[Callable], config: Any, seed: int) -> Identified:
    """Members on the prompts that a run's configuration describes; raises as ``sampler_of`` and ``identify``."""
    sampler = sampler_of(config)
    sizes = {name: config[name] for name in ("context_length", "input_size")}
    return identify(learners, **sizes, sampler=sampler, seed=seed)


def identified(folder: Path, stage: str = "", members: int | None = None, seed: int = 0) -> Identified:
    """What the members of a training of a finished run compute.

    Raises:
      RecordError: for a folder without a run, or a run without parameters.
      ValueError: for prompts that are no linear regression.
    """
    run = load_run(folder)
    stage = stage or next(iter(run.stages()), "")
    return identify_members(members_of(run, stage, members), run.record.config, seed)
