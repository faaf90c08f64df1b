"""A small language model that learns in context: the network that the other binaries of this paper analyse.

GPT-2 (pre-LN, tied embeddings; rotary or learned absolute positions) is trained on sequences of classified sentences in
a made-up language, and tested on six held-out tasks that stand for the data sets of Dai et al. 2022; no training
sequence has their set of labels. The label of the first example of a sequence can only be guessed from meanings
(zero-shot), the last one has all others as demonstrations.

Trained on such sequences from a random start, the network only learns which labels occur in its context: the loss of
labels stays at the entropy of the set of labels (a line of its own in the figure). A curriculum of four stages takes it
further: repeated strings, words with their labels, sentences of clear classes, the mixture of all families. A member
enters the next stage when its loss is low enough. Loss: cross-entropy of every next token, that of labels counted 20
times (once in the first stage).

The network is pre-trained on sequences of the same form as those of the test, which Shen et al. 2024 criticise in toy
models: what is found here holds for a network that was trained to learn in context.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.dai.common import ENCODINGS, Network, check_network, network, worlds
from experiments.dai.findings import FINDINGS
from experiments.dai.headlines import QUICK
from experiments.dai.pretrain_claims import CLAIMS
from experiments.dai.pretrain_figures import figures
from experiments.settings import check as check_schedule
from experiments.settings import check_each_once, member_keys
from icl_lab.fast.microbatches import in_microbatches
from icl_lab.lab import Experiment, FlagError, Session, main, setting
from icl_lab.models import LanguageModel, language_logits
from icl_lab.prompts.text import BEGIN, CLASSES, FIRST_LABEL, LENGTH, Language, TextTask, sentences
from icl_lab.prompts.text_sequences import EXAMPLE, STAGES, Sequences, curriculum, example_rows
from icl_lab.prompts.text_tasks import HELD_OUT, ceiling_accuracy, held_out_sets
from icl_lab.training import Fit

LAST = len(STAGES) - 1
TEST = 200
"""PRNG stream of the test at the end."""
PART = 4
"""Sequences whose gradient is taken at once: the number that is fastest on a CPU."""


@dataclasses.dataclass(frozen=True)
class Config(Network):
    """How the network is pre-trained."""

    positions: tuple[str, ...] = setting(ENCODINGS, "position encodings, a network for each", choices=ENCODINGS)
    batch: int = setting(256, "fresh sequences in a training step", at_least=1)
    steps: int = setting(100_000, "training steps of all stages, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements, after which a stage may end", at_least=1)
    most_steps: int = setting(15_000, "most steps of a stage; the last one has no limit", at_least=1)
    stage_loss: tuple[float, ...] = setting(
        (1.4, 0.5, 0.8), "loss of predictable tokens at which a stage ends, for each but the last", above=0
    )
    learning_rate: float = setting(3e-4, "of AdamW, after warm-up and until the last stage", above=0)
    warm_up: int = setting(2000, "steps over which the learning rate rises", at_least=1)
    weight_decay: float = setting(0.01, "of AdamW", at_least=0)
    clip: float = setting(1.0, "norm of the gradient above which it is scaled down", above=0)
    label_weight: float = setting(20.0, "of the loss of a label against that of another token", above=0)
    eval_tasks: int = setting(256, "sequences that measure a stage", at_least=1)
    held_out_tasks: int = setting(100, "sequences of each held-out task at every measurement", at_least=1)
    test_tasks: int = setting(2000, "sequences of each held-out task at the end", at_least=1)
    most_zero_shot: float = setting(0.8, "share of a held-out task that meanings alone may answer", above=0, at_most=1)


SMALL: dict[str, Any] = {
    "layers": 4, "heads": 4, "width": 64, "demonstrations": 12, "batch": 16, "learning_rate": 2e-3, "warm_up": 200,
    "measure_every": 50, "most_steps": 2500, "eval_tasks": 64, "held_out_tasks": 16,
    "test_tasks": 500,
}  # fmt: skip
PRESETS = {
    "smoke": Config(
        members=1, layers=1, heads=2, width=8, demonstrations=2, positions=("rotary",), batch=2, steps=4,
        measure_every=2, most_steps=2, warm_up=2, learning_rate=2e-3, eval_tasks=2, held_out_tasks=2,
        test_tasks=4,
    ),
    "quick": Config(**SMALL | {"members": 1, "positions": ("rotary",), "steps": 100, "warm_up": 50, "test_tasks": 50}),
    "lab": Config(**SMALL, steps=7500),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_schedule(config)
    check_network(config)
    check_each_once("positions", config.positions)
    if len(config.stage_loss) != LAST:
        given = ",".join(map(str, config.stage_loss))
        raise FlagError(f"--stage_loss={given}: allowed is one for each of {', '.join(STAGES[:LAST])}")
    if config.warm_up >= config.steps:
        raise FlagError(f"--warm_up={config.warm_up}: allowed is less than --steps={config.steps}")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the members of every position encoding; those of one number share language, tasks and sequences."""
    of, tasks, keys = worlds(config, config.most_zero_shot)
    ceilings = jax.jit(jax.vmap(jax.vmap(ceiling_accuracy, (0, None, 0)), (None, 0, 0)))
    drawn = {"language": vars(of), "task": vars(tasks)}
    arrays: dict[str, Any] = jax.tree.map(np.asarray, drawn)
    arrays["ceiling"] = np.asarray(ceilings(jax.random.split(jax.random.key(config.seed), len(HELD_OUT)), of, tasks))
    for positions in config.positions:
        fitted = _train(session, positions, config, of, tasks, keys)
        final = _final_accuracies(config, positions, fitted.params, of, tasks)
        arrays |= {"steps": fitted.steps, positions: {**fitted.metrics, "final_accuracy": final}}
    return {"tasks": [task.stands_for for task in HELD_OUT], "stages": list(STAGES)}, arrays


