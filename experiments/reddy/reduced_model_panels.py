"""Panels of ``reduced_model``, and what they share with its claims."""

import numpy as np

from experiments import panels
from experiments.onsets import onset
from experiments.reddy.reduced_model import CURVE, EQUAL_STEPS, FROM, STEPS, THEORY_PATH
from experiments.reddy.statistics import guess, onset_times, solved
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, band

NAMES = {"three": "three parameters", "two": r"two, $\beta_2$ = 0"}
MEASURES = {
    "ila1": ("ILA1, to the previous token", "#0072B2", "-"),
    "tila2": ("TILA2, to the right label", "#D55E00", "--"),
    "tla2": ("TLA2, to all labels", "#009E73", "-."),
    "cla": ("CLA, a label of the context", "#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "ic": ("in-context accuracy", "#000000", ":"),
}
LOOKS = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", "-.", "^"), ("#CC79A7", ":", "D"))


def onsets(record: Record, part: str) -> np.ndarray:
    """(M,) onset of the in-context accuracy; infinite if never."""
    return onset_times(CURVE(record, part=part, metric="ic"), STEPS(record), record.config)


def equal_onset(record: Record, part: str = "equal") -> np.ndarray:
    """(starts, M) step at which each member of the part ``equal`` or ``more`` learns; infinite if never."""
    return onset(FROM[part](record, metric="ic"), EQUAL_STEPS(record), equal_level(record))


def equal_level(record: Record) -> float:
    """In-context accuracy of who has learned in these parts."""
    return solved(record.config, context_length=record.config["equal_length"])


def measures_panel(axes: Axes, record: Record, part: str) -> None:
    """Against the steps from the jump of each member, since members jump at different times."""
    steps = STEPS(record)
    times = onsets(record, part)
    jumping = np.isfinite(times) if np.isfinite(times).any() else np.ones(len(times), bool)
    jumps = np.minimum(times[jumping], steps[-1])
    x = np.arange(-jumps.max(), steps[-1] - jumps.min() + 1, steps[1])
    for name, (label, color, dash) in MEASURES.items():
        curves = zip(jumps, CURVE(record, part=part, metric=name)[jumping])
        shifted = np.stack([np.interp(x, steps - at, curve, left=np.nan, right=np.nan) for at, curve in curves])
        band(axes, x, shifted, color=color, linestyle=dash, label=label)
    axes.set_xlabel("training steps from a member's jump")
    axes.locator_params(axis="x", nbins=5)  # wide labels
    panels.described(axes, 2, NAMES[part], ylabel="progress measure", ylim=(-0.03, 1.03))


def loss_panel(axes: Axes, record: Record, parts: list[str]) -> None:
    """Losses on novel classes."""
    for (color, dash, _), part in zip(LOOKS, parts):
        look = {"color": color, "linestyle": dash, "label": NAMES[part]}
        band(axes, STEPS(record), CURVE(record, part=part, metric="ic_loss"), **look)
    for name, choices in (("log L", record.config["labels"]), ("log(N/B)", 1 / guess(record.config))):
        axes.axhline(np.log(choices), **THEORY | ({} if name == "log L" else {"linestyle": (0, (1, 3))}), label=name)
    panels.described(axes, 2, xlabel="training step", ylabel="loss on novel classes (nats)", title="loss")


def accuracy_panel(axes: Axes, record: Record, parts: list[str]) -> None:
    """Accuracies in context and in weights."""
    for i, part in enumerate(parts):
        for j, (name, label) in enumerate((("ic", "IC"), ("iwl", "in weights"))):
            color, dash, _ = LOOKS[2 * j + i]
            look = {"color": color, "linestyle": dash, "label": f"{label}, {NAMES[part]}"}
            band(axes, STEPS(record), CURVE(record, part=part, metric=name), **look)
    panels.described(axes, 1, xlabel="training step", ylabel="accuracy", ylim=(-0.03, 1.03), title="accuracy")


def path_panel(axes: Axes, record: Record, parts: list[str]) -> None:
    """beta_1 and alpha of every member, with the flow of the theory."""
    farthest = 1.0
    for (color, dash, _), part in zip(LOOKS, parts):
        beta_1, alpha = (CURVE(record, part=part, metric=name).T for name in ("beta_1", "alpha"))
        first, *_ = axes.plot(beta_1, alpha, color=color, linestyle=dash, linewidth=0.9)
        first.set_label(NAMES[part])
        farthest = max(farthest, beta_1.max())
    flow = np.stack([THEORY_PATH(record, scalar=name) for name in ("beta_1", "alpha")])
    axes.plot(*flow[:, flow[0] <= farthest], **THEORY, label="flow of the mean-field loss")
    axes.set(xlabel=r"$\beta_1$, to the previous token", ylabel=r"$\alpha$, to the target's item")
    panels.described(axes, 1, title="path of the scalars")


def members_panel(axes: Axes, record: Record) -> None:
    """Accuracies of every member at L = N."""
    steps, length = EQUAL_STEPS(record), record.config["equal_length"]
    for i, start in enumerate(record.config["starts"]):
        color, dash, _ = LOOKS[i % 4]
        curves = FROM["equal"](record, metric="ic")[i].T
        first, *_ = axes.plot(steps, curves, color=color, linestyle=dash, linewidth=0.8)
        first.set_label(f"start {start:g}")
    axes.axhline(guess(record.config, context_length=length), **THEORY, label="B/N")
    axes.set(xlabel="training step", ylabel="in-context accuracy", ylim=(-0.03, 1.03))
    panels.described(axes, 2, f"every member, L = N = {length}")


def onsets_panel(axes: Axes, record: Record) -> None:
    """When each member learns, over its start; those that do not, above the line of the last step."""
    last, config = EQUAL_STEPS(record)[-1], record.config
    starts = np.array(config["starts"])
    sets = [("equal", starts, "L = N"), ("more", starts[:1], f"L = {config['more_labels']}")]
    for (color, _, marker), (part, at, label) in zip(LOOKS, sets):
        if part in config["only"]:
            times = equal_onset(record, part)
            x = at[:, None] + (starts[-1] - starts[0]) / 30 * np.linspace(-1, 1, times.shape[1])
            height = np.where(np.isinf(times), 1.1 * last, times)
            axes.plot(x.ravel(), height.ravel(), color=color, marker=marker, linestyle="", label=label)
    axes.axhline(1.05 * last, color="0.6", linewidth=0.8)
    axes.set_xticks(config["starts"])
    axes.text(0.5, 1.1 * last, "no jump", transform=axes.get_yaxis_transform(), ha="center", va="center")
    axes.set(xlabel="initial value of the scalars", ylabel="step of the jump")
    panels.described(axes, 2, title="when members jump")
