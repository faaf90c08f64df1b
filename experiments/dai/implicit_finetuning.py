"""Is in-context learning fine-tuning? All metrics of Dai et al. 2022 (section 4), each beside its controls.

The networks of ``pretrain`` answer six held-out tasks in three settings: without demonstrations (ZSL), with them in the
context (ICL), and after fine-tuning keys and values on them, one SGD step an example (FT). The paper finds that ICL
corrects the answers that FT corrects (Rec2FTP), changes attention outputs in a similar direction (SimAOU), makes
attention scores similar (SimAM), and ranks training tokens alike (Kendall). Each metric can be high for reasons that
have nothing to do with learning: an accurate learner corrects everything, normalising makes updates similar, scores of
one network are similar. So every metric is shown with its base rate or floor, and with controls: networks that cannot
learn in context (Deutch et al. 2024), noise in place of the update, fine-tuning on another task or on wrong labels,
contexts that teach nothing. Every other update is made as large as the paper's in each layer, because similarities
depend on size. The sensitivity to the order of the demonstrations is that of Shen et al. 2024.

Beyond the paper: what of SimAOU lies along the directions that decide among the labels, and what attention outputs of
in-context learning and of fine-tuning do when they are put into the zero-shot run, layer by layer.

Everything is a mean over all sets of demonstrations; only the learning rate is chosen, on development questions
(``experiments.dai.rates``). Networks that learn in context are judged (ICL at least 10 points over ZSL on 4 of the 6
tasks), those of each position encoding apart; the others are counted.
"""

import dataclasses
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai import analysis, controls
from experiments.dai.analysis import FEW, SMALL, SMALLEST, Chosen, Subject, present_mean
from experiments.dai.carried import alpha, carried
from experiments.dai.controls import CONTROLS, FROM_SECOND, NUMBERS, PAPER, SIMILARITIES, Elsewhere
from experiments.dai.findings import FINDINGS
from experiments.dai.headlines import QUICK
from experiments.dai.implicit_finetuning_claims import CLAIMS
from experiments.dai.implicit_finetuning_figures import figures
from experiments.dai.networks import by_positions, every_network, load_networks, one_network, source_digest, stacked
from experiments.dai.rates import Floats
from experiments.dai.real_text import Files, check_files, real_subject
from experiments.dai.tables import tables
from experiments.settings import check_each_once, member_keys
from icl_lab.lab import Experiment, FlagError, Session, main, setting
from icl_lab.prompts.text_tasks import HELD_OUT

ACCURACIES = ("zero_shot", "in_context", "finetuned", "finetuned_free", "chance", "ceiling")
ELSEWHERE = ("wrong_task", "wrong_demonstrations")
"""Controls that need another task."""
ASKED = 200
"""PRNG stream of the test questions."""
OWN_CONTROLS = tuple(name for name in CONTROLS if name != "text")
"""Those that need no other networks."""


@dataclasses.dataclass(frozen=True)
class Config(Files):
    """The analysis, with its controls."""

    controls: tuple[str, ...] = setting(OWN_CONTROLS, "rows of the table beside the paper's", choices=CONTROLS)
    text_networks: str = setting(
        "", "for the row text: folder of a run of dai.pretrain without in-context tasks, of the same seed and sizes",
        path=True,
    )  # fmt: skip
    counts: tuple[int, ...] = setting((1, 2, 4, 8, 16), "numbers of demonstrations beside 0 and all", at_least=1)
    curve_sets: int = setting(7, "sets of demonstrations that the curve over their number is a mean of", at_least=1)
    orders: int = setting(10, "permutations of the demonstrations", at_least=2)
    normalise: bool = setting(True, "figures over learning rates show SimAOU of normalised states, as in the paper")


