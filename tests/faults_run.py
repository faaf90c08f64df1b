"""A process that has imported everything and forks a child for each command: what test_faults.py kills, and quickly.

It reads one JSON object a line and answers each once the child has ended:
  {"binary": "toy" or a name, "words": [...], "cwd": ..., "signals": [...], "patches": [...]}
  {"status": ..., "seconds": ..., "sent": ...}
A signal is [number, path, seconds]: sent so long after the path appears, or after the start where the path is empty.
JAX computes in the children alone, as a process in which it does cannot be forked.
"""

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import toys

from icl_lab.lab import command_line, flags, provenance, report
from icl_lab.lab.claims import Claim
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.quantities import quantity
from icl_lab.lab.session import Session
from icl_lab.lab.trainings import After
from icl_lab.training import Training


@dataclasses.dataclass(frozen=True)
class Config(toys.Config):
    steps: int = flags.setting(4, "steps of each training", at_least=1)
    poisoned: int = flags.setting(-1, "member whose loss is not a number from step 2 of the first training on")


PARAMS, LOSS = quantity("params_{stage}", "member", "number"), quantity("loss_{stage}", "member", "step")
NOISE = quantity("noise", "draw")
PAUSE = {"stage": 0.0, "evaluation": 0.0}  # seconds after every chunk


def trainings(config):
    """Two, the second from where the first ended."""

    def training(start, poison):
        return Training(
            lambda key, setting: setting[0] / 2, loss, optax.sgd(0.1, momentum=0.9),
            jax.random.split(jax.random.key(config.seed), config.members), (start, jnp.asarray(poison)),
            steps=config.steps, measure_every=1,
            schedule=lambda setting, step: (setting[0], setting[1] & (step == 2)),
        )  # fmt: skip

    poisoned = np.arange(config.members) == config.poisoned
    return {
        "stage_0": training(jnp.ones((config.members, 4)), poisoned),
        "stage_1": After(lambda fits: training(fits["stage_0"].params, np.zeros_like(poisoned))),
    }


def measured(config, fits):
    """The trainings, and an evaluation."""
    for stage in range(2):
        yield PARAMS.at(stage=stage), fits[f"stage_{stage}"].params
        yield LOSS.at(stage=stage), fits[f"stage_{stage}"].metrics["train_loss"]
    with fits.bar("evaluation", 1) as advance:
        noise = np.random.default_rng(config.seed).normal(size=20_000)  # so that writing it takes a moment
        advance(1, 1)
    yield NOISE, noise
    yield "facts", {"last": float(np.asarray(fits["stage_1"].params).sum())}


def loss(params, key, setting):
    value = ((params - setting[0]) ** 2).sum() + params @ jax.random.normal(key, params.shape)
    return jnp.where(setting[1], jnp.nan, value)


def telling(bar):
    """A session's bars, which also leave a file ``../told/<stage>.<steps done>``, and a line on stdout."""
    told = Path("told")

    @contextlib.contextmanager
    def bars(session, label, total):
        with bar(session, label, total) as advance:

            def tell(done, total, *row):
                told.mkdir(exist_ok=True)
                (told / f"{label}.{done}").touch()
                os.write(1, f"@ {label} {done}\n".encode())
                time.sleep(PAUSE[label.split("_")[0]])
                advance(done, total, *row)

            yield tell

    return bars


CLAIM = Claim(
    "toy.faults.finite", "Toy", "Every member stays finite.", lambda r: np.isfinite(r.arrays["params_0"][:, 0]) * 1.0,
    expected=1.0, tolerance=0.0, reason="a test", expected_verdict={"lab": "holds"},
)  # fmt: skip
TOY = toys.made_up("toy.faults", Config(), measured, (PARAMS, LOSS, NOISE), trainings=trainings, claims=(CLAIM,))


def clock_runs_backwards():
    """Every look at the time of day is an hour before the one before it."""
    now = [2e9]

    def earlier():
        now[0] -= 3600
        return now[0]

    time.time, time.time_ns = earlier, lambda: int(earlier() * 1e9)


def small_files(most):
    """A limit on the size of a file: a write fails as on a full disk, though with other words."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def slow(what, seconds):
    """So that there is time for a signal where else there is little."""
    return lambda: PAUSE.update({what: seconds})


def slow_removal():
    """Files are removed so slowly that a process can be killed in the middle of it."""
    unlink = Path.unlink

    def slowly(path, missing_ok=False):
        time.sleep(0.005)
        unlink(path, missing_ok)

    Path.unlink = slowly


PATCHES = {
    "slow removal": slow_removal,
    "slow": slow("stage", 0.05),
    "long evaluation": slow("evaluation", 600),
    "clock": clock_runs_backwards,
    "no room for a checkpoint": small_files(1000),
    "no room for the record": small_files(40_000),
}


def quick_to_start(cache):
    """What costs time and is not what is tested: compilation, random numbers, looking at the sources and at git."""
    provenance.code_version, provenance.git = lambda sources: sources, lambda *words: ""
    Experiment.source_version = lambda self: "loaded"  # whatever is edited meanwhile
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    command_line.use_compilation_cache = lambda: None
    assert report  # imported here, and not by every child


def child(order):
    """Runs the command as a fresh process would, and ends without the half second that JAX takes to clean up."""
    os.chdir(order["cwd"])
    for number, name in ((0, os.devnull), (1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may be deaf to Ctrl-C
    for patch in order.get("patches", ()):
        PATCHES[patch]()
    toy = order["binary"] == "toy"
    if toy:
        Session.bar = telling(Session.bar)
    experiment = TOY if toy else importlib.import_module(f"experiments.{order['binary']}").EXPERIMENT
    experiment = dataclasses.replace(experiment, figures=lambda record: {})  # a second, in which nothing is resumed
    status = 1
    try:
        status = command_line.main(experiment, [order["binary"], *order["words"]])
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def watch(pid, signals):
    """Sends the signals; the exit status (minus the signal that ended it) and how many were sent."""
    left = [seen(path) for _, path, _ in signals]  # by a process before this one
    since, sent, there = time.monotonic(), 0, False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), sent
        if sent < len(signals):
            number, path, seconds = signals[sent]
            if not there and path and seen(path) not in (None, left[sent]):
                there, since = True, time.monotonic()
            if (there or not path) and time.monotonic() - since >= seconds:
                os.kill(pid, number)
                sent, there, since = sent + 1, False, time.monotonic()
        time.sleep(0.0005)


def seen(path):
    """What tells a file or folder from another one at its place; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def main():
    warnings.simplefilter("error")
    for imported_late in ("experiments.von_oswald.roll_out", "matplotlib", "scipy.special"):
        importlib.import_module(imported_late)  # here, and not by every child
    quick_to_start(sys.argv[1])
    gc.collect()
    gc.freeze()  # what is not looked at is not copied for a child
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(order)
        status, sent = watch(pid, order.get("signals", []))
        print(json.dumps({"status": status, "seconds": time.monotonic() - started, "sent": sent}), flush=True)


if __name__ == "__main__":
    main()
