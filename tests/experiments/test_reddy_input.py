"""What the item-label binaries refuse before they start: the flag is named, with what is allowed."""

import pytest

from experiments.binaries import discover
from icl_lab.lab import command_line

BINARIES = discover()
TRAINING = ("transition", "data_dependence", "reduced_model", "mixtures", "label_count", "clamping", "curriculum")
"""At smoke: N = 2, L = 4, K = 8, P = 6, B = 1, steps=4, measure_every=2."""

EVERYWHERE = [
    (["--burstiness=3"], "--burstiness"),
    (["--burstiness=2"], "--burstiness"),
    (["--slots=4"], "--slots"),
    (["--exponent=1"], "--exponent"),
    (["--measure_every=3"], "--measure_every=3"),
]
UNLESS_REPLACED = [
    (
        ["--context_length=8", "--slots=17"],
        "--burstiness",
    ),
    (["--labels=3"], "--labels=3"),
    (["--classes=9"], "--classes"),
]
REPLACED = {"label_count": UNLESS_REPLACED[:2], "data_dependence": UNLESS_REPLACED[2:]}
"""What a grid stands for is free."""
FREE = REPLACED | {"label_count": UNLESS_REPLACED}
"""And where every L takes its own multiple nearest to K."""

OWN = [
    ("transition", ["--trained_classes=9"], "--trained_classes"),
    ("transition", ["--trained_burstiness=2"], "--trained_burstiness"),
    ("data_dependence", ["--class_grid=4,9"], "--class_grid"),
    ("data_dependence", ["--spread_classes=9"], "--spread_classes"),
    ("data_dependence", ["--exponent_classes=9"], "--exponent_classes"),
    ("data_dependence", ["--reduced_steps=5"], "--reduced_steps"),
    ("data_dependence", ["--models=network", "--steps=5"], "--steps"),
    ("data_dependence", ["--burstiness_grid=0,2"], "--burstiness_grid"),
    (
        "data_dependence",
        ["--burstiness_grid=2,1", "--labels=2", "--context_length=4", "--slots=9"],
        "--burstiness_grid",
    ),
    (
        "data_dependence",
        ["--only=reduced_spread", "--context_length=8", "--slots=17"],
        "--burstiness",
    ),
    ("reduced_model", ["--equal_steps=3"], "--equal_steps"),
    ("reduced_model", ["--equal_classes=6"], "--equal_classes"),
    ("reduced_model", ["--more_labels=3"], "--equal_classes"),
    ("transition", ["--labels=129"], "--labels"),
    ("label_count", ["--lengths=4"], "--label_counts"),
    ("label_count", ["--label_steps=3"], "--label_steps"),
    ("label_count", ["--label_counts=2,3"], "--label_counts"),
    ("mixtures", ["--measure_every=4"], "--steps"),
    ("clamping", ["--hold=3"], "--hold"),
    ("clamping", ["--hold=4"], "--hold"),
    ("curriculum", ["--nodistinct_labels"], "--distinct_labels"),
    ("curriculum", ["--bursty_share=0.5"], "--bursty_share"),
    ("curriculum", ["--burstiness=0"], "--burstiness"),
    (
        "curriculum",
        ["--context_length=4", "--slots=9", "--burstiness=2", "--lengths=2,4"],
        "--lengths",
    ),
]

REFUSALS = OWN + [
    (name, words, flag)
    for name in TRAINING
    for words, flag in EVERYWHERE + UNLESS_REPLACED
    if (words, flag) not in FREE.get(name, [])
]


@pytest.mark.parametrize(("binary", "words", "flag"), REFUSALS)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, binary, words, flag):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(BINARIES[f"reddy.{binary}"], ["binary", "--preset=smoke", *words]) == 2
    said = capsys.readouterr().err
    assert flag in said
    assert "allowed is" in said or "allowed are" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("binary", "words"),
    [(name, words) for name, replaced in REPLACED.items() for words, _ in replaced]
    + [("mixtures", ["--bursty_share=0.5", "--novel_share=0.25"])],
)
def test_a_flag_that_a_grid_replaces_is_not_checked(binary, words):
    chosen = BINARIES[f"reddy.{binary}"]
    command_line.parse_command_line(chosen, ["binary", "--preset=smoke", *words])
    unused = {word[2:].split("=")[0] for word in words} - {"slots"}
    assert not any(f"--{name}:" in command_line.help_text(chosen) for name in unused)
