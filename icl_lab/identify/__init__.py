"""Which algorithm is a learner? Measured, fitted, named with a residual and a range, or refused (``docs/identify.md``).

A learner becomes a function of arrays (``asking``), which is asked on prompts in units (``probes``), output by output
(``outputs``). Four stages follow: A, its structure, and B, its filter (``structure``; ``probes.answers`` symmetrises
it); C, fits of every family that the structure leaves (``families`` lists them, ``fitting`` fits); and D, the decision
on one member (``one``, with the rules of ``decision``, ``stability``, ``refusal`` and ``numbers``). ``report`` puts the
members together and prints. Learners of labels have ``identify_classifier`` (``labels``, ``label_families``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.identify.asking import Ask, Floats, LearnerError, asked, rounding
from icl_lab.identify.decision import Member, asymmetry_by_chance, by_chance, classes, named
from icl_lab.identify.families import FAMILIES
from icl_lab.identify.family import Family, Model, Parameter, containers, filter_family
from icl_lab.identify.fitting import Fit, predicted, refitted, relative
from icl_lab.identify.labels import IdentifiedLabels, identify_classifier
from icl_lab.identify.one import all_fits, at_factors, one_member, with_mixed_examples
from icl_lab.identify.outputs import combined, one_output, sizes_of
from icl_lab.identify.probes import (
    CONTEXTS,
    FIT,
    JUDGE,
    QUERIES,
    Answers,
    Battery,
    answers,
    battery,
    in_units,
    rotations,
    training_prompts,
)
from icl_lab.identify.report import Identified, verdict_of
from icl_lab.identify.setting import Judged, Setting
from icl_lab.identify.structure import EXACT, ROUNDINGS, degree, fingerprint, grade, structure
from icl_lab.prompts.prompt import Members, Sampler
from icl_lab.prompts.tracing import check_seed, whole

__all__ = ["FAMILIES", "Family", "Identified", "LearnerError", "Member", "Model", "Parameter", "filter_family"]
__all__ += ["IdentifiedLabels", "identify", "identify_classifier"]
# the stages, for whoever measures how often a name is right
__all__ += ["CONTEXTS", "EXACT", "FIT", "JUDGE", "QUERIES", "Answers", "Ask", "Battery", "Fit", "Floats", "Setting"]
__all__ += ["all_fits", "answers", "asked", "asymmetry_by_chance", "battery", "by_chance", "classes", "containers"]
__all__ += ["fingerprint", "grade", "in_units", "named", "one_member", "predicted", "refitted", "relative", "rotations"]
__all__ += ["structure", "training_prompts", "with_mixed_examples"]


def identify(
    learners: Callable[..., Any] | Sequence[Callable[..., Any]] | Members,
    *,
    context_length: int | None = None,
    input_size: int | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    families: Mapping[str, Family] | None = None,
) -> Identified:
    """Names the algorithm that learners compute on regression prompts, or refuses.

    Several outputs (O labels an example) are asked one by one, the labels of the others being zero: a member has one
    answer where all outputs share a name, else its verdict is ``mixed``.

    Args:
      learners: what ``icl_lab.train`` returns, one learner, or a sequence of them: ``Prompt -> (1,)``, the same for a
        batch of prompts, or any function of numpy arrays ``(x (B, N, D), y (B, N, 1), x_query (B, D)) -> (B, 1)``, O in
        the place of 1 where the sampler has O outputs. Only predictions are used. A batch holds 2048 prompts.
      context_length: N, that of training; None: that of the sampler.
      input_size: D; None: that of the sampler.
      sampler: the training distribution (inputs, tasks, noise); None: the one on which trained members were measured,
        or else standard normal inputs and tasks are assumed.
      seed: of the prompts and rotations.
      families: what to try, by name, None for ``FAMILIES``; the order decides which of equal ones gives the name.

    Raises:
      ValueError: for N below 2, D below 1, neither sizes nor a sampler, no learner, no family or one under another
        name, a sampler of other sizes, of something else than samples or that ignores its key, or a seed that is not in
        [0, 2^32 - 1].
      LearnerError: for a learner that is no function, raises, returns another shape or numbers that are not finite, or
        answers the same prompts differently; the message names it.
    """
    check_seed(seed)
    if isinstance(learners, Members):
        sampler, learners = learners.common_sampler() if sampler is None else sampler, learners.learners()
    outputs = 1
    if sampler is not None:
        n, d, outputs = sizes_of(sampler, seed)
        context_length = n if context_length is None else context_length
        input_size = d if input_size is None else input_size
    if context_length is None or input_size is None:
        raise ValueError(
            "context_length and input_size must be given, or a sampler that has them (a saved one has none); got None"
        )
    context_length, input_size = whole("context_length", context_length, 2), whole("input_size", input_size)
    families = FAMILIES if families is None else families
    if not isinstance(families, Mapping) or not families:
        raise ValueError(f"families must be a dict of at least one family by its name, got {families!r}")
    if wrong := [name for name, family in families.items() if family.name != name]:
        raise ValueError(f"families has {families[wrong[0]].name!r} under the name {wrong[0]!r}; allowed is its own")
    many: list[Any] = list(learners) if isinstance(learners, Iterable) and not _is_one(learners) else [learners]
    if not many:
        raise ValueError("learners must hold at least one learner")
    asked_for = {"context_length": context_length, "input_size": input_size, "seed": seed}
    every = []
    for channel in range(outputs):
        units, on, rng = battery(one_output(sampler, channel, outputs), context_length, input_size, seed)
        setting = Setting(units, on, rotations(rng, input_size), families)
        every.append(_identified(many, setting, (channel, outputs), seed, asked_for))
    return every[0] if outputs == 1 else combined(every, families)


def _is_one(learners: object) -> bool:
    """Whether this is one learner, or something in its place, as a model is; not several."""
    return callable(learners) or hasattr(learners, "learner")


def _identified(
    many: list[Callable[..., Any]], setting: Setting, channel: tuple[int, int], seed: int, asked_for: dict[str, Any]
) -> Identified:
    """What the learners compute in one of their outputs, through all stages."""
    units, on = setting.units, setting.battery
    n, d = on.x.shape[1:]
    trial = training_prompts(on, units)
    members, parts, prints, predictions, spacings = [], [], [], [], []
    for i, learner in enumerate(many):
        name = f"learner {i}" + (f" ({learner.__name__})" if hasattr(learner, "__name__") else "")
        answer = asked(learner, name, trial, channel)
        ask = in_units(answer, units)
        spacings.append(rounding(answer(*trial)))
        parts.append(structure(ask, on, seed))
        prints.append(fingerprint(ask, units, n, d, seed))
        parts[-1].setdefault("locality", prints[-1]["locality"])
        responses, at = answers(ask, on, setting.turns), at_factors(ask, setting)
        members.append(one_member(ask, parts[-1], setting, True, max(EXACT, ROUNDINGS * spacings[-1]), responses, at))
        if i == 0:
            first_degree = degree(ask, on)
        predictions.append((responses.raw[JUDGE], responses.mean[JUDGE], at(2.0, 2.0)[1].mean))
    verdict, family = verdict_of(members, setting.families)
    graded: dict[str, Any] = {}
    bound = max(EXACT, ROUNDINGS * max(spacings))
    for part in parts[0]:
        measured = [one[part] for one in parts if not np.isnan(one[part])] or [float("nan")]
        worst = max(measured)
        graded[part] = {"median": float(np.median(measured)), "worst": worst, "grade": grade(worst, bound)}
    graded["degree"] = first_degree
    grid = units.eigenvalue * prints[0]["grid"]
    r, spread = (np.stack([one[name] for one in prints]) for name in ("r", "spread"))
    judged = Judged(on.plain.eigenvalues[JUDGE], on.plain.weights[JUDGE], *map(np.stack, zip(*predictions)))
    return Identified(verdict, family, members, graded, (grid, r, spread), units, asked_for, max(spacings), judged)
