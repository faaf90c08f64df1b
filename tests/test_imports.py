import os
import subprocess
import sys

ONLY_WHERE_USED = ("diffrax", "equinox", "matplotlib", "optimistix", "orbax", "scipy.integrate", "scipy.optimize")
ONLY_WHERE_USED += ("scipy.stats", "submitit", "tokenizers", "xarray")
LISTING = """
import sys
from experiments.binaries import discover
print(len(discover()), *sys.modules)
"""


def test_no_binary_computes_or_imports_what_only_drawing_or_solving_needs():
    """Runs are forked from a process that has imported all: what has computed with JAX must not be forked."""
    nowhere = os.environ | {"JAX_PLATFORMS": "nowhere"}
    listed = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True, env=nowhere)
    found = listed.stdout.split()
    assert int(found[0]) >= 37  # all were imported
    assert "jax" in found
    assert not set(ONLY_WHERE_USED) & set(found)
