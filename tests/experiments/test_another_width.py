"""Anchors and judged numbers on a processor with narrower vectors: XLA, numpy and BLAS run other code in a child."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
