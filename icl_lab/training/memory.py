"""What memory a compiled program needs, what there is, and how many members at a time fit into it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from icl_lab import machine
from icl_lab.training import processes

GIB = 2**30
OF_HOST, OF_ACCELERATOR = 0.8, 0.9
"""Shares of all memory that training may use; the rest is for what the programs are called from."""


class DoesNotFitError(ValueError):
    """Members that need more memory than there is, however few of them go together; says how to go smaller."""


class Memory(NamedTuple):
    """Bytes on each device."""

    resident: int  # arguments and results: the state of all members, before and after
    temporary: int  # only there while the program runs; grows with the members vectorised together


def needed(compiled: Any, beside: int = 0) -> Memory:
    """What a compiled program needs (``jitted.lower(...).compile()``), and ``beside`` bytes that stay on the device."""
    analysis = compiled.memory_analysis()
    if analysis is None:  # a backend that does not say
        return Memory(beside, 0)
    kept = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return Memory(kept + beside, analysis.temp_size_in_bytes)


def limit(gigabytes: float = 0.0) -> float:
    """Bytes that training may use on each device: as asked for (GiB), or a share of all that a device has.

    Devices of a CPU share its memory, and what is asked for. A share of all, not of what is free just now: the same
    command groups members in the same way, and gives the same bits. Of several processes the one with the least
    decides.
    """
    device = jax.local_devices()[0]
    sharing = jax.local_device_count() if device.platform == "cpu" else 1
    if gigabytes > 0:
        return gigabytes * GIB / sharing
    if device.platform == "cpu":
        share = OF_HOST * machine.memory() / sharing
    else:
        share = OF_ACCELERATOR * (device.memory_stats() or {}).get("bytes_limit", float("inf"))
    return float(processes.from_all(np.array(share)).min())


def fewer(need: Memory, together: int, limit: float) -> int:
    """How many members to vectorise together next, where ``together`` of them need more than a limit.

    At most half as many; less where even that would be too many if temporaries were proportional to members.

    Raises:
      DoesNotFitError: if nothing is to be gained: one member at a time, or a state of all that alone is too large.
    """
    if need.resident > limit or together == 1:
        what, least = "training one member at a time", sum(need)
        if need.resident > limit:
            what, least = "what is kept of all members", need.resident
        raise DoesNotFitError(
            f"the limit of {limit / GIB:.3g} GiB (--memory_gb) is too low: {what} takes {least / GIB:.3g} GiB on a "
            "device; allowed is more memory, fewer --members or a smaller --batch"
        )
    return min(max(int((limit - need.resident) / need.temporary * together), 1), together // 2)
