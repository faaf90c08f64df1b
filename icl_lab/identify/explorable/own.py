"""The page of an answer of ``identify`` (``Identified.page``)."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from icl_lab import pages
from icl_lab.identify import explorable
from icl_lab.identify.decision import Member, described
from icl_lab.identify.explorable.data import FAMILIES, checks, data, fitted
from icl_lab.identify.explorable.figure import context, percent, scatter
from icl_lab.identify.report import Identified

WHY = {
    "linear_labels": "its predictions are not linear in the labels",
    "linear_query": "its predictions are not linear in the query",
    "permutation": "the order of the examples matters to it",
    "example_rotation": "mixing the examples by a rotation changes its predictions",
    "centred_rotation": "it centres the examples, which no filter of them does",
    "asymmetry": "the basis of the inputs matters to it",
}
"""What a reason of ``refusal.excluded`` says of a learner, by the property that it names."""


def page(found: Identified, path: str | os.PathLike[str]) -> None:
    """``Identified.page``."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the name of a file, got {path!r}")
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir():
        wanted = "a file, and this is a folder" if file.is_dir() else "a file in a folder that exists"
        raise ValueError(f"path must be the name of {wanted}; got {os.fspath(path)!r}")
    file.write_bytes(rendered(found))


def rendered(found: Identified) -> bytes:
    """The page."""
    arrays, facts = shown(found)
    explanations = [one.explain(k) for one in found.outputs or (found,) for k in range(len(one.members))]
    context_length, input_size = found.asked["context_length"], found.asked["input_size"]
    headline = str(found).splitlines()[0]
    variables = {
        "title": f"{headline} · icl_lab", "headline": headline[0].upper() + headline[1:], "summary": str(found),
        "explained": list(zip(facts["learners"], explanations)), "lines": "", "outputs": len(found.outputs),
        "context_length": context_length, "input_size": input_size, "members": len(found.members),
        "assumed": found.units.assumed, "filters": not all(facts["others"]),
        "print": context(arrays, facts) | {"data": Markup(_json(data(arrays, facts)))},
    }  # fmt: skip
    return pages.written("learner.html", explorable.FOLDER / "learner.js", [explorable.FOLDER], variables)


def shown(found: Identified) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and facts as ``data.data`` takes them: the members in the first output, then in the second, ..."""
    several, count = found.outputs or (found,), len(found.members)
    parts = [_of_one_output(one, f"output {k}" if found.outputs else "") for k, one in enumerate(several)]
    (arrays, facts), *_ = parts
    arrays = arrays | {
        name: np.concatenate([one[name] for one, _ in parts]) for name in ("answers", "doubled", "factors")
    }
    arrays["weights"] = np.stack([one["weights"] for one, _ in parts])
    facts = facts | {name: [one for _, info in parts for one in info[name]] for name in ("learners", "others", "fits")}
    facts["outputs"] = [k for k in range(len(parts)) for _ in range(count)]
    facts["checks"] = [
        check | {"learner": check["learner"] + k * count}
        for k, (_, info) in enumerate(parts)
        for check in info["checks"]
    ]
    return arrays, facts


def _of_one_output(answer: Identified, output: str) -> tuple[dict[str, Any], dict[str, Any]]:
    grid, r, _ = answer.filter
    judged = answer.judged
    assert judged is not None  # only an answer of several outputs has none
    units = answer.units
    arrays = {
        "eigenvalues": judged.eigenvalues, "weights": judged.weights, "answers": judged.mean,
        "doubled": judged.doubled, "grid": grid / units.eigenvalue, "factors": r[:, None],
        "training": [units.low, units.high],
    }  # fmt: skip
    arrays = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    count = len(answer.members)
    members = [f"member {k}" for k in range(count)] if count > 1 else [""]
    names = [", ".join(filter(None, (member, output))) or "the learner" for member in members]
    others = [no_filter(one, judged.raw[k], name) for k, (one, name) in enumerate(zip(answer.members, names))]
    plain = [k for k in range(count) if others[k] is None]
    fits = [None if other else [fitted(arrays, k, one) for one in FAMILIES] for k, other in enumerate(others)]
    facts = {
        "learners": names, "others": others, "fits": fits, "start": (0, _first(answer.members[0], fits[0])),
        "checks": checks(arrays, plain, answer.asked["seed"]) if plain else [],
    }  # fmt: skip
    return arrays, facts


def _first(member: Member, fits: list[dict[str, Any]] | None) -> int:
    """The family that is shown first: that of the name, else the nearest."""
    named = [k for k, one in enumerate(FAMILIES) if member.fit and one.name == member.fit.model.family]
    return named[0] if named else int(np.argmin([one["residual"] for one in fits])) if fits else 0


def no_filter(member: Member, raw: np.ndarray, name: str) -> dict[str, str] | None:
    """What is shown of a member that the structure excludes from all filters of ``FAMILIES``; None of one that may be.

    Args:
      member: of an answer.
      raw: (C, Q) its predictions on the judged contexts.
      name: how the page calls it.
    """
    subject = name[0].upper() + name[1:]
    if member.family == "zero":
        text = f"{subject} predicts zero: {member.reason}."
        return {"said": text, "nearest": "zero", "path": scatter(raw, np.zeros_like(raw))}
    why = [member.excluded.get(family.name) for family in FAMILIES if family.name in member.trials]
    if not why or None in why:
        return None
    fit = member.fit or member.closest or min(member.fits, key=lambda one: one.residual, default=None)
    part = next((part for part in WHY if part in str(why[0])), "")
    words = f"{WHY[part]} ({why[0] if part == 'asymmetry' else part})" if part else why[0]
    text = f"{subject} is no filter of the eigenvalues: {words}."
    if fit is None:
        return {"said": f"{text} No family has this structure.", "nearest": "none", "path": ""}
    called, nearest = "It is named" if member.fit else "The nearest family,", described(fit)
    distance = f"{percent(member.residual)} of the prediction away"
    text += f" {called} {nearest}, {distance}." if member.fit else f" {called} {nearest}, is {distance}."
    return {"said": text, "nearest": nearest, "path": scatter(raw, fit.predictions)}


def _json(values: Any) -> str:
    """JSON that may stand in a script element, whatever a family is called."""
    return json.dumps(values, allow_nan=False).replace("<", "\\u003c")
