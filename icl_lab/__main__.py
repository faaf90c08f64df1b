"""``python -m icl_lab``: what the laboratory is, two commands, and its experiments with one line each."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path
from textwrap import shorten

from icl_lab import machine

COLUMNS = 100


@machine.speaking()
def main() -> int:
    """Prints the first screen; none of the experiments is imported for it. Returns the exit status."""
    print(first_screen(_readme()))
    before, listed = "", experiments()
    for name, line in listed.items():
        paper, figure = name.split(".")
        if paper != before:
            print(f"\nexperiments.{paper}")
        print(f"  {figure:24}{shorten(line, COLUMNS - 26, placeholder=' …')}")
        before = paper
    print("\nOne of them: python -m experiments.von_oswald.one_step --preset=quick; --help explains each.")
    if message := machine.in_the_way() if listed else "error: there are no experiments beside icl_lab":
        print(message, file=sys.stderr)
    return 0 if listed else 1


def first_screen(readme: str) -> str:
    """Title, first paragraph and the commands of the README, as plain text.

    Raises:
      ValueError: if the text has no block of commands.
    """
    title, _, rest = readme.strip().partition("\n")
    commands = re.search(r"^```\w*\n(make .*?)^```", rest, re.M | re.S)
    if commands is None:
        raise ValueError("the README has no block of commands that begins with make")
    paragraph, _, _ = re.sub(r"^```.*\n?", "", rest.strip(), flags=re.M).partition(".\n\n")
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "").replace("`", "").rstrip(".")
    return "\n".join([title.lstrip("# "), "", f"{words}.", "", *(f"  {line}" for line in commands[1].splitlines())])


def experiments() -> dict[str, str]:
    """The first line of what each binary beside this package says of itself, by name; none where there is none."""
    lines = {}
    for path in sorted((Path(__file__).resolve().parents[1] / "experiments").glob("[!.]*/[!.]*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^EXPERIMENT\b.*=", text, re.M):
            first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].removesuffix(".")
            lines[f"{path.parent.name}.{path.stem}"] = re.sub(r" \([^()]*\)$", "", first)
    return lines


def _readme() -> str:
    beside = Path(__file__).resolve().parent.parent / "README.md"
    return (
        beside.read_text(encoding="utf-8") if beside.exists() else str(metadata.metadata("icl-lab").json["description"])
    )


if __name__ == "__main__":
    sys.exit(main())
