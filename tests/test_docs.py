"""Every block of code in README and docs runs, and every command is one that the command line knows."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from experiments.tools import reproduce
from icl_lab.lab.command_line import parse_command_line

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").rglob("[!.]*.md")),
    *sorted(ROOT.glob("experiments/*/[A-Z]*.md")),
]  # fmt: skip
MOST_WORDS = {"README.md": 1200, "CONTRIBUTING.md": 600, "docs/running.md": 750, "docs/speed.md": 750}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(page, language):
    return [body for kind, body in BLOCK.findall(page.read_text()) if kind == language]


WITH_CODE = [page for page in PAGES if blocks(page, "python")]
COMMAND = re.compile(r"\bexperiments\.[a-z_.]*[a-z](?: +\\\n? *| +--[\w]+(?:=(?:\"[^\"]*\"|[^\s`|]+))?)*")


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_a_page_runs_from_top_to_bottom(page, monkeypatch, tmp_path):
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "python")).replace("steps=1500", "steps=75").replace("range(3)", "range(1)")
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
    assert seen > 25


def test_every_target_of_make_is_in_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page in PAGES:
        said = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
        assert set(said) <= set(targets), page


def headings(page):
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_every_link_between_pages_leads_somewhere():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for link, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
            if "://" not in link:
                target = page.parent / link if link else page
                assert target.exists(), (page, link)
                assert not place or place in headings(target), (page, link, place)


def words_of(page):
    """How many words a reader sees: comments, which name the claims of numbers, are none."""
    return len(re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.S).split())


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_page_that_many_read_is_short(name):
    assert words_of(ROOT / name) <= MOST_WORDS[name]


def test_pages_of_results_are_short_together():
    papers = ("von_oswald", "zhang_frei_bartlett", "reddy", "dai", "identification")
    assert sum(words_of(ROOT / f"experiments/{paper}/README.md") for paper in papers) <= 12_660


def test_the_index_names_every_page():
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", index.read_text())}
    assert {page for page in PAGES if "docs" in page.relative_to(ROOT).parts} - {index} <= named


OF_THE_RECORDS = {
    "one layer of linear attention": "looped_1",
    "two looped layers": "looped_2",
    "five free layers, clipped tokens": "free_5",
    "one layer, softmax, two heads": "1 layer, softmax, 2 heads",
    "one layer, LayerNorm": "1 layer, LayerNorm",
    "two free layers, LayerNorm": "2 free layers, LayerNorm",
    "one layer with MLP": "1 layer, MLP",
    "twelve free layers, four heads, MLPs, clipped tokens": "12 free layers, 4 heads, MLPs, clip",
    "Reddy's network, published size": "published setting, batch 128: ",
    "Reddy's network, small size": "small setting, batch 128: ",
}
ENDS = (", plain loop", ", fit")


def benchmark(name):
    """Milliseconds and ratio of every row of a record of training steps; those of Reddy's network by its setting."""
    tables = json.loads((ROOT / f"figures/{name}.json").read_text())["tables"]
    titled = {title: rows for title, rows in tables.items() if title.startswith("training step")}
    setting = {title: title.partition("InductionNetwork, ")[2] for title in titled}
    below = {title: f"{words}: " if words else "" for title, words in setting.items()}
    return {below[title] + row["name"]: row for title, rows in titled.items() for row in rows}


def test_speeds_of_the_table_are_of_the_records():
    rows = re.findall(r"^\| (.+?) \| \d+ \|(.+)\|$", (ROOT / "docs/speed.md").read_text(), re.M)
    assert dict(rows).keys() == OF_THE_RECORDS.keys()
    here, narrow = benchmark("benchmark-steps"), benchmark("benchmark-steps-avx2")
    for network, cells in rows:
        name = OF_THE_RECORDS[network]
        plain, fit = (name + one for one in (("plain loop", "ours in fit") if name.endswith(": ") else ENDS))
        ours, ratio = here[fit], narrow.get(fit, {}).get("ratio")
        found = here[plain]["milliseconds"], ours["milliseconds"], ours["ratio"], ratio
        for printed, number in zip(cells.split("|"), found, strict=True):
            decimals = len(printed.strip().partition(".")[2])
            right = not printed.strip() if number is None else round(number, decimals) == float(printed)
            assert right, (network, printed)
