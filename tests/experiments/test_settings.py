"""Settings that do not fit together are refused by name; that nothing is written before: tests/test_flags.py."""

import dataclasses

import pytest

from experiments.binaries import discover
from icl_lab.lab import FlagError, command_line

BINARIES = discover()


def cells(lengths, counts):
    return {"lengths": lengths, "label_counts": counts, "label_steps": (200,) * len(lengths)}


REFUSED = {
    ("correlated.effective_length", "lab"): [
        ({"lengths": (9, 20)}, "--lengths=9,20"),
        ({"correlations": (0.5, 1.5)}, "--correlations="),
        ({"steps": 7}, "--steps=7"),
    ],
    ("dai.implicit_finetuning", "smoke"): [({"text_networks": "there"}, "--text_networks.*with text among --controls")],
    ("dai.layers", "smoke"): [
        ({"rates": (0.5, 0.1)}, "--rates.*values that rise"),
        ({"positions": ("rotary", "rotary")}, "--positions.*each value once"),
    ],
    ("dai.momentum_icl", "smoke"): [
        *(({"mixers": names}, "--mixers") for names in (
            ("vanilla", "momentum_1.0"), ("vanilla", "recent_0"), ("momentum_0.5",), ("vanilla", "recent_3") * 2,
        )),
        ({"context": 12}, "--context"),
        ({"batch": 3}, "--batch"),
        ({"shown": 5}, "--shown"),
        ({"labels": 9}, "--labels"),
    ],
    ("dai.momentum_language_model", "smoke"): [
        ({"heads": 3}, "--heads"),
        ({"warm_up": 4}, "--warm_up"),
        ({"context": 10}, "--context"),
        ({"steps": 3}, "--steps"),
        ({"mixers": ("momentum_0.5",)}, "vanilla"),
    ],
    ("dai.momentum_regression", "smoke"): [
        ({"steps": 5}, "--steps"),
        ({"alternating_steps": 5}, "--alternating_steps"),
        ({"mixers": ("vanilla", "recent_1")}, "momentum_E"),
        ({"descents": (2, 2)}, "--descents"),
    ],
    ("dai.momentum_tasks", "smoke"): [
        ({"positions": ("rotary", "sinusoidal")}, "one position"),
        ({"mixers": ("vanilla", "recent_1")}, "momentum_E"),
        ({"mixers": ("momentum_0.5",)}, "vanilla"),
        ({"steps": 3}, "--steps"),
        ({"text": True}, "--text"),
    ],
    ("dai.pretrain", "lab"): [
        ({"stage_loss": (1.0,)}, "--stage_loss"),
        ({"warm_up": 1800}, "--warm_up"),
        ({"heads": 3}, "--heads"),
        ({"fewer": (10,), "members": 4}, "--fewer"),
        ({"positions": ("rotary", "rotary")}, "--positions"),
        ({"steps": 1801}, "--steps"),
        ({"most_steps": 6001}, "--most_steps"),
    ],
    ("depth.looped", "lab"): [
        ({"networks": ("looped_2", "deep_2")}, "--networks="),
        ({"networks": ("free_1",)}, "--networks=free_1"),
        ({"scales": (1.0, 0.5)}, "--scales="),
        ({"steps": 7}, "--steps=7"),
    ],
    ("depth.scaling", "lab"): [
        ({"networks": ("zeros_2", "deep_2")}, "--networks="),
        ({"networks": ("zeros_16",)}, "--input_size="),
        ({"few": 16}, "--few_depths="),
        ({"many": 64}, "--many_depths="),
        ({"steps": 7}, "--steps=7"),
        ({"tied_steps": 7}, "--tied_steps=7"),
    ],
    ("diversity.alignment", "lab"): [({"sizes": (24, 24)}, "--sizes="), ({"draws": (1,)}, "--draws")],
    ("diversity.implied_prior", "lab"): [({"examples": 8}, "--examples=8"), ({"steps": 7}, "--steps=7")],
    ("identification.in_training", "smoke"): [
        ({"steps": (7, 4, 4)}, "--steps=7,4,4"),
        ({"batches": (16,)}, "--batches"),
        ({"times": 3}, "--times=3"),
        ({"networks": ("one_layer",) * 3}, "--networks"),
    ],
    ("identification.layers", "lab"): [({"networks": ("free_5", "free_5")}, "--networks=free_5,free_5")],
    ("long_prompts.softmax_heads", "lab"): [({"heads": (1, 3)}, "--heads="), ({"steps": 7}, "--steps=7")],
    ("online.delta_rule", "lab"): [({"lengths": (40, 10)}, "--lengths=40,10"), ({"steps": 7}, "--steps=7")],
    ("reddy.clamping", "smoke"): [({"hold": 3}, "--hold"), ({"hold": 4}, "--hold")],
    ("reddy.curriculum", "smoke"): [
        ({"bursty_share": 0.5}, "--bursty_share"),
        ({"burstiness": 0}, "--burstiness"),
        ({"context_length": 4, "slots": 9, "burstiness": 2, "lengths": (2, 4)}, "--lengths"),
        ({"lengths": (1, 1)}, "--lengths=1,1 --context_length=2: allowed is levels up to"),
        ({"label_counts": (4,)}, "--label_counts has 1 values; allowed is one for each of --lengths"),
        ({"context_length": 4, "slots": 9, "lengths": (2, 4)}, "--label_counts=3,4 .*: allowed is at least N/B"),
        ({"distinct_labels": False}, "--distinct_labels=False .*: allowed is bursts of different labels"),
        ({"lengths": (3, 2)}, "--lengths=3,2: allowed is at most"),
        ({"novel_shares": (1.0, 0.5)}, "--novel_shares=1.0,0.5 --novel_share=0.8: allowed is levels up to"),
    ],
    ("reddy.data_dependence", "lab"): [
        ({"only": "spread"}, "--only=spread.*: allowed is all, or <model>_<sweep>"),
        ({"class_grid": (64, 100)}, "--class_grid=64,100: allowed is a multiple of --labels=16"),
        ({"burstiness_grid": (1, 3)}, "--burstiness_grid=1,3 .*: allowed is 0 or a divisor B of N"),
        ({"exponent_steps": 100}, "--exponent_steps=100: allowed is a multiple of"),
        ({"spread_grid": (0.1, 0.1)}, "--spread_grid=0.1,0.1: allowed is each value once"),
    ],
    ("reddy.data_dependence", "smoke"): [
        ({"spread_classes": 9}, "--spread_classes"),
        ({"exponent_classes": 9}, "--exponent_classes"),
        ({"reduced_steps": 5}, "--reduced_steps"),
        ({"models": ("network",), "steps": 5}, "--steps"),
        ({"burstiness_grid": (2, 1), "labels": 2, "context_length": 4, "slots": 9}, "--burstiness_grid"),
        ({"only": "reduced_spread", "context_length": 8, "slots": 17}, "--burstiness"),
    ],
    ("reddy.label_count", "lab"): [
        (cells((4, 32), (32, 32)), "--slots=33 --lengths=4,32: allowed is at least 2N . 1"),
        (cells((8, 8), (9, 7)), "--label_counts=9,7 --lengths=8,8: allowed is at least the N"),
        (cells((8, 8), (9, 9)), "--lengths=8,8 --label_counts=9,9: allowed is each pair of the two once"),
        ({"lengths": (2, 4)}, "--label_counts has 16 values; allowed is one for each of --lengths"),
        ({"measure_every": 300}, "--label_steps=.*20000.* --measure_every=300: allowed is multiples"),
        ({"only": "3"}, "--only=3 .*: allowed is all, or one of --lengths"),
    ],
    ("reddy.landscape", "lab"): [
        ({"labels": 8}, "labels"),
        ({"lengths": (8, 4)}, "lengths"),
        ({"scales": (0.1, 0.1)}, "scales"),
        ({"saddle_lengths": (2, 4)}, "saddle_lengths"),
        ({"factors": (1.01, 1.02)}, "factors"),
    ],
    ("reddy.mixtures", "lab"): [({"novel_shares": (0.5, 0.5)}, "--novel_shares=0.5,0.5: allowed is each value once")],
    ("reddy.mixtures", "smoke"): [({"measure_every": 4}, "--steps")],
    ("reddy.reduced_model", "smoke"): [
        ({"equal_steps": 3}, "--equal_steps"),
        ({"equal_classes": 6}, "--equal_classes"),
        ({"more_labels": 3}, "--equal_classes"),
    ],
    ("reddy.transition", "smoke"): [
        ({"trained_classes": 9}, "--trained_classes"),
        ({"trained_burstiness": 2}, "--trained_burstiness"),
        ({"labels": 129}, "--labels"),
    ],
    ("reddy.reduced_model", "lab"): [({"starts": (1.0, 0.0)}, "starts"), ({"steps": 150}, "steps")],
    ("von_oswald.curvature", "smoke"): [
        ({"lengths": (3, 3)}, "--lengths=.*: allowed is each value once"),
        ({"decay_steps": 21}, "--decay_steps.*: allowed is at most"),  # it would begin at a lower rate
    ],
    ("von_oswald.layer_norm", "smoke"): [({"networks": ("free_1", "looped_1")}, "free_1")],
    ("von_oswald.logistic", "lab"): [
        (
            {"networks": ("linear_2",), "algorithms": ("logistic_1", "logistic_2")},
            "--algorithms.*gd[+][+]_2",  # with which its network is compared
        ),
        ({"networks": ("linear_1", "linear_1")}, "--networks"),
        ({"algorithms": ("logistic_1", "logistic_1"), "networks": ("linear_1",)}, "--algorithms"),
    ],
    ("von_oswald.multi_step", "smoke"): [({"decays": (10, 10_000)}, "--decays.*: allowed is at most")],
    ("von_oswald.noisy_labels", "smoke"): [({"decay_steps": 21}, "--decay_steps.*: allowed is at most")],
    ("von_oswald.one_step", "smoke"): [
        ({"sizes": (2, 2)}, "--sizes=.*: allowed is each value once"),
        ({"onset_batches": (16, 16)}, "--onset_batches=.*: allowed is each value once"),
        ({"decay_steps": 21}, "--decay_steps.*: allowed is at most"),
    ],
    ("von_oswald.phase_transitions", "smoke"): [
        ({"set_steps": 25}, "--set_steps=25"),
        ({"heads": (1, 1)}, "--heads=1,1"),
        ({"heads": (1, 2, 3, 4)}, "--heads=1,2,3,4"),
    ],
    ("von_oswald.roll_out", "smoke"): [({"dampings": (1.0, 1.0)}, "--dampings=1.0,1.0")],
    ("von_oswald.separate_tokens", "paper"): [
        ({"position_size": 9}, "--position_size=9: allowed is an even number"),
        (
            {"positions": "one_hot", "position_size": 20},
            "--position_size=20 --context_length=10: allowed is at least 2N",
        ),
        ({"context_length": 1}, "--context_length=1: allowed is at least 2"),
        ({"steps": 501}, "multiple of --measure_every"),
    ],
    ("von_oswald.sine", "smoke"): [
        ({"layers": (1, 2, 3)}, "--layers"),
        ({"amplitudes": (0.5, 0.1)}, "--amplitudes=0.5,0.1"),
        ({"laws": ("dependent", "dependent"), "layers": (1, 1)}, "--laws"),
    ],
    ("von_oswald.softmax", "smoke"): [
        ({"heads": (2, 2)}, "--heads=2,2"),
        ({"context_length": 1}, "--context_length=1"),
        ({"input_size": 1}, "--input_size=1"),
    ],
    ("von_oswald.task_sets", "smoke"): [({"sets": (8, 8)}, "--sets=8,8")],
    ("zhang_frei_bartlett.gradient_flow", "smoke"): [
        ({"adam_steps": 21}, "--adam_steps=21: allowed is a multiple of --measurements=2"),
        ({"drift_rates": (0.03,)}, "--drift_rates=0.03: allowed is a rate of which --drift_time"),
        (
            {"drift_time": 2.0, "drift_rates": (1.0,)},
            r"--drift_rates=1: allowed are rates at which SGD of batch 16 stays at u",
        ),
        ({"quiet_starts": (0.5, 30.0)}, "--sgd_rate=0.02: allowed are rates at which SGD of batch 16 stays at u = 30"),
        ({"quiet_starts": (0.5, 0.5)}, "--quiet_starts=0.5,0.5: allowed is each value once"),
        ({"flow_time": 0.1}, "--flow_time=0.1: allowed is more than"),
    ],
    ("zhang_frei_bartlett.landscape", "paper"): [({"scales": (0.1, 0.1)}, "--scales")],
    ("zhang_frei_bartlett.nonlinear_transformer", "lab"): [
        ({"only": "30_with"}, "--only=30_with: allowed is all, 10_with"),
        ({"heads": 5}, "--heads=5"),
        ({"test_length": 39}, "--test_length=39"),
        ({"warm_up": 10_000}, "--warm_up=10000"),
        ({"positions": ("without", "reused")}, "--positions"),
    ],
    ("zhang_frei_bartlett.random_covariance", "smoke"): [
        ({"steps": 25}, "--steps=25"),
        ({"laws": ("exponential", "exponential"), "shapes": (1.0, 1.0)}, "--laws=exponential,exponential"),
        ({"laws": ("uniform",)}, "--laws=uniform"),
        ({"shapes": (1.0, 2.0)}, "--shapes has 2 values"),
        ({"test_lengths": (3, 3)}, "--test_lengths=3,3"),
        ({"scales": (1.0, 1.0)}, "--scales=1.0,1.0"),
    ],
    ("zhang_frei_bartlett.risk", "lab"): [
        ({"context_length": 7}, "context_length"),
        ({"train_lengths": (20,)}, "train_lengths"),
        ({"test_lengths": (20, 5)}, "test_lengths"),
        ({"spectrum": (1.0, 0.5)}, "spectrum"),
        ({"measure_every": 7}, "steps"),
    ],
    ("zhang_frei_bartlett.shifts", "smoke"): [
        ({"steps": 25}, "--steps=25"),
        ({"input_scales": (2.0, 0.5)}, "--input_scales=2.0,0.5"),
        ({"weight_scales": (0.5, 0.5)}, "--weight_scales=0.5,0.5"),
        ({"test_lengths": (3, 3)}, "--test_lengths=3,3"),
        ({"spectrum": (1.0,)}, "--spectrum"),
        ({"subspace_size": 3}, "--subspace_size=3"),
    ],
    ("zhang_frei_bartlett.staircase", "paper"): [
        ({"heads": 3}, "--heads"),
        ({"merged_scales": (0.1,)}, "--merged_scales"),
        ({"ranks": (9,)}, "--ranks"),
        ({"ranks": (2, 2)}, "--ranks"),
    ],
}  # fmt: skip
"""By binary and preset: what is changed in it, and what the refusal says."""
ITEM_LABEL = ("transition", "data_dependence", "reduced_model", "mixtures", "label_count", "clamping", "curriculum")
"""At smoke: N = 2, L = 4, K = 8, P = 6, B = 1, steps=4, measure_every=2."""
EVERYWHERE = {"burstiness": 3, "slots": 4, "exponent": 1.0, "measure_every": 3}
UNLESS_REPLACED = [({"context_length": 8, "slots": 17}, "--burstiness"), ({"labels": 3}, "--labels=3"),
                   ({"classes": 9}, "--classes")]  # fmt: skip
