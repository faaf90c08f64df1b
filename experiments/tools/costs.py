"""What every binary takes, and what the preset quick judges of it: ``figures/costs.md``, written by the gallery."""

import json
from collections.abc import Mapping
from pathlib import Path

from icl_lab.lab.claims import HOLDS, IDENTITY, Claim
from icl_lab.lab.experiment import Experiment

ABOUT = """\
# What runs take, and what the preset quick judges

All times are in seconds. Those of `quick` were measured on one core, one run after the other (`figures/seconds.json`);
an empty cell was not measured. Those of records are from their provenance: the cores, one or two, were often busy, so
they are upper bounds. *Judged at quick* lists headline claims, the most important first. A verdict stands beside a
claim that is not expected to hold at quick. Only an error in the code could make an `(identity)` fail. A binary without
such a claim is judged at lab only: quick is too short for it, or has too few networks."""


def page(binaries: Mapping[str, Experiment], gallery: Path) -> str:
    """The page, in Markdown: a line for every binary, in the order of its name."""
    listed = gallery / "seconds.json"
    quick = json.loads(listed.read_bytes())["quick"] if listed.exists() else {}
    lines = ["| binary | quick | lab | other records | judged at quick |", "|---|---|---|---|---|"]
    for name, experiment in sorted(binaries.items()):
        taken = _records(gallery.joinpath(*name.split(".")))
        lab, at_quick = taken.pop("lab", "not run"), f"{quick[name]:.0f}" if name in quick else ""
        others = ", ".join(f"{label}: {seconds}" for label, seconds in taken.items())
        lines.append(f"| `{name}` | {at_quick} | {lab} | {others} | {_judged(experiment)} |")
    return "\n".join([ABOUT, "", *lines, ""])


def _records(folder: Path) -> dict[str, str]:
    """Seconds of a binary's records by the name of their folder."""
    origins = {path.parent.name: json.loads(path.read_bytes()) for path in sorted(folder.glob("*/provenance.json"))}
    return {label: f"{origin['seconds']:,.0f}" for label, origin in origins.items() if origin.get("seconds")}


def _judged(experiment: Experiment) -> str:
    by_id = {claim.id: claim for claim in experiment.claims}
    return ", ".join(_claim(claim) for name in experiment.headlines if (claim := by_id[name]).quick) or "–"


def _claim(claim: Claim) -> str:
    assert claim.quick is not None
    name = f"`{claim.id.split('.', 2)[2]}`" + " (identity)" * (claim.kind == IDENTITY)
    return name if claim.quick.verdict == HOLDS else f"{name}: {claim.quick.verdict}"
