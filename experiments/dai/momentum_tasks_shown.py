"""What ``momentum_tasks`` claims and shows: whether momentum helps on the six tasks, and more than a local mixer does.

Expectations and tolerances were committed before any network was trained. A network counts where it and the one without
a mixer, or both that are compared, came through the curriculum; how many did is shown.

The figure: accuracy on each task, after more demonstrations, and steps of the curriculum.
"""

import numpy as np

from experiments.dai.controls_figures import in_words
from experiments.dai.mixer_looks import looks, name_ticks
from experiments.dai.mixers import chosen
from experiments.dai.momentum_tasks import CEILING, END, FINAL, REACHED
from experiments.panels import described, strip
from icl_lab.claims import Beside
from icl_lab.lab import Record, claims_of
from icl_lab.lab.meanings import explain
from icl_lab.lab.style import SPARSE, Axes, Figure, band, panels

PUBLISHED = 0.028
"""Mean gain of accuracy on the six data sets of Table 7: 51.9 to 54.7 %."""


def through(record: Record) -> np.ndarray:
    """(V, M) whether a network came through the curriculum, the last stage included."""
    return REACHED(record) == len(record.metrics["stages"])


def accuracy(record: Record) -> np.ndarray:
    """(V, M) after all demonstrations, mean of the six tasks."""
    return FINAL(record)[..., -1].mean(-1)


def _best(record: Record, which: str, values: np.ndarray) -> np.ndarray:
    """(M,) of the mixer of a kind that is most accurate for the other members; of its own where there is one."""
    return chosen(record, which, values, by=1 - accuracy(record))


def _both(record: Record, values: np.ndarray, *kinds: str) -> np.ndarray:
    """(M,) values where the networks of these kinds came through; NaN elsewhere."""
    came = through(record).astype(float)
    return np.where(np.min([_best(record, which, came) for which in kinds], axis=0) == 1, values, np.nan)


def better(record: Record, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) accuracy of a kind less that of another."""
    ends = accuracy(record)
    return _both(record, _best(record, which, ends) - _best(record, than, ends), which, than)


def sooner(record: Record, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) steps to the mixture of a kind, of all stages but the last, over those of another."""
    steps = END(record, metric="steps")[..., :-1].sum(-1).astype(float)
    return _both(record, _best(record, which, steps) / np.maximum(_best(record, than, steps), 1), which, than)


_claim = claims_of("dai.momentum_tasks", "Dai et al. 2022, ", minimum_members=3)
_GAIN = "the published gain: whether there is any gain at all would take thousands of networks"

CLAIMS = (
    _claim(
        "better",
        "With momentum of a fixed coefficient a network answers more questions after all demonstrations, by the "
        "paper's .028 or more (accuracy, mean of the six tasks, less that without a mixer).",
        better, at_least=PUBLISHED, where="Table 7", headline=1, published=(PUBLISHED, "Table 7, gain"), reason=_GAIN,
        control=lambda record: better(record, "recent"),
    ),
    _claim(
        "learned_better", "So does one whose coefficients are learned, one a head.",
        lambda record: better(record, "learned"), at_least=PUBLISHED, where="Table 7 (this lab)", reason=_GAIN,
        control=lambda record: better(record, "recent"),
    ),
    _claim(
        "no_more_than_local_mixers",
        "What momentum does for accuracy, the better of two local mixers does too: they differ by no more than the "
        "gain that the paper reports.",
        lambda record: better(record, "momentum", "recent"), near=0.0, tolerance=PUBLISHED,
        where="Table 7 (this lab)", headline=2, reason="2.8 points, the published gain",
    ),
    _claim(
        "sooner",
        "With momentum a network comes to the mixture in fewer steps (those of the first three stages, which end by "
        "their loss, over those without a mixer).",
        sooner, at_most=1.0, where="Table 7 (implied)", reason="fewer is less than one",
        control=lambda record: sooner(record, "vanilla", "learned"),
        beside=Beside(lambda record: sooner(record, "recent"), "a local mixer is no momentum, and may do the same"),
    ),
    _claim(
        "sooner_than_local_mixers",
        "It comes there in fewer steps than the better of two local mixers (steps over theirs). The paper's reading "
        "implies it.",
        lambda record: sooner(record, "momentum", "recent"), at_most=1.0, where="section 4 (implied)",
        reason="fewer is less than one", control=lambda record: sooner(record, "recent", "learned"),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Table 7 as a figure: by task, by number of demonstrations, and the way there."""
    figure, ((above, beside), (demonstrations, steps)) = panels(2, 2, shape=0.72)
    beside.remove()
    above.set_subplotspec(above.get_gridspec()[0, :])
    _tasks(above, record)
    _demonstrations(demonstrations, record)
    _steps(steps, record)
    return {"tasks": figure}


def _tasks(axes: Axes, record: Record) -> None:
    """Accuracy after all demonstrations; a network is a marker, open where it did not come through."""
    tasks, came = record.metrics["tasks"], through(record)
    styles, place = looks(record), np.arange(len(record.metrics["tasks"]))
    for i, look in enumerate(styles.values()):
        at = place + 0.16 * (i - (len(styles) - 1) / 2)
        ends = FINAL(record)[i, :, :, -1]
        for values, fine in zip(ends, came[i]):
            fill = look["color"] if fine else "white"
            marker = {"linestyle": "", "markersize": 2.5, "markerfacecolor": fill, "alpha": 0.5, "label": None}
            axes.plot(at, values, **look | marker)
        medians = axes.plot(at, np.median(ends, axis=0), linestyle="", marker="_", markersize=6, color="black")
        explain(medians, NETWORKS)
        axes.plot([], [], **look | {"linestyle": ""})
    for heights, dash, label in (
        (1 / np.array(record.metrics["classes"]), "-", "chance"),
        (CEILING(record).mean(0), ":", "Bayes"),
    ):
        axes.hlines(heights, place - 0.42, place + 0.42, color="0.4", linewidth=0.9, linestyle=dash, label=label)
    axes.set_xticks(place, [in_words(task).replace(" (", "\n(") for task in tasks])
    described(axes, 4, ylabel="accuracy", title="after all demonstrations", ylim=(-0.02, 1.03))


NETWORKS = "small marks are networks, open where they did not come through, dashes their median"


def _demonstrations(axes: Axes, record: Record) -> None:
    """Mean of the six tasks against the number of demonstrations, networks that came through; a band for the first."""
    came = through(record)
    for i, look in enumerate(looks(record).values()):
        curves = FINAL(record)[i].mean(1)
        shown = curves[came[i]] if came[i].any() else curves
        x = np.arange(shown.shape[1])
        if i == 0:
            band(axes, x, shown, **look | SPARSE)
        else:
            axes.plot(x, np.median(shown, axis=0), **look | SPARSE)
    described(axes, xlabel="demonstrations", ylabel="accuracy, mean of tasks", title="networks that came through")


def _steps(axes: Axes, record: Record) -> None:
    """Steps of all stages before the last, a point for each network that came to it, and their median."""
    for i, look in enumerate(looks(record).values()):
        steps = END(record, metric="steps")[i, :, :-1].astype(float).sum(-1)[through(record)[i]]
        if steps.size:
            strip(axes, [i], steps[:, None], look["label"], look, width=0.3)
    name_ticks(axes, record.config["mixers"])
    axes.set(yscale="log", ylabel="steps until the mixture", title="the way to the mixture")
