"""Writes the page of the committed records: one HTML file, without any training.

    python -m experiments.page --out=runs/page.html

Exit status: 0 written (what had to be left out is named); 2 the command line is refused, or there is no record.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags as absl_flags

from experiments.page import write_page
from experiments.reproduce import discover, help_text
from icl_lab.lab import flags
from icl_lab.lab.command_line import parse_words


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    values = absl_flags.FlagValues()
    absl_flags.DEFINE_string("records", "figures", "gallery of committed records", flag_values=values)
    absl_flags.DEFINE_string("ledger", "", "claims.json; that of the gallery where none is named", flag_values=values)
    absl_flags.DEFINE_string("out", "runs/page.html", "file to write", flag_values=values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    try:
        parse_words(values, sys.argv if argv is None else argv)
        if values.help:
            print(help_text(__doc__, values))
            return 0
        records, out = Path(values.records), Path(values.out)
        if not any(records.glob("*/*/*/record.json")):
            raise flags.FlagError(f"--records={records} holds no record; allowed is a gallery such as figures")
        out.parent.mkdir(parents=True, exist_ok=True)
        left_out = write_page(records, Path(values.ledger or records / "claims.json"), out, discover())
    except (absl_flags.Error, flags.FlagError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    print(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
