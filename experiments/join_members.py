"""The command ``python -m experiments.join_members``, of ``experiments.tools.join_members``."""

import sys

from icl_lab import machine

with machine.ours():
    from experiments.tools.join_members import main as main
    from experiments.tools.join_members import start

if __name__ == "__main__":
    sys.exit(start())
