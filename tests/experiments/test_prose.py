"""What pages print as ``estimate [low, high]``, or ``estimate ± half of the interval``, is in the committed records.

With percent signs too: ``1.6 % ± 0.4 %`` may be a share of .016, or a ratio of 1.016.
"""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.dai.by_encoding import learned, network_means
from experiments.dai.common import gated
from experiments.dai.controls import PAPER
from experiments.dai.implicit_finetuning import BOTH, CARRIED, CURVE
from experiments.dai.implicit_finetuning_figures import of_row
from experiments.dai.pretrain import FINAL
from experiments.reddy.interventions import CONTROL, conditions
from experiments.reddy.interventions_shown import remaining
from experiments.tools import reproduce
from icl_lab.lab import records
from icl_lab.lab.intervals import t_interval, wilson_interval
from icl_lab.lab.options import help_text
from icl_lab.lab.report import with_zeros

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[!.]*.md")), *sorted(ROOT.glob("experiments/*/README.md"))]
NUMBER = r"([-−+]?(?:\d[\d,]*\.?\d*|\.\d+))"
PERCENT = r"(\s%)?"
WITH_ENDS = re.compile(rf"{NUMBER}{PERCENT}\s\[{NUMBER}{PERCENT},\s{NUMBER}{PERCENT}\]")
WITH_HALF = re.compile(rf"{NUMBER}{PERCENT} ± {NUMBER}{PERCENT}(?!e)")

FENCED, FIELD = re.compile(r"^```.*?^```", re.M | re.S), re.compile(r"\{[^{}]*\}")
OTHERS = ("docs/dev/*.md", "experiments/*/CORRECTIONS.md", "experiments/*/words.toml", "experiments/page/*.toml")
PROSE = [*PAGES, *(page for pattern in OTHERS for page in sorted(ROOT.glob(pattern))), ROOT / "figures/claims.md"]


def of_claims():
    """Paper, estimate and ends of the interval, of everything that a record was judged by."""
    for path in ROOT.glob("figures/*/*/*/record.json"):
        for row in json.loads(path.read_text())["claims"]:
            if row["estimate"] is not None and None not in row["interval"]:
                yield path.parts[-4], row["estimate"], *row["interval"]


def beside_the_claims_of_dai():
    """Shares that fine-tuning's change carries, by either gate; SimAOU of those that fail; the lead after one."""
    record, networks = (records.load(ROOT / f"figures/dai/{name}/lab") for name in ("implicit_finetuning", "pretrain"))
    for positions in ("rotary", "sinusoidal"):
        passing, by_pretrain = learned(record, positions), gated(FINAL(networks, positions=positions))
        for reading, measure in itertools.product(("finetuned", "finetuned_sized"), ("accuracy", "log_probability")):
            carried = CARRIED.at(positions=positions, measure=measure)
            ends = carried.at(reading=reading, place="all"), carried.at(reading="in_context", place="answer")
            share = np.divide(*(end(record).mean(1) for end in ends))
            yield from (share[passing], share[by_pretrain])
        above = network_means(of_row(record, "sim_aou", PAPER, positions) - of_row(record, "floor", PAPER, positions))
        curves = (CURVE(record, positions=positions, learner=name)[..., 1].mean(1) for name in BOTH)
        yield from (above[~passing], np.subtract(*curves)[passing])


def of_no_claim():
    """What pages say beside it: at another setting, over all cells, of a claim that is gone."""
    longer = records.load(ROOT / "figures/reddy/interventions/lab-n8-14000-steps")
    shown = [CONTROL, *conditions(longer.config["windows"])]
    flow = records.load(ROOT / "figures/zhang_frei_bartlett/gradient_flow/lab")
    drifts = (flow["drift"] / flow["drift_predicted"]).mean((1, 2))
    remains = [("reddy", remaining(8, condition)(longer)) for condition in shown]
    for paper, values in (*remains, ("zhang_frei_bartlett", drifts)):
        mean, interval = t_interval(values)
        yield paper, mean, *interval
    for values in beside_the_claims_of_dai():
        mean, interval = t_interval(values)
        yield "dai", mean, *interval
    share, interval = wilson_interval(np.array([1.0, 1.0, 1.0, 0.0, 0.0]))  # momentum_language_model: three of five
    yield "dai", share, *interval


def printed(text):
    """Pattern, numbers in words, and whether they are percentages, of every estimate."""
    found = [(pattern, one.groups()) for pattern in (WITH_ENDS, WITH_HALF) for one in pattern.finditer(text)]
    return [(pattern, groups[::2], any(groups[1::2])) for pattern, groups in found]


def says(words, number):
    decimals = len(words.partition(".")[2])
    return abs(float(words.replace("−", "-").replace(",", "")) - number) <= 0.5 * 10.0**-decimals + 1e-9


def of_a_record(pattern, words, percent, known):
    for _, estimate, low, high in known:
        for origin in (0, 1) if percent else (0,):
            numbers = (estimate - origin, low - origin, high - origin)
            numbers = numbers if pattern is WITH_ENDS else (numbers[0], (high - low) / 2)
            if all(says(word, 100 * number if percent else number) for word, number in zip(words, numbers)):
                return True
    return False


@pytest.fixture(scope="module")
def known():
    found = [*of_claims(), *of_no_claim()]
    return found + [(paper, -mean, -high, -low) for paper, mean, low, high in found]  # "less by" what is a gain there


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_estimate_with_an_interval_is_of_a_record(page, known):
    of_paper = [one for one in known if one[0] == page.parent.name] or known
    assert not [found for found in printed(page.read_text()) if not of_a_record(*found, of_paper)]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_number_in_a_sentence_begins_with_its_point(page):
    prose = FIELD.sub("{}", FENCED.sub("", page.read_text()))
    assert [line for line in prose.splitlines() if with_zeros(line) != line] == []


def test_no_number_of_a_help_begins_with_its_point():
    for binary in reproduce.discover().values():
        assert with_zeros(help_text(binary)) == help_text(binary)


def test_such_estimates_are_found_where_pages_have_them():
    assert sum(len(printed(page.read_text())) for page in PAGES) > 90
    found = printed(
        "grows by .12 [.03,\n.20], 1,663 ± 352 times, by 75 % [66 %, 81 %] and 1.6 % ± .4 %, or 0.46 % [0.30, 0.61]"
    )
    assert [words for _, words, percent in found if not percent] == [(".12", ".03", ".20"), ("1,663", "352")]
    percentages = [("75", "66", "81"), ("0.46", "0.30", "0.61"), ("1.6", ".4")]
    assert [words for _, words, percent in found if percent] == percentages


def test_a_percentage_is_a_share_or_what_a_ratio_has_beyond_one():
    found = [("paper", 1.016, 1.012, 1.02), ("paper", 0.75, 0.66, 0.81)]
    ratio, share, other = (
        printed("1.6 % ± 0.4 %")[0],
        printed("75 % [66 %, 81 %]")[0],
        printed("0.75 % [66 %, 81 %]")[0],
    )
    assert of_a_record(*ratio, found)
    assert of_a_record(*share, found)
    assert not of_a_record(*other, found)
