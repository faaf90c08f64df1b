"""Figures of ``momentum_language_model``: losses, paired differences at three lengths, where attention looks.

And what is read off them: the gap between momentum and vanilla, its limit, and how far back attention looks.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.dai.mixed_language import falls_from
from experiments.dai.mixer_looks import curves, looks, name_ticks
from experiments.dai.mixers import chosen, kind, of
from experiments.dai.momentum_language_model import ETA, FINAL, LAGS, LOSS, STEPS
from experiments.panels import ABOVE, bars, described, intervals, side_by_side
from icl_lab.lab import Record
from icl_lab.lab.intervals import t_interval
from icl_lab.lab.meanings import explain
from icl_lab.lab.style import SPARSE, THEORY, Axes, Figure, band

LENGTHS = ("T/4", "T/2", "T")
THREE: tuple[dict[str, Any], ...] = tuple(
    {"color": tone, "marker": mark} for tone, mark in zip(("#0072B2", "#D55E00", "#000000"), "os^")
)
"""Looks of three context lengths, or layers."""


def gap(record: Record) -> np.ndarray:
    """(M, R) nats a byte by which the momentum that is best in the end is ahead of vanilla, over training."""
    ahead = chosen(record, "momentum", LOSS(record), by=FINAL(record)[..., 2])
    return of(record, LOSS, "vanilla") - ahead


def judged_steps(record: Record) -> np.ndarray:
    """(R,) whether a measurement is of the second half of the steps before the learning rate falls.

    Where the rate falls everything comes to a stop, so a gap that stands still there says nothing.
    """
    end = falls_from(record.config)
    return (STEPS(record) >= end / 2) & (STEPS(record) <= end)


def drift_of_gap(record: Record) -> tuple[float, float]:
    """Change of the mean gap over the judged steps by a straight line, and its mean there, in nats a byte.

    The change is infinite where fewer than three measurements are judged.
    """
    those = judged_steps(record)
    steps, mean = STEPS(record)[those], gap(record)[:, those].mean(0)
    if steps.size < 3:
        return np.inf, np.nan
    return float(np.polyfit(steps, mean, 1)[0] * (steps[-1] - steps[0])), float(mean.mean())


def limit_of_gap(record: Record) -> np.ndarray:
    """(M,) the gap after endless training at the constant rate: where its line against 1 / steps meets zero.

    NaN where fewer than three measurements are judged.
    """
    those = judged_steps(record)
    values = gap(record)[:, those]
    return np.polyfit(1 / STEPS(record)[those], values.T, 1)[1] if those.sum() > 2 else np.full(len(values), np.nan)


def mean_lag(record: Record, mixer: str) -> np.ndarray:
    """(M, L) how many tokens back attention looks on average (softmax alone)."""
    lags = of(record, LAGS, mixer)
    return lags @ np.arange(lags.shape[-1])


def figures(record: Record) -> dict[str, Figure]:
    """Perplexity and the gap; loss and paired differences; recency of attention, and the coefficients chosen."""
    timed = "training" in record.provenance.get("stages", {})
    learned = [partial(_coefficients, name=name) for name in record.config["mixers"] if kind(name) == "learned"][:1]
    shown: dict[str, Sequence[Callable[[Axes, Record], None]]] = {
        "perplexity": (_perplexity, *[_over_time] * timed, _gap),
        "loss": (_curves, _behind, _differences),
        "attention": (_lags, _mean_lags, *learned),
    }
    return {name: side_by_side(record, *drawn, shape=0.74) for name, drawn in shown.items()}


def _perplexity(axes: Axes, record: Record) -> None:
    """Against steps below and bytes above: a step of every mixer sees as many."""
    curves(axes, record, STEPS(record), np.exp(LOSS(record)))
    _from_ten(axes)
    axes.set(xlabel="training step", title="by steps")
    axes.legend(ncols=2, **ABOVE | {"bbox_to_anchor": (0.5, 1.22)})
    per_step = record.config["batch"] * record.config["context"] / 1e6
    above = axes.secondary_xaxis("top", functions=(lambda step: step * per_step, lambda seen: seen / per_step))
    above.set_xlabel("millions of bytes seen")


def _over_time(axes: Axes, record: Record) -> None:
    """Against seconds of training of one member, measurements included, of the process that finished the run."""
    stages, members = record.provenance["stages"], record.config["members"]
    for name, look in looks(record).items():
        stage = stages["training_learned" if kind(name) == "learned" else "training"]
        per_step = stage["seconds"] / stage["members"] / stage["steps"]
        band(axes, STEPS(record) * per_step, np.exp(of(record, LOSS, name)), None, **look | SPARSE)
    _from_ten(axes)
    axes.set(xlabel=f"seconds a member (mean of {members})", title="by time")


def _from_ten(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.set_ylim(top=20)
    axes.minorticks_off()
    shown = [tick for tick in (1, 2, 3, 4, 5, 7, 10, 14, 20) if tick >= axes.get_ylim()[0]]
    axes.set_yticks(shown, [str(tick) for tick in shown])
    axes.set_ylabel("validation perplexity of a byte")


def _gap(axes: Axes, record: Record) -> None:
    """The gap of the best momentum over training, its limit, and where its stability is judged."""
    steps, those, limits = STEPS(record), judged_steps(record), limit_of_gap(record)
    end_of_rate = falls_from(record.config)
    band(axes, steps, gap(record), None, color="#D55E00", linestyle="--", label="best momentum")
    if np.isfinite(limits).all():
        x, middle = steps[those], gap(record)[:, those].mean(0)
        slope, end = np.polyfit(1 / x, middle, 1)
        axes.plot(x, end + slope / x, color="black", linewidth=0.8, label="line in 1 / steps")
        mean, (low, high) = t_interval(limits)
        label = f"its limit, {mean:.3f}"
        if np.isfinite(low):
            interval = axes.axhspan(low, high, color="0.85", linewidth=0)
            explain(
                [interval], "the grey strip is the 95\u00a0% interval of the limit's mean over members (Student's t)"
            )
            label += f" [{low:.3f}, {high:.3f}]"
        axes.axhline(mean, **THEORY, label=label)
    change = f"judged: changes by {drift_of_gap(record)[0]:+.3f}"
    axes.axvspan(end_of_rate / 2, end_of_rate, color="#0072B2", alpha=0.12, linewidth=0, label=change)
    described(axes, 1, xlabel="training step", ylabel="vanilla's loss less momentum's (nats)", title="the gap closes")


def _curves(axes: Axes, record: Record) -> None:
    curves(axes, record, STEPS(record), LOSS(record))
    axes.axhline(record.metrics["unigram"], color="0.6", linewidth=0.8, label="without context")
    lowest = float(np.nanmin(LOSS(record)))
    axes.set_ylim(lowest - 0.05, max(record.metrics["unigram"] + 0.1, lowest + 0.5))
    described(axes, 2, xlabel="training step", ylabel="validation loss (nats a byte)", title="training")


def _behind(axes: Axes, record: Record) -> None:
    """Validation loss less that of the vanilla member with the same start and data, over training."""
    vanilla = of(record, LOSS, "vanilla")
    for name, look in looks(record).items():
        if name != "vanilla":
            band(axes, STEPS(record), of(record, LOSS, name) - vanilla, None, **look | SPARSE)
    axes.axhline(0, color="black", linewidth=0.8)
    described(axes, 2, xlabel="training step", ylabel="loss less vanilla's (nats a byte)", title="lead over vanilla")


def _differences(axes: Axes, record: Record) -> None:
    """Paired differences of final loss with 95 % intervals, at the three context lengths."""
    names = [name for name in record.config["mixers"] if name != "vanilla"]
    vanilla = of(record, FINAL, "vanilla")
    for i, (length, look) in enumerate(zip(LENGTHS, THREE)):
        differences = [of(record, FINAL, name)[:, i] - vanilla[:, i] for name in names]
        at = np.arange(len(names)) + 0.2 * (i - 1)
        intervals(axes, at, differences, label=f"context {length}", **look | {"linestyle": ""})
    axes.axhline(0, color="black", linewidth=0.8)
    name_ticks(axes, names)
    described(axes, 3, ylabel="final loss less vanilla's (nats a byte)", title="at the end, by context")


def _lags(axes: Axes, record: Record) -> None:
    """Share of attention at most so many tokens back, mean over layers."""
    share = LAGS(record).mean(2).cumsum(-1)[..., :-1]
    curves(axes, record, 1 + np.arange(share.shape[-1]), share)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="tokens, counted back from the current one", ylabel="share of attention (mean over layers)")
    described(axes, 2, title="how far back")


def _mean_lags(axes: Axes, record: Record) -> None:
    names = list(record.config["mixers"])
    layers = LAGS(record).shape[2]
    shown = sorted({0, layers // 2, layers - 1})
    for i, layer in enumerate(shown):
        values = np.stack([mean_lag(record, name)[:, layer] for name in names])
        at = np.arange(len(names)) + 0.2 * (i - (len(shown) - 1) / 2)
        bars(axes, at, values.T, f"layer {layer + 1}", THREE[i])
    name_ticks(axes, names)
    described(axes, 3, ylabel="mean lag of attention (tokens)", title="mean lag")


def _coefficients(axes: Axes, record: Record, name: str) -> None:
    """Learned coefficients over training; every head is a line, its median over members."""
    looks_of_layers = (("-", "#0072B2"), ("--", "#D55E00"), ("-.", "#000000"), (":", "#009E73"))
    for layer, heads in enumerate(np.moveaxis(np.median(of(record, ETA, name), axis=0), 1, 0)):  # (R, H)
        dash, tone = looks_of_layers[layer % 4]
        first, *_ = axes.plot(STEPS(record), heads, color=tone, linestyle=dash)
        if layer < 4:
            first.set_label(f"layer {layer + 1}")
    axes.set(xlabel="training step", ylabel=r"learned coefficient $\eta$ of each head", ylim=(0, 1))
    described(axes, 4, title="coefficients")
