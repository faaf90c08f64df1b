"""Every headline claim has a control: a run, or a change of its record, where the claim must not hold and does not.

A claim that fails on its own record needs no other. The ``control`` of a claim is in its committed record. For all
others the table says what is changed in the arrays of the committed record, which is then judged as at lab.
"""

import dataclasses
import functools

import numpy as np
import pytest

from experiments.binaries import GALLERY, discover
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED
from icl_lab.lab.drift import committed
from icl_lab.lab.judging import judge

BINARIES = discover()
HEADLINES = {one.id: (name, one) for name, binary in BINARIES.items() for one in binary.claims if one.headline}


@functools.cache
def at_lab(name, preset="lab"):
    """The committed record of a binary at a preset and its rows by claim; None and no rows where there is none."""
    folder = GALLERY.joinpath(*name.split("."), preset)
    if not (folder / "record.json").exists():
        return None, {}
    record, rows = committed(folder)
    return record, {row["id"]: row for row in rows}


def takes(**places):
    """An array takes the place of another: ``takes(final__trained="final/gd")``."""
    return lambda a: {to.replace("__", "/"): a[of] for to, of in places.items()}


def swapped(one, other):
    """Two arrays change places."""
    return lambda a: {one: a[other], other: a[one]}


def flipped(*names, axis=-1):
    """The order along an axis is reversed: of steps, the last measurement is the first, of an untrained network."""
    return lambda a: {name: np.flip(a[name], axis) for name in names}


def rolled(*names, axis=-1):
    """Each entry along an axis takes the place of the next one."""
    return lambda a: {name: np.roll(a[name], 1, axis) for name in names}


def at_start(name, curve):
    """The first measurement of a curve over steps, of an untrained network, in place of the last."""
    return lambda a: {name: a[curve][:, 0]}


def as_at(name, step):
    """A curve over steps that stays all the time where it is at one of them."""
    return lambda a: {name: np.repeat(a[name][:, [step]], a[name].shape[1], 1)}


def mixers(name, order):
    """The mixers of networks with momentum change places."""
    return lambda a: {name: a[name][order]}


def of_all(change, names):
    """One change in several arrays."""
    return lambda a: {to: array for name in names for to, array in change(name)(a).items()}


def momentum_untrained(a):
    """Three networks with momentum at their first step, beside trained ones of other mixers."""
    final = a["final"].copy()
    final[1:4] = a["loss"][1:4, :, :1]
    return {"final": final}


def momentum_without_context(a):
    """All networks with momentum answer without demonstrations."""
    accuracy = a["final_accuracy"].copy()
    accuracy[1:3] = accuracy[1:3, ..., :1]
    return {"final_accuracy": accuracy}


def rows_swapped(a):
    """Fine-tuning on this task and on another one change places, of rows in the order of the record."""
    rows = at_lab("dai.implicit_finetuning")[0].metrics["rows"]
    order = np.arange(len(rows))
    order[[0, rows.index("wrong_task")]] = rows.index("wrong_task"), 0
    return {"rotary/sim_aou": a["rotary/sim_aou"][:, :, order]}


def ramp(a):
    """Accuracy that rises evenly from the first step to the last."""
    share = np.linspace(0, 1, a["novel/ic"].shape[1])
    return {"novel/ic": (1 - share) * a["novel/ic"][:, :1] + share * a["novel/ic"][:, -1:]}


def forecasts_swapped(a):
    """The algorithm's forecast of the loss and that by the loss in training change places."""
    pairs = [(name, name.replace("by_algorithm", "by_loss")) for name in a if name.endswith("/by_algorithm")]
    return {to: a[of] for one, other in pairs for to, of in ((one, other), (other, one))}


def predicts_zero(_):
    """Two learners of Garg et al. that answer 0 whatever the context; least squares has its closed form."""
    size = BINARIES["garg.linear_functions"].presets["lab"].input_size
    zero, exact = np.ones((2, 3 * size + 1)), np.maximum(0, 1 - np.arange(3 * size + 1) / size)
    return {"sparse/error/trained": zero, "sparse/error/least_squares": zero * exact}


