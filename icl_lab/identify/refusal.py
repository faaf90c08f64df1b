"""What is said of families that are not named: what excludes them, how far the nearest is, what forces a name."""

from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.identify import decision
from icl_lab.identify.family import FILTER, Family
from icl_lab.identify.fitting import Fit
from icl_lab.identify.stability import Decided
from icl_lab.identify.structure import grade

FORCING = ("odd_linear", "linear_query", "permutation", "one_step")


def excluded(
    about: Mapping[str, float], families: Mapping[str, Family], asymmetry: float, exact: float, set_of_tasks: bool
) -> dict[str, str]:
    """Families that the learner cannot be, and why: structure binds both ways."""
    out = {}
    for name, family in families.items():
        lacking = [part for part in family.needs if grade(about.get(part, np.nan)) == "no"]
        having = [part for part in family.breaks if about.get(part, np.nan) < exact]
        if family.of_set and not set_of_tasks:
            out[name] = "the tasks of training are no finite set"
        elif lacking:
            out[name] = f"the learner is not {lacking[0]}"
        elif having:
            out[name] = f"the learner has {having[0]} exactly, the family has not"
        elif asymmetry > decision.ASYMMETRY and not family.raw:
            out[name] = f"asymmetry {asymmetry:.2f} is above {decision.ASYMMETRY}"
    return out


def distance(fit: Fit | None, asymmetry: float) -> float:
    """From the symmetrised learner, or from the learner itself where little of it is symmetric."""
    if fit is None:
        return float("nan")
    return fit.on_raw if asymmetry > decision.ASYMMETRY else fit.residual


def nearest(fits: Sequence[Fit], asymmetry: float) -> Fit | None:
    """The fit with the smallest distance; of those within a tenth the one of the fewest numbers."""
    if not fits:
        return None
    least = min(distance(fit, asymmetry) for fit in fits)
    return min(
        (fit for fit in fits if distance(fit, asymmetry) <= 1.1 * least),
        key=lambda fit: (fit.model.size, distance(fit, asymmetry)),
    )


def reason(
    near: Fit | None, multiple: Fit | None, out: Mapping[str, str], asymmetry: float, about: Mapping[str, float],
    free: float, description: str = "",
) -> str:  # fmt: skip
    """Why no family is named: what the learner breaks, the nearest algorithm, how far it is and what excludes it.

    ``description`` stands in the place of the nearest, where a family is near but no name.
    """
    broken = [part for part in (*FILTER, "odd_labels") if grade(about.get(part, np.nan)) == "no"]
    prefix = f"not {', not '.join(broken)}; " if broken else ""
    if asymmetry > decision.ASYMMETRY:
        prefix = f"asymmetry {asymmetry:.2f} is above {decision.ASYMMETRY}; {prefix}"
    if near is None:
        return f"{prefix}no family has this structure"
    away, training = distance(near, asymmetry), float(np.median(near.errors[::2]))
    middle = description or f"the nearest, {decision.described(near)}, is {away:.3f} away"
    if not description and asymmetry <= decision.ASYMMETRY and abs(training - away) > 0.2 * away:
        bar = f", where a name may leave {decision.NAMED}" if away <= decision.NAMED < training else ""
        middle += f" ({training:.3f} on training prompts{bar})"
    if not description and near.model.family in out:
        middle += f"; excluded, since {out[near.model.family]}"
    if multiple is not None and distance(multiple, asymmetry) < away:
        middle += (
            f"; {multiple.gain:.3g} times {decision.described(multiple)} is {distance(multiple, asymmetry):.3f} away"
        )
    roughly = f"; roughly {decision.described(near)}" if decision.NAMED < away <= decision.ROUGHLY else ""
    bound = f"; a filter of any form: {free:.3f}" if free < away and asymmetry <= decision.ASYMMETRY else ""
    return f"{prefix}{middle}{roughly}{bound}"


def trials(
    best: Mapping[str, Fit], out: Mapping[str, str], decided: Decided, stable: Sequence[str],
    kept: Mapping[str, Sequence[float]],
) -> dict[str, str]:  # fmt: skip
    """By family, nearest first: its best model, how far it is, and what became of it."""
    left = {fit.model.family for fit in decided.fits}
    outcomes = {}
    for name, fit in sorted(best.items(), key=lambda pair: pair[1].residual):
        gain = "" if fit.model.scaled or abs(fit.gain - 1) < 1e-3 else f", gain {fit.gain:.3f}"
        outcome = f"{decision.described(fit)}, {fit.residual:.4f} away{gain}: "
        if name in out:
            outcome += out[name]
        elif stable and name == stable[0]:
            outcome += "named"
        elif name in stable:
            outcome += "equal, or contains it"
        elif fit.residual > decision.NAMED:
            outcome += f"further away than {decision.NAMED}"
        elif name in left:
            outcome += "as close, but deviations of .01 change it"
        elif decided.fits and fit.model.size > decided.fits[0].model.size:
            outcome += f"{decision.described(decided.fits[0])} has fewer numbers and is close enough"
        else:
            outcome += "others are closer"
        shares = ", ".join(f"{d:g}: {s:.0%}" for d, s in zip(decision.DEVIATIONS, kept.get(name, ())))
        outcomes[name] = outcome + (f" (kept at deviations of {shares})" if shares else "")
    for name, why in out.items():
        outcomes.setdefault(name, why)
    return outcomes


def evidence(about: Mapping[str, float], asymmetry: float, size: int, exact: float) -> str:
    """What speaks for one step of gradient descent where structure forces it, else "".

    A learner whose odd part is linear in labels, query and context inputs, whatever the order of the examples, is there
    sum_i y_i x_i^T A x_q: one layer of linear attention. Over rotations its mean is trace(A) / D sum_i y_i x_i^T x_q
    whatever A is, so that the residual says nothing; the asymmetry is how far A is from a multiple of the identity.
    """
    if not all(about.get(part, np.nan) < exact for part in FORCING):
        return ""
    half, hundredth = (decision.asymmetry_by_chance(size, share) for share in (0.5, 0.01))
    return (
        "after symmetrising, any learner of this structure (one layer of linear attention) is one step of gradient "
        f"descent; the evidence is its asymmetry, {asymmetry:.2g}, where random weights of the same size have "
        f"{half:.3g} (one in a hundred less than {hundredth:.3g})"
    )
