"""More labels than pairs are needed for in-context learning (Reddy 2023, Fig. A.5).

At the start of training a network can do better than chance before it looks for the target's item: by answering with
some label of the context, which lowers the loss from log L to log N. Where L = N there is nothing to gain by that, and
the circuit has to appear at once. Networks are trained at several N and, for each, at every L of the grid from N on:
with L > N all of them learn in context; with L = N = 8 none does, with L = N = 4 or 2 it depends on the start, and the
transition comes late.
"""

import dataclasses
import sys
from typing import Any

import numpy as np

from experiments.panels import ABOVE, SERIES
from experiments.reddy import settings
from experiments.reddy.findings import FINDINGS
from experiments.reddy.headlines import QUICK
from experiments.reddy.settings import SMALL, SMOKE, Training, laws
from experiments.reddy.statistics import guess, learned, onset, or_last, present, solved
from experiments.reddy.training import Induction, network, train
from experiments.settings import check as check_steps
from experiments.settings import check_each_once, member_keys
from experiments.statistics import Statistic
from experiments.training import learners_of
from icl_lab.lab import Experiment, FlagError, NotRun, Record, Session, claims_of, from_json, main, setting
from icl_lab.lab.claims import wilson_interval
from icl_lab.lab.style import Axes, Figure
from icl_lab.lab.style import panels as axes_grid


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Fig. A.5 as published; ``lengths`` and ``label_grid`` replace ``context_length`` and ``labels``."""

    context_length: int = setting(8, "not used: lengths replace it")
    labels: int = setting(32, "not used: label_grid replaces it")
    lengths: tuple[int, ...] = setting((2, 4, 8), "N, one panel each", at_least=1)
    label_grid: tuple[int, ...] = setting((2, 4, 8, 16, 32), "L; each N is trained at those from N on", at_least=2)
    only: str = setting("all", "the one N to run, or all")


PRESETS = {
    "smoke": Config(**SMOKE | {"lengths": (2,), "label_grid": (2,)}),
    "quick": Config(
        **SMALL | {
            "members": 6, "steps": 1200, "measure_every": 100, "learning_rate": 0.2, "eval_tasks": 250,
            "lengths": (4,), "label_grid": (4, 16),
        },
    ),
    "lab": Config(
        **SMALL | {"steps": 6000, "measure_every": 200, "learning_rate": 0.1, "label_grid": (2, 4, 8, 32)},
    ),
    "paper": Config(),
}  # fmt: skip


def settings_of(config: Config) -> list[Config]:
    """One setting for each N and L to run."""
    return [
        dataclasses.replace(config, context_length=n, labels=labels)
        for n in config.lengths
        for labels in config.label_grid
        if labels >= n and config.only in ("all", str(n))
    ]


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_steps(config)
    settings.check_exponent("exponent", config.exponent, config.distinct_labels)
    check_each_once("lengths", config.lengths)
    check_each_once("label_grid", config.label_grid)
    if list(config.label_grid) != sorted(config.label_grid):
        raise FlagError(f"--label_grid={','.join(map(str, config.label_grid))}: allowed are numbers that rise")
    if max(config.lengths) > max(config.label_grid):
        raise FlagError(
            f"--lengths={','.join(map(str, config.lengths))}: allowed are N up to the largest L of --label_grid="
            f"{','.join(map(str, config.label_grid))}"
        )
    if config.only != "all" and config.only not in map(str, config.lengths):
        raise FlagError(f"--only={config.only}: allowed is all, {', '.join(map(str, config.lengths))}")
    for one in settings_of(config):
        settings.check_classes("classes", config.classes, one.labels, "label_grid")
        settings.check_prompt(one)
        settings.check_burstiness("burstiness", config.burstiness, one)


def models(config: Config) -> dict[str, Induction]:
    """What is trained, by stage: one network for each N and L."""
    return {_stage(one): network(one) for one in settings_of(config)}


def _stage(one: Config) -> str:
    return f"{one.context_length}_{one.labels}"


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains all members at every N and L."""
    arrays: dict[str, Any] = {}
    networks = models(config)
    for one in settings_of(config):
        stage = _stage(one)
        fitted = train(session, stage, one, networks[stage], member_keys(config), laws(one))
        arrays["steps"] = fitted.steps
        arrays[_name(one.context_length, one.labels)] = {
            name: fitted.metrics[name] for name in ("ic", "ic_loss", "loss")
        }
    return {}, arrays


def _name(n: int, labels: int) -> str:
    """Where the record holds what was measured at an N and an L."""
    return f"N_{n}/L_{labels}"


def _accuracy(record: Record, n: int, labels: int) -> np.ndarray:
    """(M, R) in-context accuracy over training."""
    return record.arrays[f"{_name(n, labels)}/ic"]


def _labels(record: Record, n: int) -> list[int]:
    """The L at which an N was trained."""
    every = settings_of(from_json(Config, record.config))
    return [one.labels for one in every if one.context_length == n]


def _level(record: Record, n: int) -> float:
    return solved(record.config, context_length=n)


