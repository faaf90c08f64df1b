"""A process of its own that trains an ensemble on some devices of a CPU, a chunk for every line that it reads.

    python -m experiments.tools.benchmarks.chunks_run '{"devices": 8, "members": 32, "batch": 256, "chunk": 100}'

It answers each with a line of seconds: by the clock, and of all its cores. The first chunk compiles. With ``network``
and ``config`` it trains a network of ``experiments.tools.benchmarks.devices``.
"""

import json
import sys
import time
from typing import Any

import jax

from experiments.tools.benchmarks import induction
from experiments.tools.benchmarks.programs import in_chunks, networks, other_networks, program
from experiments.tools.benchmarks.timing import Config, chunks_of_fit
from experiments.von_oswald.common import Setting
from icl_lab.lab import from_json
from icl_lab.models import LinearSelfAttention
from icl_lab.training import Training
from icl_lab.training.ensembles import member_mesh


def main() -> int:
    """Runs until its input ends."""
    asked = json.loads(sys.argv[1])
    jax.config.update("jax_num_cpu_devices", asked["devices"])
    p = _program(asked)
    with chunks_of_fit({"ensemble": in_chunks(p, asked["chunk"], mesh=member_mesh(), measure=None)}) as fits:
        for _ in sys.stdin:
            started = time.perf_counter(), time.process_time()
            fits["ensemble"]()
            print(json.dumps([time.perf_counter() - started[0], time.process_time() - started[1]]), flush=True)
    return 0


def _program(asked: dict[str, Any]) -> Training:
    if "network" not in asked:
        return program(LinearSelfAttention(layers=1, looped=True), Setting(batch=asked["batch"]), asked["members"])
    if asked["network"] in induction.SETTINGS:
        return induction.program(induction.SETTINGS[asked["network"]], asked["members"])
    config = from_json(Config, asked["config"])
    return program(*(networks(config) | other_networks(config))[asked["network"]], asked["members"])


if __name__ == "__main__":
    sys.exit(main())
