"""What memory a compiled program needs, what there is, and how an ensemble that needs more is divided."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from icl_lab import processes
from icl_lab.flags import FlagError

GIB = 2**30
OF_HOST, OF_ACCELERATOR = 0.8, 0.9
"""Shares of all memory that training may use; the rest is for what the programs are called from."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Memory(NamedTuple):
    """Bytes on each device.

    Attributes:
      resident: arguments and results, which grow with the members that are on the device.
      temporary: what is only there while the program runs, which grows with the members vectorised together.
    """

    resident: int
    temporary: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.resident + self.temporary


def needed(compiled: Any, beside: int = 0) -> Memory:
    """What a compiled program needs (``jitted.lower(...).compile()``), and ``beside`` bytes that stay on the device."""
    found = compiled.memory_analysis()
    if found is None:  # a backend that does not say
        return Memory(beside, 0)
    kept = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return Memory(kept + beside, found.temp_size_in_bytes)


def limit(gigabytes: float = 0.0) -> float:
    """Bytes that training may use on each device: as asked for (GiB), or a share of all that a device has.

    Of all, not of what is free just now: the same command divides an ensemble in the same way, and gives the same bits.
    Of several processes the one with the least decides.
    """
    if gigabytes > 0:
        return gigabytes * GIB
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        found = OF_HOST * _host_memory() / jax.local_device_count()
    else:
        found = OF_ACCELERATOR * (device.memory_stats() or {}).get("bytes_limit", float("inf"))
    return float(processes.from_all(np.array(found)).min())


def divided(
    need: Callable[[int, int], Memory], members: int, together: int, limit: float
) -> tuple[int, int, Memory, Memory]:
    """How many members are on a device in one go, and how many of them are vectorised together, within a limit.

    Fewer together come first, since all others stay where they are; then fewer in one go.

    Args:
      need: ``(members in one go, vectorised together) -> memory`` of the compiled program.
      members: of a device.
      together: how many of them are vectorised together where memory suffices.
      limit: bytes.

    Returns:
      Members in one go, members together, what these need, and what the whole would have needed.

    Raises:
      FlagError: if not even one member fits.
    """
    size, together = members, min(members, together)
    whole = found = need(size, together)
    while found.total > limit:
        if size == 1:
            raise FlagError(
                f"the limit of {limit / GIB:.3g} GiB (--memory_gb) is too low: training one member takes "
                f"{found.total / GIB:.3g} GiB on a device; allowed is that or more, or a smaller batch"
            )
        size, together = _smaller(found, size, together, limit)
        found = need(size, together)
    return size, together, found, whole


def _smaller(found: Memory, size: int, together: int, limit: float) -> tuple[int, int]:
    """The next to try, as if memory were proportional to members; always less than before."""
    each, extra = found.resident / size, max(found.temporary / together, 1.0)
    if together > 1 and found.resident + extra <= limit:
        return size, min(max(int((limit - found.resident) / extra), 1), together - 1)
    fewer = int(limit / (each + extra))
    if fewer > together:
        fewer = int((limit - extra * together) / each)
    fewer = min(max(fewer, 1), size - 1)
    return fewer, min(together, fewer)


def _host_memory() -> float:
    """Bytes of this machine, or of the container that the process is in."""
    found = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUPS:
        try:
            found.append(float(Path(path).read_text()))
        except (OSError, ValueError):  # another system, or no limit ("max")
            continue
    return min(found)
