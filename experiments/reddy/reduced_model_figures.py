"""Figures of ``reduced_model``, and what they share with its claims."""

import numpy as np

from experiments import panels
from experiments.onsets import onset
from experiments.reddy.statistics import guess, onsets, solved
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid

NAMES = {"three": "three parameters", "two": r"two, $\beta_2$ = 0"}
MEASURES = {
    "ila1": ("ILA1, to the previous token", "#0072B2", "-"),
    "tila2": ("TILA2, to the right label", "#D55E00", "--"),
    "tla2": ("TLA2, to all labels", "#009E73", "-."),
    "cla": ("CLA, a label of the context", "#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "ic": ("IC accuracy", "#000000", ":"),
}
LOOKS = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", "-.", "^"), ("#CC79A7", ":", "D"))


def figures(record: Record) -> dict[str, Figure]:
    """Progress measures of both models; their losses, accuracies and path; L = N from several starts."""
    parts = [part for part in NAMES if part in record.config["only"]]
    drawn: dict[str, Figure] = {}
    if parts:
        measures, (row,) = axes_grid(len(parts), 1, width=3.8, height=3.2)
        for axes, part in zip(row, parts):
            _measures(axes, record, part)
        curves, ((loss, accuracy, path),) = axes_grid(3, 1, height=3.0)
        _loss(loss, record, parts)
        _accuracy(accuracy, record, parts)
        _path(path, record, parts)
        drawn |= {"measures": measures, "curves": curves}
    if "equal" in record.config["only"]:
        equal, ((members, when),) = axes_grid(2, 1, width=3.8, height=3.0)
        _members(members, record)
        _onsets(when, record)
        drawn["equal"] = equal
    return drawn


def equal_onset(record: Record, part: str = "equal") -> np.ndarray:
    """(starts, M) step at which each member of the part ``equal`` or ``more`` learns; infinite if never."""
    curves = record.arrays[f"{part}/ic"]
    level = solved(record.config, context_length=record.config["equal_length"])
    return np.stack([onset(members, record.arrays["equal_steps"], level) for members in curves])


def _measures(axes: Axes, record: Record, part: str) -> None:
    """Against the steps from the jump of each member, since members jump at different times."""
    steps = record.arrays["steps"]
    times = onsets(record, part)
    jumping = np.isfinite(times) if np.isfinite(times).any() else np.ones(len(times), bool)
    jumps = np.minimum(times[jumping], steps[-1])
    x = np.arange(-jumps.max(), steps[-1] - jumps.min() + 1, steps[1])
    for name, (label, color, dash) in MEASURES.items():
        curves = zip(jumps, record.arrays[f"{part}/{name}"][jumping])
        shifted = np.stack([np.interp(x, steps - at, curve, left=np.nan, right=np.nan) for at, curve in curves])
        band(axes, x, shifted, color=color, linestyle=dash, label=label)
    axes.set_xlabel("training steps from a member's jump")
    axes.locator_params(axis="x", nbins=5)  # wide labels
    axes.set_ylabel("progress measure")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(title=NAMES[part], ncols=2, **panels.ABOVE)


def _loss(axes: Axes, record: Record, parts: list[str]) -> None:
    for (color, dash, _), part in zip(LOOKS, parts):
        look = {"color": color, "linestyle": dash, "label": NAMES[part]}
        band(axes, record.arrays["steps"], record.arrays[f"{part}/ic_loss"], **look)
    for name, choices in (("log L", record.config["labels"]), ("log(N/B)", 1 / guess(record.config))):
        axes.axhline(np.log(choices), **THEORY | {"color": "black" if name == "log L" else "0.55"}, label=name)
    axes.set_xlabel("training step")
    axes.set_ylabel("loss on novel classes (nats)")
    axes.legend(ncols=2, **panels.ABOVE)


def _accuracy(axes: Axes, record: Record, parts: list[str]) -> None:
    for i, part in enumerate(parts):
        for j, (name, label) in enumerate((("ic", "IC"), ("iwl", "in weights"))):
            color, dash, _ = LOOKS[2 * j + i]
            look = {"color": color, "linestyle": dash, "label": f"{label}, {NAMES[part]}"}
            band(axes, record.arrays["steps"], record.arrays[f"{part}/{name}"], **look)
    axes.set_xlabel("training step")
    axes.set_ylabel("accuracy")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(**panels.ABOVE)


def _path(axes: Axes, record: Record, parts: list[str]) -> None:
    a, farthest = record.arrays, 1.0
    for (color, dash, _), part in zip(LOOKS, parts):
        for m, (beta_1, alpha) in enumerate(zip(a[f"{part}/beta_1"], a[f"{part}/alpha"])):
            label = None if m else NAMES[part]
            axes.plot(beta_1, alpha, color=color, linestyle=dash, linewidth=0.9, label=label)
            farthest = max(farthest, float(beta_1.max()))
    shown = a["theory_beta_1"] <= farthest
    axes.plot(a["theory_beta_1"][shown], a["theory_alpha"][shown], **THEORY, label="flow of the mean-field loss")
    axes.set_xlabel(r"$\beta_1$, to the previous token")
    axes.set_ylabel(r"$\alpha$, to the target's item")
    axes.legend(**panels.ABOVE)


def _members(axes: Axes, record: Record) -> None:
    steps, length = record.arrays["equal_steps"], record.config["equal_length"]
    for i, start in enumerate(record.config["starts"]):
        color, dash, _ = LOOKS[i % 4]
        for m, curve in enumerate(record.arrays["equal/ic"][i]):
            axes.plot(steps, curve, color=color, linestyle=dash, linewidth=0.8, label=None if m else f"start {start:g}")
    axes.axhline(guess(record.config, context_length=length), **THEORY, label="B/N")
    axes.set_xlabel("training step")
    axes.set_ylabel("IC accuracy, each member")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(title=f"L = N = {length}", ncols=2, **panels.ABOVE)


def _onsets(axes: Axes, record: Record) -> None:
    """When each member learns, over its start; those that do not, above the line of the last step."""
    last, config = record.arrays["equal_steps"][-1], record.config
    sets = [(start, times, "L = N") for start, times in zip(config["starts"], equal_onset(record))]
    if "more" in config["only"]:
        sets.append((config["starts"][0], equal_onset(record, "more")[0], f"L = {config['more_labels']}"))
    spread = (config["starts"][-1] - config["starts"][0]) / 30
    for start, times, label in sets:
        color, _, marker = LOOKS[0] if label == "L = N" else LOOKS[1]
        at = start + spread * np.linspace(-1, 1, len(times))
        never = np.isinf(times)
        shown = axes.get_legend_handles_labels()[1]
        height, name = np.where(never, 1.1 * last, times), None if label in shown else label
        axes.plot(at, height, color=color, marker=marker, linestyle="", label=name)
    axes.axhline(1.05 * last, color="0.6", linewidth=0.8)
    axes.set_xticks(config["starts"])
    axes.set_xlabel("initial value of the scalars")
    axes.set_ylabel("step of the jump")
    axes.text(0.5, 1.1 * last, "no jump", transform=axes.get_yaxis_transform(), ha="center", va="center", fontsize=8)
    axes.legend(ncols=2, **panels.ABOVE)
