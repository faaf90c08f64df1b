"""Every block of code in README and docs runs, and every command is one that the command line knows."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from experiments.tools import reproduce
from icl_lab.lab.command_line import parse_command_line

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[!.]*.md")), *sorted(ROOT.glob("experiments/*/README.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(page, language):
    return [body for kind, body in BLOCK.findall(page.read_text()) if kind == language]


WITH_CODE = [page for page in PAGES if blocks(page, "python")]


COMMAND = re.compile(r"\bexperiments\.[a-z_.]*[a-z](?: +\\\n? *| +--[\w]+(?:=(?:\"[^\"]*\"|[^\s`|]+))?)*")


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_a_page_runs_from_top_to_bottom(page, monkeypatch, tmp_path):
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "python")).replace("steps=1500", "steps=75")  # the rest is as it is printed
    exec(compile(code, str(page), "exec"), {"__name__": "page"})


def commands():
    """(page, module, words) of every command of a binary; a name in <...> stands for something and is left out."""
    for page in PAGES:
        for found in COMMAND.findall(page.read_text()):
            module, *words = shlex.split(found.replace("\\\n", " "))
            if words and "..." not in found and "NAME" not in found:
                yield page, module, words


def test_every_command_is_one_that_the_command_line_knows(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    binaries, seen = reproduce.discover(), 0
    for page, module, words in commands():
        experiment = binaries.get(module.removeprefix("experiments."))
        if experiment is not None:
            parse_command_line(experiment, [module, *words])
        else:
            importlib.import_module(module).main([module, "--help"])
            said = capsys.readouterr().out
            for word in words:
                assert f"{word.split('=')[0]}:" in said, (page.name, module, word)
        seen += 1
    assert seen > 50


def test_every_target_of_make_is_in_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page in PAGES:
        said = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
        assert set(said) <= set(targets), page


def test_every_link_between_pages_leads_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), (page, link)
