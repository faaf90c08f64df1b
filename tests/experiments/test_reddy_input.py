"""What the item-label binaries refuse before they start: the flag is named, with what is allowed."""

import pytest

from experiments.binaries import discover
from icl_lab.lab import command_line

BINARIES = discover()
TRAINING = ("transition", "data_dependence", "reduced_model", "mixtures", "label_count", "clamping", "curriculum")
"""At smoke: N = 2, L = 4, K = 8, P = 6, B = 1, steps=4, measure_every=2."""

EVERYWHERE = [
    (["--burstiness=3"], "--burstiness=3: allowed is 0 or a divisor of N = 2 below it: [1]"),
    (["--burstiness=2"], "--burstiness=2: allowed is 0 or a divisor of N = 2 below it: [1]"),
    (["--slots=4"], "--slots=4: allowed is at least 2N + 1 = 5"),
    (["--exponent=1"], "--exponent=1: allowed is 0 with --distinct_labels"),
    (["--measure_every=3"], "steps=4: allowed is a multiple of --measure_every=3"),
]
UNLESS_REPLACED = [
    (
        ["--context_length=8", "--slots=17"],
        "=1: 8 different labels in a context, but --labels=4; allowed is N/B at most L",
    ),
    (["--labels=3"], ": allowed is a multiple of --labels=3"),
    (["--classes=9"], "--classes=9: allowed is a multiple of --"),
]
REPLACED = {"label_count": UNLESS_REPLACED[:2], "data_dependence": UNLESS_REPLACED[2:]}
"""What a grid stands for is free."""
FREE = REPLACED | {"label_count": UNLESS_REPLACED}
"""And where every L takes its own multiple nearest to K."""

OWN = [
    ("transition", ["--trained_classes=9"], "--trained_classes=9: allowed is a multiple of --labels=4"),
    ("transition", ["--trained_burstiness=2"], "--trained_burstiness=2: allowed is 0 or a divisor of N = 2"),
    ("data_dependence", ["--class_grid=4,9"], "--class_grid=9: allowed is a multiple of --labels=4"),
    ("data_dependence", ["--spread_classes=9"], "--spread_classes=9: allowed is a multiple of --labels=4"),
    ("data_dependence", ["--exponent_classes=9"], "--exponent_classes=9: allowed is a multiple of --labels=4"),
    ("data_dependence", ["--reduced_steps=5"], "--reduced_steps=5: allowed is a multiple of --measure_every=2"),
    ("data_dependence", ["--models=network", "--steps=5"], "--steps=5: allowed is a multiple of --measure_every=2"),
    ("data_dependence", ["--burstiness_grid=0,2"], "--burstiness_grid=2: allowed is 0 or a divisor of N = 2"),
    (
        "data_dependence",
        ["--burstiness_grid=2,1", "--labels=2", "--context_length=4", "--slots=9"],
        "--burstiness_grid=1: 4 different labels in a context, but --labels=2",
    ),
    (
        "data_dependence",
        ["--only=reduced_spread", "--context_length=8", "--slots=17"],
        "--burstiness=1: 8 different labels in a context",
    ),
    ("reduced_model", ["--equal_steps=3"], "--equal_steps=3: allowed is a multiple of --measure_every=2"),
    ("reduced_model", ["--equal_classes=6"], "--equal_classes=6: allowed is a multiple of --more_labels=4"),
    ("reduced_model", ["--more_labels=3"], "--equal_classes=8: allowed is a multiple of --more_labels=3"),
    ("transition", ["--labels=129"], "--labels=129: allowed is whole number >= 2 and <= 128"),
    ("label_count", ["--lengths=4"], "--label_counts=2: allowed is at least N, --lengths=4"),
    ("label_count", ["--label_steps=3"], "--label_steps=3: allowed is a multiple of --measure_every=2"),
    ("label_count", ["--label_counts=2,3"], "--label_counts: allowed are as many values as --lengths has, 1"),
    ("mixtures", ["--measure_every=4"], "--steps=4: allowed is at least 2 * --measure_every=4"),
    ("clamping", ["--hold=3"], "--hold=3: allowed is a multiple of --measure_every=2 below --steps=4"),
    ("clamping", ["--hold=4"], "--hold=4: allowed is a multiple of --measure_every=2 below --steps=4"),
    ("curriculum", ["--nodistinct_labels"], "--nodistinct_labels: allowed is --distinct_labels"),
    ("curriculum", ["--bursty_share=0.5"], "--bursty_share=0.5: allowed is 1"),
    ("curriculum", ["--burstiness=0"], "--burstiness=0: allowed is at least 1"),
    (
        "curriculum",
        ["--context_length=4", "--slots=9", "--burstiness=2", "--lengths=2,4"],
        "--lengths=2,4: allowed is at most --context_length=4, with --burstiness=2 a divisor of N below it",
    ),
]

REFUSALS = OWN + [
    (name, words, message)
    for name in TRAINING
    for words, message in EVERYWHERE + UNLESS_REPLACED
    if (words, message) not in FREE.get(name, [])
]


@pytest.mark.parametrize(("binary", "words", "message"), REFUSALS)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, binary, words, message):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(BINARIES[f"reddy.{binary}"], ["binary", "--preset=smoke", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("binary", "words"),
    [(name, words) for name, replaced in REPLACED.items() for words, _ in replaced]
    + [("mixtures", ["--bursty_share=2", "--novel_share=-1"])],
)
def test_a_flag_that_a_grid_replaces_is_not_checked(binary, words):
    chosen = BINARIES[f"reddy.{binary}"]
    command_line.parse_command_line(chosen, ["binary", "--preset=smoke", *words])
    unused = {word[2:].split("=")[0] for word in words} - {"slots"}
    assert all(f"--{name}: not used: " in command_line.help_text(chosen) for name in unused)
