"""Ledger rows in words, and the command line that makes a record."""

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
    """``0.49 [0.48, 0.51]``; a dash stands for what is not finite."""
    low, high = row["interval"]
    return f"{_number(row['estimate'])} [{_number(low)}, {_number(high)}]"


def line(row: Mapping) -> str:
    """``holds  paper.figure.name: 0.49 [0.48, 0.51], expected 0.5 ± 0.02, 10 members``; ``!``: not as committed."""
    verdict = row["verdict"] + (" !" if is_surprise(row) else "")
    kind = ", an identity" if is_identity(row) else ""
    return f"{verdict:14} {row['id']}: {estimate(row)}, expected {expected(row)}, {size(row)}{kind}{unresolved(row)}"


def unresolved(row: Mapping) -> str:
    """Why a row is not resolved, behind what was measured: an interval inside the region says nothing else."""
    return f"; {row['note']}" if row["verdict"] == NOT_RESOLVED else ""


def size(row: Mapping) -> str:
    """``10 members``, or ``64 trainings``: what the interval is over."""
    unit = row.get("unit", MEMBER)
    return f"{row['members']} {unit}" + ("" if row["members"] == 1 else "s")


def command(experiment: Experiment, record: Record) -> str:
    """The command line that makes a record: its preset, and the flags that differ from it."""
    preset = record.preset.split(" with ")[0]
    base = experiment.presets[preset]
    usual = flags.to_flags(base)
    given = [word for word in flags.to_flags(flags.from_json(type(base), record.config)) if word not in usual]
    return " ".join([f"python -m experiments.{experiment.name} --preset={preset}", *given])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")
