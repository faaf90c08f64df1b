"""The command ``python -m experiments.reproduce``, of ``experiments.tools.reproduce``."""

import sys

from icl_lab import machine

with machine.ours():
    from experiments.tools.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
