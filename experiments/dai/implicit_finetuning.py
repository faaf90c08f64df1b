"""Is in-context learning fine-tuning? All metrics of Dai et al. 2022 (section 4), each beside its controls.

The networks of ``pretrain`` answer six held-out tasks in three settings: without demonstrations (ZSL), behind them
(ICL), and after fine-tuning keys and values on them, one SGD step an example (FT). The paper finds that ICL mends what
FT mends (Rec2FTP), changes attention outputs in a similar direction (SimAOU), makes attention scores similar (SimAM),
and ranks training tokens alike (Kendall). Each is high for reasons that have nothing to do with learning: an accurate
learner mends everything, normalising makes updates similar, scores of one network are similar. So every metric stands
beside its base rate or floor, and beside controls: networks that cannot learn in context (Deutch et al. 2024), noise in
place of what fine-tuning learned, fine-tuning on another task or on wrong labels, contexts that teach nothing. Order
sensitivity is that of Shen et al. 2024.

Similarities of a network are judged only where it learns in context: ICL at least 10 points over ZSL on 4 of 6 tasks.
"""

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai.analysis import (
    FEW,
    SMALL,
    SMALLEST,
    Chosen,
    Floats,
    Subject,
    accuracies_by_demonstrations,
    choose,
    jobs_of,
    subjects,
)
from experiments.dai.analysis import check as check_analysis
from experiments.dai.common import ENCODINGS
from experiments.dai.controls import (
    CONTROLS,
    NUMBERS,
    PAPER,
    SIMILARITIES,
    Elsewhere,
    by_rate,
    order_metrics,
    present_mean,
    row_metrics,
    table_rows,
)
from experiments.dai.implicit_finetuning_claims import CLAIMS
from experiments.dai.implicit_finetuning_figures import figures
from experiments.dai.networks import check_networks, load_networks, one_network, source_digest
from experiments.dai.real_text import Files, check_files, real_subject
from experiments.settings import check_each_once, member_keys
from icl_lab.compare import layer_scores
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.session import Session
from icl_lab.prompts.text_tasks import HELD_OUT

ELSEWHERE = ("wrong_task", "wrong_demonstrations")
"""Controls that need another task."""
ASKED = 200
"""Stage of the keys of what a network is asked."""
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
    check_analysis(config)
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


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Every network, one after the other; arrays (M, 6, ..) by ``<positions>_<name>``.

    Metrics: the table; and for what is not defined the reason, with the number of networks and tasks.

    Raises:
      FlagError: where the networks are not there, or files of GPT-2 cannot be used.
    """
    if not config.gpt2_weights:
        check_networks(config)
    arrays: dict[str, np.ndarray] = {}
    undefined: dict[str, dict[str, int]] = {}
    with session.bar("networks", len(config.positions) * config.members) as advance:
        for p, positions in enumerate(config.positions):
            members, reasons = [], Counter[str]()
            for m, (key, asked) in enumerate(_asked(positions, config)):
                found, missing = analysed(key, asked, config)
                members.append(found)
                reasons.update(missing)
                advance(p * config.members + m + 1, len(config.positions) * config.members)
            undefined[positions] = dict(reasons)
            for name in members[0]:
                values = np.stack([one[name] for one in members])
                arrays[f"{positions}_{name}"] = values.astype(np.float32) if values.dtype == float else values
    of_tasks = [Path(config.examples).stem] if config.gpt2_weights else [task.stands_for for task in HELD_OUT]
    source = config.gpt2_weights or config.networks
    named = {"rows": row_names(config.controls), "tasks": of_tasks, "networks": source_digest(source)}
    return named | {"table": table(named["rows"], arrays), "undefined": undefined}, arrays


def _asked(positions: str, config: Config) -> Iterator[tuple[Array, list[Subject]]]:
    """For every network a key, and what it is asked: the held-out tasks, or the one task of a file."""
    if config.gpt2_weights:
        yield member_keys(config, ASKED)[0], [real_subject(config)]
        return
    networks = load_networks(config.networks, positions, config.members)
    for m, key in enumerate(member_keys(config, ASKED)):
        of_material, of_rows = jax.random.split(key)
        yield of_rows, subjects(of_material, one_network(networks, m), config)


def row_names(controls: Sequence[str]) -> list[str]:
    """The rows of the table, the paper's first."""
    return [PAPER, *(name for name in CONTROLS if name in controls)]


