"""What ``linear_functions`` claims and shows: functions of its record. Errors are over that of predicting zero."""

from typing import Any

import numpy as np

from experiments.garg.linear_functions import ERROR, IDENTIFIED, LOSS, PLANTED, STEPS, TASKS
from experiments.panels import described
from experiments.statistics import Statistic, of_record, settled
from icl_lab.claims import NOT_REACHED
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import LEARNERS as LOOK
from icl_lab.lab.style import Figure, band, panels

SHOWN: dict[str, dict[str, Any]] = {
    "least_squares": {"color": "#000000", "linestyle": (0, (1, 1)), "label": "least squares"},
    "ridge": {"color": "#009E73", "linestyle": "-.", "label": "ridge, strength 0.5"},
    "averaging": {"color": "#D55E00", "linestyle": "--", "label": "averaging"},
    "neighbours": {"color": "#CC79A7", "linestyle": ":", "label": "3 nearest neighbours"},
    "lasso": {"color": "#E69F00", "linestyle": (0, (5, 1)), "label": "lasso, strength 0.01"},
    "other": {"color": "#777777", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "label": "trained on the other tasks"},
    "trained": {key: LOOK["trained"][key] for key in ("color", "linestyle")} | {"label": "trained"},
}


def error(tasks: str, learner: str, times: int) -> Statistic:
    """(M,) error after so many times D examples."""
    return lambda record: ERROR(record, tasks=tasks, learner=learner)[:, times * record.config["input_size"]]


@of_record
def few(record: Record, tasks: str, learner: str, reference: str) -> np.ndarray:
    """(M,) error less that of a reference on the same tasks, mean over 1 <= k < D examples."""
    one, other = (ERROR(record, tasks=tasks, learner=name) for name in (learner, reference))
    return (one - other)[:, 1 : record.config["input_size"]].mean(1)


claim = claims_of("garg.linear_functions", "Garg et al. 2022, ", presets=())
_DENSE: dict[str, Any] = {"criterion": settled(LOSS.at(tasks="dense")), "where": "Fig. 2", "at_lab": NOT_REACHED}
_SPARSE: dict[str, Any] = {"criterion": settled(LOSS.at(tasks="sparse")), "where": "Fig. 5a", "at_lab": NOT_REACHED}
"""In a record of 10,000 steps, a fiftieth of the published ones, the losses still fell by 3.3 % and 5.0 %."""
_LINES: dict[str, Any] = {
    "tolerance": 0.05,
    "reason": "the published curves lie on one another; a twentieth of the axis is what their lines hide",
}

CLAIMS = (
    claim(
        "few_examples",
        "Below D examples the error is that of least squares (difference, mean over 1 <= k < D; control: the network "
        "of sparse tasks).",
        few("dense", "trained", "least_squares"), near=0.0, **_LINES, **_DENSE, headline=1,
        control=few("dense", "other", "least_squares"),
    ),
    claim(
        "many_examples",
        "After 2D examples the error is at most a twentieth of that of predicting zero; least squares has none "
        "(control: three nearest neighbours).",
        error("dense", "trained", 2), at_most=0.05, **_DENSE, headline=2, control=error("dense", "neighbours", 2),
        published=(0.0006, "at 2D examples, D = 20"),
        reason="a twentieth of the published axis, which least squares meets at D examples",
    ),
    claim(
        "sparse_below_least_squares",
        "Trained on sparse tasks, it is better than least squares below D examples (difference, mean over 1 <= k < D; "
        "control: the network of dense tasks).",
        few("sparse", "trained", "least_squares"), at_most=0.0, **_SPARSE, headline=3, reason="an ordering",
        control=few("sparse", "other", "least_squares"),
    ),
    claim(
        "sparse_as_lasso",
        "Trained on sparse tasks, it nearly reaches the lasso below D examples (difference; control: the network of "
        "dense tasks).",
        few("sparse", "trained", "lasso"), at_most=0.0, **_LINES, **_SPARSE,
        control=few("sparse", "other", "lasso"),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Errors after every number of examples; training, and how far the nearest algorithm is."""
    d = record.config["input_size"]
    wide, (row,) = panels(2, 1)
    for axes, tasks in zip(row, TASKS):
        errors = ERROR(record, tasks=tasks)
        for name, look in SHOWN.items():
            band(axes, np.arange(errors[name].shape[1]), errors[name], **look)
        axes.axvline(d, color="0.8", linewidth=0.8, zorder=0)
        axes.set_xticks(range(0, len(errors["trained"].T), d))
        axes.set(xlabel="examples k (line: D)", ylabel="relative error", ylim=(0, 1.5))
        nonzero = record.config["used_weights"] if tasks == "sparse" else d
        axes.set_title(f"{tasks}: {nonzero} of {d} weights not 0")
    row[0].legend()
    return {"errors": wide, "training": _training(record)}


def _training(record: Record) -> Figure:
    figure, (row,) = panels(2, 1)
    looks = ({"color": "#0072B2", "linestyle": "-"}, {"color": "#E69F00", "linestyle": "--"})
    for tasks, look in zip(TASKS, looks):
        band(row[0], STEPS(record), LOSS(record, tasks=tasks), label=f"{tasks} tasks", **look)
    best = ERROR(record, tasks="dense", learner="least_squares").mean()
    row[0].axhline(best, color="black", linestyle=(0, (1, 1)), label="least squares, dense")
    described(row[0], title="over training", xlabel="training step", ylabel="relative error", ylim=(0, None))
    if record.config["identified"]:
        lengths = record.config["lengths"]
        row[1].plot(lengths, IDENTIFIED(record, number="residual").T, "o", color="#0072B2", label="member")
        row[1].plot(lengths, PLANTED(record), "x", color="#009E73", label="ridge itself")
        row[1].axhline(0.05, color="black", linestyle="--", label="a name needs less")
        row[1].set_xticks(lengths)
        row[1].legend()
    row[1].set(title="the nearest algorithm", xlabel="examples", ylabel="distance", ylim=(0, None))
    return figure
