"""An experiment: presets, trainings, measurements, and what is said of its record."""

import ast
import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from icl_lab.lab import constraints, flags
from icl_lab.lab.claims import Claim
from icl_lab.lab.constraints import Constraint
from icl_lab.lab.judging import judge
from icl_lab.lab.provenance import loaded, source_version
from icl_lab.lab.quantities import AxesError, Quantity, axes_of, check_axes
from icl_lab.lab.record import Axes, Record
from icl_lab.lab.style import Figure
from icl_lab.lab.trainings import Fits, Table, Yield, collected
from icl_lab.training import effort

PRESETS = ("smoke", "quick", "lab", "paper")
EFFORT = {"smoke": "little", "quick": "some"}
"""How hard XLA works on the programs of presets that are compilation for a large part."""
PRINTED = ("lab", "paper")
"""Presets whose figures are also written as PDF; fonts and all, that takes as long as the pixels and a second more."""
UNREAD: Any = object()
"""Default of claims and figures: they are read from ``<figure>_shown.py`` when first used."""
LAZY = ("claims", "figures")
OLDER = {"run", "axes", "parts", "learners", "quick"}
"""Arguments of a former release."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One binary: a figure or table of a paper.

    Claims and figures of a binary ``experiments.paper.figure`` are read when they are first asked for: ``CLAIMS`` and
    ``figures`` of ``experiments.paper.figure_shown``. What runs imports nothing that is shown. An experiment in one
    file gives them itself, or has none.

    Attributes:
      name: ``paper.figure``.
      about: the module's docstring; ``--help`` prints it.
      presets: a configuration for each of ``PRESETS``; the configuration class has fields ``seed`` and ``members``.
      measured: ``(config, fits)`` -> what is measured, piece by piece (``lab.trainings.collected``).
      quantities: of every array that it yields.
      trainings: ``config -> {stage: training}``, cheap: it trains nothing.
      constraints: what must hold between the settings (``lab.constraints``).
      check: raises FlagError for a configuration that is not allowed for another reason.
      claims: of its record.
      figures: ``record -> {name: figure}``.
      finding: one or two sentences of an experiment that no ``words.toml`` of ``experiments`` tells; fields name
        estimates of its claims at lab (``experiments.page.words``).
      unused: settings that do not matter here: accepted as in every binary of the kind, and not shown by ``--help``.
      feeds_others: other binaries read its record, so the gallery keeps arrays and parameters whatever their size.
      effort: how hard XLA works on the programs of a preset (``training.effort``), where not as ``EFFORT`` says.
      given: members are loaded from another run, or do not depend on the seed, so a grid over seeds repeats them.

    Raises:
      TypeError: for the arguments of a former release.
      ValueError: for a claim whose id is not of this experiment, or that names a verdict at quick.
    """

    name: str
    about: str
    presets: Mapping[str, Any]
    measured: Callable[[Any, Fits], Iterable[Yield]]
    quantities: tuple[Quantity, ...]
    _: dataclasses.KW_ONLY
    trainings: Callable[[Any], Table] = lambda config: {}
    constraints: tuple[Constraint, ...] = ()
    check: Callable[[Any], None] = lambda config: None
    claims: tuple[Claim, ...] = dataclasses.field(default_factory=lambda: UNREAD)
    figures: Callable[[Record], dict[str, Figure]] = dataclasses.field(default_factory=lambda: UNREAD)
    finding: str = ""
    unused: tuple[str, ...] = ()
    feeds_others: bool = False
    effort: Mapping[str, str] = dataclasses.field(default_factory=dict)
    given: bool = False

    def __new__(cls, *args: Any, **options: Any) -> "Experiment":
        """Refuses what a former release took, in one sentence."""
        if len(args) > 5 or OLDER & options.keys():
            raise TypeError(
                f"{next(iter(args), options.get('name'))}: run(config, session) is now trainings(config) -> "
                "{stage: Training} and measured(config, fits), which yields (quantity, array): Experiment(name, about, "
                "presets, measured, quantities, trainings=trainings, claims=CLAIMS, figures=figures); see "
                "docs/extending.md"
            )
        return super().__new__(cls)

    def __post_init__(self):
        if self.about is None:  # python -OO keeps no docstrings
            object.__setattr__(self, "about", self._docstring())
        for name in LAZY:
            if vars(self)[name] is UNREAD:
                object.__delattr__(self, name)  # read from ``<figure>_shown.py`` when first used
        if "claims" in vars(self):
            check_claims(self.name, self.claims)

    def __getattr__(self, name: str) -> Any:
        """What is shown, when it is first asked for; nothing where there is no such module."""
        if name not in LAZY or "name" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        value: Any = () if name == "claims" else lambda record: {}
        if (module := f"experiments.{self.name}_shown") in loaded():
            shown = importlib.import_module(module)
            value = shown.CLAIMS if name == "claims" else shown.figures
        if name == "claims":
            check_claims(self.name, value)
        object.__setattr__(self, name, value)
        return value

    def check_complete(self) -> None:
        """Checks what a command line needs.

        Raises:
          ValueError: for a preset that is missing, or a configuration of which no flags can be made.
        """
        if missing := [name for name in PRESETS if name not in self.presets]:
            problem = f"must have {', '.join(PRESETS)}; {', '.join(missing)} is missing (paper may be lab again)"
            raise ValueError(f"{self.name}: presets {problem}")
        flags.check_class(type(self.presets["paper"]), needed=("seed", "members"))

    def validate(self, config: Any) -> None:
        """Raises FlagError for a configuration that is not allowed, naming the setting and what is."""
        flags.validate(config)
        constraints.check(config, self.constraints)
        self.check(config)

    @property
    def headlines(self) -> tuple[str, ...]:
        """Ids of the claims that sum the experiment up, the first one first."""
        claims = sorted((claim for claim in self.claims if claim.headline), key=lambda claim: claim.headline)
        return tuple(claim.id for claim in claims)

    def carried_out(self, config: Any, fits: Fits) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
        """Facts, arrays and parameters of a run.

        Raises:
          ValueError: for a training that nothing asks for, or an array that is measured twice.
        """
        facts, arrays, params = collected(self.measured(config, fits))
        fits.check_all_asked()
        return facts, arrays, fits.params() if params is None else params

    def parts(self, config: Mapping[str, Any]) -> list[str]:
        """Patterns (``fnmatch``) of the names of arrays that a configuration chooses."""
        return [part for one in self.quantities for part in one.parts(config)]

    def _docstring(self) -> str:
        text = loaded().get(f"experiments.{self.name}", "")
        return ast.get_docstring(ast.parse(text)) or self.name

    @property
    def module(self) -> str:
        """The module that it is in: that of its name, or the one that runs."""
        module = f"experiments.{self.name}"
        return module if module in loaded() else self.measured.__module__

    def source_version(self) -> str:
        """Digest of all sources of the laboratory and, where the experiment is a user's own, of its file."""
        return source_version(self.module)

    def axes_of(self, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> dict[str, Axes]:
        """The axes of every array, by its name.

        Raises:
          AxesError: for a name of no quantity, or of two, and for an array whose shape is another one.
        """
        axes = axes_of(self.quantities, arrays, config)
        check_axes(axes, arrays, config["members"])
        return axes

    def unnamed(self, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> list[str]:
        """Names of the arrays whose axes, each taken alone, are not named or not as they are."""
        names = []
        for name, array in arrays.items():
            try:
                self.axes_of({name: array}, config)
            except AxesError:
                names.append(name)
        return names

    def left_out(self, config: Mapping[str, Any]) -> set[str]:
        """Patterns of the names of arrays that runs of a preset have and those of this configuration have not.

        Place by place, so that they match where a configuration differs from every preset in another place, too.
        """
        presets = [flags.to_json(preset) for preset in self.presets.values()]
        return {pattern for one in self.quantities for pattern in one.left_out(presets, config)}

    def compiling(self, preset: str) -> contextlib.AbstractContextManager:
        """Inside this block XLA works as hard on a program as it does for runs of the preset."""
        return effort.at_most(self.effort.get(preset, EFFORT.get(preset, "full")))

    def judged(self, record: Record) -> list[dict]:
        """The ledger rows of a record, in the order of the claims (``judging.judge``)."""
        left_out, claims = self.left_out(record.config), self.claims
        if record.preset == "quick":
            claims = tuple(claim.at_quick() for claim in claims)
        return [judge(claim, record, left_out) for claim in claims]

    def label(self, preset: str, config: Any) -> str:
        """The preset's name, with what differs from it.

        Another seed, more members, or a choice of parts (a field ``only``) do not make it another preset.
        """
        base = vars(self.presets[preset])
        free = {"seed", "only"} | ({"members"} if config.members >= base["members"] else set())
        differing = [f"{k}={v}" for k, v in vars(config).items() if v != base[k] and k not in free]
        return f"{preset} with {', '.join(differing)}" if differing else preset


def check_claims(name: str, claims: Iterable[Claim]) -> None:
    """Raises ValueError for claims of an experiment whose ids are not its own, or that name a verdict at quick."""
    ids = [claim.id for claim in claims]
    for one in ids:
        if not one.startswith(f"{name}.") or ids.count(one) > 1:
            raise ValueError(f"{one}: the id of a claim begins with {name}. and is its own")
    if early := [claim.id for claim in claims if "quick" in claim.expected_verdict]:
        raise ValueError(f"{early[0]}: its verdict at quick is given by quick=, with a tolerance")
