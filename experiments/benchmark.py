"""The command ``python -m experiments.benchmark``, of ``experiments.tools.benchmark``."""

import sys

from icl_lab import machine

with machine.ours():
    from experiments.tools.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
