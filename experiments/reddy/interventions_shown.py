"""What ``interventions`` claims and shows: functions of its record."""

from typing import Any

import numpy as np

from experiments.panels import SERIES
from experiments.reddy.interventions import CONTROL, CURVE, GIVEN, HELD, PRESETS, STARTS, STEPS, held
from experiments.reddy.panels import CONDITIONS
from experiments.reddy.statistics import onset_times, or_last, present
from experiments.statistics import of_record
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import Axes, Figure, panels


def onset_of(record: Record, n: int, condition: str) -> np.ndarray:
    """(M,) step of the onset, by interpolation; infinite if never."""
    curves = CURVE(record, n=n, condition=condition, metric="ic")
    return onset_times(curves, STEPS(record, n=n), record.config, context_length=n)


@of_record
def remaining(record: Record, n: int, condition: str) -> np.ndarray:
    """(M,) what is left of the wait after the release (or from the start, where a part is given), over the control's.

    At most up to the last step; NaN where the control has no onset, or where the window ends before it.
    """
    onset, control = onset_of(record, n, condition), present(onset_of(record, n, CONTROL))
    steps = STEPS(record, n=n)
    _, window = held(record.config["windows"]).get(condition, ("", 0.0))
    start = steps[-1] * window
    judged = (start == 0) | (control < start)
    return np.where(judged, np.maximum(or_last(onset, steps) - start, 0) / control, np.nan)


def delay(record: Record, n: int, condition: str) -> np.ndarray:
    """(M,) delay of the onset, at least, over the steps of the window."""
    steps = STEPS(record, n=n)
    hold = steps[-1] * held(record.config["windows"])[condition][1]
    return (or_last(onset_of(record, n, condition), steps) - present(onset_of(record, n, CONTROL))) / hold


def _median(values: np.ndarray) -> float:
    """Of those that are finite; NaN where none is."""
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else np.nan


def figures(record: Record) -> dict[str, Figure]:
    """A row for each N: delays over the window; what remains after the longest; what remains where parts are given.

    Delays at one window are left out, and what remains where every window ends before the onset.
    """
    windows, lengths = record.config["windows"], record.config["lengths"]
    shown = {
        "after the longest freeze": {CONDITIONS[f"{part}_held"]: f"{part}_held_{len(windows) - 1}" for part in HELD},
        "with parts given": {f"{GIVEN[group]} {how}": condition for condition, (group, how) in STARTS.items()},
    }
    waits = {
        about: {n: np.array([remaining(n, condition)(record) for condition in conditions.values()]) for n in lengths}
        for about, conditions in shown.items()
    }
    kept = [about for about, by_length in waits.items() if np.isfinite(list(by_length.values())).any()]
    columns = max(1, len(kept) + (len(windows) > 1))
    figure, rows = panels(columns, len(lengths), height=2.6 if columns > 1 else 1.6)
    for n, row in zip(lengths, rows):
        for axes, about in zip(row[::-1], kept[::-1]):
            places = range(len(shown[about]))
            axes.plot(waits[about][n], places, ".", color="#0072B2", markersize=4, alpha=0.6)
            axes.set_yticks(places, list(shown[about]))
            axes.axvline(1.0, color="0.6", linewidth=0.8)
            axes.set(xlabel="wait that remains / control's", title=about, xlim=(0, None))
            axes.set_ylim(-0.5, len(shown[about]) - 0.5)
        if len(windows) > 1:
            _delays(row[0], record, n)
        row[0].set_title(f"{row[0].get_title()}, N = {n}")
        if not np.isfinite(onset_of(record, n, CONTROL)).any():
            for axes in row:
                axes.text(0.5, 0.5, "no control has its onset", ha="center", transform=axes.transAxes)
    if len(windows) > 1:
        figure.legend(*rows[0, 0].get_legend_handles_labels())
    return {"interventions": figure}


def _delays(axes: Axes, record: Record, n: int) -> None:
    """Delay over the steps of a freeze, of every member and their median, for each part."""
    holds = np.array(record.config["windows"]) * STEPS(record, n=n)[-1]
    for part, look in zip(HELD, SERIES):
        delays = np.array([delay(record, n, f"{part}_held_{i}") for i in range(len(holds))])
        axes.plot(holds, delays, **look | {"linestyle": ""}, markersize=2, alpha=0.4)
        axes.plot(holds, [_median(members) for members in delays], label=CONDITIONS[f"{part}_held"], **look)
    axes.axvline(_median(onset_of(record, n, CONTROL)), color="0.6", linewidth=0.8, label="onset of the control")
    axes.set(xlabel="steps frozen", ylabel="delay / steps frozen", title="delay of the onset")


claim = claims_of("reddy.interventions", "Reddy 2023, Figs. 4 to 6 (this lab)", presets=["lab"], minimum_members=6)


def _claims(n: int, last: int) -> tuple:
    """At one N; the last window is the one longer than the wait."""
    quarter: dict[str, Any] = {"reason": "a quarter of the wait: what is less could be the rise itself"}
    return (
        claim(
            f"cla_necessary_{n}",
            f"N = {n}: nothing else is learned while the classifier is frozen past the control's onset (share of the "
            "control's wait that remains after the release; control: the first layer's attention frozen).",
            remaining(n, f"cla_held_{last}"), at_least=0.75, headline=1, control=remaining(n, f"ila1_held_{last}"),
            reason="three quarters: some of the values' way is possible without the classifier",
        ),
        *(
            claim(
                f"{part}_last_{n}",
                f"N = {n}: while {part.upper()} is frozen past the control's onset most else is "
                "learned (the same share; control: the classifier frozen).",
                remaining(n, f"{part}_held_{last}"), at_most=0.5,
                reason="less than half: more is learned without it than with it",
                control=remaining(n, f"cla_held_{last}"),
            )
            for part in ("ila1", "tila2")
        ),
        *(
            claim(
                f"{group}_not_sufficient_{n}",
                f"N = {n}: {about} alone, given by a trained network, does not suffice (share of the control's wait "
                "that remains; control: all given but this).",
                remaining(n, f"{group}_given"), at_least=0.25, headline=2 if group == "answer" else 0, **quarter,
                control=remaining(n, f"{group}_missing"),
            )
            for group, about in GIVEN.items()
        ),
        *(
            claim(
                f"{group}_quick_{n}",
                f"N = {n}: {about} alone missing, all else given, is learned soon (the same share; control: both "
                "layers missing).",
                remaining(n, f"{group}_missing"), at_most=0.25, control=remaining(n, "answer_given"), **quarter,
            )
            for group, about in GIVEN.items()
        ),
    )  # fmt: skip


CLAIMS = tuple(claim for n in PRESETS["lab"].lengths for claim in _claims(n, len(PRESETS["lab"].windows) - 1))
