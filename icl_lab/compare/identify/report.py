"""What ``identify`` returns: the verdict over members, to print and to plot."""

import collections
import dataclasses
from typing import Any

import numpy as np

from icl_lab.compare.identify.asking import Floats
from icl_lab.compare.identify.decision import NAMED, Member, described
from icl_lab.compare.identify.probes import Units

AGREEMENT = 0.8


@dataclasses.dataclass(frozen=True)
class Identified:
    """What M learners were found to be.

    Attributes:
      verdict: ``identified``, ``not separable`` or ``none of these`` where at least 80 % of the members agree (on the
        class, if identified), else ``mixed``.
      family: the first, in the order of ``FAMILIES``, of the names that the agreeing members share; None unless
        identified.
      members: one row a member.
      structure: by part, how far from that symmetry the members are: ``median``, ``worst`` and the ``grade`` of the
        worst; ``degree`` is that of the first member's residual factor in the eigenvalues, None where it has none.
      filter: ``grid`` (G,) of eigenvalues of X^T X / N, ``r`` (M, G), ``spread`` over rotations (M, G).
      units: of training prompts.
    """

    verdict: str
    family: str | None
    members: list[Member]
    structure: dict[str, Any]
    filter: tuple[Floats, Floats, Floats]
    units: Units
    asked: dict[str, Any]

    def __str__(self) -> str:
        counts = collections.Counter(_line(member) for member in self.members)
        lines = [
            self._headline(),
            *(f"  {count} of {len(self.members)}: {line}" for line, count in counts.most_common()),
        ]
        for name in ("residual", "asymmetry", "noise", "free"):
            values = np.array([getattr(member, name) for member in self.members], float)
            if np.isfinite(values).any():
                said = "free filter's residual" if name == "free" else name
                lines.append(f"  {said}: median {np.nanmedian(values):.4f}, worst {np.nanmax(values):.4f}")
        lines += self._first_named()
        graded = (f"{k} {v['grade']} ({v['worst']:.1e})" for k, v in self.structure.items() if isinstance(v, dict))
        lines.append("  structure, worst member: " + ", ".join(graded))
        if self.structure.get("degree") is not None:
            lines.append(f"  residual factor is a polynomial of degree {self.structure['degree']} (first member)")
        if self.units.assumed:
            lines.append("  no sampler was given: prompts are standard normal, tasks too")
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.verdict != "identified":
            return self.verdict
        shared = [name for name in self.members[0].equals if all(name in m.equals for m in self._agreeing())]
        others = [name for name in shared if name != self.family]
        return f"identified: {self.family}" + (f" (the same as {', '.join(others)})" if others else "")

    def _agreeing(self) -> list[Member]:
        return [m for m in self.members if m.verdict == "identified" and self.family in m.equals]

    def _first_named(self) -> list[str]:
        lines, agreeing = [], self._agreeing() if self.family else []
        if agreeing:
            names = dict.fromkeys(name for m in agreeing for name in m.parameters)
            if len(names) > 12:
                lines.append(f"  {len(names)} parameters: see members[i].parameters")
            for name in list(names) if len(names) <= 12 else []:
                values = [m.parameters[name] for m in agreeing if name in m.parameters]
                lines.append(f"  {name}: median {np.median(values):.4g}, {min(values):.4g} to {max(values):.4g}")
            for what, said in (("range", "inputs"), ("label_range", "labels")):
                limits = [getattr(m, what) or 0 for m in agreeing]
                lines.append(f"  holds up to {said} times {np.median(limits):g} (median), {min(limits):g} (smallest)")
        return lines

    def plot(self) -> Any:
        """The fingerprint: a matplotlib ``Figure`` (drawn by the caller's backend).

        Above, the measured residual factor over eigenvalue: members as lines, the spread over rotations as a band, the
        training range shaded; the named algorithm and its two best rivals of the first agreeing member over it. Below,
        the residual of every family on training prompts and on inputs twice as large, with the noise of the mean and
        the asymmetry as lines.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.5, 7.5), layout="constrained")
        top, bottom = figure.subplots(2, 1, height_ratios=(3, 2))
        grid, r, spread = self.filter
        shown = (self._agreeing() or self.members)[0]
        for line, width in zip(r, spread):
            top.fill_between(grid, line - width, line + width, color="0.85", lw=0)
        top.plot(grid, r.T, color="0.4", lw=0.8)
        for fit, style in zip(_shown(shown), ("C3-", "C0--", "C2:")):
            dense = np.geomspace(grid[0], grid[-1], 400)
            factor = _factor(fit, dense / self.units.eigenvalue)
            if factor is not None:
                top.plot(dense, factor, style, label=f"{described(fit)} ({fit.residual:.3f})")
        top.axvspan(self.units.low * self.units.eigenvalue, self.units.high * self.units.eigenvalue, alpha=0.08)
        inside = (grid < 1.5 * self.units.high * self.units.eigenvalue) & np.isfinite(r).all(0)
        low, high = float(r[:, inside].min(initial=0)), float(r[:, inside].max(initial=1))
        top.set(xscale="log", xlabel="eigenvalue of X$^T$X/N", ylabel="residual factor 1 - l h(l)")
        top.set(ylim=(low - 0.2, high + 0.2), title=self._headline())
        if top.get_legend_handles_labels()[0]:
            top.legend(loc="best")
        names = list(shown.rivals)[:16]
        place = np.arange(len(names))
        bottom.barh(place - 0.2, [shown.rivals[n] for n in names], 0.4, label="training prompts")
        doubled = [shown.doubled.get(n.split(",")[0].removesuffix(" of their own"), np.nan) for n in names]
        bottom.barh(place + 0.2, doubled, 0.4, label="inputs twice as large")
        for value, said, style in ((shown.noise, "noise", "k:"), (shown.asymmetry, "asymmetry", "k--")):
            bottom.axvline(max(value, 1e-6), ls=style[1:], color=style[0], lw=0.8, label=said)
        bottom.axvline(NAMED, color="C3", lw=0.8, label="named below")
        bottom.set(xscale="log", xlim=(1e-5, 10), xlabel="residual", yticks=place, yticklabels=names)
        bottom.invert_yaxis()
        bottom.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
        return figure


def _line(member: Member) -> str:
    if member.verdict == "identified":
        if member.fit is None:
            return "zero"
        others = [name for name in member.equals if name != member.fit.model.family]
        return described(member.fit) + (f" (the same as {', '.join(others)})" if others else "")
    return f"{member.verdict}: {' or '.join(member.equals) or member.reason}"


def _shown(member: Member) -> list[Any]:
    """The named fit and the best fits of two other families that are filters."""
    first = [member.fit] if member.fit else []
    rest = sorted((fit for fit in member.fits if fit not in first), key=lambda fit: fit.residual)
    found, taken = list(first), {fit.model.family for fit in first}
    for fit in rest:
        if fit.model.family not in taken and hasattr(fit.model.predict, "response") and len(found) < 3:
            found.append(fit)
            taken.add(fit.model.family)
    return found


def _factor(fit: Any, grid: Floats) -> Floats | None:
    """The residual factor of a plain filter at eigenvalues in units."""
    response = getattr(fit.model.predict, "response", None)
    if response is None:
        return None
    with np.errstate(all="ignore"):
        h = response(grid[None, :, None], fit.model.steps, *fit.theta[:, None, None, None])
    return np.asarray(1 - grid * np.broadcast_to(h, (1, len(grid), 1))[0, :, 0])


def verdict_of(members: list[Member], order: list[str]) -> tuple[str, str | None]:
    """The verdict over members, and the family."""
    needed = AGREEMENT * len(members) - 1e-9
    counts = collections.Counter(name for m in members if m.verdict == "identified" for name in m.equals)
    shared = [name for name in order if counts[name] >= needed]
    if shared:
        return "identified", shared[0]
    verdicts = collections.Counter(m.verdict for m in members)
    verdict, count = verdicts.most_common(1)[0]
    return (verdict if count >= needed and verdict != "identified" else "mixed"), None
