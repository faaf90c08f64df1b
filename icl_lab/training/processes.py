"""Several processes, of one machine or of many, as one run on JAX's distributed runtime; process 0 decides and writes.

In a single process every function here returns at once and does not touch JAX. The one place that names
``jax.experimental.multihost_utils``; should a release take it away, runs of several processes fail at once.
"""

import collections
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")
log = logging.getLogger("icl_lab")
SAID_BY = {
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
}
"""Variables in which a cluster says which process this is, and how many there are."""
_ending: list[bool] = []
HEARTBEAT_SECONDS = 60
"""A process that has been silent for so long counts as dead, and the others end."""


class RefusedError(ValueError):
    """What all processes refuse alike, in the words of process 0."""


class LostError(Exception):
    """Another process of the run has ended."""


def start(coordinator: str = "", processes: int = 0, process: int = -1) -> None:
    """Joins the other processes, before JAX computes anything.

    They are found by what SLURM, Open MPI, Kubernetes or Cloud TPU say, or given: host:port of process 0, how many
    there are and which this is. JAX itself ends a process that has waited five minutes for the others. From here on
    this process knows of no proxy.

    Raises:
      RefusedError: if there is no cluster, the address cannot be used, or processes have different numbers of devices.
    """
    given: dict[str, Any] = {}
    if coordinator:
        given = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}
        given["cluster_detection_method"] = "deactivate"
        if coordinator.startswith(("localhost:", "127.0.0.1:")):  # or it would listen on all addresses of the machine
            given["coordinator_bind_address"] = coordinator
        log.info("process %d waits at %s for %d in all", process, coordinator, processes)
    else:
        log.info("%s", _announced())
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):  # which would be asked for the way to process 0
        os.environ.pop(name, None)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from the run
    try:
        jax.distributed.initialize(**given, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except ValueError as error:
        raise RefusedError(
            f"--distributed: no SLURM, Open MPI, Kubernetes or Cloud TPU is found here ({error}); "
            "allowed elsewhere is --coordinator=host:port --processes=2 --process=0"
        ) from error
    except RuntimeError as error:
        where = f"--coordinator={coordinator}: is the port free? " if coordinator else "--distributed: "
        raise RefusedError(f"{where}{error}") from error
    of_process = collections.Counter(device.process_index for device in jax.devices())
    if len(set(of_process.values())) > 1:
        raise RefusedError(
            f"--distributed: processes have {sorted(of_process.values())} devices; allowed is the same number"
        )


def _announced() -> str:
    """Says for how many processes this one waits, by what the cluster has told it."""
    for cluster, (process, total) in SAID_BY.items():
        if total in os.environ:
            number = os.environ.get(process, "of unknown number")
            return f"process {number} waits for {os.environ[total]} in all, as {cluster} says ({total})"
    return "this process looks for the others of its run"


def count() -> int:
    """How many processes share this run."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_writer() -> bool:
    """Whether this process decides and writes: process 0, or the only one."""
    return count() == 1 or jax.process_index() == 0


def led(decide: Callable[[], T]) -> T:
    """What ``decide()`` gives in process 0 (a JSON value), in all processes; the others do not call it.

    Raises:
      RefusedError: in all processes, with the words of process 0, if ``decide`` raises there.
    """
    return decide() if count() == 1 else json.loads(bytes_of_writer(lambda: json.dumps(decide()).encode()))


def bytes_of_writer(give: Callable[[], bytes]) -> bytes:
    """What ``give()`` gives in process 0, in all processes; it raises as ``led`` does."""
    if count() == 1:
        return give()
    answer, cause = b"", None
    if is_writer():
        try:
            answer = b"+" + give()
        except Exception as error:
            answer, cause = f"-{str(error) or type(error).__name__}".encode(), error
    answer = _of_all(answer)[0]
    if answer.startswith(b"-"):
        raise RefusedError(answer[1:].decode()) from cause
    return answer[1:]


def same_everywhere(facts: Mapping[str, Any]) -> None:
    """Checks that every process runs the same: JSON values by what they are, compared with those of process 0.

    Raises:
      RefusedError: in all processes, naming the processes and what differs.
    """
    if count() == 1:
        return
    first, *others = (json.loads(text) for text in _of_all(json.dumps(dict(facts)).encode()))
    differing = [
        f"process {i}: {name} is {other.get(name)} there, {first.get(name)} in process 0"
        for i, other in enumerate(others, 1)
        for name in {**first, **other}
        if first.get(name) != other.get(name)
    ]
    if differing:
        raise RefusedError(f"the processes of one run must be of the same command and version; {'; '.join(differing)}")


def in_any(flag: bool) -> bool:
    """Whether a flag is set in any process; all must call it."""
    return bool(from_all(np.array(flag)).any())


def from_all(mine: np.ndarray) -> np.ndarray:
    """An array of the same shape and type from every process, (processes, ...); all must call it."""
    return np.asarray(mine)[None] if count() == 1 else whole(np.asarray(mine)[None])


def whole(array: Any) -> np.ndarray:
    """An array divided among the devices of all processes, whole on the host of each; all must call it.

    Those of the hosts are joined along their first axis. Nothing else in a run exchanges anything, so whatever fails
    here is the other end.

    Raises:
      LostError: if another process has ended.
    """
    from jax.experimental import multihost_utils

    jax.block_until_ready(array)  # what fails in making it is raised as what it is
    try:
        return multihost_utils.process_allgather(array, tiled=True)
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # either, by the moment at which the connection breaks
        raise LostError("another process of this run has ended; the same command resumes") from error


def end_together() -> None:
    """Says that all processes end now, so that none has to hurry: JAX takes a process that hurries for a dead one."""
    _ending.append(True)


def leave(status: int) -> int:
    """Ends this process at once, as others may wait for it; the status itself where none does (``end_together``)."""
    if count() == 1 or _ending:
        return status
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _of_all(content: bytes) -> list[bytes]:
    """What every process says, in order. It travels as bytes: a sum of floats would lose the sign of zero."""
    # the sizes too, since JAX has 32 bits of a whole number
    sizes = from_all(np.array([len(content)]).view(np.uint8)).view(np.int64).ravel()
    rows = from_all(np.frombuffer(content.ljust(max(sizes) + 1), np.uint8))
    return [row.tobytes()[:size] for row, size in zip(rows, sizes)]
