"""Binaries in processes that compute otherwise: in float64, or with narrower vectors, for which XLA has other code."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import COMPILED

BINARIES = ("identification.planted", "von_oswald.curvature", "von_oswald.logistic")
"""Two that need the wider tolerances (a difference of predictions, minimisers), and one that trains without them."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of other machines are of one width")
def test_anchors_and_judged_numbers_hold_with_narrower_vectors():
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # beyond what numpy asks for anyway
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=SSE4_2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "OPENBLAS_CORETYPE": "Nehalem",
    }
    here = Path(__file__).parent
    files = [os.fspath(here / name) for name in ("test_binaries.py", "test_committed_records.py")]
    wanted = " or ".join(["judge_as_committed", "anchors_are_compared", *(f"claims[{name}]" for name in BINARIES)])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *files, "-k", wanted]
    done = subprocess.run(command, cwd=here.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > len(BINARIES)


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