def two_steps(a):
    """Two steps of gradient descent in place of one."""
    metrics = at_lab("von_oswald.separate_tokens")[0].metrics
    return {"softmax/final/gd": a["softmax/final/gd"] * metrics["two_steps"] / metrics["closed_form"]}


def luckiest(optimizer):
    """Every member starts where that of the dense starts did which ended lowest, not at the spurious minimum."""
    place, dense = f"{optimizer}_spurious", f"{optimizer}_dense"
    return lambda a: {place: np.repeat(a[dense][[a[dense][:, -1].argmin()]], len(a[dense]), 0)}


def next_levels(a):
    """Every plateau lies at the level of one component more."""
    levels = a["levels"]
    off = np.abs(np.diff(levels))[: a["touched"].shape[1]] / (levels.max() - levels.min())
    return {"touched": np.repeat(off[None], len(a["touched"]), 0)}


DIMENSIONS = [f"dimension_{d}/ended" for d in range(2, 7)]
CHANGED = {
    "dai.dual_form.relaxed": takes(rotary__relaxed_identity="rotary/relative_error"),  # to the softmax head
    "dai.dual_form.softmax": takes(rotary__softmax_identity="rotary/relative_error"),  # of relaxed attention
    "dai.implicit_finetuning.sim_aou_over_wrong_task": rows_swapped,
    "dai.implicit_finetuning.full_batch_has_no_order": takes(
        rotary__order__full_batch__log_probability="rotary/order/sequential/log_probability"
    ),
    "dai.momentum_icl.sooner_pairs": mixers("pairs/accuracy", [1, 0, 2, 3]),
    "dai.momentum_icl.better_pairs": mixers("pairs/harder", [1, 0, 2, 3]),
    "dai.momentum_language_model.gain_whole": momentum_untrained,
    "dai.momentum_language_model.no_more_than_local_mixers": momentum_untrained,
    "dai.momentum_regression.penalty": swapped("joint/final/trained", "joint/final/without"),
    "dai.momentum_regression.floor": takes(joint__final__trained="joint/final/heavy_ball_10"),
    "dai.momentum_tasks.no_more_than_local_mixers": momentum_without_context,
    "dai.pretrain.gated_rotary": flipped("rotary/final_accuracy"),  # most demonstrations first
    "dai.pretrain.beyond_the_set_rotary": lambda a: {  # of untrained networks
        "rotary/mixture/late_accuracy": np.repeat(a["rotary/strings/late_accuracy"][:, :1], 37, 1)
    },
    "garg.linear_functions.sparse_below_least_squares": predicts_zero,
    "identification.fingerprint.one_layer": takes(looped_1__named="looped_3/named"),
    "identification.fingerprint.three_passes": takes(looped_3__named="looped_1/named"),
    "identification.planted.own_5_03": takes(outcome="published"),
    "identification.planted.outsiders_5_03": takes(outcome="published"),
    "identification.von_oswald.weight_maps_looped_1_class": takes(
        weight_maps__looped_1__equals="control/untrained/equals"
    ),
    "identification.von_oswald.weight_maps_looped_3_class": takes(
        weight_maps__looped_3__equals="control/untrained/equals"
    ),
    "identification.von_oswald.out_of_range": forecasts_swapped,
    "long_prompts.softmax_heads.opposite": lambda a: {"heads_2/rate": np.abs(a["heads_2/rate"])},
    "reddy.clamping.cla_delays": takes(cla_held__ic="control/ic"),
    "reddy.clamping.slow_phase_stays": as_at("ila1_given/cla", -1),  # CLA there from the start
    "reddy.curriculum.length": swapped("length/ic", "control/ic"),
    "reddy.data_dependence.network_flat_law": swapped("network/exponent/ic", "network/exponent/iwl"),
    "reddy.data_dependence.reduced_classes_in_context": flipped("reduced/classes/ic", "reduced/classes/ic2", axis=1),
    "reddy.data_dependence.reduced_classes_in_weights": flipped("reduced/classes/iwl", axis=1),
    "reddy.interventions.cla_necessary_4": takes(n_4__cla_held_2__ic="n_4/control/ic"),
    "reddy.interventions.answer_not_sufficient_4": takes(n_4__answer_given__ic="n_4/layer_1_missing/ic"),
    "reddy.label_count.more_labels_4": as_at("N_4/L_32/ic", 0),
    "reddy.label_count.delay_4": lambda a: {  # as the next L, at twice its pace
        "N_4/L_4/ic": a["N_4/L_5/ic"][:, np.minimum(2 * np.arange(101), 100)]
    },
    "reddy.landscape.slope_mean_field": lambda a: {"mean_field/slope_error": 1 - a["mean_field/slope_error"]},
    "reddy.landscape.escape_mean_field": rolled("mean_field/rate"),  # of other contexts
    "reddy.mixtures.in_context": flipped("ic"),
    "reddy.mixtures.novel_share": flipped("ic", axis=2),
    "reddy.mixtures.trained_share": flipped("iwl", axis=2),
    "reddy.reduced_model.solves_three": flipped("three/ic"),
    "reddy.transition.learns_novel": flipped("novel/ic"),
    "reddy.transition.abrupt_novel": ramp,
    "reddy.transition.order_cla_ila1": swapped("novel/cla", "novel/ila1"),
    "von_oswald.curvature.gamma_exact_10": takes(length_10__gamma="length_25/gamma"),
    "von_oswald.label_couplings.inputs": takes(
        shift__inputs__ablated="shift/inputs/gd++", shift__other_inputs__ablated="shift/other_inputs/gd++"
    ),
    "von_oswald.layer_norm.one_robust": swapped("looped_1/range/trained", "looped_1/range/gd"),
    "von_oswald.logistic.one_step_gain": at_start("final/linear_1", "linear_1/loss"),
    "von_oswald.logistic.two_layers_which": flipped("cosines/linear_2"),
    "von_oswald.multi_step.looped_2_beats_gd": swapped("looped_2/final/trained", "looped_2/final/gd"),
    "von_oswald.multi_step.free_5_loss": takes(free_5__final__trained="free_5/final/gd"),
    "von_oswald.noisy_labels.follows_gd": flipped("corrupted_labels/trained"),
    "von_oswald.noisy_labels.follows_gd_noise": flipped("label_noise/trained"),
    "von_oswald.noisy_labels_retrained.beats_gd": swapped("final/trained", "final/gd"),
    "von_oswald.one_step.trained_excess": at_start("final/trained", "loss"),
    "von_oswald.out_of_distribution.one_step": flipped("looped_1/targets/trained"),
    "von_oswald.phase_transitions.two_heads_sooner": swapped("heads_1/loss", "heads_2/loss"),
    "von_oswald.roll_out.up_1_trained": lambda a: {"damping_1.0/trained": a["damping_0.75/trained"]},
    "von_oswald.roll_out.level": lambda a: {"damping_0.75/trained": a["damping_0.75/trained"][:, ::-1]},
    "von_oswald.separate_tokens.one_step": two_steps,
    "von_oswald.separate_tokens.by_hand": lambda a: {
        "hand_built_difference": a["softmax/gd_prediction_difference"][:, -1]
    },
    "von_oswald.sine.dependent_prediction_difference": flipped("dependent_1/control_prediction_difference"),
    "von_oswald.sine.dependent_functional": lambda a: {
        "dependent_1/functional_error": a["dependent_1/control_prediction_difference"][:, -4:]
    },
    "von_oswald.sine.independent_kernel": lambda a: {
        "independent_1/functional_error": a["independent_1/control_prediction_difference"][:, -4:]
    },
    "von_oswald.softmax.one_head_above": takes(heads_1__final__trained="heads_1/final/gd"),
    "von_oswald.softmax.two_heads_centred": at_start("heads_2/final/gd", "heads_2/loss"),
    "von_oswald.task_sets.few_overfit": takes(tasks_128__final__trained="tasks_2048/final/trained"),
    "von_oswald.task_sets.many_loss": takes(tasks_2048__final__trained="tasks_128/final/trained"),
    "von_oswald.twelve_layers.loss": at_start("free_12/final/trained", "free_12/loss"),
    "von_oswald.twelve_layers.cosine": flipped("free_12/gd++_sensitivity_cosine"),
    "von_oswald.weight_maps.a_1": rolled("looped_1/trained/a"),  # columns
    "von_oswald.weight_maps.gamma_3": takes(looped_3__trained__b="looped_1/trained/b"),
    "zhang_frei_bartlett.dense_starts.sgd_stays": luckiest("sgd"),
    "zhang_frei_bartlett.dense_starts.adam_stays": luckiest("adam"),
    "zhang_frei_bartlett.gradient_flow.flow_limit": at_start("flow/gap", "flow/error"),
    "zhang_frei_bartlett.gradient_flow.flow_scale": flipped("flow/u"),
    "zhang_frei_bartlett.landscape.minima_attract": of_all(functools.partial(flipped, axis=2), DIMENSIONS),
    "zhang_frei_bartlett.landscape.race": of_all(functools.partial(flipped, axis=1), DIMENSIONS),
    "zhang_frei_bartlett.nonlinear_transformer.fails_9": of_all(
        lambda n: swapped(f"identity/{n}_with/error/exp_9", f"identity/{n}_with/error/exp_1"), (10, 20)
    ),
    "zhang_frei_bartlett.random_covariance.limit_1": takes(exponential__product="gamma/product"),
    "zhang_frei_bartlett.risk.matrix_identity": flipped("identity/risk", axis=1),
    "zhang_frei_bartlett.risk.best_length_identity": flipped("identity/risk", axis=1),
    "zhang_frei_bartlett.risk.context_rate": flipped("sampled/clean"),
    "zhang_frei_bartlett.shifts.limit_3": takes(isotropic__product="spectrum/product"),
    "zhang_frei_bartlett.staircase.levels": next_levels,
    "zhang_frei_bartlett.staircase.order": rolled("order"),
    "zhang_frei_bartlett.staircase.time_2": rolled("predicted_halves"),
    "zhang_frei_bartlett.theorems.beyond_bound": lambda a: {"flow/gap": a["flow/excess"][..., 0]},
    "zhang_frei_bartlett.theorems.loose": lambda a: {"flow/constant": np.nanmin(a["flow/steepness"], 1)},
    "zhang_frei_bartlett.theorems.rate": flipped("flow/excess"),
}
"""What is changed in the arrays of a committed record so that the claim must fail."""
SAME_CONTROL = {"dai.layers.sim_aou_rises": "dai.layers.sim_aou_rises_above_floor"}
"""Claims of a record without arrays: another claim whose control is the same statistic of what must not rise."""