REPLACED = {"label_count": UNLESS_REPLACED[:2], "data_dependence": UNLESS_REPLACED[2:]}
"""What a grid stands for is free."""
FREE = REPLACED | {"label_count": UNLESS_REPLACED}
"""And where every L takes its own multiple nearest to K."""
for one in ITEM_LABEL:
    REFUSED.setdefault((f"reddy.{one}", "smoke"), []).extend([
        *(({name: value}, f"--{name}") for name, value in EVERYWHERE.items()), ({"burstiness": 2}, "--burstiness"),
        *(case for case in UNLESS_REPLACED if case not in FREE.get(one, [])),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "preset", "changes", "said"), [(*of, *case) for of, cases in REFUSED.items() for case in cases]
)
def test_what_does_not_fit_together_is_refused(name, preset, changes, said):
    binary = BINARIES[name]
    with pytest.raises(FlagError, match=said):
        binary.validate(dataclasses.replace(binary.presets[preset], **changes))


@pytest.mark.parametrize(
    ("name", "preset", "changes"),
    [
        ("von_oswald.logistic", "lab", {"networks": ("linear_1",), "algorithms": ("logistic_1",)}),
        ("von_oswald.separate_tokens", "paper", {"positions": "one_hot", "position_size": 21}),
    ],
)
def test_what_just_fits_is_taken(name, preset, changes):
    binary = BINARIES[name]
    binary.validate(dataclasses.replace(binary.presets[preset], **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [(name, changes) for name, replaced in REPLACED.items() for changes, _ in replaced]
    + [("mixtures", {"bursty_share": 0.5, "novel_share": 0.25})],
)
def test_a_flag_that_a_grid_replaces_is_not_checked(name, changes):
    binary = BINARIES[f"reddy.{name}"]
    binary.validate(dataclasses.replace(binary.presets["smoke"], **changes))
    assert not any(f"--{flag}:" in command_line.help_text(binary) for flag in changes.keys() - {"slots"})
