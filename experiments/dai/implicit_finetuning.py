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

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai import analysis
from experiments.dai.analysis import FEW, SMALL, SMALLEST, Subject
from experiments.dai.common import ACCURACY, per_network, stacked
from experiments.dai.comparison import Config, measured_on_task
from experiments.dai.controls import CONTROLS, NUMBERS, PAPER, SIMILARITIES, Elsewhere
from experiments.dai.networks import every_network, load_networks, one_network, source_digest, stacked_by_encoding
from experiments.dai.real_text import check_files, real_subject
from experiments.dai.tables import tables
from experiments.settings import member_keys
from icl_lab.lab import Experiment, FlagError, main
from icl_lab.lab.constraints import at_most, below, holds, once, rising
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.prompts.text_tasks import HELD_OUT

ELSEWHERE = ("wrong_task", "wrong_demonstrations")
"""Controls that need another task."""
ASKED = 200
"""PRNG stream of the test questions."""

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
    """Raises FlagError where files of GPT-2 are not there, or do not fit."""
    if config.gpt2_weights:
        check_files(config)


# ``comparison.measured_on_task`` returns arrays by these names, which ``measured`` yields all at once.
BOTH = ("in_context", "finetuned")
CURVE = per_network("curve/{learner}", "task", "demonstrations", learner=BOTH)
BY_SET = per_network("by_set/{learner}", "task", "set", learner=BOTH)
RATE, FREE_RATE = per_network("rate", "task", "set"), per_network("free_rate", "task", "set")
ROW_RATE = per_network("row_rate", "task", "row")
MISMATCH = per_network("mismatch", "task", "row", "layer")
NUMBER = per_network("{metric}", "task", "row", metric=NUMBERS)
SIMILARITY = per_network("{metric}", "task", "row", "layer", metric=SIMILARITIES)
RETEST = per_network("retest/{metric}", "task", "half", "row", metric=NUMBERS + SIMILARITIES)
PATH = per_network("path/{metric}", "task", "rate", metric=("accuracy", "size", "log_probability"))
PATH_BY_LAYER = per_network("path/{metric}", "task", "rate", "layer", metric=SIMILARITIES)
_CARRIED = {"reading": (*BOTH, "finetuned_sized"), "measure": ("accuracy", "log_probability")}
CARRIED = per_network("carried/{reading}/{measure}/{place}", "task", place=("all", "answer"), **_CARRIED)
CARRIED_BY_LAYER = per_network("carried/{reading}/{measure}/layer", "task", "layer", **_CARRIED)
ALPHA = per_network("alpha/{changed}", "task", changed=("scores", "outputs"))
ORDER = per_network(
    "order/{learner}/{measure}", "task", learner=("in_context", "sequential", "full_batch"),
    measure=("log_probability", "accuracy"),
)  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Arrays (M, 6, ..) by position encoding, then by the names of ``measured_on_task``.

    Facts: tables by row and by task; and why a number is not defined, with how often that is so.

    Raises:
      FlagError: where the networks are not there, or files of GPT-2 cannot be used.
    """
    by_network: list[tuple[str, dict[str, Any]]] = []
    undefined: dict[str, Counter[str]] = defaultdict(Counter)
    for encoding, key, subjects in _asked(config, fits):
        metrics, reasons = analysed(key, subjects, config)
        by_network.append((encoding, metrics))
        undefined[encoding].update(reasons)
    arrays = stacked_by_encoding(by_network)
    yield arrays
    rows = [PAPER, *(name for name in CONTROLS if name in config.controls)]
    of_tasks = [Path(config.examples).stem] if config.gpt2_weights else [task.stands_for for task in HELD_OUT]
    yield "facts", {"rows": rows, "tasks": of_tasks, "networks": source_digest(config.gpt2_weights or config.networks)}
    yield "facts", tables(rows, of_tasks, arrays) | {"undefined": {one: dict(why) for one, why in undefined.items()}}


def _asked(config: Config, fits: Fits) -> Iterator[tuple[str, Array, list[Subject]]]:
    """Of every network its position encoding, a key, and its tasks: the held-out ones, or the one of a file."""
    if config.gpt2_weights:
        yield "learned", member_keys(config, ASKED)[0], [real_subject(config)]
        return
    members: Counter[str] = Counter()
    for encoding, key, network in every_network(config, fits, ASKED):
        material_key, rows_key = jax.random.split(key)
        others = {}
        if config.text_networks:
            number = config.first + members[encoding]
            of_text = one_network(load_networks(config.text_networks, encoding, 1, number), 0)
            others["text"] = of_text.params
            if jax.tree.map(np.shape, of_text.params) != jax.tree.map(np.shape, network.params):
                allowed = "allowed are networks of the sizes of those of --networks"
                raise FlagError(f"--text_networks={config.text_networks}: {allowed}")
        members[encoding] += 1
        yield encoding, rows_key, analysis.subjects(material_key, network, config, others)


def analysed(key: Array, asked: list[Subject], config: Config) -> tuple[dict[str, Any], list[str]]:
    """Arrays (6, ..) by name, of one network on all tasks; and why numbers are not defined."""
    sets = range(config.seeds)
    chosen = [[analysis.choose(subject, config, s, jax.random.fold_in(key, s)) for s in sets] for subject in asked]
    keys, by_task = jax.random.split(key, len(asked)), []
    for t, (subject, choices) in enumerate(zip(asked, chosen)):
        others = chosen[(t + len(asked) // 2) % len(asked)]  # of another family
        elsewhere = [Elsewhere(one.demonstrations, analysis.jobs_of(one.task, one.rate)) for one in others]
        by_task.append(measured_on_task(keys[t], subject, choices, elsewhere, config))
    return stacked([arrays for arrays, _ in by_task]), [reason for _, reasons in by_task for reason in reasons]


EXPERIMENT = Experiment(
    "dai.implicit_finetuning", __doc__, PRESETS, measured,
    (
        ACCURACY, CURVE, BY_SET, RATE, FREE_RATE, ROW_RATE, MISMATCH, NUMBER, SIMILARITY, RETEST, PATH, PATH_BY_LAYER,
        CARRIED, CARRIED_BY_LAYER, ALPHA, ORDER,
    ),
    constraints=(
        *analysis.CONSTRAINTS,
        once("controls"),
        rising("counts"),
        below("counts", "demonstrations"),
        at_most("curve_sets", "seeds"),
        holds("a folder with text among --controls, and only then", "text_networks", "controls",
              when=lambda c: bool(c.text_networks) == ("text" in c.controls)),
        holds(f"--members=1 --positions=learned without {' or '.join(ELSEWHERE)} with --gpt2_weights: it is one "
              "network, asked one task", "members", "positions", "controls",
              when=lambda c: not c.gpt2_weights or (
                  c.members == 1 and c.positions == ("learned",) and not set(ELSEWHERE) & set(c.controls))),
    ),
    check=check, effort={"quick": "little"}, given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