def _train(session: Session, positions: str, config: Config, of: Language, tasks: TextTask, keys: Array) -> Fit:
    """Metrics of a measurement: those of ``_measured``."""
    module = network(config, positions)
    members = config.members
    setting = {
        "language": of, "tasks": tasks, "held_out": jax.vmap(held_out_sets)(keys), "stage": jnp.zeros(members, int),
        "since": jnp.zeros(members, int), "learning_rate": jnp.full(members, _warmed(config, 0)),
    }  # fmt: skip

    def of_part(params: dict, sequences: Sequences) -> Array:
        losses, _ = next_token_losses(module, params, sequences.tokens)
        weights = jnp.where(sequences.labels[:, 1:], config.label_weight, 1.0)
        return ((losses * weights).sum(1) / weights.sum(1)).mean()

    def loss(params: dict, key: Array, setting: dict) -> Array:
        sequences = _sampler(config, setting)(key, config.batch, setting["stage"])
        return in_microbatches(of_part, math.gcd(PART, config.batch))(params, sequences)

    def optimizer(setting: dict) -> optax.GradientTransformation:
        # the rate changes between chunks, so it must come after Adam's state and be no part of it
        adam = optax.adamw(1.0, weight_decay=config.weight_decay)
        return optax.chain(optax.clip_by_global_norm(config.clip), adam, optax.scale(setting["learning_rate"]))

    return session.fit(
        positions,
        lambda key, _: dict(module.init(key, jnp.zeros(2, int))),
        loss,
        optimizer,
        member_keys(config),
        setting,
        steps=config.steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: _measured(config, module, params, key, setting),
        members_at_once=1 if jax.default_backend() == "cpu" else None,
        adapt=lambda setting, step, row: led(config, setting, step, row["late_loss"]),
    )


def _sampler(config: Config, setting: dict) -> Callable[..., Sequences]:
    return curriculum(setting["language"], setting["held_out"], config.demonstrations)


def next_token_losses(module: LanguageModel, params: dict, tokens: Array) -> tuple[Array, Array]:
    """Cross-entropies (B, T - 1) of the next tokens, and whether the most likely one is right."""
    logits = language_logits(module, params, tokens)[:, :-1]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return losses, logits.argmax(-1) == tokens[:, 1:]


def led(config: Config, setting: dict, step: int, late_loss: np.ndarray) -> dict:
    """The settings after a measurement: the stage of every member, and its learning rate.

    A stage ends when the loss of its predictable tokens falls below its threshold, or after ``most_steps``. The rate
    rises over ``warm_up`` steps, is constant until the last stage, and then falls as a half cosine to a fiftieth.
    """
    stage, since = np.asarray(setting["stage"]), np.asarray(setting["since"])
    threshold = np.array([*config.stage_loss, -np.inf])[stage]
    ended = (late_loss < threshold) | ((step - since >= config.most_steps) & (stage < LAST))
    stage, since = stage + ended, np.where(ended, step, since)
    done = (step - since) / np.maximum(config.steps - since, 1)
    falling = np.maximum(0.5 * (1 + np.cos(np.pi * done)), 0.02)
    rate = np.where(stage == LAST, config.learning_rate * falling, _warmed(config, step))
    return setting | {
        "stage": jnp.asarray(stage), "since": jnp.asarray(since), "learning_rate": jnp.asarray(rate, jnp.float32),
    }  # fmt: skip


