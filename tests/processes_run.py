"""A process that has imported everything and forks what test_processes.py runs: a tiny binary, or ``together``.

It reads a line for processes that run at the same time, ``[[words, environment, path], ...]``, and answers with their
exit statuses once all have ended; each writes to path.out and path.err. JAX computes in the children alone.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import toys
from matplotlib.figure import Figure

from icl_lab.lab import stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.claims import Claim
from icl_lab.lab.command_line import main
from icl_lab.lab.execution import execute
from icl_lab.lab.flags import setting
from icl_lab.lab.quantities import quantity
from icl_lab.lab.session import Session
from icl_lab.training import Training, processes


@dataclasses.dataclass(frozen=True)
class Config(toys.Config):
    """What is trained."""

    steps: int = setting(16, "training steps", at_least=1)


WEIGHTS, METRIC = quantity("w", "member", "number"), quantity("{metric}", "member", "step")


def trainings(config):
    training = Training(
        lambda key, rate: {"w": jax.random.normal(key, (3,))},
        lambda params, key, rate: jnp.sum((params["w"] - jax.random.normal(key, (3,))) ** 2 / (1 + params["w"] ** 2)),
        optax.adam,
        jax.random.split(jax.random.key(config.seed), config.members),
        jnp.linspace(0.02, 0.2, config.members),
        steps=config.steps,
        measure_every=4,
        measure=lambda params, key, rate: {"norm": jnp.sum(params["w"] ** 2), "rate": rate},
        members_at_once=1,
    )
    return {"training": training}


def measured(config, fits):
    fitted = fits["training"]
    yield WEIGHTS, fitted.params["w"]
    yield METRIC, fitted.metrics
    yield "facts", {"largest": float(jnp.max(fitted.params["w"]))}  # outside training every process has all members


def signalling(bar):
    """A session's bars; ``TEST_SIGNAL`` names a process, a step and a signal that the process gets after it."""

    @contextlib.contextmanager
    def bars(session, label, total):
        process, at, what = os.environ.get("TEST_SIGNAL", "-1:0:").split(":")
        with bar(session, label, total) as advance:

            def tell(done, total, *row):
                if done == int(at) and jax.process_index() == int(process):
                    os.kill(os.getpid(), signal.Signals[what])
                advance(done, total, *row)

            yield tell

    return bars


CLAIM = Claim(
    "tests.processes.norm", "none", "The norm.", lambda record: record.arrays["norm"][:, -1], expected=0.0,
    tolerance=1.0, reason="none", expected_verdict={},
)  # fmt: skip
EXPERIMENT = toys.made_up(
    "tests.processes", Config(), measured, (WEIGHTS, METRIC), trainings=trainings,
    figures=lambda record: {"empty": Figure()}, claims=(CLAIM,),
)  # fmt: skip


def spoken_load(self, like, load=Checkpoint.load):
    tree = load(self, like)
    print("resumes after", None if tree is None else 4 * (tree["metrics"]["norm"].shape[1] - 1), flush=True)
    return tree


def together(coordinator, process, folder):
    """What several processes do together, one thing after the other; says as JSON what came of it."""
    processes.start(coordinator, 2, process)
    found = {"writer": processes.is_writer(), "agreed": processes.led(lambda: ["long" * 1000, process])}
    for name, attempt in (
        ("differs", lambda: processes.same_everywhere({"--steps": 16 + process, "the code": "abc"})),
        ("led", lambda: processes.led(lambda: (folder / "none" / "file").write_text(""))),
    ):
        try:
            attempt()
        except processes.RefusedError as error:
            found[name] = str(error)
    sent = b"\xff\x00" * 999
    found["bytes"] = processes.bytes_of_writer(lambda: sent if process == 0 else b"other") == sent
    odd = {"a": np.array([-0.0, np.nan, 1e-310]), "b": np.arange(3, dtype=jnp.bfloat16)[:, None], "c": np.int8([3])}
    state = jax.tree.map(np.zeros_like, odd)
    place = Checkpoint(folder / f"odd{process}", "this", 0.0)
    place.save(lambda: {"state": odd, "metrics": {"norm": np.zeros((1, 1))}}, finished=True)
    given = place.load(lambda: {"state": state})["state"]
    found["arrays"] = [given[name].tobytes() == array.tobytes() for name, array in odd.items()]
    outdir = folder / f"together{process}"
    try:
        with stopping.heeding():
            execute(EXPERIMENT, "lab", Config(), outdir, checkpoint_seconds=1e9)
    except stopping.Stopped as stopped:
        found["stopped"] = str(stopped)
    for name in ("first", "second"):
        os.environ.pop("TEST_SIGNAL", None)
        outcome = execute(EXPERIMENT, "lab", Config(), outdir)
        found[name] = [outcome.ran, outcome.record.arrays["w"].tobytes().hex(), outcome.ledger[0]["verdict"]]
    (folder / f"found{process}.json").write_text(json.dumps(found))


def child(words, environment, said):
    """Runs the words as a fresh process would."""
    os.environ.update(environment)
    for number, name in ((0, os.devnull), (1, f"{said}.out"), (2, f"{said}.err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    if words[0] == "together":
        together(words[1], int(words[2]), Path(words[3]))
    else:
        sys.exit(main(EXPERIMENT, ["processes_run.py", *words]))


def serve():
    Checkpoint.load, Session.bar = spoken_load, signalling(Session.bar)
    importlib.import_module("scipy.special")  # imported late: here, and not by every child
    for line in sys.stdin:
        running = []
        for order in json.loads(line):
            running.append(os.fork())
            if running[-1] == 0:
                return child(*order)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]), flush=True)


if __name__ == "__main__":
    serve()
