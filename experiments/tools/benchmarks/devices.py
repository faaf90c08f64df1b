"""Members on a CPU that counts as one device, and as one a core: the default of the presets lab and paper."""

import contextlib

import numpy as np

from experiments.tools.benchmarks.cluster import in_turns, trainer
from experiments.tools.benchmarks.programs import networks, other_networks
from experiments.tools.benchmarks.timing import Config, Row
from icl_lab.lab import flags
from icl_lab.machine import cores

MEMBERS, CHUNK = 4, 100
INDUCTION = ("published", "small")


def devices(config: Config) -> dict[str, list[Row]]:
    """A step of a member by the clock, after compilation, with as many members at once as ``icl_lab.train`` chooses.

    Every number of devices has a process of its own, as it cannot change within one; two take turns by chunks.
    """
    rows = []
    for name in (*networks(config), *other_networks(config), *INDUCTION):
        with contextlib.ExitStack() as stack:
            asked = {"members": MEMBERS, "chunk": CHUNK, "network": name, "config": flags.to_json(config)}
            turns = {n: stack.enter_context(trainer(asked | {"devices": n})) for n in (1, cores())}
            seconds = in_turns(turns, config.rounds, warm_up=2)
        for n, s in seconds.items():
            label = (
                f"{name if name not in INDUCTION else f'InductionNetwork, {name} setting'}, {n} device{'s' * (n > 1)}"
            )
            ratio = float(np.median(seconds[1][:, 0] / s[:, 0]))
            rows.append(Row(label, float(1e3 * np.median(s[:, 0]) / MEMBERS / CHUNK), ratio))
    return {f"step of one of {MEMBERS} members": rows}