def analysed(key: Array, asked: list[Subject], config: Config) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays (6, ..) by name, of one network on all tasks; and what is not defined, with its reason."""
    chosen = [choose(subject, config) for subject in asked]
    keys, found = jax.random.split(key, len(asked)), []
    for t, (subject, own) in enumerate(zip(asked, chosen)):
        other = (t + len(asked) // 2) % len(asked)  # of another family
        shown, jobs = asked[other].material.sets[chosen[other].best], jobs_of(chosen[other].task, chosen[other].rate)
        found.append(of_task(keys[t], subject, own, Elsewhere(shown, jobs), config))
    arrays = {name: np.stack([one[name] for one, _ in found]) for name in found[0][0]}
    return arrays, [reason for _, reasons in found for reason in reasons]


def of_task(
    key: Array, subject: Subject, chosen: Chosen, elsewhere: Elsewhere, config: Config
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Everything that is measured of a network on one task, and what is not defined, with its reason. C rows of the
    table, L layers, R rates.

    ``zero_shot``, ``in_context`` and ``finetuned``, accuracies of the chosen set; those ``_by_set`` (S,), and
    ``development`` (R,); ``curve_`` (K + 2,) against the number of demonstrations; similarities (C, L), in the paper's
    row with the ends ``_low`` and ``_high`` (L,) of intervals over questions; numbers (C,); ``rate_`` (R, L); and
    ``order_``.
    """
    of_rows, of_metrics, of_order = jax.random.split(key, 3)
    table = table_rows(of_rows, subject, chosen, config, config.controls, elsewhere)
    measured = {name: row_metrics(of_metrics, row, config) for name, row in table.items()}
    similar = {
        name: present_mean(np.stack([one.similarities[name] for one in measured.values()]), 1) for name in SIMILARITIES
    }
    numbers = {name: np.array([one.numbers[name] for one in measured.values()]) for name in NUMBERS}
    undefined = [f"{row} {name}: {why}" for row, one in measured.items() for name, why in one.undefined.items()]
    in_context, finetuned = accuracies_by_demonstrations(subject, chosen, config, config.counts, config.curve_sets)
    ends: dict[str, np.ndarray] = {}
    for name in INTERVALS:
        scores = layer_scores(measured[PAPER].similarities[name], "no update")
        ends |= {f"{name}_low": scores.low, f"{name}_high": scores.high}
    return {
        "zero_shot": np.array(chosen.zero_shot), "in_context": chosen.in_context[chosen.best],
        "finetuned": chosen.finetuned[chosen.best], "in_context_by_set": chosen.in_context,
        "finetuned_by_set": chosen.finetuned, "development": chosen.by_rate, "set": np.array(chosen.best),
        "rate": np.array(chosen.rate), "curve_in_context": _curve(chosen, in_context, chosen.in_context),
        "curve_finetuned": _curve(chosen, finetuned, chosen.finetuned), **similar, **numbers, **ends,
        **{f"rate_{name}": values for name, values in by_rate(of_metrics, subject, chosen, config).items()},
        **order_metrics(of_order, subject, chosen, config, config.orders),
    }, undefined  # fmt: skip


def _curve(chosen: Chosen, between: Floats, all_of_them: Floats) -> Floats:
    """(K + 2,) mean over sets of accuracies at no, some and all demonstrations."""
    last = all_of_them[: len(between)].mean()
    return np.array([chosen.zero_shot, *between.mean(0), last])


def table(names: Sequence[str], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means over networks and tasks (similarities: and layers where defined), by position encoding, row and metric."""
    shown: dict[str, Any] = {}
    for positions in ENCODINGS:
        of = {name.removeprefix(f"{positions}_"): a for name, a in arrays.items() if name.startswith(f"{positions}_")}
        columns = {name: of[name].reshape(*of[name].shape[:3], -1) for name in (*SIMILARITIES, *NUMBERS) if name in of}
        if columns:
            shown[positions] = {
                row: {name: _number(present_mean(values[:, :, c], None)) for name, values in columns.items()}
                for c, row in enumerate(names)
            }
    return shown


def _number(value: np.ndarray) -> float | None:
    return round(float(value), 4) + 0.0 if np.isfinite(value) else None  # no -0.0


AXES = {
    "*_curve_*": ("member", "task", "demonstrations"),
    "*_by_set": ("member", "task", "set"),
    "*_development": ("member", "task", "rate"),
    "*_order_*": ("member", "task"),
    "*_rate_*": ("member", "task", "rate", "layer"),
    "*_low": ("member", "task", "layer"),
    "*_high": ("member", "task", "layer"),
    **dict.fromkeys((f"*_{name}" for name in NUMBERS), ("member", "task", "row")),
    **dict.fromkeys(
        (f"*_{name}" for name in ("zero_shot", "in_context", "finetuned", "set", "rate")), ("member", "task")
    ),
    "*": ("member", "task", "row", "layer"),
}

EXPERIMENT = Experiment("dai.implicit_finetuning", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
