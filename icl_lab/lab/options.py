"""What every binary has beside its configuration: which preset and grid are run, and how the run is carried out."""

import dataclasses

from icl_lab.lab.experiment import PRESETS
from icl_lab.lab.flags import FlagError, setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of every binary. But for the preset and the grid, no number depends on them but for rounding."""

    preset: str = setting("quick", "size of the run", choices=PRESETS)
    grid: str = setting("", "settings to run one after the other, as learning_rate:1e-4,1e-3;seed:0,1 (quote the ;)")
    outdir: str = setting("", "run folder; empty: a folder under runs/ named by preset and configuration")
    overwrite: bool = setting(False, "run again over a finished run")
    dry_run: bool = setting(False, "say what the run would cost, from trying its trainings for a second, and stop")
    profile: bool = setting(False, "print what was compiled, for how long, and the steps a second of each training")
    checkpoint_seconds: float = setting(15.0, "seconds between checkpoints", at_least=0)
    precision: str = setting(
        "highest", "of float32 matrix products on accelerators (recorded)", choices=("highest", "high", "default")
    )
    memory_gb: float = setting(
        0.0, "memory that training may use on each device (members take turns within it); 0: what there is", at_least=0
    )
    cpu_devices: int = setting(1, "devices that a CPU counts as; members are shared among all devices", at_least=1)
    distributed: bool = setting(
        False, "one of several processes that share the members (SLURM, Open MPI, Kubernetes and Cloud TPU are found)"
    )
    coordinator: str = setting("", "host:port of process 0, where --distributed finds no cluster by itself")
    processes: int = setting(0, "number of processes, with --coordinator", at_least=0)
    process: int = setting(-1, "which of them this is, from 0, with --coordinator", at_least=-1)


def check(options: Options) -> None:
    """Raises FlagError where options do not fit together."""
    if options.dry_run and options.distributed:
        raise FlagError("--dry_run: allowed is a single process, without --distributed")
    if not options.coordinator:
        if options.processes or options.process >= 0:
            raise FlagError("--processes and --process: allowed with --coordinator only")
        return
    if not options.distributed:
        raise FlagError(f"--coordinator={options.coordinator}: allowed is with --distributed only")
    host, _, port = options.coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise FlagError(f"--coordinator={options.coordinator}: allowed is host:port")
    if options.processes < 1:
        raise FlagError(f"--processes={options.processes}: allowed with --coordinator is a number >= 1")
    if not 0 <= options.process < options.processes:
        raise FlagError(f"--process={options.process}: allowed is 0 to {options.processes - 1}")
