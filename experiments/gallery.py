"""The command ``python -m experiments.gallery``, of ``experiments.tools.gallery``."""

import sys

from icl_lab import machine

with machine.ours():
    from experiments.tools.gallery import main as main
    from experiments.tools.gallery import start

if __name__ == "__main__":
    sys.exit(start())
