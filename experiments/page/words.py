"""Numbers of the ledger inside sentences: ``"{loss:%} above the best step"``."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Ledger = Mapping[tuple[str, str], Row]
"""The row of each claim, by its id and preset."""
COUNTED = 100
"""Up to so many members a share is said as a count."""
NEAR_ONE = 4
"""Decimals that a number near one has at most."""


class Number:
    """The estimate of a row, which formats itself; a dash where there is none.

    ``{x}``, ``{x:+}`` (with its sign) and ``{x:%}`` round it to its interval. The others say it in words:

    - ``{x:of}``: a share of members, before a noun in the plural: "none of 16", "all 10", "9 of 10", "84 % of 128";
    - ``{x:count}``: "none", or a number;
    - ``{x:times}``: of a log2, how many times as much: "5.0 times";
    - ``{x:earlier}``: of a relative change of a time: "37 % earlier", "5 % later".

    Any other format is one of Python's, for numbers without an interval.
    """

    def __init__(self, row: Row | None):
        self._row = row or {"estimate": None}

    def __format__(self, spec: str) -> str:
        if (value := self._row["estimate"]) is None:
            return "–"
        render = _OWN.get(spec)
        return powers(render(self._row) if render else format(value, spec)).replace("%", "\N{NO-BREAK SPACE}%")


def rounded(row: Row, seen: Callable[[float], float] = float, shift: int = 0) -> str:
    """An estimate to the digits that its interval bears and a sentence needs.

    The last digit is worth more than a twentieth of the shorter arm of the interval, and two digits are enough: of the
    estimate, or of its distance from one, which is what ratios and cosines are about.

    Args:
      row: of the ledger.
      seen: what is shown instead of the estimate, a function of it that rises.
      shift: by how many places the point is moved, 2 for a percentage.
    """
    if not (value := seen(row["estimate"])):
        return "0"
    size = _size(value)
    decimals = max(1 - size, min(1 - _size(abs(value) - 1), NEAR_ONE))
    if arms := [abs(seen(end) - value) for end in row.get("interval", ()) if end not in (None, row["estimate"])]:
        decimals = min(decimals, -math.floor(math.log10(min(arms) / 2)))
    if not -5 < size < 6:
        return format(value, f".{max(0, decimals + size)}e")
    decimals -= shift
    return format(round(value * 10**shift, decimals) + 0.0, f",.{max(0, decimals)}f")


def _size(number: float) -> int:
    """The power of ten in a number; of 0 one that asks for no digits."""
    return math.floor(math.log10(abs(number))) if number else 9


def _signed(row: Row) -> str:
    return ("+" if row["estimate"] > 0 else "") + rounded(row)


def _percent(row: Row) -> str:
    return rounded(row, shift=2) + "%"


def _share(row: Row) -> str:
    if row["interval_kind"] != "wilson":
        raise ValueError(f"{row['id']} is no share of members, its interval is {row['interval_kind']}")
    total, count = row["members"], round(row["estimate"] * row["members"])
    if count in (0, total):
        return f"all {total:,}" if count else f"none of {total:,}"
    return f"{count} of {total}" if total <= COUNTED else f"{_percent(row)} of {total:,}"


def _count(row: Row) -> str:
    return format(row["estimate"], ",.0f") if row["estimate"] else "none"


def _times(row: Row) -> str:
    return rounded(row, lambda log: 2**log) + " times"


def _earlier(row: Row) -> str:
    return f"{_percent(row).removeprefix('-')} {'earlier' if row['estimate'] < 0 else 'later'}"


_OWN: Mapping[str, Callable[[Row], str]] = {
    "": rounded, "+": _signed, "%": _percent, "of": _share, "count": _count, "times": _times, "earlier": _earlier,
}  # fmt: skip


class Fields:
    """What a sentence may name: claims at lab by ``paper.figure.name``, less the name that all of them begin with."""

    def __init__(self, below: str, ledger: Ledger, preset: str = "lab"):
        self._below, self._ledger, self._preset = below, ledger, preset

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._below}.{name}"
        if name == "at_paper":
            return Fields(self._below, self._ledger, "paper")
        if path.count(".") < 2:
            return Fields(path, self._ledger, self._preset)
        return Number(self._ledger.get((path, self._preset)))


def worded(sentence: str, below: str, ledger: Ledger) -> str:
    """The sentence with its fields filled in from the ledger; a dash where it has no such estimate.

    Args:
      sentence: ``"{cosine}"`` is the estimate of the claim of this name at lab, ``"{at_paper.cosine}"`` that of the
        preset paper; formats are those of ``Number``.
      below: what the names of its claims begin with: a paper, or an experiment.
      ledger: its rows.

    Raises:
      ValueError: naming a claim that is said as a share of members and is none.
    """
    return sentence.format_map(Fields(below, ledger))


def powers(text: str) -> str:
    """The text with a typographic minus and powers of ten: ``-2.5e-07`` -> ``−2.5×10⁻⁷``."""
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    raised = re.sub(r"(?<=\d)e([+-−])?0*(\d+)", lambda m: f"×10{_sign(m[1])}{m[2].translate(digits)}", text)
    return re.sub(r"(?<![\w⁻])-(?=[\d.])", "−", raised)


def _sign(sign: str | None) -> str:
    return "⁻" if sign in ("-", "−") else ""
