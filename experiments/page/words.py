"""Numbers of the ledger inside sentences: ``"{loss:.1%} above the best step"``."""

import re
from collections.abc import Mapping
from typing import Any

Estimates = Mapping[tuple[str, str], float | None]
"""The estimate of each claim, by its id and preset; None where it has none."""


class Number:
    """An estimate that formats itself: three digits where no format is given, a dash where there is no estimate."""

    def __init__(self, value: float | None):
        self.value = value

    def __format__(self, spec: str) -> str:
        if self.value is None:
            return "–"
        return powers(format(self.value, spec or ".3g")).replace("%", "\N{NO-BREAK SPACE}%")


class Fields:
    """What a sentence may name: claims at lab by ``paper.figure.name``, less the name that all of them begin with."""

    def __init__(self, below: str, estimates: Estimates, preset: str = "lab"):
        self._below, self._estimates, self._preset = below, estimates, preset

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._below}.{name}"
        if name == "at_paper":
            return Fields(self._below, self._estimates, "paper")
        if path.count(".") < 2:
            return Fields(path, self._estimates, self._preset)
        return Number(self._estimates.get((path, self._preset)))


def worded(sentence: str, below: str, estimates: Estimates) -> str:
    """The sentence with its fields filled in from the ledger; a dash where it has no such estimate.

    Args:
      sentence: ``"{cosine:.3f}"`` is the estimate of the claim of this name at lab, ``"{at_paper.cosine}"`` that of the
        preset paper; formats are those of numbers.
      below: what the names of its claims begin with: a paper, or an experiment.
      estimates: of the ledger.
    """
    return sentence.format_map(Fields(below, estimates))


def powers(text: str) -> str:
    """The text with a typographic minus and powers of ten: ``-2.5e-07`` -> ``−2.5×10⁻⁷``."""
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    raised = re.sub(r"(?<=\d)e([+-−])?0*(\d+)", lambda m: f"×10{_sign(m[1])}{m[2].translate(digits)}", text)
    return re.sub(r"(?<![\w⁻])-(?=[\d.])", "−", raised)


def _sign(sign: str | None) -> str:
    return "⁻" if sign in ("-", "−") else ""
