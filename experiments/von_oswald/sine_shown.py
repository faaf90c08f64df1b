"""What ``sine`` claims and shows: functions of its record."""

from typing import Any

import numpy as np

from experiments.statistics import last, of_record, ratio, settled
from experiments.von_oswald import sine as binary
from experiments.von_oswald.panels import network_label
from icl_lab.claims import NOT_REACHED, Quick
from icl_lab.lab import Claim, Record, claims_of, style
from icl_lab.lab.style import Axes, Figure

LOOKS = {
    "trained": dict(style.LEARNERS["trained"], marker=""),
    "control": dict(style.LEARNERS["gd"], marker="", label="features + GD"),
}


READ_OFF = {"loss": "loss below 0.001", "same_loss": "losses equal", "cosine": "cosine near 1"}
"""The published figure, which is of dependent amplitude and phase."""


@of_record
def _initial(record: Record, name: str) -> np.ndarray:
    """(1,) of the task and the networks shown: rms difference of the functions before attention, over the task's."""
    trained, control = (binary.ANSWER(record, pair=name, which=which, when="before") for which in LOOKS)
    return np.sqrt([((trained - control) ** 2).mean() / (binary.TASK(record, pair=name) ** 2).mean()])


claim = claims_of("von_oswald.sine", presets=("lab",))


def _of_law(phase: str) -> tuple[Claim, ...]:
    """The claims of Fig. 4 on one distribution of the tasks: the figure's is dependent, the text's independent."""
    name = binary.pair(phase, 1)
    trained, control = (binary.FINAL.at(pair=name, which=which) for which in LOOKS)
    figure = {"where": f"von Oswald et al. 2022, Fig. 4 (amplitude and phase {phase})"}
    shown = {name: (words, "Fig. 4") for name, words in READ_OFF.items() if phase == "dependent"}
    losses = (binary.CURVE.at(pair=name, metric=metric) for metric in ("trained_loss", "control_loss"))
    ends: dict[str, Any] = {"at_lab": NOT_REACHED, "criterion": settled(*losses)}  # after 20,000 steps of 128 tasks
    same = Quick(0.0, "an identity, to the same rounding", identity=True)
    identity: dict[str, Any] = {"kind": "identity", "quick": same}
    return (
        claim(
            f"{phase}_loss", "The network trained whole learns sines in context (loss).", trained, at_most=0.001,
            published=shown.get("loss"),
            **figure, **ends, reason="where the published curves end, on an axis to .006",
        ),
        claim(
            f"{phase}_same_loss",
            "The network trained whole is as good as meta-learned features with one step (difference of losses).",
            lambda record: trained(record) - control(record), near=0.0, tolerance=0.0005, **figure, **ends,
            published=shown.get("same_loss"), reason="about a line's width on the figure's axis to .006",
        ),
        claim(
            f"{phase}_cosine",
            "The two agree on the sign of d prediction / d query (mean of the cosine, which is 1 or -1).",
            last(binary.CURVE.at(pair=name, metric="control_sensitivity_cosine")), at_least=0.9, **figure, **ends,
            published=shown.get("cosine"), reason="near 1 on the figure's axis from .5 to 1.1",
        ),
        claim(
            f"{phase}_prediction_difference",
            "Both networks predict nearly the same: they differ by a tenth of the root mean square target, .22, at "
            "most.",
            last(binary.CURVE.at(pair=name, metric="control_prediction_difference")), at_most=0.022, **figure, **ends,
            reason="a tenth of what there is to predict; the figure's axis ends at .08",
            headline=3 if phase == "dependent" else 0,
        ),
        claim(
            f"{phase}_initial",
            "The two have almost the same initial function, before attention (first members, the task of the figure: "
            "root mean square of the difference over that of the task).",
            _initial(name), at_most=0.1, interval="exact", **figure, **ends,
            reason="a line's width beside the task's height",
        ),
        claim(
            f"{phase}_values",
            "The network trained whole is another kernel machine: the values that it smooths are not the labels "
            "(squared correlation, median; 1 in Prop. 2).",
            binary.VALUE_R2.at(pair=name), at_most=0.9, interval="median",
            where="this lab, on von Oswald et al. 2022, Prop. 2",
            reason="a tenth of the variance is more than rounding or noise leaves",
        ),
        claim(
            f"{phase}_kernel",
            "One layer after the meta-learned features is kernel smoothing with k(x, x') = m(x).m(x') (relative "
            "root mean square error).",
            lambda record: binary.FUNCTIONAL_ERROR(record, pair=name)[:, 0], at_most=1e-5,
            where="von Oswald et al. 2022, Prop. 2", headline=1, **identity,
            reason="an identity: float32 rounding of sums of forty products",
        )
        if phase == "independent"
        else claim(
            f"{phase}_functional",
            "Up to four attention layers after the meta-learned features, with no MLP between, are as many "
            "steps of functional gradient descent (largest relative root mean square error).",
            lambda record: binary.FUNCTIONAL_ERROR(record, pair=name).max(axis=1), at_most=1e-4,
            where="von Oswald et al. 2022, A.8", headline=2, **identity,
            reason="an identity; each step rounds the residuals of the one before",
        ),
    )  # fmt: skip


