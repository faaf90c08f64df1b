"""Processes of runs, forked from one that has imported every binary: on Linux, where that is safe, seconds a run."""

import importlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.context import ForkServerProcess
from typing import Any

from icl_lab.lab.command_line import main
from icl_lab.lab.executors import start_here
from icl_lab.lab.plans import Run
from icl_lab.lab.records import LOG


class Forked(ForkServerProcess):
    """The command of a run as a process; ``poll`` is that of ``subprocess.Popen``."""

    def __init__(self, run: Run):
        super().__init__()
        command = run.command()
        self._words, self._log = command[command.index("-m") + 1 :], run.folder / LOG

    def poll(self) -> int | None:
        """The exit status, minus the signal that killed it; None while it runs."""
        return self.exitcode

    def run(self) -> None:
        """What the child does: as ``python -m`` in a session of its own, with its output in the log."""
        os.setsid()
        with open(os.devnull, "rb") as nothing, open(self._log, "ab") as log:
            for number, file in enumerate((nothing, log, log)):
                os.dup2(file.fileno(), number)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        binary = importlib.import_module(self._words[0])
        sys.argv = [str(binary.__file__), *self._words[1:]]
        sys.exit(main(binary.EXPERIMENT, sys.argv))


def imported(names: Sequence[str]) -> list[str]:
    """Modules that the process imports from which runs of these binaries are forked, in this order."""
    binaries = sorted(f"experiments.{name}{part}" for name in names for part in ("", "_shown"))
    return ["icl_lab.lab.loaded", *binaries, "experiments.tools.warm"]


def starter(plan: Sequence[Run]) -> Callable[[Sequence[Run]], Iterable[Any]]:
    """The ``start`` of ``executors.run_elsewhere`` for these runs: a process for each, which Ctrl-C does not reach."""
    socket = f"{tempfile.gettempdir()}/pymp-12345678/listener-12345678"  # by which the server is asked for a fork
    # elsewhere the libraries of the system may not survive a fork; the path of a socket has at most 107 bytes
    if sys.platform != "linux" or len(os.fsencode(socket)) > 107:
        return start_here
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(imported([run.name for run in plan]))

    def start(runs: Sequence[Run]) -> Iterator[Forked]:
        for run in runs:
            run.folder.mkdir(parents=True, exist_ok=True)
            child = Forked(run)
            child.start()
            yield child

    return start
