"""Is in-context learning fine-tuning? All metrics of Dai et al. 2022 (section 4), each beside its controls.

The networks of ``pretrain`` answer six held-out tasks in three settings: without demonstrations (ZSL), with them in the
context (ICL), and after fine-tuning keys and values on them, one SGD step an example (FT). The paper finds that ICL
corrects the answers that FT corrects (Rec2FTP), changes attention outputs in a similar direction (SimAOU), makes
attention scores similar (SimAM), and ranks training tokens alike (Kendall). Each metric can be high for reasons that
have nothing to do with learning: an accurate learner corrects everything, normalising makes updates similar, scores of
one network are similar. So every metric is shown with its base rate or floor, and with controls: networks that cannot
learn in context (Deutch et al. 2024), noise in place of the update, fine-tuning on another task or on wrong labels,
contexts that teach nothing. The sensitivity to the order of the demonstrations is that of Shen et al. 2024.

Similarities are judged only of networks that learn in context: ICL at least 10 points over ZSL on 4 of the 6 tasks.
"""

import dataclasses
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai import analysis, controls
from experiments.dai.analysis import FEW, SMALL, SMALLEST, Chosen, Floats, Subject
from experiments.dai.controls import CONTROLS, NUMBERS, PAPER, SIMILARITIES, Elsewhere, present_mean
from experiments.dai.findings import FINDINGS
from experiments.dai.headlines import QUICK
from experiments.dai.implicit_finetuning_claims import CLAIMS
from experiments.dai.implicit_finetuning_figures import figures
from experiments.dai.networks import by_positions, every_network, source_digest, stacked
from experiments.dai.real_text import Files, check_files, real_subject
from experiments.settings import check_each_once, member_keys
from icl_lab.compare import layer_scores
from icl_lab.lab import Experiment, FlagError, Session, main, setting
from icl_lab.prompts.text_tasks import HELD_OUT

