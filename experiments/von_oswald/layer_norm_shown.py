"""What ``layer_norm`` claims and shows: functions of its record."""

import numpy as np

from experiments.statistics import last, of_record
from experiments.von_oswald.common import chosen_of
from experiments.von_oswald.layer_norm import CURVE, FINAL, RANGE, STEPS, TARGETS, WITHOUT, Config, columns
from experiments.von_oswald.panels import cosine_panel, loss_lines, network_label, shift_panels
from experiments.von_oswald.statistics import over
from icl_lab.claims import FAILS, Beside, Quick
from icl_lab.lab import Record, claims_of, from_json
from icl_lab.lab.style import Figure, panels


@of_record
def _at_range(record: Record, network: str, learner: str, solver: str, times: float = 2.0) -> np.ndarray:
    """(M,) loss of a learner over that of a solver at the input range nearest to so many times that in training."""
    losses, ranges = RANGE(record, network=network), np.array(record.config["ranges"])
    i = int(np.abs(ranges - times * record.config["input_range"]).argmin())
    return losses[learner][:, i] / losses[solver][:, i]


claim = claims_of("von_oswald.layer_norm", "von Oswald et al. 2022, Fig. 14")

CLAIMS = (
    claim(
        "one_above",
        "One layer after a LayerNorm stays above the best GD step (ratio of losses, median; control: without it).",
        over(FINAL.at(network="looped_1"), "trained", "gd"), at_least=1.02, interval="median",
        reason="2 % is twice what a layer without it may exceed the step by (von_oswald.one_step.trained_excess)",
        control=over(FINAL.at(network="looped_1"), "without", "gd"), headline=2,
        quick=Quick(0.0, "a bound without slack at lab either; a shorter training only adds to it"),
    ),
    claim(
        "one_cosine",
        "The sensitivities of that layer differ from the step's: cosine at most .99 (median; control: without "
        "LayerNorm).",
        last(CURVE.at(network="looped_1", metric="gd_sensitivity_cosine")), at_most=0.99, interval="median",
        reason="without LayerNorm the cosine is .999 (von_oswald.one_step.cosine)",
        control=last(WITHOUT.at(network="looped_1", metric="gd_sensitivity_cosine")),
    ),
    claim(
        "two_above",
        "Two layers with a LayerNorm between them stay above tuned two-step GD++ (ratio of losses; control: two-step "
        "GD in its place).",
        over(FINAL.at(network="free_2"), "trained", "gd++"), at_least=1.02, reason="as for one layer",
        control=over(FINAL.at(network="free_2"), "trained", "gd"),
        beside=Beside(
            over(FINAL.at(network="free_2"), "without", "gd++"),
            "without LayerNorm the layers end above GD++ too where batches are small, by less",
        ),
    ),
    claim(
        "two_above_gd",
        "Two layers with LayerNorm stay above two steps of GD as well (ratio of losses; control: without).",
        over(FINAL.at(network="free_2"), "trained", "gd"), at_least=1.02, reason="as for one layer",
        published=("two layers above GD (ratio above 1)", "Fig. 14"),
        control=over(FINAL.at(network="free_2"), "without", "gd"), at_lab=FAILS, at_paper=FAILS, headline=3,
    ),
    claim(
        "one_robust",
        "At twice the training range one layer with LayerNorm loses less than the GD step (ratio, median; control: "
        "at the training range).",
        _at_range("looped_1", "trained", "gd"), at_most=1.0, reason="an ordering", interval="median",
        control=_at_range("looped_1", "trained", "gd", times=1.0), headline=1,
        beside=Beside(
            _at_range("looped_1", "without", "gd"),
            "without LayerNorm the layer is nearly the step, so this ratio is near 1 and may lie on either side",
        ),
        quick=Quick(0.0, "an ordering: a bound without slack at lab either"),
    ),
    claim(
        "two_robust",
        "At twice the range two layers lose less than tuned two-step GD++, whose loss is 10^5 (ratio, median; "
        "control: without).",
        _at_range("free_2", "trained", "gd++"), at_most=1.0, reason="an ordering", interval="median",
        control=_at_range("free_2", "without", "gd++"),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One row a network: loss and agreement with GD and GD++ over training; losses on larger inputs and targets."""
    config = from_json(Config, record.config)
    names = chosen_of(record.config)
    (training, over_steps), (shifts, over_scales) = panels(2, len(names)), panels(2, len(names))
    for (loss, agreement), shifted, name in zip(over_steps, over_scales, names):
        metrics, steps, final = (one(record, network=name) for one in (CURVE, STEPS, FINAL))
        solvers = [solver for solver in ("gd", "gd++") if solver in final]
        losses = {"gd": metrics["gd_loss"], "gd++": metrics.get("gd++_loss")}
        curves = {"trained": metrics["loss"], "without": WITHOUT(record, network=name, metric="loss")}
        curves |= {solver: losses[solver] for solver in solvers}
        loss_lines(loss, steps, curves, "loss")
        cosine_panel(agreement, steps, metrics, *solvers)
        far = {"inputs": RANGE(record, network=name), "targets": TARGETS(record, network=name)}
        shift_panels(shifted, columns(config), far)
        for axes in (loss, agreement, *shifted):
            axes.set_title(f"{network_label(name)}: {axes.get_title()}")
    return {"layer_norm": training, "shifts": shifts}