def changed_record(name, change):
    record, _ = at_lab(name)
    return dataclasses.replace(record, arrays={**record.arrays, **change(record.arrays)})


def judged(claim, record):
    """As a claim that is expected to hold there, whatever the preset and however far training went."""
    claim = dataclasses.replace(claim, control=None, criterion=None, expected_verdict={record.preset: HOLDS})
    return judge(claim, record)


@pytest.mark.parametrize("claim", HEADLINES)
def test_a_headline_claim_does_not_hold_where_it_must_not(claim):
    name, one = HEADLINES[claim]
    row = at_lab(name)[1].get(claim)
    if row is None and (one.control or claim in CHANGED):
        pytest.skip("claims are committed before the record at lab that they judge")
    if row and row["verdict"] == FAILS:
        return
    if claim in CHANGED:
        if row["verdict"] == NOT_JUDGED:  # an estimate: another one, below its interval
            one = dataclasses.replace(one, relation=">=", expected=row["interval"][0])
        found = judged(one, changed_record(name, CHANGED[claim]))
        assert found["verdict"] == FAILS, found
    else:
        control = at_lab(name)[1].get(SAME_CONTROL.get(claim, claim), {}).get("control")
        assert control is not None, "this headline claim has no control in which it must fail"
        low, high = one.region()
        assert not low <= control <= high


def test_every_change_is_of_a_headline_claim_that_does_not_fail_by_itself():
    failing = {row["id"] for name in BINARIES for row in at_lab(name)[1].values() if row["verdict"] == FAILS}
    assert CHANGED.keys() <= HEADLINES.keys() - failing
