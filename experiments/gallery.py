"""Collects finished lab and paper runs into the committed gallery, and writes the ledger of claims.

    python -m experiments.gallery --runs=runs
    python -m experiments.gallery --rejudge

Taken is every run under --runs whose record can be read and whose configuration is the present lab or paper preset of
its binary (more members are welcome; of several the one with most is taken). Figures and verdicts are drawn and judged
anew from the record; nothing is trained but for its anchor. Final parameters are kept where they take less than 2 MB.
``figures/claims.json``, ``figures/claims.md`` (the same to read) and the summary in README.md are then made of all that
the gallery holds; they say which records have no anchor. --rejudge collects nothing: it judges the records that the
gallery holds by the claims as they are now.

A new record that the present sources made gets an anchor, from seven smoke runs (docs/anchors.md). Where the smoke
preset alone has changed since, the anchor is made anew by

    python -m experiments.gallery --reanchor --only=reddy.clamping

which first checks that the former smoke preset still gives the former anchor. What of the gallery the present code no
longer vouches for, a line each, is listed by

    python -m experiments.gallery --check

Exit status: 0 done, nothing stale; 1 something is stale or cannot be anchored; 2 the command line is refused.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags as absl_flags
from PIL import Image
from rich.progress import Progress

from experiments import anchoring
from experiments.reproduce import choose, discover, help_text
from experiments.staleness import PRESETS, anchored, belongs, counted, reanchor, rejudge, stale
from icl_lab.lab import anchors, flags, records, report
from icl_lab.lab import experiment as lab
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_RESOLVED
from icl_lab.lab.command_line import console_progress, use_compilation_cache
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import Record, RecordError

LARGEST_PICTURE, LARGEST_ARRAYS, LARGEST_PARAMS = 400_000, 1_000_000, 2_000_000  # bytes
BEGIN, END = "<!-- claims:begin -->", "<!-- claims:end -->"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    values = absl_flags.FlagValues()
    absl_flags.DEFINE_string("runs", "runs", "folder to look for runs in", flag_values=values)
    absl_flags.DEFINE_string("figures", "figures", "folder of the gallery", flag_values=values)
    absl_flags.DEFINE_string("readme", "README.md", "file whose summary of claims is rewritten", flag_values=values)
    absl_flags.DEFINE_boolean("check", False, "list what is stale and change nothing", flag_values=values)
    absl_flags.DEFINE_boolean("reanchor", False, "anchors of changed smoke presets anew", flag_values=values)
    absl_flags.DEFINE_list("only", [], "binaries to --check or --reanchor, comma-separated", flag_values=values)
    absl_flags.DEFINE_boolean("rejudge", False, "judge the gallery's own records anew", flag_values=values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    try:
        rest = values(list(sys.argv if argv is None else argv))[1:]
        if values.help:
            print(help_text(__doc__, values))
            return 0
        if rest:
            raise flags.FlagError(f"unexpected argument {rest[0]!r}; settings are given as --name=value")
        if values.only and not (values.check or values.reanchor):
            raise flags.FlagError(f"--only={','.join(values.only)} goes with --check or --reanchor")
        if not (values.check or values.reanchor or values.rejudge or Path(values.runs).is_dir()):
            raise flags.FlagError(f"--runs={values['runs'].value} is not a folder")
        experiments = choose(discover(), values.only)
    except (absl_flags.Error, flags.FlagError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    gallery, readme = Path(values.figures), Path(values.readme)
    if values.check or values.reanchor:
        return conclude((reanchor if values.reanchor else stale)(gallery, experiments))
    if values.rejudge:
        print("\n".join(rejudge(gallery, experiments)))
    else:
        use_compilation_cache(Path(values.runs))
        with console_progress() as progress:
            for (name, preset), record in sorted(collect(Path(values.runs), experiments).items()):
                print(f"{name} {preset}: {record.config['members']} members")
                folder = gallery.joinpath(*name.split("."), preset)
                put(experiments[name], preset, record, folder)
                if reason := anchor(experiments[name], record, folder, progress):
                    print(f"{name} {preset}: no anchor is made, {reason}")
    rows = ledger(gallery, experiments)
    gallery.mkdir(parents=True, exist_ok=True)
    records.write_atomically(gallery / "claims.json", (json.dumps(rows, indent=1) + "\n").encode())
    records.write_atomically(gallery / "claims.md", (table(rows) + "\n").encode())
    if readme.exists():
        text = readme.read_text()
        records.write_atomically(readme, with_summary(text, rows).encode())
    return 0


def anchor(experiment: Experiment, record: Record, folder: Path, progress: Progress) -> str:
    """The anchor of a record just put into the gallery; says why where it has none and none may be made.

    A record that was made again, to the same bits, by other sources than its anchor gets a new anchor too.
    """
    kept = anchoring.load(folder)
    if reason := anchoring.why_none(record):
        return "" if kept else reason
    if kept is None or kept.sources != record.provenance["sources"]:
        smoke = experiment.presets["smoke"]
        made = anchoring.make(experiment, smoke, counted(progress, experiment.name))
        anchoring.save(folder, made, flags.to_json(smoke))
    return ""


def conclude(lines: Sequence[str]) -> int:
    """Prints what is stale or refused; the exit status."""
    print("\n".join(lines) if lines else "nothing is stale")
    return 1 if lines else 0


def collect(runs: Path, experiments: Mapping[str, Experiment]) -> dict[tuple[str, str], Record]:
    """The best run of each binary and preset under a folder: the one with most members."""
    best: dict[tuple[str, str], Record] = {}
    for path in sorted(runs.rglob("record.json")):
        try:
            record = records.load(path.parent)
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        key = (record.experiment, record.preset)
        if record.preset not in PRESETS or record.experiment not in experiments:
            continue
        if not belongs(experiments[record.experiment], record.preset, record.preset, record.config):
            print(f"left out: {path.parent} is not the present {record.preset} preset", file=sys.stderr)
        elif key not in best or record.config["members"] > best[key].config["members"]:
            best[key] = record
    return best


def put(experiment: Experiment, preset: str, record: Record, folder: Path) -> None:
    """A folder of the gallery from a record: pictures, record, provenance without paths, arrays if small or needed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary) / preset
        command = [_without_path(word) for word in record.provenance.get("command", [])]
        record = dataclasses.replace(record, provenance={**record.provenance, "command": command})
        records.save(record, fresh, experiment.judged(record))
        arrays = fresh / "arrays.npz"
        if (size := arrays.stat().st_size) >= LARGEST_ARRAYS and not experiment.feeds_others:
            arrays.unlink()
            line = f"arrays.npz ({size / 1e6:.1f} MB) is not kept here; {report.command(experiment, record)} makes it"
            (fresh / "arrays.txt").write_text(line + "\n")
            print(line)
        kept = fresh / "params.npz"
        if kept.exists() and kept.stat().st_size >= LARGEST_PARAMS and not experiment.feeds_others:
            kept.unlink()
        for path in lab.draw(experiment, record, fresh):
            if path.suffix == ".png":
                shrink(path)
            else:
                path.unlink()
        keep_anchor(folder, fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def keep_anchor(folder: Path, fresh: Path) -> None:
    """Copies the anchor beside a record to a fresh copy of the same record; another record has to get its own."""
    if anchored(folder) and anchoring.identity(folder) == anchoring.identity(fresh):
        for name in anchoring.FILES:
            shutil.copy(folder / name, fresh / name)


def shrink(path: Path, largest: int = LARGEST_PICTURE) -> None:
    """Makes a PNG smaller than ``largest`` bytes: 256 colours first, then fewer pixels."""
    picture = Image.open(path).convert("RGB")
    while path.stat().st_size >= largest:
        picture.quantize(256).save(path, optimize=True)
        picture = picture.resize((picture.width * 4 // 5, picture.height * 4 // 5), Image.Resampling.LANCZOS)


def ledger(gallery: Path, experiments: Mapping[str, Experiment]) -> list[dict]:
    """The rows of every record in the gallery that still is its binary's present preset, sorted by claim and preset."""
    rows = []
    for path in sorted(gallery.glob("*/*/*/record.json")):
        content, config = json.loads(path.read_text()), json.loads((path.parent / "config.json").read_text())
        experiment = experiments.get(content["experiment"])
        preset = path.parent.name
        if experiment and preset in PRESETS and belongs(experiment, preset, content["preset"], config):
            origin = json.loads((path.parent / "provenance.json").read_text())
            vouched = {"anchored": anchored(path.parent), "commit": anchoring.commit(origin)}
            rows += [row | vouched for row in content["claims"]]
        else:
            print(f"out of date, not in the ledger: {path.parent}", file=sys.stderr)
    return sorted(rows, key=lambda row: (row["id"], row["preset"]))


def table(rows: Sequence[Mapping]) -> str:
    """Every judged claim, one line each, in Markdown."""
    head = ("claim", "expected", "estimate [95 %]", "members", "preset", "verdict", "record")
    lines = [_line(head), "|---" * len(head) + "|"]
    for row in rows:
        if row["verdict"] != NOT_JUDGED:
            claim = f"`{row['id']}`: {row['statement']}"
            words = (claim, report.expected(row), report.estimate(row), row["members"], row["preset"], row["verdict"])
            mark = "anchored" if row["anchored"] else f"not anchored, made at commit {row['commit']}"
            lines.append(_line((*words, mark)))
    return "\n".join(lines)


def with_summary(text: str, rows: Sequence[Mapping]) -> str:
    """The text with the verdicts by binary between its markers; the text as it is where it has none."""
    if BEGIN not in text or END not in text:
        return text
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    anchors_of: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["verdict"] != NOT_JUDGED:
            paper, figure, claim = row["id"].split(".", 2)
            groups.setdefault((f"{paper}.{figure}", row["preset"]), {}).setdefault(row["verdict"], []).append(claim)
            anchors_of[f"{paper}.{figure}", row["preset"]] = "yes" if row["anchored"] else f"no, `{row['commit']}`"
    lines = ["| binary | preset | hold | not resolved | fail | anchored |", "|---|---|---|---|---|---|"]
    for (binary, preset), verdicts in groups.items():
        holding, *others = (verdicts.get(verdict, []) for verdict in (HOLDS, NOT_RESOLVED, FAILS))
        named = [", ".join(f"`{claim}`" for claim in claims) for claims in others]
        lines.append(_line((f"`{binary}`", preset, len(holding), *named, anchors_of[binary, preset])))
    before, after = text.split(BEGIN)[0], text.split(END, 1)[1]
    return "\n".join([before + BEGIN, *lines, END + after])


def _line(words: Sequence[Any]) -> str:
    return "| " + " | ".join(str(word).replace("|", "\\|") for word in words) + " |"


def _without_path(word: str) -> str:
    """A command-line word whose path is taken out: a path says something about a machine, not about a number."""
    if "/" not in word:
        return word
    return f"{word.split('=')[0]}=..." if "=" in word else "..."


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = anchors.XLA_FLAGS  # before JAX starts
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
