"""Run by test_sweep.py: a cell that saves its state at every step, and goes on from it when run again."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from icl_lab.lab import records


def main(folder, config):
    state = folder / "checkpoints" / "state"
    state.parent.mkdir(parents=True, exist_ok=True)
    values = [float(word) for word in state.read_text().split()] if state.exists() else [0.5]
    print(f"from step {len(values) - 1}", flush=True)
    while len(values) <= config["steps"]:
        time.sleep(0.005)
        values.append(config["rate"] * values[-1] * (1 - values[-1]))  # chaotic: a step lost or repeated is seen
        records.write_atomically(state, " ".join(map(repr, values)).encode())
        if config["dies"] == "once" and len(values) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["dies"] == "always":
            print("no memory left", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
    arrays = {"values": np.array([values] * config["members"])}
    records.save(records.Record("toy.map", "smoke", config, {"last": values[-1]}, arrays), folder, claims=[])


if __name__ == "__main__":
    place = Path(sys.argv[1])
    try:
        with records.locked(place):
            main(place, json.loads(sys.argv[2]))
    except records.LockedError as error:
        print(error)
        sys.exit(2)
