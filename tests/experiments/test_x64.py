"""Binaries run where JAX computes in float64 from the start."""

import os
import subprocess
import sys

from conftest import COMPILED

NAMES = ("dai.layers", "dai.implicit_finetuning", "zhang_frei_bartlett.random_covariance")
"""Two that fine-tune float32 networks on what is float64 there, and one that trains."""
PROGRAM = """
import importlib, pathlib, sys
from icl_lab.lab.execution import execute
for name in sys.argv[2:]:
    binary = importlib.import_module(f"experiments.{name}").EXPERIMENT
    record = execute(binary, "smoke", binary.presets["smoke"], pathlib.Path(sys.argv[1], name)).record
    print(name, record.provenance["precision"]["x64"])
"""


def test_binaries_run_in_float64(tmp_path):
    own = {
        "JAX_ENABLE_X64": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_COMPILATION_CACHE_DIR": os.fspath(COMPILED),
        "MPLBACKEND": "agg",
    }
    command = [sys.executable, "-c", PROGRAM, os.fspath(tmp_path), *NAMES]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} True" for name in NAMES]
