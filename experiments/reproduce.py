"""The command ``python -m experiments.reproduce``, of ``experiments.tools.reproduce``."""

import sys

from experiments.tools.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
