"""Saved networks at several context lengths: trainings of ``icl_lab.train``, states of Garg et al.'s code."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.identification.networks import functions
from icl_lab.identify import Identified, identify
from icl_lab.lab.flags import FlagError
from icl_lab.lab.own_record import load
from icl_lab.lab.record import Record, RecordError
from icl_lab.models import load_garg, prefix_predictions
from icl_lab.models.garg import BACKBONE
from icl_lab.prompts import BatchLearner, Prompt, Sampler, linear_regression
from icl_lab.prompts.layouts import Layout, alternating_layout, causal_layout, joint_layout
from icl_lab.training import Trained

LEAST = 2
"""Examples that ``identify`` needs."""
LAYOUTS: tuple[Callable[[], Layout] | None, ...] = (
    None, partial(alternating_layout, prefixes=True), alternating_layout, causal_layout, partial(causal_layout, 1),
    partial(joint_layout, sign=1),
)  # fmt: skip
"""Tokens that a training may have had; its record says whether it had these."""
OF_LINEAR_REGRESSION = "icl_lab.prompts.regression.linear_regression.<locals>.sampler"
LAW = ("input_law", "input_range", "task_law", "task_scale", "label_noise", "used_weights")
"""Arguments of ``linear_regression`` that do not depend on the number of examples."""


@dataclasses.dataclass(frozen=True)
class Saved:
    """Members of a saved network.

    Attributes:
      name: what it is, in words.
      learner: ``params -> learner of B prompts``.
      params: with leading member axis.
      trained: N of training.
      assumed: whether N is that of the paper, as the file does not say it.
      input_size: D.
      law: the task distribution, arguments of ``linear_regression``; None: it is not known.
      most: examples for which there are positions; None: as many as one likes.
    """

    name: str
    learner: Callable[[Any], BatchLearner]
    params: Any
    trained: int
    input_size: int
    law: Mapping[str, Any] | None
    assumed: bool = False
    most: int | None = None

    def lengths(self) -> tuple[int, ...]:
        """Half, once and twice the examples of training, as far as the network can read them."""
        wanted = {min(n, self.most or n) for n in (self.trained // 2, self.trained, 2 * self.trained)}
        return tuple(sorted(n for n in wanted if n >= LEAST and not self.refuses(n)))

    def refuses(self, length: int) -> str:
        """Why the network cannot read so many examples; empty: it can. Nothing is computed."""
        if self.most is not None and length > self.most:
            return f"its positions end at {self.most} examples"
        of_one = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], self.params))
        n, d = length, self.input_size
        shapes = (jax.ShapeDtypeStruct((3, *shape), np.float32) for shape in ((n, d), (n, 1), (d,)))
        try:
            jax.eval_shape(lambda params, *parts: self.learner(params)(Prompt(*parts)), of_one, *shapes)
        except (ValueError, TypeError, AssertionError) as error:  # of a network that has this length in its weights
            return str(error).splitlines()[0]
        return ""

    def prompts(self) -> str:
        """The task distribution in words."""
        if self.law is None:
            return "standard normal inputs and tasks, as the file does not say on what it was trained"
        return "linear regression, " + ", ".join(f"{name} {value}" for name, value in self.law.items())

    def sampler(self, length: int) -> Sampler | None:
        """That of training, with so many examples; None: it is not known."""
        return None if self.law is None else linear_regression(
            context_length=length, input_size=self.input_size, **self.law
        )  # fmt: skip

    def identified(self, length: int, members: int | None = None, seed: int = 0) -> Identified:
        """What members compute from so many examples; raises as ``identify``."""
        count = len(jax.tree.leaves(self.params)[0])
        learners = functions(self.learner, self.params, min(count, members or count))
        sampler, d = self.sampler(length), self.input_size
        return identify(learners, context_length=length, input_size=d, sampler=sampler, seed=seed)


def opened(path: Path, heads: int | None = None) -> Saved:
    """A folder of ``trained.save`` or ``icl_lab.train(..., folder=...)``, or a file of Garg et al.'s layout.

    Raises:
      FlagError: for what is neither, or cannot be read, in words.
    """
    if path.is_dir():
        return _of_training(path)
    try:
        network, params = load_garg(path, heads)
    except (ImportError, ValueError) as error:
        raise FlagError(f"--model={path}: {str(error).removeprefix(f'{path}: ')}") from error
    most, d = (network.positions - 1) // 2, params["params"]["read_in"].shape[0]
    size = f"{network.layers} layers, {network.heads} heads, width {network.width}"
    return Saved(
        f"a state of the layout of Garg et al. ({BACKBONE}h.*): GPT-2, {size}, {network.positions} positions",
        lambda weights: partial(prefix_predictions, network, weights), jax.tree.map(lambda leaf: leaf[None], params),
        min(2 * d, most), d, {"input_law": "normal"}, assumed=True, most=most,
    )  # fmt: skip


def _of_training(folder: Path) -> Saved:
    trained, record = _loaded(folder)
    shapes = record.metrics["prompt"]
    (_, n, d), (_, _, outputs) = shapes["x"], shapes["y"]
    if outputs != 1:
        raise FlagError(f"--model={folder}: allowed is a network of one output, this one has {outputs}")
    positions = ((record.metrics["network"] or {}).get("fields") or {}).get("positions")
    most = (positions - 1) // 2 if isinstance(positions, int) and positions else None
    return Saved(f"{trained}", trained.model.learner, trained.fit.params, n, d, law_of(record.config), most=most)


def _loaded(folder: Path) -> tuple[Trained, Record]:
    """The training, with the first layout that is the record's."""
    first_error: RecordError | None = None
    for layout in LAYOUTS:
        try:
            trained = load(folder, layout=None if layout is None else layout())
            return trained, trained.call["record"]
        except RecordError as error:
            first_error = first_error or error
    raise FlagError(f"--model={folder}: {first_error}") from first_error


def law_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The task distribution of a training's record; None where it is not ``linear_regression`` of plain numbers."""
    kwargs = {name: config.get(f"sampler/program/{name}") for name in LAW}
    rest = [config.get(f"sampler/program/{name}") for name in ("corrupted_labels", "examples", "used_inputs")]
    if config.get("sampler/program") != OF_LINEAR_REGRESSION or any(rest):
        return None
    plain = all(value is None or name.endswith("_law") or not isinstance(value, str) for name, value in kwargs.items())
    return {name: value for name, value in kwargs.items() if value is not None} if plain else None


def as_json(saved: Saved, found: Mapping[int, Identified]) -> dict[str, Any]:
    """What members were called at every number of examples, as plain JSON values."""
    kept = ("verdict", "family", "equals", "residual", "asymmetry", "noise", "stability", "range", "parameters")

    def of_length(one: Identified) -> dict[str, Any]:
        members = [{name: _plain(getattr(member, name)) for name in kept} for member in one.members]
        return {"verdict": one.verdict, "family": one.family, "members": members}

    about = {"network": saved.name, "prompts": saved.prompts(), "input_size": saved.input_size}
    about |= {"trained_at": saved.trained, "trained_at_assumed": saved.assumed}
    return about | {"context_lengths": {str(n): of_length(one) for n, one in found.items()}}


def _plain(value: Any) -> Any:
    """Numbers that are not finite are None, tuples lists."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
