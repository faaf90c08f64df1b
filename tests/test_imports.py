import subprocess
import sys

ONLY_WHERE_USED = ("diffrax", "equinox", "matplotlib", "optimistix", "orbax", "scipy.integrate", "scipy.optimize")
ONLY_WHERE_USED += ("scipy.stats", "submitit", "tokenizers", "xarray")
LISTING = """
import sys
from experiments.binaries import discover
print(len(discover()), *sys.modules)
"""


def test_no_binary_imports_what_only_drawing_or_solving_needs():
    found = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True).stdout.split()
    assert int(found[0]) >= 37  # all were imported
    assert "jax" in found
    assert not set(ONLY_WHERE_USED) & set(found)
