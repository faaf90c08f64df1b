"""What ``logistic`` claims and shows: functions of its record."""

import math
from typing import Any

import numpy as np

from experiments.panels import described
from experiments.statistics import among, of_record, ratio
from experiments.von_oswald.logistic import AGREEMENT, COSINES, CURVE, FINAL, STEPS
from experiments.von_oswald.statistics import early, over
from icl_lab.claims import NOT_RESOLVED, Beside, NotRun, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import Axes, Figure, band, panels

NETWORKS = {"linear_1": "1 linear layer", "linear_2": "2 linear layers", "softmax_1": "1 softmax layer"}
ALGORITHMS = {
    "logistic_1": "1 logistic step",
    "logistic_2": "2 logistic steps",
    "logistic_5": "5 logistic steps",
    "squared_2": "2 GD steps",
    "gd++_2": "2 GD++ steps",
    "map": "most probable w",
}
LOOKS = {"linear_1": ("#0072B2", "-"), "linear_2": ("#D55E00", "--"), "softmax_1": ("#009E73", "-.")}
REACHED: dict[str, Any] = {"logistic_2": "--", "logistic_5": "-.", "squared_2": ":", "gd++_2": (0, (5, 1))}
"""Algorithms whose loss is shown as a line, and its dash."""
NEAREST = {"linear_1": "logistic_1", "linear_2": "gd++_2", "softmax_1": "logistic_1"}
"""The algorithm whose agreement with a network is shown over training."""


@of_record
def _cosine(record: Record, name: str, reference: str) -> np.ndarray:
    """(M,) final sensitivity cosine of a network with an algorithm."""
    if reference not in (others := record.metrics["cosines_with"]):
        raise NotRun(reference)
    return COSINES(record, network=name)[:, others.index(reference)]


@of_record
def gain(record: Record, name: str) -> np.ndarray:
    """(M,) what a network gains over predicting one half, as a share of what the best logistic step gains."""
    trained, step = (FINAL(record, learner=learner) for learner in (name, "logistic_1"))
    return (math.log(2) - trained) / (math.log(2) - step)


def uses_both_heads(record: Record) -> np.ndarray:
    """(M,) whether the loss of the softmax layer is below 1.1 times that of one logistic step."""
    return over(FINAL, "softmax_1", "logistic_1")(record) < 1.1


def _both_heads_early(record: Record) -> np.ndarray:
    """(M,) 1 for members whose loss is below that bound after a fortieth of the steps."""
    curves = (CURVE.at(network="softmax_1", metric=metric) for metric in ("loss", "logistic_1_loss"))
    return (early(ratio(*curves), 0.025)(record) < 1.1).astype(float)


@of_record
def _rate(record: Record, algorithm: str) -> np.ndarray:
    """(M,) the rate read off one linear layer over that of the first step of an algorithm."""
    if algorithm not in (tuned := record.metrics["parameters"]):
        raise NotRun(algorithm)
    return CURVE(record, network="linear_1", metric="rate")[:, -1] / tuned[algorithm][0]


@of_record
def _nearer_than_logistic(record: Record, reference: str) -> np.ndarray:
    """(M,) cosine of two linear layers with an algorithm, less that with two logistic steps."""
    return _cosine("linear_2", reference)(record) - _cosine("linear_2", "logistic_2")(record)


_TWO_GROUPS: dict[str, Any] = {"interval": "median"}
"""Two linear layers end at one of two losses, four members of ten below the others."""

claim = claims_of("von_oswald.logistic", "von Oswald et al. 2022, named as future work (this lab)", presets=("lab",))