_TRAINED = [binary.CURVE.at(pair=binary.pair(one, 1), metric="trained_loss") for one in ("dependent", "independent")]

CLAIMS = (
    *_of_law("dependent"),
    *_of_law("independent"),
    claim(
        "one_number",
        "The released code's tasks are easier: their loss is at most half of the others' (ratio, median).",
        ratio(*(binary.FINAL.at(pair=binary.pair(one, 1), which="trained") for one in ("dependent", "independent"))),
        at_most=0.5, where="this lab", interval="median", reason="a family of one parameter against one of two",
        at_lab=NOT_REACHED, criterion=settled(*_TRAINED),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One row for each distribution and depth: a task, losses, agreement, the kernel."""
    pairs, steps = list(zip(record.config["laws"], record.config["layers"])), binary.STEPS(record)
    figure, axes = style.panels(4, len(pairs))
    for row, (phase, layers) in zip(axes, pairs):
        name = binary.pair(phase, layers)
        curves, grid, task, x, y = (
            one(record, pair=name) for one in (binary.CURVE, binary.GRID, binary.TASK, binary.X, binary.Y)
        )
        losses = {"trained": curves["trained_loss"], "control": curves["control_loss"]}
        row[0].plot(grid[:, 0], task[:, 0], color="0.3", linestyle=":", label="task")
        row[0].plot(x[:, 0], y[:, 0], "k.", label="context")
        for which, look in LOOKS.items():
            answer = binary.ANSWER(record, pair=name, which=which)
            row[0].plot(grid[:, 0], answer["after"][:, 0], **look)
            gaps = {"label": f"{look['label']}, at the start", "linestyle": (0, (4, 3 if which == "trained" else 1))}
            row[0].plot(grid[:, 0], answer["before"][:, 0], **look | gaps | {"linewidth": 0.7})
            style.band(row[1], steps, losses[which], **look)
        row[0].set_title(f"{phase} phase, {network_label(f'looped_{layers}')}")
        row[1].set_title("loss")
        row[0].set(xlabel="input", ylabel="prediction", ylim=(-0.85, 1.2))
        row[1].set(yscale="log", xlabel="training step", ylabel="loss")
        style.band(row[2], steps, curves["control_sensitivity_cosine"], "trained", share=0.5, label=None)
        row[2].set(title="trained against features + GD", xlabel="training step", ylim=(-0.05, 1.05))
        row[2].set_ylabel("cosine of the sensitivities")
        if layers == 1:
            _kernel_panel(row[3], record, name)
        else:
            row[3].set_visible(False)
        row[0].legend(ncols=2, loc="upper center")
        row[1].legend()
    return {"sine": figure}


def _kernel_panel(axes: Axes, record: Record, name: str) -> None:
    """Kernels at the middle query, each scaled to a largest size of 1, with the sign that makes k(q, q) positive."""
    grid, queries = binary.GRID(record, pair=name)[:, 0], binary.QUERIES(record, pair=name)[:, 0]
    i = len(queries) // 2
    at = np.abs(grid - queries[i]).argmin()
    for which, look in LOOKS.items():
        kernel = binary.KERNEL(record, pair=name, which=which)[i]
        axes.plot(grid, kernel / np.abs(kernel).max() * np.sign(kernel[at]), **look)
    axes.axvline(queries[i], color="0.6", linewidth=0.7)
    axes.set(title=f"kernel at the query {queries[i]:g}", xlabel="input of the context token", ylabel="kernel (scaled)")
    axes.legend()
