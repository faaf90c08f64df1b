"""Records -> a table of claims for the terminal, and one self-contained HTML page."""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from icl_lab.lab import flags
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED
from icl_lab.lab.experiment import Experiment, Outcome
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


def html(results: Sequence[tuple[Experiment, Outcome]], failures: Mapping[str, str] | None = None) -> str:
    """One page that asks nothing of the network: verdicts and failures first, then each experiment."""
    rows = [row for _, outcome in results for row in outcome.ledger]
    counts = ", ".join(f"{n} {v}" for v in _COLOURS if (n := sum(row["verdict"] == v for row in rows)))
    parts = [f"<p>{len(results)} experiments, {len(rows)} claims{': ' if counts else ''}{counts}.</p>"]
    unlike = {row["id"]: f"{row['verdict']}, expected: {row['expected_verdict']}" for row in rows if is_surprise(row)}
    for title, named in (("Verdicts that differ from what was expected", unlike), ("Did not finish", failures or {})):
        items = "".join(f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in named.items())
        parts += [f"<div class=alert><h2>{title}</h2><ul>{items}</ul></div>"] if items else []
    parts += [_claims(rows), *(_section(experiment, outcome) for experiment, outcome in results)]
    return _PAGE.replace("BODY", "\n".join(parts))


def _claims(rows: Sequence[Mapping]) -> str:
    head = ("claim", "statement", "preset", "expected", "estimate [95 %]", "control", "members", "verdict", "note")
    lines = []
    for row in rows:
        control = "" if row["control"] is None else _number(row["control"])
        why = ". ".join(filter(None, [row["note"], f"tolerance: {row['reason']}"]))
        words = [row["preset"], expected(row), estimate(row), control, str(row["members"])]
        kind, mark = row["verdict"].replace(" ", "-"), " !" if is_surprise(row) else ""
        verdict = f'<td class="{kind}">{row["verdict"]}{mark}</td>'
        name = f"<th scope=row>{escape(row['id'])}<br><small>{escape(row['paper'])}</small></th>"
        statement = f"<td>{escape(row['statement'])}</td>"
        numbers = "".join(f"<td class=number>{escape(word)}</td>" for word in words)
        lines.append(f"<tr>{name}{statement}{numbers}{verdict}<td>{escape(why)}</td></tr>")
    titles = "".join(f"<th scope=col>{title}</th>" for title in head)
    return f"<h2>Claims</h2><div class=wide><table><tr>{titles}</tr>{''.join(lines)}</table></div>"


def _section(experiment: Experiment, outcome: Outcome) -> str:
    record = outcome.record
    pictures = "".join(
        f'<figure><img alt="{escape(path.stem)}" '
        f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"></figure>'
        for path in outcome.figures
        if path.suffix == ".png"
    )
    folded = {"Configuration": record.config, "Numbers": record.metrics, "Provenance": record.provenance}
    details = "".join(
        f"<details><summary>{title}</summary><pre>{escape(json.dumps(dict(value), indent=1))}</pre></details>"
        for title, value in folded.items()
    )
    return (
        f"<section><h2>{escape(experiment.name)}</h2><p>Preset {escape(record.preset)}</p>"
        f"<pre class=about>{escape(experiment.about.strip())}</pre>{pictures}"
        f"<p>To reproduce:</p><pre>{escape(command(experiment, record))}</pre>{details}</section>"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>icl_lab report</title><style>
:root { color-scheme: light dark; --line: light-dark(#ccc, #444); --box: light-dark(#f5f5f5, #222); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th[scope=row] { font-weight: 600; } .number { white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { background: var(--box); padding: .7rem; overflow-x: auto; font-size: .85rem; }
pre.about { background: none; padding: 0; font: inherit; white-space: pre-wrap; }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; }
.holds { color: light-dark(#06632b, #6fcf97); } .fails { color: light-dark(#b00020, #ff8a80); font-weight: 700; }
.not-resolved { color: light-dark(#7a5900, #f2c94c); } .not-judged { opacity: .65; }
.alert { border: 2px solid light-dark(#b00020, #ff8a80); padding: 0 1rem; margin: 1rem 0; }
</style></head><body><h1>icl_lab report</h1>
BODY
</body></html>
"""
