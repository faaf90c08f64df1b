"""Both solutions learned, and kept, from mixed data (Reddy 2023, Fig. A.1).

A sequence has novel classes, which only the context can tell, with probability p_C; trained classes in a bursty
context, which weights or context can tell, with probability (1 - p_C) p_B; and otherwise independent draws of trained
classes, which only the weights can tell. The network is trained at p_B and p_C of {.25, .75}: at all four points the
loss asks for both, and both are learned. The shares decide which comes first, and when; what came first is not lost
when the other comes.
"""

import dataclasses
import sys
from typing import Any

import numpy as np

from experiments.onsets import onset
from experiments.panels import ABOVE
from experiments.reddy.data_dependence_figures import SOLUTIONS, guess_line
from experiments.reddy.findings import FINDINGS
from experiments.reddy.headlines import QUICK
from experiments.reddy.settings import SMALL, SMOKE, WORLDS, Training, check_training, laws, repeated
from experiments.reddy.statistics import guess
from experiments.reddy.training import Induction, network, train
from experiments.settings import check_each_once, member_keys
from experiments.statistics import Statistic
from experiments.training import learners_of
from icl_lab.lab import Experiment, FlagError, Record, Session, claims_of, main, setting
from icl_lab.lab.style import Figure, band
from icl_lab.lab.style import panels as axes_grid


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Fig. A.1 as published; the points of the grid replace ``bursty_share`` and ``novel_share``."""

    bursty_share: float = setting(1.0, "not used: bursty_shares replace it")
    novel_share: float = setting(0.8, "not used: novel_shares replace it")
    bursty_shares: tuple[float, ...] = setting((0.25, 0.75), "p_B of the grid", at_least=0, at_most=1)
    novel_shares: tuple[float, ...] = setting((0.25, 0.75), "p_C of the grid", at_least=0, at_most=1)


PRESETS = {
    "smoke": Config(**SMOKE | {"bursty_shares": (0.25,)}),
    "quick": Config(
        **SMALL | {
            "members": 6, "steps": 1200, "measure_every": 100, "learning_rate": 0.2, "eval_tasks": 250,
            "bursty_shares": (0.75,),
        },
    ),
    "lab": Config(**SMALL | {"steps": 8000, "measure_every": 250, "learning_rate": 0.1}),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_training(config)
    check_each_once("bursty_shares", config.bursty_shares)
    check_each_once("novel_shares", config.novel_shares)
    if config.steps < 2 * config.measure_every:
        raise FlagError(
            f"--steps={config.steps}: allowed is at least 2 * --measure_every={config.measure_every}: what is kept is "
            f"read off three measurements"
        )


def models(config: Config) -> dict[str, Induction]:
    """What is trained, by stage; its members are those of the first point of the grid, of the second, and so on."""
    return {"training": network(config)}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains all points of the grid in one program; a member has the same dictionaries, start and keys at each."""
    shape = (len(config.bursty_shares), len(config.novel_shares))
    bursty, novel = (v.ravel() for v in np.meshgrid(config.bursty_shares, config.novel_shares, indexing="ij"))
    law = laws(
        config,
        repeated(member_keys(config, WORLDS), bursty.size),
        bursty_share=np.repeat(bursty, config.members),
        novel_share=np.repeat(novel, config.members),
    )
    keys = repeated(member_keys(config), bursty.size)
    fitted = train(session, "training", config, models(config)["training"], keys, law)
    arrays = {"steps": fitted.steps}
    for name in ("ic", "ic2", "iwl", "loss", "accuracy"):
        arrays[name] = np.moveaxis(fitted.metrics[name].reshape(*shape, config.members, -1), 2, 0)
    return {}, arrays


def figures(record: Record) -> dict[str, Figure]:
    """One panel a point: the three test accuracies over training."""
    bursty, novel = record.config["bursty_shares"], record.config["novel_shares"]
    figure, grid = axes_grid(len(novel), len(bursty))
    for i, row in enumerate(grid):
        for j, axes in enumerate(row):
            for name, look in SOLUTIONS.items():
                band(axes, record.arrays["steps"], record.arrays[name][:, i, j], **look | {"marker": ""})
            guess_line(axes, guess(record.config), record.arrays["steps"])
            axes.set_title(f"$p_B$ = {bursty[i]:g}, $p_C$ = {novel[j]:g}")
            axes.set_xlabel("training step")
            axes.set_ylabel("accuracy")
            axes.set_ylim(-0.03, 1.03)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=2, **ABOVE)
    return {"mixtures": figure}


