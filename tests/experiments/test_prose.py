"""What pages print as ``estimate [low, high]`` is in the committed records."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.reddy.interventions import remaining
from icl_lab.lab import records
from icl_lab.lab.claims import t_interval, wilson_interval

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("experiments/*/README.md"))]
NUMBER = r"[-−+]?(?:\d+\.?\d*|\.\d+)"
PRINTED = re.compile(rf"({NUMBER}) \[({NUMBER}),\s({NUMBER})\]")


def of_claims():
    """Every estimate with its interval that a record was judged by."""
    for path in ROOT.glob("figures/*/*/*/record.json"):
        for row in json.loads(path.read_text())["claims"]:
            if row["estimate"] is not None and None not in row["interval"]:
                yield row["estimate"], *row["interval"]


def of_no_claim():
    """What pages say beside it: at another setting, and of a claim that is gone."""
    longer = records.load(ROOT / "figures/reddy/interventions/lab-n8-14000-steps")
    for condition in sorted({name.split("/")[1] for name in longer.arrays if name.endswith("/ic")}):
        mean, interval = t_interval(remaining(8, condition)(longer))
        yield mean, *interval
    share, interval = wilson_interval(np.array([1.0, 1.0, 1.0, 0.0, 0.0]))  # momentum_language_model: three of five
    yield share, *interval


def printed(text):
    """Every ``estimate [low, high]`` as words; tables of what claims said before are left out."""
    before, _, corrections = text.partition("\n## Corrections")
    kept = [line for line in corrections.splitlines() if not line.startswith("|")]
    return [found.groups() for found in PRINTED.finditer("\n".join([before, *kept]))]


def says(words, number):
    decimals = len(words.partition(".")[2])
    return abs(float(words.replace("−", "-")) - number) <= 0.5 * 10.0**-decimals + 1e-9


@pytest.fixture(scope="module")
def known():
    found = [*of_claims(), *of_no_claim()]
    return found + [(-estimate, -high, -low) for estimate, low, high in found]  # "less by" what a claim has as a gain


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_estimate_with_an_interval_is_of_a_record(page, known):
    unknown = [
        f"{words[0]} [{words[1]}, {words[2]}]"
        for words in printed(page.read_text())
        if not any(all(map(says, words, of_record)) for of_record in known)
    ]
    assert not unknown


def test_such_numbers_are_found_where_pages_have_them():
    assert sum(len(printed(page.read_text())) for page in PAGES) > 60
    assert printed("grows by .12 [.03,\n.20] more\n\n## Corrections\n| old | .5 [.4, .6] |") == [(".12", ".03", ".20")]
