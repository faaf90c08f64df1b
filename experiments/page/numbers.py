"""Numbers and formulas as a reader wants them: rounded to their interval, leading zeros, real symbols."""

import math
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from experiments.page.words import powers
from icl_lab.lab.report import decimals, with_zeros

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "eta": "η", "eps": "ε", "kappa": "κ", "lambda": "λ", "lam": "λ",
    "gam": "γ", "xi": "ξ", "mu": "μ", "Gam": "Γ", "Lam": "Λ",
}  # fmt: skip
_NAME = rf"(?<![\w./])[a-z]+(?:_[a-z0-9]+)*(?:[./][a-z_0-9]+)+|(?<!\w)(?!(?:{'|'.join(GREEK)})_)[a-z]{{3,}}_\w+"
"""Names of claims, arrays and networks, which stay as they are."""
_LETTER = rf"(?<![A-Za-z_])(?:d?[A-Za-z]|Attn|{'|'.join(sorted(GREEK, key=len, reverse=True))}|(?<=\|))"
_SUBSCRIPT = re.compile(rf"({_LETTER})_(\{{[^}}]*\}}|[A-Z]+|[a-z]{{1,2}}(?![a-z])|\d+|demonstrations)")
_SUPERSCRIPT = re.compile(r"\^(\([^()]*\)|−?\w+)")
_SIGNS = {"<=": "≤", ">=": "≥", "->": "→", "|Lam^2|": "|Λ^2|", " infinity": " ∞", "sqrt": "√"}


def estimate(row: Mapping[str, Any]) -> str:
    """``0.491 [0.477, 0.505]``: as many decimals as the interval can bear; one number where it has no width."""
    value, (low, high) = row["estimate"], row["interval"]
    if value is None:
        return "–"
    if low is None or high is None:
        return f"{plain(value)} [{'–' if low is None else plain(low)}, {'–' if high is None else plain(high)}]"
    if low == high:
        return plain(value) if row["interval_kind"] == "exact" else _capped(value)
    digits = decimals(value, low, high)
    shown = map(plain, (value, low, high)) if digits is None else (f"{one:.{digits}f}" for one in (value, low, high))
    return powers("{} [{}, {}]".format(*shown))


def bound(row: Mapping[str, Any]) -> str:
    """``0.5 ± 0.02``, ``at most 0.01`` or ``at least 0.9``: where the claim holds, its tolerance included."""
    if row["relation"] == "==":
        return plain(row["expected"], 4) + (f" ± {plain(row['tolerance'])}" if row["tolerance"] else "")
    word, sign = {"<=": ("at most", 1), ">=": ("at least", -1)}[row["relation"]]
    return f"{word} {plain(row['expected'] + sign * row['tolerance'], 4)}"


def plain(value: float, digits: int = 3) -> str:
    """A number of so many digits, without zeros that say nothing: ``0.5``, ``1.23×10⁻⁶``, ``10⁶``."""
    text = powers(f"{value:.{digits}g}")
    return text.removeprefix("1×") if text.startswith("1×") else text


def _capped(value: float) -> str:
    """Of members that all have the same value; a large power of ten is where a statistic is cut off."""
    return f"at least {plain(value)}" if value >= 1e5 and math.log10(value) % 1 == 0 else plain(value)


def formula(text: str) -> Markup:
    """A sentence with Greek letters, subscripts, powers and signs in place of ASCII; names stay as they are."""
    pieces, last, text = [], 0, re.sub(r"\$\\?(\w+)\$", r"\1", text)
    for match in re.finditer(_NAME, text):
        pieces += [_typeset(text[last : match.start()]), escape(match[0])]
        last = match.end()
    return Markup("").join([*pieces, _typeset(text[last:])])


def _typeset(text: str) -> Markup:
    for ascii_, sign in _SIGNS.items():
        text = text.replace(ascii_, sign)
    text = powers(with_zeros(text))
    marked = str(escape(text))
    marked = _SUPERSCRIPT.sub(lambda m: f"<sup>{m[1].strip('()')}</sup>", marked)
    marked = _SUBSCRIPT.sub(lambda m: f"{m[1]}<sub>{m[2].strip('{}')}</sub>", marked)
    marked = re.sub(r"(?<=\|)_F\b", "<sub>F</sub>", marked)
    marked = re.sub(r"(?<![A-Za-z])(?:" + "|".join(GREEK) + r")(?![A-Za-z])", lambda m: GREEK[m[0]], marked)
    return Markup(re.sub(r"\bU11\b", "U<sub>11</sub>", marked))
