"""What a process finds on the user's machine: cores, memory, the processor, who reads what it prints, other packages.

This module imports nothing of the laboratory, so every package may ask it.
"""

import contextlib
import hashlib
import importlib.util
import io
import itertools
import math
import os
import platform
import re
import resource
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS, OF_PROCESS, PROCESSOR = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/cpuinfo")
CAP = "--xla_cpu_max_isa="
"""Option in ``XLA_FLAGS``: the widest vector instructions that XLA may use."""
WIDTHS = {"SSE4_2": "sse4_2", "AVX": "avx", "AVX2": "avx2", "AVX512": "avx512f"}
"""Vector widths of x86-64 as XLA calls them, by what Linux calls them; from the narrowest."""
UNREAD = 128 + signal.SIGPIPE
"""What a shell says of a program that wrote to a pipe which nobody reads any more."""


@contextlib.contextmanager
def speaking() -> Iterator[None]:
    """Around a program that prints: a ``?`` stands for what the locale cannot write.

    Raises:
      SystemExit: with status ``UNREAD``, where nobody reads on (``| head -1``); with a sentence, where other
        ``experiments`` than ours are imported and do not fit.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    for stream in streams:
        if stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    try:
        with ours():
            yield
        for stream in streams:
            stream.flush()
    except BrokenPipeError:
        watched = select.poll()
        for stream in streams:
            watched.register(stream.fileno(), 0)  # errors alone: that the reader has gone
        if not (broken := watched.poll(0)):
            raise  # another pipe
        for number, _ in broken:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)  # for what Python still flushes at its end
        raise SystemExit(UNREAD) from None


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Around what imports ``experiments``: where that fails because of others of this name, SystemExit says so."""
    try:
        yield
    except ImportError as error:
        if message := in_the_way():
            raise SystemExit(f"error: {error}; {message}") from error
        raise


def path(given: str | os.PathLike[str], name: str = "folder") -> Path:
    """A path as Python takes it, in which ``~`` is the user's folder, as in a shell.

    Raises:
      ValueError: for what is no path.
    """
    if not isinstance(given, str | os.PathLike) or "\0" in str(given) or not str(given):
        raise ValueError(f"{name} must be a path, got {given!r}")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:  # of a user that there is not
        raise ValueError(f"{name} must be a path, got {given!r} ({error})") from error


def cores() -> int:
    """How many cores this process may use: those it is bound to, or as many as its cgroups give it the time of."""
    limits: list[float] = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in _cgroups("cpu"):
        limit = _numbers(group / "cpu.max")
        limit = limit or _numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us")
        limits += [limit[0] / limit[1]] if len(limit) == 2 and min(limit) > 0 else []
    return math.ceil(min(limits))


def memory() -> float:
    """Bytes of this machine, or of the smallest cgroup (a container, a job) that the process is in."""
    limits = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    for group, name in itertools.product(_cgroups("memory"), ("memory.max", "memory.limit_in_bytes")):
        limits += _numbers(group / name)
    return min(limits)


def processor() -> str:
    """A name, fit for a folder, of the kind of processor; machine code made on one kind need not run on another."""
    try:
        with open(PROCESSOR, encoding="utf-8", errors="replace") as lines:
            first = itertools.takewhile(str.strip, lines)
            traits = "".join(line for line in first if line.startswith(("model name", "flags", "CPU part", "Features")))
    except OSError:
        traits = platform.processor()
    return f"{platform.system()}-{platform.machine()}-{hashlib.sha256(traits.encode()).hexdigest()[:8]}"


def compiled_programs(root: Path) -> Path:
    """The folder below ``root`` of programs that this kind of processor has compiled."""
    return root.resolve() / ".xla_cache" / processor()


def vectors() -> str:
    """The vector width of this process, a name of ``WIDTHS``; of another kind of machine, its kind (``aarch64``).

    It is that of the processor, or the one to which ``XLA_FLAGS`` confines XLA if that is less. Where Linux does not
    tell of what the processor has, the kind of machine is all that is known.
    """
    has, allowed = set(), list(WIDTHS)
    with contextlib.suppress(OSError):
        has = set(PROCESSOR.read_text("utf-8", "replace").split())
    caps = [cap.upper() for cap in re.findall(rf"{CAP}(\w+)", os.environ.get("XLA_FLAGS", ""))]
    if caps and caps[-1] in allowed:  # others, as AMX, are wider than these
        allowed = allowed[: allowed.index(caps[-1]) + 1]
    widths = [name for name in allowed if WIDTHS[name] in has]
    return widths[-1] if platform.machine() == "x86_64" and widths else platform.machine()


def peak_memory() -> int:
    """The most memory that this process held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def in_the_way() -> str:
    """Says which ``experiments`` Python finds before ours, that beside ``icl_lab``; empty where it finds ours."""
    ours, spec = Path(__file__).resolve().parents[1] / "experiments", importlib.util.find_spec("experiments")
    places = (
        [Path(place).resolve() for place in (spec.submodule_search_locations or [spec.origin or ""])] if spec else []
    )
    if not places or places[0] == ours:
        return ""
    return (
        f"{places[0]} comes before the experiments of icl_lab, which are in {ours}; rename it, or start Python in "
        "another folder or as python -P, which does not look into the present one"
    )


def _cgroups(controller: str) -> list[Path]:
    """The folders of the cgroups (v2 and v1) that this process is in, each up to the root."""
    folders = []
    with contextlib.suppress(OSError):
        for line in OF_PROCESS.read_text(encoding="utf-8").splitlines():
            _, controllers, place = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                root = CGROUPS / controller if controllers else CGROUPS
                inner = root / place.lstrip("/")
                folders += [inner, *(folder for folder in inner.parents if folder.is_relative_to(root))]
    return folders


def _numbers(path: Path) -> list[float]:
    """The numbers in a file; none where there is no file or no limit (``max``)."""
    try:
        return [float(word) for word in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return []