ELSEWHERE = ("wrong_task", "wrong_demonstrations")
"""Controls that need another task."""
ASKED = 200
"""PRNG stream of the test questions."""
INTERVALS = ("sim_aou", "sim_aou_raw", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall")


@dataclasses.dataclass(frozen=True)
class Config(Files):
    """The analysis, with its controls."""

    controls: tuple[str, ...] = setting(CONTROLS, "rows of the table beside the paper's", choices=CONTROLS)
    counts: tuple[int, ...] = setting((1, 2, 4, 8, 16), "numbers of demonstrations beside 0 and all", at_least=1)
    curve_sets: int = setting(7, "sets of demonstrations that the curve over their number is a mean of", at_least=1)
    orders: int = setting(10, "permutations of the demonstrations", at_least=2)
    normalise: bool = setting(True, "figures over learning rates show SimAOU of normalised states, as in the paper")


PRESETS = {
    "smoke": Config(**SMALLEST, controls=("random_update",), counts=(1,), curve_sets=1, orders=2),
    "quick": Config(
        **FEW, controls=("random_update", "wrong_task", "shuffled_labels", "random_context"), counts=(4,),
        curve_sets=1, orders=4,
    ),
    "lab": Config(**SMALL, counts=(1, 2, 4, 8), curve_sets=2),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together, or files of GPT-2 are not there."""
    analysis.check(config)
    check_each_once("controls", config.controls)
    if list(config.counts) != sorted(set(config.counts)) or config.counts[-1] >= config.demonstrations:
        raise FlagError(
            f"--counts={','.join(map(str, config.counts))}: allowed are rising numbers below "
            f"--demonstrations={config.demonstrations}"
        )
    if config.gpt2_weights:
        check_files(config)
        alone = [control for control in config.controls if control not in ELSEWHERE]
        if config.members > 1 or config.positions != ("learned",) or len(alone) < len(config.controls):
            raise FlagError(
                f"--gpt2_weights={config.gpt2_weights}: allowed is one network and one task, --members=1 "
                f"--positions=learned --controls={','.join(alone)}"
            )
    if config.curve_sets > config.seeds:
        raise FlagError(f"--curve_sets={config.curve_sets}: allowed is at most --seeds={config.seeds}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays (M, 6, ..) by position encoding, then by the names of ``of_task``.

    Metrics: the table; and why a number is not defined, with how often that is so over networks and tasks.

    Raises:
      FlagError: where the networks are not there, or files of GPT-2 cannot be used.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    undefined: dict[str, Counter[str]] = defaultdict(Counter)
    for positions, key, asked in _asked(config, session):
        metrics, reasons = analysed(key, asked, config)
        found.append((positions, metrics))
        undefined[positions].update(reasons)
    arrays = by_positions(found)
    of_tasks = [Path(config.examples).stem] if config.gpt2_weights else [task.stands_for for task in HELD_OUT]
    source = source_digest(config.gpt2_weights or config.networks)
    rows = [PAPER, *(name for name in CONTROLS if name in config.controls)]
    named = {"rows": rows, "tasks": of_tasks, "networks": source, "table": table(rows, arrays)}
    return named | {"undefined": {positions: dict(reasons) for positions, reasons in undefined.items()}}, arrays


def _asked(config: Config, session: Session) -> Iterator[tuple[str, Array, list[Subject]]]:
    """Of every network its position encoding, a key, and its tasks: the held-out ones, or the one of a file."""
    if config.gpt2_weights:
        yield "learned", member_keys(config, ASKED)[0], [real_subject(config)]
        return
    for positions, key, network in every_network(config, session, ASKED):
        of_material, of_rows = jax.random.split(key)
        yield positions, of_rows, analysis.subjects(of_material, network, config)


def analysed(key: Array, asked: list[Subject], config: Config) -> tuple[dict[str, Any], list[str]]:
    """Arrays (6, ..) by name, of one network on all tasks; and why numbers are not defined."""
    chosen = [analysis.choose(subject, config) for subject in asked]
    keys, found = jax.random.split(key, len(asked)), []
    for t, (subject, own) in enumerate(zip(asked, chosen)):
        other = (t + len(asked) // 2) % len(asked)  # of another family
        shown = asked[other].material.sets[chosen[other].best]
        jobs = analysis.jobs_of(chosen[other].task, chosen[other].rate)
        found.append(of_task(keys[t], subject, own, Elsewhere(shown, jobs), config))
    return stacked([arrays for arrays, _ in found]), [reason for _, reasons in found for reason in reasons]


def of_task(
    key: Array, subject: Subject, chosen: Chosen, elsewhere: Elsewhere, config: Config
) -> tuple[dict[str, Any], list[str]]:
    """Everything that is measured of a network on one task, and why numbers are not defined. C rows of the table.

    ``zero_shot``, ``in_context`` and ``finetuned``: test accuracies with the chosen set; ``by_set`` (S,) with each set,
    ``curve`` (K + 2,) against the number of demonstrations; ``development`` (R,) accuracy at each rate. Similarities
    (C, L), ``low`` and ``high`` (L,) the ends of their intervals over questions in the paper's row, ``by_rate`` (R, L);
    numbers (C,); ``order``, by learner and measure.
    """
    of_rows, of_metrics, of_order = jax.random.split(key, 3)
    table = controls.table_rows(of_rows, subject, chosen, config, config.controls, elsewhere)
    measured = {name: controls.row_metrics(of_metrics, row, config) for name, row in table.items()}
    similar = {
        name: present_mean(np.stack([one.similarities[name] for one in measured.values()]), 1) for name in SIMILARITIES
    }
    numbers = {name: np.array([one.numbers[name] for one in measured.values()]) for name in NUMBERS}
    undefined = [f"{row} {name}: {why}" for row, one in measured.items() for name, why in one.undefined.items()]
    scores = {name: layer_scores(measured[PAPER].similarities[name], "no update") for name in INTERVALS}
    between = analysis.accuracies_by_demonstrations(subject, chosen, config, config.counts, config.curve_sets)
    by_set = {"in_context": chosen.in_context, "finetuned": chosen.finetuned}
    return {
        "zero_shot": np.array(chosen.zero_shot), **{name: each[chosen.best] for name, each in by_set.items()},
        "by_set": by_set, "development": chosen.by_rate, "set": np.array(chosen.best), "rate": np.array(chosen.rate),
        "curve": {name: _curve(chosen, some, by_set[name]) for name, some in zip(by_set, between)},
        **similar, **numbers,
        "low": {name: each.low for name, each in scores.items()},
        "high": {name: each.high for name, each in scores.items()},
        "by_rate": controls.by_rate(of_metrics, subject, chosen, config),
        "order": controls.order_metrics(of_order, subject, chosen, config, config.orders),
    }, undefined  # fmt: skip


def _curve(chosen: Chosen, between: Floats, all_of_them: Floats) -> Floats:
    """(K + 2,) mean over sets of accuracies at no, some and all demonstrations."""
    last = all_of_them[: len(between)].mean()
    return np.array([chosen.zero_shot, *between.mean(0), last])


def table(names: Sequence[str], arrays: dict[str, Any]) -> dict[str, Any]:
    """Means over networks and tasks (similarities: and layers where defined), by position encoding, row and metric."""

    def mean(values: np.ndarray) -> float | None:
        value = present_mean(values, None)
        return round(float(value), 4) + 0.0 if np.isfinite(value) else None  # no -0.0

    return {
        positions: {
            row: {name: mean(of[name][:, :, c]) for name in (*SIMILARITIES, *NUMBERS)} for c, row in enumerate(names)
        }
        for positions, of in arrays.items()
    }


AXES = {
    "*/curve/*": ("member", "task", "demonstrations"),
    "*/by_set/*": ("member", "task", "set"),
    "*/development": ("member", "task", "rate"),
    "*/order/*": ("member", "task"),
    "*/by_rate/*": ("member", "task", "rate", "layer"),
    "*/low/*": ("member", "task", "layer"),
    "*/high/*": ("member", "task", "layer"),
    **dict.fromkeys((f"*/{name}" for name in NUMBERS), ("member", "task", "row")),
    **dict.fromkeys(
        (f"*/{name}" for name in ("zero_shot", "in_context", "finetuned", "set", "rate")), ("member", "task")
    ),
    "*": ("member", "task", "row", "layer"),
}

EXPERIMENT = Experiment(
    "dai.implicit_finetuning", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES,
    quick=QUICK["implicit_finetuning"], finding=FINDINGS["implicit_finetuning"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