PRESETS = {
    "smoke": Config(**SMALLEST, controls=("random_update",), counts=(1,), curve_sets=1, orders=2),
    "quick": Config(
        **FEW, controls=("random_update", "wrong_task"), counts=(4,), curve_sets=1, orders=2,
    ),
    "lab": Config(
        **SMALL, members=30, positions=("sinusoidal", "rotary"), fewer=(20, 3), counts=(1, 2, 4, 8), curve_sets=2
    ),
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
    if bool(config.text_networks) != ("text" in config.controls):
        raise FlagError(f"--text_networks={config.text_networks}: allowed with text among --controls, and needed there")
    if config.curve_sets > config.seeds:
        raise FlagError(f"--curve_sets={config.curve_sets}: allowed is at most --seeds={config.seeds}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays (M, 6, ..) by position encoding, then by the names of ``of_task``.

    Metrics: tables by row and by task; and why a number is not defined, with how often that is so.

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
    named: dict[str, Any] = {"rows": rows, "tasks": of_tasks, "networks": source} | tables(rows, of_tasks, arrays)
    return named | {"undefined": {positions: dict(reasons) for positions, reasons in undefined.items()}}, arrays


def _asked(config: Config, session: Session) -> Iterator[tuple[str, Array, list[Subject]]]:
    """Of every network its position encoding, a key, and its tasks: the held-out ones, or the one of a file."""
    if config.gpt2_weights:
        yield "learned", member_keys(config, ASKED)[0], [real_subject(config)._replace(position=config.position)]
        return
    members: Counter[str] = Counter()
    for positions, key, network in every_network(config, session, ASKED):
        of_material, of_rows = jax.random.split(key)
        others = {}
        if config.text_networks:
            number = config.first + members[positions]
            of_text = one_network(load_networks(config.text_networks, positions, 1, number), 0)
            others["text"] = _of_same_size(of_text.params, network.params, config.text_networks)
        members[positions] += 1
        yield positions, of_rows, analysis.subjects(of_material, network, config, others)


def _of_same_size(params: Any, as_large: Any, folder: str) -> Any:
    if jax.tree.map(np.shape, params) != jax.tree.map(np.shape, as_large):
        raise FlagError(f"--text_networks={folder}: allowed are networks of the sizes of those of --networks")
    return params


def analysed(key: Array, asked: list[Subject], config: Config) -> tuple[dict[str, Any], list[str]]:
    """Arrays (6, ..) by name, of one network on all tasks; and why numbers are not defined."""
    sets = range(config.seeds)
    chosen = [[analysis.choose(subject, config, s, jax.random.fold_in(key, s)) for s in sets] for subject in asked]
    keys, found = jax.random.split(key, len(asked)), []
    for t, (subject, own) in enumerate(zip(asked, chosen)):
        others = chosen[(t + len(asked) // 2) % len(asked)]  # of another family
        elsewhere = [Elsewhere(one.demonstrations, analysis.jobs_of(one.task, one.rate)) for one in others]
        found.append(of_task(keys[t], subject, own, elsewhere, config))
    return stacked([arrays for arrays, _ in found]), [reason for _, reasons in found for reason in reasons]


def of_task(
    key: Array, subject: Subject, chosen: list[Chosen], elsewhere: list[Elsewhere], config: Config
) -> tuple[dict[str, Any], list[str]]:
    """Everything that is measured of a network on one task, and why numbers are not defined. C rows of the table.

    Accuracies ``zero_shot``, ``in_context``, ``finetuned`` and ``finetuned_free`` (at the rate that is chosen without
    regard to the size of the change), ``chance`` and ``ceiling``; ``by_set`` (S,) with each set; ``curve`` (K + 2,)
    against the number of demonstrations; ``rate`` and ``free_rate`` (S,). Similarities (C, L), numbers (C,), and
    ``retest`` (2, C): of similarities and numbers, each on half of the sets and the other half of the questions.
    ``mismatch`` (C, L), ``row_rate`` (C,); ``path``, over rates; ``carried``, by reading; ``alpha``; ``order``.
    """
    of_rows, of_metrics, of_order = jax.random.split(key, 3)
    by_set: list[dict[str, controls.Measured]] = []
    beside: list[dict[str, Any]] = []
    for s, (one, other) in enumerate(zip(chosen, elsewhere)):
        of_set = jax.random.fold_in(of_rows, s)
        table = controls.readings(of_set, subject, one, config, config.controls, other)
        own = jax.random.fold_in(of_metrics, s)
        by_set.append({name: controls.measured(own, reading, one.task, config) for name, reading in table.items()})
        free = subject.tuned_once(analysis.jobs_of(one.task, one.free_rate))
        free_accuracy = analysis.accuracy(subject.read(free.weights, one.task, "zero_shot"), one.task)
        beside.append({
            "finetuned_free": np.array(free_accuracy), "rate": np.array(one.rate), "free_rate": np.array(one.free_rate),
            "mismatch": np.stack([reading.mismatch for reading in table.values()]),
            "row_rate": np.array([reading.rate for reading in table.values()]), "path": one.path,
            "carried": carried(subject, table[PAPER], one.task),
            "alpha": alpha(table[PAPER], table["local"]) if "local" in table else {},
        })  # fmt: skip
    over_sets = stacked(beside)
    rates = {name: over_sets.pop(name) for name in ("rate", "free_rate")}
    mean = jax.tree.map(lambda values: present_mean(values, 0), over_sets)
    mean |= {
        "mismatch": np.abs(over_sets["mismatch"]).max(0),
        "row_rate": np.exp(np.log(over_sets["row_rate"]).mean(0)),
    }
    targets, found = chosen[0].task.targets, {name: joined([one[name] for one in by_set]) for name in by_set[0]}
    whole, undefined = [], []
    for name, row in found.items():
        numbers, reasons = row_numbers(row, targets)
        whole.append(numbers)
        undefined += [f"{name} {metric}: {why}" for metric, why in reasons.items()]
    parts = [[retested(row, targets, half) for row in found.values()] for half in (0, 1)]
    paper = found[PAPER]
    every = {"in_context": paper.hits[1].mean(-1), "finetuned": paper.hits[2].mean(-1)}
    zero_shot = paper.hits[0].mean()
    between = analysis.accuracies_by_demonstrations(subject, config, config.counts, config.curve_sets)
    between_all = {"in_context": every["in_context"], "finetuned": over_sets["finetuned_free"]}
    classes = len(set(chosen[0].task.candidates.tolist()))
    return {
        "zero_shot": zero_shot, **{name: values.mean() for name, values in every.items()}, "by_set": every, **rates,
        "chance": np.array(1 / classes), "ceiling": np.array(subject.material.ceiling),
        "curve": {name: _curve(zero_shot, some, between_all[name]) for name, some in zip(every, between)},
        **{name: np.stack([present_mean(row.similarities[name], (0, 1)) for row in found.values()])
           for name in SIMILARITIES},
        **{name: np.array([one[name] for one in whole]) for name in NUMBERS},
        "retest": {name: np.array([[row[name] for row in part] for part in parts]) for name in parts[0][0]},
        **mean, "order": controls.order_metrics(of_order, subject, chosen[0], config.orders),
    }, undefined  # fmt: skip


def joined(rows: list[controls.Measured]) -> controls.Measured:
    """What was measured behind S sets as one: similarities (S, I, L), answers (S, I), what was said (3, S, I)."""
    return controls.Measured(
        similarities=stacked([row.similarities for row in rows]), answers=stacked([row.answers for row in rows]),
        said=np.stack([row.said for row in rows], 1), hits=np.stack([row.hits for row in rows], 1),
    )  # fmt: skip


def row_numbers(row: controls.Measured, targets: np.ndarray) -> tuple[dict[str, float], dict[str, str]]:
    """``NUMBERS`` of a row; and why a number or a similarity is not defined, by name."""
    found, undefined = controls.scores(row.said, row.hits, targets)
    found |= {name: float(values.mean()) for name, values in row.answers.items()}
    for name, values in row.similarities.items():
        layers = np.flatnonzero(np.isnan(values).all((0, 1)))
        if layers.size and not name.startswith("kendall"):  # which has no value in the first layer
            undefined[name] = f"nothing changed in layers {', '.join(map(str, layers + 1))}"
    return found, undefined


def retested(row: controls.Measured, targets: np.ndarray, half: int) -> dict[str, float]:
    """All metrics of a row on every second set and every second question; with one set the questions alone."""
    sets = slice(half, None, 2) if len(row.hits[0]) > 1 else slice(None)
    similarities, answers = (
        {name: values[sets, half::2] for name, values in of.items()} for of in (row.similarities, row.answers)
    )
    part = controls.Measured(similarities, answers, row.said[:, sets, half::2], row.hits[:, sets, half::2])
    numbers, _ = row_numbers(part, targets[half::2])
    layers = {name: values[..., int(name in FROM_SECOND) :] for name, values in part.similarities.items()}
    return numbers | {name: float(present_mean(values, None)) for name, values in layers.items()}


def _curve(zero_shot: float, between: Floats, all_of_them: Floats) -> Floats:
    """(K + 2,) mean over sets of accuracies at no, some and all demonstrations."""
    last = all_of_them[: len(between)].mean()
    return np.array([zero_shot, *between.mean(0), last])


_OF = ("{0}_member", "task")
AXES = {
    "*/curve/*": (*_OF, "demonstrations"),
    "*/by_set/*": (*_OF, "set"),
    "*/rate": (*_OF, "set"),
    "*/free_rate": (*_OF, "set"),
    "*/retest/*": (*_OF, "half", "row"),
    "*/row_rate": (*_OF, "row"),
    "*/path/accuracy": (*_OF, "rate"),
    "*/path/size": (*_OF, "rate"),
    "*/path/log_probability": (*_OF, "rate"),
    "*/path/*": (*_OF, "rate", "layer"),
    "*/carried/*/*/layer": (*_OF, "layer"),
    **dict.fromkeys(("*/carried/*", "*/alpha/*", "*/order/*"), _OF),
    **dict.fromkeys((f"*/{name}" for name in NUMBERS), (*_OF, "row")),
    **dict.fromkeys((f"*/{name}" for name in ACCURACIES), _OF),
    "*/*": (*_OF, "row", "layer"),
}

EXPERIMENT = Experiment(
    "dai.implicit_finetuning", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES,
    quick=QUICK["implicit_finetuning"], effort={"quick": "little"},
    finding=FINDINGS["implicit_finetuning"], given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
