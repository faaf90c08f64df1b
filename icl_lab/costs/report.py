"""What a run would cost, as a table for the terminal."""

import jax
from rich.console import Group
from rich.table import Table
from rich.text import Text

from icl_lab.costs.cost import Cost
from icl_lab.memory import GIB

NOTES = 8
"""How many notes are printed; a grid may have one of every cell."""
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


def table(cost: Cost) -> Group:
    """The cost of a run: a row a training, all else, what is known of these numbers, and the sum."""
    shown = Table("", "members", "steps", "ms a step", "ms a measurement", "operations", "memory", "compile", "seconds")
    for column in shown.columns[1:]:
        column.justify = "right"
    for stage in cost.stages:
        shown.add_row(
            stage.name,
            f"{stage.members}",
            f"{stage.steps}",
            f"{1e3 * stage.step_seconds:.3g}",
            f"{1e3 * stage.measure_seconds:.3g} x {stage.measurements}",
            count(stage.operations),
            size(stage.memory),
            f"{stage.compile_seconds:.1f}",
            f"{stage.seconds:.0f}",
        )
    rest = cost.rest
    seconds = f"{rest.compile_seconds + rest.seconds:.0f}"
    shown.add_row("all else", *[""] * 6, f"{rest.compile_seconds:.1f}", seconds)
    more = len(rest.notes) - NOTES
    notes = [*rest.notes[:NOTES], *([f"... and {more} more notes like these"] if more > 0 else [])]
    devices = jax.devices()
    total = f"about {duration(cost.seconds)} on {len(devices)} x {devices[0].device_kind}; nothing of it is done yet"
    return Group(shown, Text("\n".join([*how_known(cost), *notes, total])))


def how_known(cost: Cost) -> list[str]:
    """What was measured and what is extrapolated."""
    lines = []
    if cost.stages:
        lines = [
            "trainings: a step and a measurement of all members were timed, and count as often as there are any",
            "operations: of all steps, as they are written; memory: of the compiled programs, on each device",
        ]
    if cost.rest.share < 1:
        sizes = ", ".join(f"--{name}" for name in cost.rest.sizes)
        lines.append(f"all else: run with {100 * cost.rest.share:.2g} % of {sizes}, and extrapolated")
    else:
        lines.append("all else: run as it is" + (", on networks that are hardly trained" if cost.stages else ""))
    return [*lines, "not counted: start-up, checkpoints, figures"]


def duration(seconds: float) -> str:
    """``40 s``, ``4 min``, ``3.2 h`` or ``5.1 days``."""
    for least, unit, name in ((172_800, 86_400, "days"), (5400, 3600, "h"), (90, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit:.2g} {name}"
    return f"{seconds:.0f} s"


def count(operations: float) -> str:
    """``3.1 T``: a number with its prefix."""
    for unit, prefix in _PREFIXES:
        if operations >= unit:
            return f"{operations / unit:.3g} {prefix}"
    return f"{operations:.0f}"


def size(of: int) -> str:
    """Bytes as ``1.2 GiB``, ``34 MiB`` or ``5 KiB``."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB")):
        if of >= unit:
            return f"{of / unit:.3g} {name}"
    return f"{of / 2**10:.3g} KiB"
