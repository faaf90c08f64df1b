import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from experiments.binaries import discover

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Written in pieces, so that this file does not contain what it looks for.
HOSTS = r"\bpy" + r"pi\.|python" + r"hosted|arti" + r"factory|/sim" + r"ple/|ana" + r"conda\.org"
PATHS = r"(?<![\w.~*/-])/(?:ro" + r"ot|ho" + r"me|Us" + r"ers|wo" + r"rk|tm" + r"p)/"


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_names():
    return {normal(name) for name in re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)}


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def found_in_text(pattern, paths):
    found = []
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture, or a file deleted but not yet committed
        found += [f"{path.relative_to(ROOT)}:{i}" for i, line in enumerate(lines, 1) if re.search(pattern, line)]
    return found


def test_every_locked_requirement_has_a_hash():
    entries = re.split(r"^(?=\S)", LOCK.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked_names()) > 20
    assert all(re.match(r"[\w.-]+==\S+( ;[^\n]*?)?\s+--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_lock_names_no_place():
    assert not re.search(r"://|@ |index-url|find-links|git\+", LOCK)


def test_lock_has_every_dependency_tool_and_build_requirement():
    project = PROJECT["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"] + PROJECT["build-system"]["requires"]
    assert {normal(re.match(r"[\w.-]+", w)[0]) for w in wanted} <= locked_names()


@pytest.mark.parametrize("package", ["icl_lab", "experiments"])
def test_data_files_are_packaged(package):
    declared, folder = PROJECT["tool"]["setuptools"]["package-data"][package], ROOT / package
    data = {path for path in folder.rglob("[!.]*") if path.is_file() and path.suffix not in (".md", ".py", ".pyc")}
    assert data == {path for pattern in declared for path in folder.glob(pattern)}


def test_makefile_installs_only_with_hashes():
    makefile = (ROOT / "Makefile").read_text()
    assert "--require-hashes -r requirements.lock" in makefile
    assert "--no-deps --no-build-isolation -e ." in makefile


def test_patterns_find_what_they_are_for():
    assert re.search(HOSTS, "https://py" + "pi.org")
    assert re.search(PATHS, '"--outdir=/ho' + 'me/me/runs"')
    assert not re.search(PATHS, "figures/work/x and runs/tmp/y")


@pytest.mark.parametrize("pattern", [HOSTS, PATHS], ids=["registry hosts", "machine paths"])
def test_no_tracked_file_names_a_place(pattern):
    assert found_in_text(pattern, tracked_files()) == []


def test_the_version_is_one():
    version = PROJECT["project"]["version"]
    assert re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M) == [version]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == version


def test_what_is_called_slow_is_a_test():
    lines = (ROOT / "tests/slow.txt").read_text().splitlines()
    assert len(set(lines)) == len(lines) > 100
    for line in lines:
        file, *_, function = line.partition("[")[0].split("::")
        assert f"def {function}(" in (ROOT / file).read_text(), line
    cases = {line.partition("[")[2].removesuffix("]") for line in lines if "[" in line}
    assert cases < set(discover())


def test_workflow_and_hook_call_what_a_desk_calls():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    ours = (ROOT / ".ci/run").read_text()
    assert re.findall(r"run: (make \S+)", workflow) == re.findall(r"^make .*$", ours, re.M)
    assert all(re.search(r"TESTS[:=] ?all\b", run) for run in (workflow, ours))  # nothing slow is left out
    assert re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text()) == ["make lint"]
    (pythons,) = re.findall(r"python: \[(.*)\]", workflow)
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert re.findall(r"[\d.]+", pythons)[0] == oldest == PROJECT["tool"]["mypy"]["python_version"]
