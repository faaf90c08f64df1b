"""Run by test_executors.py: a cell that saves its state at every step, and goes on from it when run again."""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path


def main(folder, config):
    state = folder / "checkpoints" / "state"
    state.parent.mkdir(parents=True, exist_ok=True)
    values = [float(word) for word in state.read_text().split()] if state.exists() else [0.5]
    print(f"from step {len(values) - 1}", flush=True)
    while len(values) <= config["steps"]:
        time.sleep(0.005)
        values.append(config["rate"] * values[-1] * (1 - values[-1]))  # chaotic: a step lost or repeated is seen
        state.with_name("new").write_text(" ".join(map(repr, values)))
        os.replace(state.with_name("new"), state)
        if config["dies"] == "once" and len(values) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["dies"] == "always":
            print("no memory left", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
    import numpy as np  # here, as they take a second, and most cells are killed before

    from icl_lab.lab.records import Record, save

    arrays, axes = {"values": np.array([values] * config["members"])}, {"values": ("member", "step")}
    save(Record("toy.map", "smoke", config, {"last": values[-1]}, arrays, axes=axes), folder, claims=[])


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with open(place / ".lock", "w") as lock:  # as records.locked
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "record.json").exists():
            main(place, json.loads(sys.argv[2]))