def figures(record: Record) -> dict[str, Figure]:
    """In-context accuracy of every member over training, one panel an N; the fraction that has learned."""
    lengths = [n for n in record.config["lengths"] if _labels(record, n)]
    figure, (row,) = axes_grid(len(lengths) + 1, 1, height=3.0)
    for axes, n in zip(row, lengths):
        for i, labels in enumerate(_labels(record, n)):
            look = {key: SERIES[i % len(SERIES)][key] for key in ("color", "linestyle")}
            axes.plot(record.arrays["steps"], _accuracy(record, n, labels).T, linewidth=0.9, **look)
            axes.plot([], [], label=f"L = {labels}", **look)
        axes.axhline(guess(record.config, context_length=n), color="0.6", linewidth=0.8, label="B/N")
        axes.set_xlabel("training step")
        axes.set_ylabel("in-context accuracy")
        axes.set_ylim(-0.03, 1.03)
        axes.legend(title=f"N = {n}, every member", ncols=2, **ABOVE)
    _fractions(row[-1], record, lengths)
    return {"label_count": figure}


def _fractions(axes: Axes, record: Record, lengths: list[int]) -> None:
    """The fraction of members that has learned, with its 95 % Wilson interval, against L/N."""
    for i, n in enumerate(lengths):
        ratios = np.array(_labels(record, n)) / n
        curves = [_accuracy(record, n, labels) for labels in _labels(record, n)]
        found = [wilson_interval(learned(c, _level(record, n))) for c in curves]
        share = np.array([estimate for estimate, _ in found])
        ends = np.array([[estimate - low, high - estimate] for estimate, (low, high) in found])
        shifted = ratios * 2 ** (0.12 * (i - (len(lengths) - 1) / 2))
        axes.errorbar(shifted, share, np.maximum(ends, 0).T, label=f"N = {n}", capsize=2, **SERIES[i % len(SERIES)])
    axes.set_xscale("log", base=2)
    every = sorted({labels / n for n in lengths for labels in _labels(record, n)})
    axes.set_xticks(every, [f"{ratio:g}" for ratio in every])
    axes.set_xlabel("labels over context pairs, L/N")
    axes.set_ylabel("fraction that has learned")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(title="95 % interval", ncols=len(lengths), **ABOVE)


def _learned(n: int, more: bool) -> Statistic:
    """(M,) 1 where a member has learned at the end: at every L > N, or at L = N."""

    def statistic(record: Record) -> np.ndarray:
        labels = [value for value in _labels(record, n) if (value > n) == more]
        if not labels:
            raise NotRun(f"N = {n} with L {'>' if more else '='} N")
        return np.min([learned(_accuracy(record, n, value), _level(record, n)) for value in labels], axis=0)

    return statistic


def _as_many(n: int) -> Statistic:
    """(M,) 1 where a member has learned at L = N; no value where it has not at every L > N: it may need more steps."""

    def statistic(record: Record) -> np.ndarray:
        return np.where(_learned(n, more=True)(record) == 1, _learned(n, more=False)(record), np.nan)

    return statistic


def _delay(n: int) -> Statistic:
    """(M,) log2 of the onset at L = N over that at the next L.

    At L = N a member that never learns counts as at the end, a lower bound; at the next L it has no value.
    """

    def statistic(record: Record) -> np.ndarray:
        larger = [labels for labels in _labels(record, n) if labels > n]
        if not larger or n not in _labels(record, n):
            raise NotRun(f"N = {n} with L = N and L > N")
        few, more = (
            onset(_accuracy(record, n, labels), record.arrays["steps"], _level(record, n)) for labels in (n, larger[0])
        )
        return np.log2(or_last(few, record) / present(more))

    return statistic


_claim = claims_of("reddy.label_count", "Reddy 2023, Fig. A.5", minimum_members=6)

CLAIMS = (
    *(
        _claim(
            f"more_labels_{n}", "", f"N = {n}: with L > N every network learns in context (fraction of members that "
            "do at every L).",
            _learned(n, more=True), expected=0.6, relation=">=", interval="wilson",
            reason="six of six leave the interval [.61, 1]", control=_learned(n, more=False),
        )
        for n in (2, 4, 8)
    ),
    _claim(
        "as_many_labels_8", "",
        "With L = N = 8 no network learns in context (fraction of those that do at every L > N).",
        _as_many(8), expected=0.4,
        relation="<=", interval="wilson", reason="none of six leaves the interval [0, .39]",
        control=_learned(8, more=True),
    ),
    *(
        _claim(
            f"delay_{n}", "",
            f"N = {n}: with L = N the transition comes later than with the next L, if it comes (log2 of "
            "the steps, never counted as the last one).", _delay(n), expected=0.0, relation=">=",
            reason="an ordering, paired by member",
        )
        for n in (2, 4)
    ),
)  # fmt: skip

AXES = {"steps": ("step",), "*": ("member", "step")}

EXPERIMENT = Experiment(
    "reddy.label_count", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES, learners=learners_of(models),
    quick=QUICK["label_count"], finding=FINDINGS["label_count"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
