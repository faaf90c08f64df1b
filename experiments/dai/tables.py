"""Tables of ``implicit_finetuning``, by row and by task as in the paper: in its record, as Markdown, or as CSV.

    python -m experiments.dai.tables RUN_FOLDER [--csv]

The run is one of ``dai.implicit_finetuning``.
"""

import csv
import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dai.analysis import present_mean
from experiments.dai.common import passing
from experiments.dai.controls import NUMBERS, SIMILARITIES, counted_layers
from icl_lab.lab.command_line import command
from icl_lab.lab.constraints import holds
from icl_lab.lab.flags import setting
from icl_lab.lab.record import RecordError
from icl_lab.lab.records import load

BY_TASK = (
    "chance", "zero_shot", "finetuned", "finetuned_free", "in_context", "ceiling", "base_rate", "recall", "random",
    "floor", "sim_aou", "sim_aou_raw", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall_random", "kendall",
)  # fmt: skip
"""Lines of the table by task (Tables 1 to 5 of the paper, with chance, Bayes answer and floors)."""


def tables(rows: Sequence[str], tasks: Sequence[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables, ``table`` and ``by_task``, from arrays by position encoding."""
    return {"table": by_row(rows, arrays), "by_task": by_task(tasks, arrays)}


def by_row(names: Sequence[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Means over tasks (similarities: and layers) and the networks that learn in context, by encoding, row, metric.

    With each ``retest``, the standard deviation that another draw of sets and questions gives to the mean of one
    network: half the difference of two halves, root mean square over networks.
    """
    return {
        encoding: {row: {name: _row(of, name, c) for name in (*SIMILARITIES, *NUMBERS)} for c, row in enumerate(names)}
        for encoding, of in arrays.items()
    }


def _row(of: Mapping[str, Any], name: str, c: int) -> dict[str, float | None]:
    learned = passing(of)
    halves = present_mean(np.asarray(of["retest"][name])[learned][..., c], 1)  # (M, 2)
    return {
        "mean": _number(counted_layers(of[name][:, :, c], name)[learned]),
        "retest": _number(np.sqrt(present_mean(np.square(halves[:, 0] - halves[:, 1]) / 4, None))),
    }


def by_task(tasks: Sequence[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Means over the networks that learn in context, of the paper's fine-tuning, by encoding, task and metric."""
    return {
        encoding: {
            task: {name: _number(_of_task(of, name, t)[passing(of)]) for name in BY_TASK}
            for t, task in enumerate(tasks)
        }
        for encoding, of in arrays.items()
    }


def _of_task(of: Mapping[str, Any], name: str, t: int) -> np.ndarray:
    values = np.asarray(of[name])[:, t]
    if values.ndim == 1:  # an accuracy; all others have a row
        return values
    return counted_layers(values[:, 0], name)


def _number(values: np.ndarray) -> float | None:
    value = present_mean(values, None)
    return round(float(value), 4) + 0.0 if np.isfinite(value) else None  # no -0.0


def lines(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the table by task, the head first."""
    rows = [["networks", "metric", *metrics["tasks"], "mean"]]
    for encoding, tasks in metrics["by_task"].items():
        for name in BY_TASK:
            values = [tasks[task][name] for task in metrics["tasks"]]
            present = [value for value in values if value is not None]
            mean = sum(present) / len(present) if present else None
            rows.append([encoding, name, *("" if v is None else f"{v:.3f}" for v in (*values, mean))])
    return rows


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *rest = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rest))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if folder := next((word for word in words if not word.startswith("-")), ""):
        words[words.index(folder)] = f"--run={folder}"  # of a second one ``command`` says that it is too much
    given = holds("the folder of a run of dai.implicit_finetuning", "run", when=lambda o: o.run)
    return command(__doc__, Options(), _printed, ["tables", *words], [given])


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.dai.tables``."""

    run: str = setting("", "folder of the run; the word without a flag is it, too", path=True)
    csv: bool = setting(False, "commas in place of Markdown")


def _printed(options: Options) -> int:
    metrics = load(Path(options.run), arrays=False).metrics
    if "by_task" not in metrics:
        raise RecordError(f"{options.run} holds no table by task")
    if options.csv:
        csv.writer(sys.stdout).writerows(lines(metrics))
    else:
        print(markdown(lines(metrics)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
