"""Progress of a training, with its loss: a bar on a terminal and in a notebook, else one line a minute."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

SECONDS = 60.0
"""Between two lines, where there is no bar."""
Watch = Callable[[int, Mapping[str, np.ndarray]], None]
"""``(steps done, what was measured then, (M, ...) by name)``, as ``fit`` calls it."""


@contextlib.contextmanager
def shown(steps: int, label: str = "training") -> Iterator[Watch]:
    """What ``fit`` calls after a measurement; a bar of rich where it can move, which in a notebook needs ipywidgets."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (importlib.util.find_spec("ipywidgets") if console.is_jupyter else console.is_terminal):
        say = lines(label)
        yield lambda done, row: say(done, steps, row)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=steps, loss="")
        yield lambda done, row: bar.update(task, completed=done, loss=loss_of(row))


def lines(
    label: str, clock: Callable[[], float] = time.monotonic, out: Any = None
) -> Callable[[int, int, Mapping[str, np.ndarray]], None]:
    """Progress as lines, at most one in ``SECONDS``, the first after as long, on standard error.

    Call what it gives with ``(done, total)`` and what was measured then, (M, ...) by name.
    """
    last = clock()

    def say(done: int, total: int, row: Mapping[str, np.ndarray]) -> None:
        nonlocal last
        if clock() - last >= SECONDS:
            last = clock()
            words = filter(None, (f"{label}: {done} of {total}", loss_of(row)))
            print(", ".join(words), file=out or sys.stderr, flush=True)

    return say


def loss_of(row: Mapping[str, np.ndarray]) -> str:
    """``loss 0.207``: the median over members, of the training loss where no other was measured."""
    name = "loss" if "loss" in row else "train_loss"
    losses = np.asarray(row.get(name, np.nan), float)
    finite = losses[np.isfinite(losses)]
    return f"{name.replace('_', ' ')} {np.median(finite):.3g}" if finite.size else ""
