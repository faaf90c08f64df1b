"""Writes the page of the committed records: one HTML file, without any training.

    python -m experiments.page --out=runs/page.html

Exit status: 0 written (what had to be left out is named); 2 the command line is refused, or there is no record.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.binaries import discover
from experiments.page import write_page
from icl_lab.lab.command_line import command
from icl_lab.lab.constraints import holds
from icl_lab.lab.flags import setting


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of ``python -m experiments.page``."""

    records: str = setting("figures", "gallery of committed records", path=True)
    ledger: str = setting("", "claims.json; that of the gallery where none is named", path=True)
    out: str = setting("runs/page.html", "file to write", path=True)


GALLERY = holds(
    "a folder with records, as figures", "records", when=lambda o: any(Path(o.records).glob("*/*/*/record.json"))
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return command(__doc__, Options(), _write, argv, [GALLERY])


def _write(options: Options) -> int:
    records, out = Path(options.records), Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    left_out = write_page(records, Path(options.ledger or records / "claims.json"), out, discover())
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    print(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