def _everywhere(*names: str) -> Statistic:
    """(M,) least accuracy of these tests at the end, over all points of the grid."""
    return lambda record: np.min([record.arrays[name][..., -1].min((1, 2)) for name in names], axis=0)


LEVELS = {"ic": 0.75, "iwl": 0.5}
"""Accuracy from which on a test counts as learned: far above guessing a label of the context, and above chance."""


def _lost(record: Record) -> np.ndarray:
    """(M,) most that an accuracy fell from an earlier level to the end, over the tests and points that were learned.

    Levels are means of three measurements, so that the sampling of one test set is no loss. No value for a member that
    has learned nothing.
    """
    falls = []
    for name, level in LEVELS.items():
        curves = record.arrays[name]
        smooth = np.mean([curves[..., i : curves.shape[-1] - 2 + i] for i in range(3)], axis=0)
        top = smooth.max(-1)
        falls.append(np.where(top >= level, top - smooth[..., -1], -np.inf).max((1, 2)))
    fall = np.max(falls, axis=0)
    return np.where(np.isfinite(fall), fall, np.nan)


def _larger_share(name: str, later: bool) -> Statistic:
    """(M,) mean over p_B of log2 of the steps to learn a test, at the largest p_C over those at the smallest.

    ``later`` says whether more are expected at the largest. The end at which more are expected counts as one
    measurement after the last where the test is not learned, a bound; where it is not at the other, the value is
    infinite, against the claim, or none if it is at neither.
    """

    def statistic(record: Record) -> np.ndarray:
        steps = record.arrays["steps"]
        times = onset(record.arrays[name], steps, LEVELS[name])  # (M, p_B, p_C)
        slow, fast = (times[..., -1], times[..., 0]) if later else (times[..., 0], times[..., -1])
        never = np.isinf(slow)
        found = np.log2(np.where(never, 2 * steps[-1] - steps[-2], slow)) - np.log2(fast)
        found = np.where(never & np.isinf(fast), np.nan, found).mean(-1)
        return found if later else -found

    return statistic


_claim = claims_of("reddy.mixtures", "Reddy 2023, ", minimum_members=6)

CLAIMS = (
    _claim(
        "in_context", "Fig. A.1",
        "At all four mixtures novel classes are learned in context (least accuracy over the grid).",
        _everywhere("ic"), 0.75, relation=">=", reason="far above guessing a label of the context, 1/N",
    ),
    _claim(
        "in_weights", "Fig. A.1",
        "At all four mixtures trained classes are learned in weights (least accuracy over the grid).",
        _everywhere("iwl"), 0.5, relation=">=", reason="far above chance, 1/L",
    ),
    _claim(
        "kept", "Fig. A.1",
        "What was learned is kept: neither accuracy falls again (largest fall from its highest level to the end, over "
        "the points of the grid where it was learned).", _lost, 0.1, relation="<=",
        reason="a transience of in-context learning would end at guessing",
    ),
    _claim(
        "novel_share", "Fig. A.1",
        "A larger share of novel classes brings in-context learning forward (log2 of the steps to "
        "accuracy .75 on novel classes, p_C = .75 over .25, mean over p_B).", _larger_share("ic", later=False), 0.0,
        relation="<=", reason="an ordering, paired by member",
    ),
    _claim(
        "trained_share", "Fig. A.1",
        "A larger share of novel classes puts in-weights learning back (log2 of the steps to "
        "accuracy .5 on trained classes, p_C = .75 over .25, mean over p_B).", _larger_share("iwl", later=True), 0.0,
        relation=">=", reason="an ordering, paired by member",
    ),
)  # fmt: skip

AXES = {"steps": ("step",), "*": ("member", "bursty_share", "novel_share", "step")}

EXPERIMENT = Experiment(
    "reddy.mixtures", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES, learners=learners_of(models),
    quick=QUICK["mixtures"], finding=FINDINGS["mixtures"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