def _warmed(config: Config, step: int) -> float:
    """The learning rate of the chunk that begins at this step, of its last step."""
    return config.learning_rate * min(1.0, (step + config.measure_every) / config.warm_up)


def _measured(config: Config, module: LanguageModel, params: dict, key: Array, setting: dict) -> dict[str, Array]:
    """What is measured of a member.

    ``stage``; on new sequences of it ``late_loss`` and ``late_accuracy``, of the tokens that their context predicts,
    ``all_loss``, and ``label_entropy``, the loss of guessing among the labels of a context; ``accuracy`` (6, n + 1) on
    the held-out tasks behind 0 .. n demonstrations, among the task's labels.
    """
    of_stage, of_tasks = jax.random.split(key)
    sequences = _sampler(config, setting)(of_stage, config.eval_tasks, setting["stage"])
    losses, right = next_token_losses(module, params, sequences.tokens)
    late = sequences.late[:, 1:]
    mean = lambda values: jnp.where(late, values, 0).sum() / late.sum()  # noqa: E731
    tests = partial(_accuracies, config.demonstrations, module, params, of=setting["language"])
    return {
        "stage": setting["stage"],
        "late_loss": mean(losses),
        "late_accuracy": mean(right),
        "all_loss": losses.mean(),
        "label_entropy": sequences.entropy.mean(),
        "accuracy": jax.vmap(lambda key, task: tests(key=key, task=task, count=config.held_out_tasks))(
            jax.random.split(of_tasks, len(HELD_OUT)), setting["tasks"]
        ),
    }


def _final_accuracies(config: Config, positions: str, params: dict, of: Language, tasks: TextTask) -> np.ndarray:
    """(M, 6, n + 1) accuracies of all members at the end, on ``test_tasks`` new sequences of each task."""
    module = network(config, positions)

    def member(key: Array, params: dict, of: Language, tasks: TextTask) -> Array:
        keys = jax.random.split(key, len(HELD_OUT))
        test = partial(_accuracies, config.demonstrations, module, params, of=of, count=config.test_tasks)
        return jax.lax.map(lambda one: test(key=one[0], task=one[1]), (keys, tasks))

    keys = member_keys(config, TEST)
    return np.asarray(jax.jit(lambda *members: jax.lax.map(lambda one: member(*one), members))(keys, params, of, tasks))


def _accuracies(
    demonstrations: int, module: LanguageModel, params: dict, *, key: Array, of: Language, task: TextTask, count: int
) -> Array:
    """(n + 1,) accuracies on ``count`` sequences of a task behind 0 .. n demonstrations."""
    examples = demonstrations + 1
    words, classes = sentences(key, of, task, count * examples)
    rows = example_rows(task, words, classes).reshape(count, -1)
    tokens = jnp.concatenate([jnp.full((count, 1), BEGIN), rows], axis=1)
    asked = 2 + LENGTH + EXAMPLE * np.arange(examples)  # the field before a label predicts it
    logits = language_logits(module, params, tokens)[:, asked][..., FIRST_LABEL + task.labels]
    among = jnp.where(jnp.arange(CLASSES)[None, None] < task.classes, logits, -jnp.inf)
    return (among.argmax(-1) == classes.reshape(count, examples)).mean(0)


AXES = {
    "steps": ("step",),
    "ceiling": ("member", "task"),
    "language/*": ("member", "{0}", "meaning"),
    "task/directions": ("member", "task", "class", "place", "meaning"),
    "task/labels": ("member", "task", "class"),
    "task/*": ("member", "task"),
    "*/final_accuracy": ("member", "task", "demonstrations"),
    "*/accuracy": ("member", "step", "task", "demonstrations"),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "dai.pretrain", __doc__, PRESETS, run, figures, CLAIMS, check, lambda c: [f"{name}/*" for name in c["positions"]],
    feeds_others=True, axes=AXES, quick=QUICK["pretrain"], finding=FINDINGS["pretrain"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
