"""Ledger rows in words, and as a table for the terminal."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from icl_lab.lab import flags
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import Record

COLUMNS = ("claim", "paper", "expected", "estimate [95 %]", "members", "verdict", "seconds")
_COLOURS = {HOLDS: "green", FAILS: "red", NOT_RESOLVED: "yellow", NOT_REACHED: "dim", NOT_JUDGED: "dim"}


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


def claims_table(rows: Sequence[tuple[Mapping, float | None]]) -> Table:
    """Ledger rows, each with its experiment's seconds, as a table; ``!`` marks a verdict that was not expected."""
    surprising = any(is_surprise(row) for row, _ in rows)
    caption = "! differs from the committed verdict" if surprising else None
    table = Table(*COLUMNS, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", column.header in ("expected", "members", "verdict", "seconds")
    table.columns[0].min_width = 24
    for row, seconds in rows:
        verdict = Text(row["verdict"] + (" !" if is_surprise(row) else ""), _COLOURS[row["verdict"]])
        words = (row["id"], row["paper"], expected(row), estimate(row), str(row["members"]))
        table.add_row(*map(Text, words), verdict, Text("" if seconds is None else f"{seconds:.0f}"))
    return table


def command(experiment: Experiment, record: Record) -> str:
    """The command line that makes a record: its preset, and the flags that differ from it."""
    preset = record.preset.split(" with ")[0]
    base = experiment.presets[preset]
    usual = flags.to_flags(base)
    given = [word for word in flags.to_flags(flags.from_json(type(base), record.config)) if word not in usual]
    return " ".join([f"python -m experiments.{experiment.name} --preset={preset}", *given])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")
