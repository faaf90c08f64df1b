"""Several processes, of one machine or of many, as one run on JAX's distributed runtime; process 0 decides and writes.

In a single process every function here returns at once and does not touch JAX.
"""

import collections
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from icl_lab.flags import FlagError

T = TypeVar("T")
log = logging.getLogger("icl_lab")
_ending: list[bool] = []
HEARTBEAT_SECONDS = 60
"""A process that has been silent for so long counts as dead, and the others end."""
_MESSAGE = 1024  # bytes of one broadcast; longer content takes a second one


class RefusedError(FlagError):
    """What all processes refuse alike, in the words of process 0."""


def start(coordinator: str = "", processes: int = 0, process: int = -1) -> None:
    """Joins the other processes; before JAX computes anything.

    Args:
      coordinator: host:port of process 0; empty: what SLURM, Open MPI, Kubernetes or Cloud TPU say.
      processes: how many there are, with ``coordinator``.
      process: which of them this is, with ``coordinator``.

    Raises:
      FlagError: if there is no cluster, the address cannot be used, or processes have different numbers of devices. JAX
        itself ends a process that has waited five minutes for the others.
    """
    given: dict[str, Any] = {}
    if coordinator:
        given = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}
        given["cluster_detection_method"] = "deactivate"
        if coordinator.startswith(("localhost:", "127.0.0.1:")):  # or it would listen on all addresses of the machine
            given["coordinator_bind_address"] = coordinator
        log.info("process %d waits at %s for %d in all", process, coordinator, processes)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from the run
    try:
        jax.distributed.initialize(**given, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except ValueError as error:
        raise FlagError(
            f"--distributed: no SLURM, Open MPI, Kubernetes or Cloud TPU is found here ({error}); "
            "allowed elsewhere is --coordinator=host:port --processes=2 --process=0"
        ) from error
    except RuntimeError as error:
        where = f"--coordinator={coordinator}: is the port free? " if coordinator else "--distributed: "
        raise FlagError(f"{where}{error}") from error
    of_process = collections.Counter(device.process_index for device in jax.devices())
    if len(set(of_process.values())) > 1:
        raise RefusedError(
            f"--distributed: processes have {sorted(of_process.values())} devices; allowed is the same number"
        )


def count() -> int:
    """How many processes share this run."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_writer() -> bool:
    """Whether this process decides and writes: process 0, or the only one."""
    return count() == 1 or jax.process_index() == 0


def agree(value: T) -> T:
    """Process 0's JSON value, in all processes; all must call it."""
    return value if count() == 1 else json.loads(_broadcast(json.dumps(value).encode()))


def led(decide: Callable[[], T]) -> T:
    """What ``decide()`` gives in process 0 (a JSON value), in all processes; the others do not call it.

    Raises:
      RefusedError: in all processes, with the words of process 0, if ``decide`` raises there.
    """
    if count() == 1:
        return decide()
    answer: dict[str, Any] = {}
    cause = None
    if is_writer():
        try:
            answer = {"value": decide()}
        except Exception as error:
            answer, cause = {"refused": str(error) or type(error).__name__}, error
    answer = agree(answer)
    if "refused" in answer:
        raise RefusedError(answer["refused"]) from cause
    return answer["value"]


def same_everywhere(facts: Mapping[str, Any]) -> None:
    """Checks that every process runs the same: JSON values by what they are, compared with those of process 0.

    Raises:
      RefusedError: in all processes, naming the processes and what differs.
    """
    if count() == 1:
        return
    first = agree(dict(facts))
    differing = [
        f"{name} is {facts.get(name)} there, {first.get(name)} in process 0"
        for name in {**first, **facts}
        if first.get(name) != facts.get(name)
    ]
    found = [f"process {i}: {words}" for i, words in enumerate(_everyone("; ".join(differing))) if words]
    if found:
        raise RefusedError(f"the processes of one run must be of the same command and version; {'; '.join(found)}")


def in_any(flags: Sequence[bool]) -> list[bool]:
    """Whether each flag is set in any process; all must call it."""
    if count() == 1:
        return list(flags)
    return [bool(flag) for flag in np.any(multihost_utils.process_allgather(np.array(flags)), axis=0)]


def arrays_of_writer(arrays: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray] | None:
    """Process 0's arrays by name (or None), bit for bit, in all processes; what the others give is not read."""
    if count() == 1:
        return None if arrays is None else dict(arrays)
    held = None if arrays is None else {name: np.asarray(value) for name, value in arrays.items()}
    shapes = None if held is None else [[name, list(a.shape), a.dtype.name] for name, a in held.items()]
    header: list[tuple[str, list[int], str]] | None = agree(shapes)  # type: ignore[assignment]
    if header is None:
        return None
    content = _broadcast(b"".join(a.tobytes() for a in held.values()) if held is not None and is_writer() else b"")
    found: dict[str, np.ndarray] = {}
    start = 0
    for name, shape, kind in header:
        dtype = jnp.dtype(kind)  # knows bfloat16
        stop = start + dtype.itemsize * int(np.prod(shape))
        found[name] = np.frombuffer(content[start:stop], dtype).reshape(shape).copy()
        start = stop
    return found


def lost(error: Exception) -> bool:
    """Whether an error says that another process cannot be reached any more."""
    return any(word in str(error) for word in ("Gloo", "NCCL", "oordination service", "eartbeat"))


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


def _broadcast(content: bytes) -> bytes:
    """Process 0's bytes. They travel as bytes: a sum of floats over processes would lose the sign of zero."""
    first = np.zeros(_MESSAGE, np.uint8)
    packed = np.frombuffer(len(content).to_bytes(8, "little") + content, np.uint8)
    first[: min(len(packed), _MESSAGE)] = packed[:_MESSAGE]
    head = multihost_utils.broadcast_one_to_all(first).tobytes()
    size, head = int.from_bytes(head[:8], "little"), head[8:]
    if size <= len(head):
        return head[:size]
    rest = np.zeros(size - len(head), np.uint8)
    if is_writer():
        rest = packed[_MESSAGE:]
    return head + multihost_utils.broadcast_one_to_all(rest).tobytes()


def _everyone(text: str) -> list[str]:
    """What every process says (cut to a message), in order."""
    mine = np.zeros(_MESSAGE, np.uint8)
    cut = np.frombuffer(text.encode()[:_MESSAGE], np.uint8)
    mine[: len(cut)] = cut
    said = np.asarray(multihost_utils.process_allgather(mine))
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in said]
