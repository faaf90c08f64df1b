"""Ledger rows in words, and the command line that makes a record."""

import math
import re
from collections.abc import Mapping

from icl_lab.lab import flags
from icl_lab.lab.claims import MEMBER, NOT_RESOLVED, is_identity
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import Record


def is_surprise(row: Mapping) -> bool:
    """Whether a ledger row's verdict differs from the one committed for its preset."""
    return row["expected_verdict"] is not None and row["verdict"] != row["expected_verdict"]


def expected(row: Mapping) -> str:
    """``0.5 ± 0.02``, or ``≤ 0.5 (+ 0.02)``: the bound, and how far beyond it the claim still holds."""
    value, slack = _number(row["expected"]), _number(row["tolerance"])
    if row["relation"] == "==":
        return f"{value} ± {slack}"
    sign, beyond = {"<=": ("≤", "+"), ">=": ("≥", "−")}[row["relation"]]
    return f"{sign} {value}" + (f" ({beyond} {slack})" if row["tolerance"] else "")


def estimate(row: Mapping) -> str:
    """``0.491 [0.477, 0.505]``, with the decimals that the interval bears; a dash stands for what is not finite."""
    value, (low, high) = row["estimate"], row["interval"]
    numbers = (value, low, high)
    digits = None if None in numbers else decimals(*numbers)
    shown = map(_number, numbers) if digits is None else (f"{one:.{digits}f}".replace("-", "−") for one in numbers)
    return "{} [{}, {}]".format(*shown)


def decimals(value: float, low: float, high: float) -> int | None:
    """Decimals that show the shorter arm of an interval to two digits; None: it has no width, or numbers need powers.

    Whole numbers have none, and five is the most.
    """
    arms = [arm for arm in (value - low, high - value) if arm > 0]
    sizes = [abs(number) for number in (value, low, high) if number]
    if not arms or min(sizes) < 1e-5 or max(sizes) >= 1e5:
        return None
    if all(number == round(number) for number in (value, low, high)):
        return 0
    return min(max(0, 1 - math.floor(math.log10(min(arms)))), 5)


def line(row: Mapping) -> str:
    """``holds  paper.figure.name: 0.49 [0.48, 0.51], expected 0.5 ± 0.02, 10 members``; ``!``: not as committed."""
    verdict = row["verdict"] + (" !" if is_surprise(row) else "")
    kind = ", an identity" if is_identity(row) else ""
    return f"{verdict:14} {row['id']}: {estimate(row)}, expected {expected(row)}, {size(row)}{kind}{unresolved(row)}"


def unresolved(row: Mapping) -> str:
    """Why a row is not resolved, after what was measured: an interval inside the region says nothing else."""
    return f"; {row['note']}" if row["verdict"] == NOT_RESOLVED else ""


def size(row: Mapping) -> str:
    """``10 members``, ``64 trainings``, or ``7 of 10 members`` where the others have no value: what is judged."""
    unit, members, without = row.get("unit", MEMBER), row["members"], row.get("without", 0)
    number = f"{members} of {members + without}" if without else f"{members}"
    return f"{number} {unit}" + ("" if members + without == 1 else "s")


def command(experiment: Experiment, record: Record) -> str:
    """The command line that makes a record: its preset, and the flags that differ from it."""
    preset = record.preset.split(" with ")[0]
    base = experiment.presets[preset]
    usual = flags.to_flags(base)
    given = [word for word in flags.to_flags(flags.from_json(type(base), record.config)) if word not in usual]
    return " ".join([f"python -m experiments.{experiment.name} --preset={preset}", *given])


def with_zeros(text: str) -> str:
    """The text with a zero before each leading point: ``to .05`` -> ``to 0.05``."""
    return re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")