CLAIMS = (
    claim(
        "one_step_gain",
        "One linear layer gains over predicting one half what the best logistic step gains (share; control: two "
        "layers).",
        gain("linear_1"), near=1.0, tolerance=0.01, headline=1, control=gain("linear_2"),
        reason="the best layer is the best step, by convexity and symmetry; 1 % for the jitter of Adam and for rates "
        "tuned on finitely many tasks",
        quick=Quick(0.03, "4,000 steps for 20,000 and a fifth of the tuning tasks; nothing learned is 0"),
    ),
    claim(
        "one_step_cosine",
        "One linear layer has the sensitivities of one logistic step: cosine at least .99 (control: two logistic "
        "steps).",
        _cosine("linear_1", "logistic_1"), at_least=0.99, headline=2,
        reason="as above; the same bound as for looped layers in Fig. 3", control=_cosine("linear_1", "logistic_2"),
        quick=Quick(0.0, "a bound without slack at lab either"),
    ),
    claim(
        "one_step_rate",
        "The learning rate read off the layer is that of the best logistic step (ratio; control: the first of two).",
        _rate("logistic_1"), near=1.0, tolerance=0.05, control=_rate("logistic_2"),
        reason="the loss is flat there: 5 % of the rate cost less than 1 % of the gain",
    ),
    claim(
        "two_layers_loss",
        "Two linear layers reach the loss of two tuned GD++ steps on squared errors, their output scaled (ratio, "
        "median; control: one layer).",
        over(FINAL, "linear_2", "gd++_2"), near=1.0, tolerance=0.02, **_TWO_GROUPS,
        reason="2 % as for looped layers in Fig. 3", control=over(FINAL, "linear_1", "gd++_2"),
        beside=Beside(
            over(FINAL, "linear_2", "squared_2"),
            "two GD steps without the input transformation have nearly this loss too; the cosines tell them apart",
        ),
    ),
    claim(
        "two_layers_cosine",
        "Two linear layers have the sensitivities of those GD++ steps: cosine at least .99 (median; control: one "
        "logistic step).",
        _cosine("linear_2", "gd++_2"), at_least=0.99, **_TWO_GROUPS, reason="as for looped layers in Fig. 3",
        control=_cosine("linear_2", "logistic_1"),
        beside=Beside(
            _cosine("linear_2", "logistic_2"),
            "two logistic steps agree with the layers up to the bound too; which is nearer is another claim",
        ),
    ),
    claim(
        "two_layers_which",
        "Two linear layers are nearer to GD++ on squared errors than to two logistic steps (difference of the "
        "cosines, median; control: the most probable w in place of GD++).",
        _nearer_than_logistic("gd++_2"), at_least=0.0, headline=3, **_TWO_GROUPS,
        control=_nearer_than_logistic("map"),
        reason="a linear layer cannot compute the logistic residual but can transform inputs; any difference in favour",
    ),
    claim(
        "two_layers_no_worse",
        "And yet no worse than two logistic steps at their best rates (ratio of losses, median; control: one layer).",
        over(FINAL, "linear_2", "logistic_2"), at_most=1.0, tolerance=0.01, **_TWO_GROUPS,
        control=over(FINAL, "linear_1", "logistic_2"),
        reason="tuned GD++ lies below the logistic steps by half a per cent; 1 % for the jitter of Adam",
    ),
    claim(
        "softmax_above",
        "One softmax layer with two heads stays above one logistic step (ratio of losses at least 1.005, median; "
        "control: one linear layer).",
        over(FINAL, "softmax_1", "logistic_1"), at_least=1.005, interval="median",
        control=over(FINAL, "linear_1", "logistic_1"),
        reason="its heads attend by averages, which centre the inputs (see softmax); members of pilots that used both "
        "heads were 1.3 % to 1.6 % above",
    ),
    claim(
        "softmax_cosine",
        "Members that use both heads agree with it in sensitivities: cosine at least .97 (control: two logistic "
        "steps).",
        among(uses_both_heads, _cosine("softmax_1", "logistic_1")), at_least=0.97,
        reason="pilots: .982 in all four that did; the others stay at 1.2 times its loss and cosine .81",
        control=among(uses_both_heads, _cosine("softmax_1", "logistic_2")),
        beside=Beside(_cosine("softmax_1", "logistic_1"), "members that use one head are among all of them, but few"),
    ),
    claim(
        "both_heads",
        "Most members of the softmax layer use both heads at the last step (share whose loss is below 1.1 times that "
        "of one logistic step; control: after a fortieth of the steps).",
        lambda record: uses_both_heads(record).astype(float), at_least=0.5, interval="wilson", at_lab=NOT_RESOLVED,
        control=_both_heads_early, reason="most is more than half; written after the record",
    ),
    claim(
        "map_above",
        "Five logistic steps at tuned rates beat the most probable w of the true prior (ratio of losses; control: two "
        "steps).",
        over(FINAL, "logistic_5", "map"), at_most=1.0, control=over(FINAL, "logistic_2", "map"),
        reason="the most probable w is overconfident, early stopping is not; any difference in favour",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Loss and agreement over training, the rate read off, and the final cosines."""
    figure, ((loss, agreement), (rate, table)) = panels(2, 2, shape=0.57)
    _losses(loss, record)
    for name in _shown(record):
        color, dash = LOOKS[name]
        cosines = AGREEMENT(record, network=name, algorithm=NEAREST[name])[:, 1:]
        band(agreement, STEPS(record, network=name)[1:], cosines, color=color, linestyle=dash)
    agreement.set(title="agreement with the nearest algorithm", ylabel="cosine of the sensitivities", ylim=(0.7, 1.01))

    best, read_off = record.metrics["parameters"]["logistic_1"][0], CURVE(record, network="linear_1", metric="rate")
    band(rate, STEPS(record, network="linear_1"), read_off, color=LOOKS["linear_1"][0], label="read off the weights")
    rate.axhline(best, color="black", linestyle=":", label="best logistic step")
    described(rate, title="strength of one linear layer", ylabel=r"learning rate $\eta$")
    figure.legend(*loss.get_legend_handles_labels())
    for axes in (loss, agreement, rate):
        axes.set_xlabel("training step")
    _cosine_table(table, record)
    return {"logistic": figure}


def _shown(record: Record) -> list[str]:
    """The networks that were trained."""
    cosines = COSINES(record)
    return [name for name in NETWORKS if name in cosines]


def _losses(axes: Axes, record: Record) -> None:
    """Losses over training, and those that algorithms reach, relative to one logistic step on the same tasks."""
    for name in _shown(record):
        (color, dash), curves = LOOKS[name], CURVE(record, network=name)
        losses = curves["loss"] / curves["logistic_1_loss"]
        band(axes, STEPS(record, network=name), losses, color=color, linestyle=dash, label=NETWORKS[name])
    one, bayes = record.metrics["final_logistic_1"], record.metrics["bayes"]
    lines = [
        (record.metrics[f"final_{name}"], dash, ALGORITHMS[name])
        for name, dash in REACHED.items()
        if f"final_{name}" in record.metrics
    ]
    lines.append((bayes, (0, (1, 3)), "Bayes"))
    for shade, (reached, dash, label) in zip(np.linspace(0, 0.6, len(lines)), lines):
        axes.axhline(reached / one, color=str(shade), linestyle=dash, linewidth=1.0, label=label)
    axes.set_ylim(0.95 * np.fmin(bayes / one, 1.0), 1.5)  # NaN where draws were too few
    axes.set(ylabel="loss / loss of one logistic step", title="loss")


def _cosine_table(axes: Axes, record: Record) -> None:
    """Median over members of the final cosines, networks by algorithms."""
    shown = _shown(record)
    values = np.stack([np.median(COSINES(record, network=name), axis=0) for name in shown], axis=1)
    labels = [ALGORITHMS[name] for name in record.metrics["cosines_with"]]
    axes.imshow(values, cmap="Greys", vmin=0.8, vmax=1.4, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.4f}", ha="center", va="center",
                  fontweight="bold" if value == values[:, column].max() else "normal")  # fmt: skip
    axes.set_xticks(range(len(shown)), [NETWORKS[name].replace(" layer", "\nlayer") for name in shown])
    axes.set_yticks(range(len(labels)), labels)
    axes.grid(False)
    axes.set_title("final cosine, median member")
