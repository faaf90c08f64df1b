"""What ``identify`` returns: the verdict over members, to print and to plot."""

import collections
import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from icl_lab import notebook
from icl_lab.identify.asking import Floats
from icl_lab.identify.decision import Member, best_of, described
from icl_lab.identify.fitting import Fit
from icl_lab.identify.picture import draw
from icl_lab.identify.probes import Units
from icl_lab.identify.setting import Judged
from icl_lab.identify.structure import ROUNDINGS
from icl_lab.prompts.naming import shortened

AGREEMENT = 0.8


@dataclasses.dataclass(frozen=True, repr=False)
class Identified:
    """What M learners were found to be.

    Attributes:
      verdict: ``identified``, ``not separable`` or ``none of these`` where at least 80 % of the members agree (on the
        class, if identified), else ``mixed``.
      family: the first, in the order of ``FAMILIES``, of the names that the agreeing members share; None unless
        identified.
      members: one row a member.
      structure: by part, how far from that symmetry the members are: ``median``, ``worst`` and the ``grade`` of the
        worst, over the members whose part was measured (NaN, ``not measured`` where none was); ``degree``
        is that of the first member's residual factor in the eigenvalues, None where it has none.
      filter: ``grid`` (G,) of eigenvalues of X^T X / N, ``r`` (M, G), ``spread`` over rotations (M, G).
      units: of training prompts.
      asked: sizes and seed.
      rounding: relative spacing of the coarsest member's answers, 1/128 for bfloat16 and 1/1024 for float16, which
        ``exact`` in ``structure`` allows for; 0 for float32 and float64. Every row allows for its own member's.
      judged: the contexts by which families were judged, and the answers there; None of several outputs.
      outputs: what each of several outputs was found to be by itself; none of one.
    """

    verdict: str
    family: str | None
    members: list[Member]
    structure: dict[str, Any]
    filter: tuple[Floats, Floats, Floats]
    units: Units
    asked: dict[str, Any]
    rounding: float = 0.0
    judged: Judged | None = None
    outputs: tuple["Identified", ...] = ()

    @property
    def stability(self) -> float:
        """That of the worst member."""
        return min(member.stability for member in self.members)

    def explain(self, member: int = 0) -> str:
        """The decision on one member, to follow by hand: what was tried, what fell out and why; nearest family first.

        Raises:
          IndexError: for a member that is not there.
        """
        one = self.members[member]
        lines = [f"member {member}: {_line(one)}", f"  asymmetry {one.asymmetry:.2g}, noise {one.noise:.2g}"]
        lines += [f"  {text}" for text in (one.evidence, one.reason) if text]
        width = max((len(name) for name in one.trials), default=0)
        lines += [f"  {name:<{width}}  {outcome}" for name, outcome in one.trials.items()]
        if one.unfitted:
            lines.append(f"  larger models that could not replace a smaller one: {', '.join(one.unfitted)}")
        for name, (low, high) in one.intervals.items():
            value = f"{one.parameters[name]:.4g}" if name in one.parameters else "not determined"
            lines.append(f"  {name}: {value}, {low:.3g} to {high:.3g} in fits that are as good or deviate by .01")
        return "\n".join(lines)

    def __repr__(self) -> str:
        sure = f", stability {self.stability:g}" if self.verdict == "identified" else ""
        counts = f"{len(self.members)} member{'s' * (len(self.members) != 1)}"
        return f"Identified({shortened(self._headline(), 200)}; {counts}{sure}; print it for the summary)"

    def _repr_html_(self) -> str:
        return notebook.text(str(self)) + notebook.picture(self.plot())

    def __str__(self) -> str:
        counts = collections.Counter(_line(member) for member in self.members)
        reasons = {_line(member): member.reason for member in self.members[::-1] if member.verdict == "none of these"}
        lines = [self._headline()]
        for line, count in counts.most_common():
            first = f"{', the first one' * (count > 1)}: {reasons[line]}" if line in reasons else ""
            lines.append(f"  {count} of {len(self.members)}: {line}{first}")
        forced = [member.evidence for member in self.members if member.evidence]
        lines += [f"  {forced[0]}"] if forced else []
        for name in ("residual", "asymmetry", "noise", "free", "stability"):
            if name in ("residual", "free") and len(forced) == len(self.members):
                continue  # what the structure forces has none
            if name == "free" and not all(member.free <= member.residual for member in self.members):
                continue  # it is no bound
            values = np.array([getattr(member, name) for member in self.members], float)
            missing = int(np.isnan(values).sum())
            none = f"; none for {missing} of {len(values)}" * (missing > 0)
            if missing < len(values):
                label = "free filter's residual" if name == "free" else name
                worst = np.nanmin(values) if name == "stability" else np.nanmax(values)
                lines.append(f"  {label}: median {np.nanmedian(values):.2g}, worst {worst:.2g}{none}")
        lines += self._of_the_agreeing()
        graded = (
            f"{k} {v['grade']}" + f" ({v['worst']:.1e})" * (not np.isnan(v["worst"]))
            for k, v in self.structure.items()
            if isinstance(v, dict)
        )
        lines.append("  structure, worst member: " + ", ".join(graded))
        if self.rounding:
            lines.append(f"  answers have half precision: exact is below {ROUNDINGS * self.rounding:.2g}")
        if self.structure.get("degree") is not None:
            lines.append(f"  residual factor is a polynomial of degree {self.structure['degree']} (first member)")
        if self.units.assumed:
            lines.append("  no sampler was given: prompts are standard normal, tasks too")
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.verdict != "identified":
            return self.verdict
        agreeing = self._agreeing()
        shared = [name for name in agreeing[0].equals if all(name in m.equals for m in agreeing)]
        others = [name for name in shared if name != self.family]
        return f"identified: {self.family}" + (f" (the same as, or in, {', '.join(others)})" if others else "")

    def _agreeing(self) -> list[Member]:
        return [m for m in self.members if m.verdict == "identified" and self.family in m.equals]

    def _of_the_agreeing(self) -> list[str]:
        """Parameters, gain and range, over the members whose name is that of the verdict."""
        lines, agreeing = [], self._agreeing()
        names = dict.fromkeys(name for m in agreeing for name in m.parameters)
        if len(names) > 12:
            lines.append(f"  {len(names)} parameters: see members[i].parameters")
        else:
            values = {name: [m.parameters[name] for m in agreeing if name in m.parameters] for name in names}
            lines += [f"  {name}: {_median_and_ends(of)}" for name, of in values.items()]
        gains = [m.gain for m in agreeing if m.gain is not None]
        if gains and max(abs(np.log(gains))) > 1e-3:
            lines.append(f"  gain: {_median_and_ends(gains)}")
        loose = sorted({name for m in agreeing for name in m.intervals if name not in m.parameters})
        if loose:
            lines.append(f"  not determined in some member: {', '.join(loose)}")
        for field, part in (("range", "inputs"), ("label_range", "labels")):
            # zero, which has no fit, is zero on all inputs
            limits = [getattr(m, field) or 0 for m in agreeing if m.fit and not m.evidence]
            if limits:
                ends = [f"up to {part} times {x:g}" if x else "nowhere" for x in (np.median(limits), min(limits))]
                lines.append(f"  holds {ends[0]} (median), {ends[1]} (smallest)")
        return lines

    def fingerprint(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """What ``plot`` draws, to be saved: words (plain JSON values) and arrays (``picture.draw``).

        Of the agreeing members (of all where none agree): ``residual`` and ``doubled`` (F,), medians of every family's
        best fitted model on training prompts and on inputs twice as large, over the members that have one (``families``
        say how many, unless all, and mark with * one whose larger models were not fitted); ``curves``
        (K, G') over ``dense`` (G',), residual factors of the named algorithm and of the two best others that are
        plain filters, as fitted to the first of
        them; ``named`` (M, G) that of each member's own name, NaN where it is no plain filter.
        """
        members = self._agreeing() or self.members
        rivals = [{name: fit.residual for name, fit in best_of(m.fits).items()} for m in members]
        names = list(dict.fromkeys(name for one in rivals for name in one))
        residual = _medians(rivals, names)
        unfitted = {name for member in members for name in member.unfitted}
        having = {name: sum(name in one for one in rivals) for name in names}
        captions = [
            f"{name}{'*' * (name in unfitted)}" + f" ({having[name]} of {len(members)})" * (having[name] < len(members))
            for name in names
        ]
        grid, r, spread = self.filter
        dense, unit = np.geomspace(grid[0], grid[-1], 400), self.units.eigenvalue
        shown = _shown(members[0])
        return {
            "headline": self._headline(),
            "curves": [f"{described(fit)} ({fit.residual:.3f})" for fit in shown],
            "families": [captions[k] for k in np.argsort(residual)],
            "noise": float(np.median([m.noise for m in members])),
            "asymmetry": float(np.median([m.asymmetry for m in members])),
        }, {
            "grid": grid, "r": r, "spread": spread, "dense": dense,
            "training": unit * np.array([self.units.low, self.units.high]),
            "curves": np.array([factor(fit, dense / unit) for fit in shown]).reshape(len(shown), len(dense)),
            "named": np.stack([factor(m.fit, grid / unit) for m in self.members]),
            "residual": np.sort(residual),
            "doubled": _medians([m.doubled for m in members], names)[np.argsort(residual)],
        }  # fmt: skip

    def plot(self) -> Any:
        """The fingerprint as a matplotlib ``Figure`` (``icl_lab.identify.picture.draw``)."""
        return draw(*self.fingerprint())

    def page(self, path: str | os.PathLike[str]) -> None:
        """Writes the fingerprint as one offline HTML file, in which the reader moves algorithms over the learner.

        The file shows the residual factor of each member, the distance of every algorithm that is offered, and how far
        the chosen one is, calculated there. Of a member that is no filter it says which property excludes it, and shows
        its predictions against those of the nearest family. Of several outputs the reader chooses one. The same answer
        gives the same bytes.

        Args:
          path: the file, in a folder that exists; a file that is there is replaced.

        Raises:
          ValueError: if the path is no file name in a folder that exists.
          OSError: if the file cannot be written.
        """
        from icl_lab.identify.explorable.own import page

        page(self, path)


def _median_and_ends(values: list[float]) -> str:
    return f"median {np.median(values):.4g}, {min(values):.4g} to {max(values):.4g}"


def _line(member: Member) -> str:
    if member.verdict == "identified":
        if member.fit is None:
            return "zero"
        others = [name for name in member.equals if name != member.fit.model.family]
        return described(member.fit, member.steps) + (f" (the same as, or in, {', '.join(others)})" if others else "")
    return member.verdict + (f": {' or '.join(member.equals)}" if member.equals else "")


def _shown(member: Member) -> list[Fit]:
    """The named fit, and the best fits of two families that are not of its class; plain filters all."""
    named = [member.fit] if member.fit else []
    others = [fit for name, fit in best_of(member.fits).items() if name not in member.equals]
    return [fit for fit in [*named, *others] if _response(fit)][:3]


def factor(fit: Fit | None, grid: Floats) -> Floats:
    """(G,) residual factor of a plain filter at eigenvalues in units; NaN of other families."""
    if not fit or not (response := _response(fit)):
        return np.full(len(grid), np.nan)
    with np.errstate(all="ignore"):
        h = response(grid[None, :, None], fit.model.steps, *fit.theta[:, None, None, None])
    return np.asarray(1 - fit.gain * grid * np.broadcast_to(h, (1, len(grid), 1))[0, :, 0])


def _response(fit: Fit) -> Any:
    return getattr(fit.model.predict, "response", None)


def _medians(members: list[dict[str, float]], names: list[str]) -> Floats:
    """Of every family, the median over the members that have it; NaN where none has."""
    values = [[one[name] for one in members if name in one] for name in names]
    return np.array([np.median(one) if one else np.nan for one in values])


def verdict_of(members: list[Member], order: Iterable[str]) -> tuple[str, str | None]:
    """The verdict over members, and the family: of the names that enough members share that which most are given.

    ``order`` are the families that were tried; zero, which needs no fit, is a name in any case.
    """
    needed = AGREEMENT * len(members) - 1e-9
    counts = collections.Counter(name for m in members if m.verdict == "identified" for name in m.equals)
    given = collections.Counter(m.family for m in members if m.verdict == "identified")
    shared = [name for name in dict.fromkeys([*order, "zero"]) if counts[name] >= needed]
    if shared:
        return "identified", max(shared, key=lambda name: given[name])  # the first of those that are given as often
    verdicts = collections.Counter(m.verdict for m in members)
    verdict, count = verdicts.most_common(1)[0]
    return (verdict if count >= needed and verdict != "identified" else "mixed"), None
