"""An experiment of trainings, measurements and quantities; what is said of its records stands in a module beside it."""

import functools
import importlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

from icl_lab.lab import flags
from icl_lab.lab.axes import Axes
from icl_lab.lab.claims import Quick
from icl_lab.lab.experiment import Experiment, check_claims
from icl_lab.lab.quantities import Quantity, axes_of
from icl_lab.lab.session import Session
from icl_lab.lab.trainings import Fits, Table, Yield, collected


def binary(
    name: str,
    about: str,
    presets: Mapping[str, Any],
    measured: Callable[[Any, Fits], Iterable[Yield]],
    quantities: tuple[Quantity, ...],
    *,
    trainings: Callable[[Any], Table] = lambda config: {},
    **options: Any,
) -> "Binary":
    """An experiment whose claims and figures are in the module of its name and ``_shown``.

    They are read when they are asked for, so what runs imports nothing that is shown.

    Args:
      name: ``paper.figure``, of the module ``experiments.paper.figure``.
      about: the module's docstring; ``--help`` prints it.
      presets: a configuration for each of ``PRESETS``.
      measured: ``(config, fits)`` -> what was measured, piece by piece (``lab.trainings.collected``).
      quantities: of every array that it yields.
      trainings: ``config -> {stage: training}``; trains nothing.
      options: ``check``, ``feeds_others``, ``effort``, ``given``, ``reads`` of ``Experiment``.
    """

    def run(config: Any, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        def fit(stage: str, training: Any) -> Any:
            return training.carried_out(functools.partial(session.fit, stage))

        fits = Fits(trainings(config), fit, session)
        facts, arrays, params = collected(measured(config, fits))
        fits.check_all_asked()
        session.params = fits.params() if params is None else params
        return facts, arrays

    run.__module__ = measured.__module__  # what decides the numbers

    def learners(config: Any) -> dict[str, Callable]:
        return {stage: one.learner for stage, one in trainings(config).items() if one.learner is not None}

    def parts(config: Mapping[str, Any]) -> list[str]:
        return [part for one in quantities for part in one.parts(config)]

    made = Binary(
        name, about, presets, run, lambda record: made.shown.figures(record), (),
        parts=parts, learners=learners, **options,
    )  # fmt: skip
    for lazy in ("claims", "quick", "finding"):
        del vars(made)[lazy]
    vars(made).update(trainings=trainings, quantities=quantities)
    return made


class Binary(Experiment):
    """An experiment whose claims are read from the module of its name and ``_shown`` when they are asked for."""

    trainings: Callable[[Any], Table]
    quantities: tuple[Quantity, ...]

    @functools.cached_property
    def shown(self) -> Any:
        """The module of its claims and figures."""
        module = importlib.import_module(f"experiments.{self.name}_shown")
        check_claims(self.name, module.CLAIMS)
        return module

    @functools.cached_property
    def claims(self) -> Any:
        """The claims, in their order."""
        return self.shown.CLAIMS

    @functools.cached_property
    def quick(self) -> dict[str, Quick | None]:
        """The one to three claims that sum it up, by their names, and how the preset quick judges each."""
        headlines = sorted((claim for claim in self.claims if claim.headline), key=lambda claim: claim.headline)
        return {claim.id.removeprefix(f"{self.name}."): claim.quick for claim in headlines}

    @functools.cached_property
    def finding(self) -> str:
        """One or two sentences; fields name estimates of its claims at lab (``experiments.page.words``)."""
        paper, figure = self.name.split(".")
        words = resources.files(f"experiments.{paper}").joinpath("words.toml").read_text("utf-8")
        return tomllib.loads(words)["findings"][figure]

    def axes_of(self, names: Iterable[str], config: Mapping[str, Any]) -> dict[str, Axes]:
        """The axes of every array, by its name."""
        return axes_of(self.quantities, names, config)

    def left_out(self, config: Mapping[str, Any]) -> set[str]:
        """Patterns of the names of arrays that runs of a preset have and those of this configuration have not.

        Place by place, so that they match where a configuration differs from every preset in another place, too.
        """
        presets = [flags.to_json(preset) for preset in self.presets.values()]
        return {pattern for one in self.quantities for pattern in one.left_out(presets, config)}
