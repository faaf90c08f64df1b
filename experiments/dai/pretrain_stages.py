"""How ``pretrain`` trains one network through the stages of its curriculum, and what it measures."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.dai.common import ENCODINGS, Network
from experiments.settings import member_keys
from icl_lab.fast.microbatches import in_microbatches
from icl_lab.lab import Session, setting
from icl_lab.models import LanguageModel
from icl_lab.models.language import last_residual, unembedded
from icl_lab.prompts.text import BEGIN, CLASSES, FIRST_LABEL, LENGTH, Language, TextTask, sentences
from icl_lab.prompts.text_sequences import EXAMPLE, STAGES, Sequences, curriculum, example_rows, unrelated
from icl_lab.prompts.text_tasks import HELD_OUT
from icl_lab.training import Fit

LAST = STAGES[-1]
PART = 4
"""Sequences whose gradient is taken at once: the number that is fastest on a CPU."""


@dataclasses.dataclass(frozen=True)
class Config(Network):
    """How the networks are pre-trained."""

    positions: tuple[str, ...] = setting(ENCODINGS[:2], "position encodings, networks of each", choices=ENCODINGS)
    fewer: tuple[int, ...] = setting((10, 3), "most networks of the second, the third position encoding", at_least=1)
    text: bool = setting(
        False, "no curriculum: text in which every example is of a task of its own, for --steps (Shen et al. 2024)"
    )
    first: int = setting(0, "number of the first network, which decides its language and start", at_least=0)
    batch: int = setting(256, "fresh sequences in a training step", at_least=1)
    most_steps: int = setting(100_000, "most training steps of all stages but the last", at_least=1)
    steps: int = setting(50_000, "training steps of the last stage", at_least=1)
    measure_every: int = setting(100, "steps between measurements, after which a stage may end", at_least=1)
    stage_loss: tuple[float, ...] = setting(
        (1.7, 0.5, 0.8), "loss of predictable tokens at which a stage ends, for each but the last", above=0
    )
    learning_rate: float = setting(3e-4, "of AdamW, after warm-up and until the last stage", above=0)
    warm_up: int = setting(2000, "steps over which the learning rate rises in every stage", at_least=1)
    weight_decay: float = setting(0.01, "of AdamW", at_least=0)
    clip: float = setting(1.0, "norm of the gradient above which it is scaled down", above=0)
    label_weight: float = setting(20.0, "of the loss of a label against that of another token", above=0)
    eval_tasks: int = setting(256, "sequences that measure a stage", at_least=1)
    held_out_tasks: int = setting(100, "sequences of each held-out task at every measurement", at_least=1)
    test_tasks: int = setting(2000, "sequences of each held-out task at the end", at_least=1)


def train(
    session: Session, config: Config, prefix: str, module: LanguageModel, number: int, world: dict[str, Any]
) -> tuple[dict, dict[str, Any]]:
    """One network through the stages: its params, and what was measured.

    A stage ends when its ``late_loss`` is at its goal, the last one after ``steps``; a network that has not got to the
    last stage after ``most_steps`` stops there.

    Args:
      session: where it runs; every stage is a training of its own there.
      config: the setting.
      prefix: begins the names of its trainings, with the number and the stage behind it.
      module: what is trained.
      number: of the network.
      world: its ``language``, ``tasks`` and ``held_out`` sets of labels, with a leading axis of one.

    Returns:
      Params; and ``reached``, how many stages came to their end; ``end/late_loss``, ``end/label_entropy`` and
      ``end/steps`` (4,) where every stage ended; and by stage the curves of ``_measured`` (R, ..), NaN where it was
      not measured.
    """
    key, left = member_keys(config, 0, number + 1)[number], config.most_steps
    names = ("late_loss", "label_entropy")
    end: dict[str, np.ndarray] = {name: np.full(len(STAGES), np.nan) for name in names}
    end["steps"], reached = np.zeros(len(STAGES), int), 0
    params: dict[str, Any] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    for i, stage in enumerate(STAGES):
        if config.text and stage != LAST:
            reached += 1
            continue
        steps, goal = (config.steps, -np.inf) if stage == LAST else (left, config.stage_loss[i])
        if not steps:
            break
        fitted = _fit(
            session, f"{prefix}_{number}_{stage}", config, module, stage, steps, goal,
            jax.random.fold_in(key, i)[None], world | ({"start": params} if params else {}),
        )  # fmt: skip
        params, curves[stage] = fitted.params, {name: values[0] for name, values in fitted.metrics.items()}
        end["steps"][i] = fitted.steps[-1]
        for name in names:
            end[name][i] = curves[stage][name][-1]
        if stage != LAST and not end["late_loss"][i] <= goal:
            break
        reached, left = reached + 1, left - end["steps"][i]
    nothing, padded = {name: curve[:0] for name, curve in next(iter(curves.values())).items()}, {}
    for stage in STAGES:
        rows = (config.steps if stage == LAST else config.most_steps) // config.measure_every + 1
        padded[stage] = {name: _padded(curve, rows) for name, curve in curves.get(stage, nothing).items()}
    own = jax.tree.map(lambda leaf: np.asarray(leaf[0]), params)
    return own, {"reached": np.array(reached), "end": end, **padded}


def _padded(curve: np.ndarray, rows: int) -> np.ndarray:
    missing = np.full((rows - len(curve), *curve.shape[1:]), np.nan, np.float32)
    return np.concatenate([curve, missing])


def _fit(
    session: Session, name: str, config: Config, module: LanguageModel, stage: str, steps: int, goal: float,
    keys: Array, settings: dict[str, Any],
) -> Fit:  # fmt: skip
    """One stage of one network, (1,) keys and settings, until its ``late_loss`` is at its goal."""
    rate, warm = config.learning_rate, config.warm_up
    schedule = optax.warmup_constant_schedule(rate / warm, rate, warm)
    if stage == LAST:  # half a cosine, to a fiftieth
        schedule = optax.warmup_cosine_decay_schedule(rate / warm, rate, warm, config.steps, rate / 50)

    def init(key: Array, setting: dict) -> dict:
        return setting["start"] if "start" in setting else dict(module.init(key, jnp.zeros(2, int)))

    def of_part(params: dict, part: tuple[Sequences, Array]) -> Array:
        sequences, starts = part
        losses, _ = next_token_losses(module, params, sequences.tokens, starts)
        weights = jnp.where(sequences.labels[:, 1:], config.label_weight, 1.0)
        return ((losses * weights).sum(1) / weights.sum(1)).mean()

    def loss(params: dict, key: Array, setting: dict) -> Array:
        of_sequences, of_starts = jax.random.split(key)
        sequences = _sampler(config, setting, stage)(of_sequences, config.batch)
        starts = jax.random.randint(of_starts, (config.batch,), 0, config.offsets + 1)
        return in_microbatches(of_part, math.gcd(PART, config.batch))(params, (sequences, starts))

    return session.fit(
        name, init, loss,
        optax.chain(optax.clip_by_global_norm(config.clip), optax.adamw(schedule, weight_decay=config.weight_decay)),
        keys, settings,
        steps=steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: _measured(config, module, stage, params, key, setting),
        members_at_once=1 if jax.default_backend() == "cpu" else None,
        until=lambda row: bool(np.isfinite(row["train_loss"]).all() and (row["late_loss"] <= goal).all()),
    )  # fmt: skip


def _sampler(config: Config, setting: dict, stage: str) -> Callable[[Array, int], Sequences]:
    of = setting["language"], setting["held_out"], config.demonstrations
    return unrelated(*of) if config.text else curriculum(*of)[stage]


def next_token_losses(
    module: LanguageModel, params: dict, tokens: Array, starts: Array | None = None
) -> tuple[Array, Array]:
    """Cross-entropies (B, T - 1) of the next tokens, and whether the most likely one is right."""
    rows = last_residual(module, params, tokens[:, :-1], starts=starts)
    logits = unembedded(params["params"], rows)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return losses, logits.argmax(-1) == tokens[:, 1:]


def _measured(
    config: Config, module: LanguageModel, stage: str, params: dict, key: Array, setting: dict
) -> dict[str, Array]:
    """What is measured of a network.

    On new sequences of the stage ``late_loss`` and ``late_accuracy``, of the tokens that their context predicts,
    ``all_loss``, and ``label_entropy``, the loss of guessing among the labels of a context; ``accuracy`` (6, n + 1) on
    the held-out tasks behind 0 .. n demonstrations, among the task's labels.
    """
    of_stage, of_tasks = jax.random.split(key)
    sequences = _sampler(config, setting, stage)(of_stage, config.eval_tasks)
    losses, right = next_token_losses(module, params, sequences.tokens)
    late = sequences.late[:, 1:]
    mean = lambda values: jnp.where(late, values, 0).sum() / late.sum()  # noqa: E731
    return {
        "late_loss": mean(losses),
        "late_accuracy": mean(right),
        "all_loss": losses.mean(),
        "label_entropy": sequences.entropy.mean(),
        "accuracy": accuracies_of_tasks(config, module, params, of_tasks, setting, config.held_out_tasks),
    }


def accuracies_of_tasks(
    config: Config, module: LanguageModel, params: dict, key: Array, setting: dict, count: int
) -> Array:
    """(6, n + 1) accuracies of one network on ``count`` sequences of each task."""

    def one(own: tuple) -> Array:
        return accuracies(config.demonstrations, module, params, own[0], setting["language"], own[1], count)

    return jax.lax.map(one, (jax.random.split(key, len(HELD_OUT)), setting["tasks"]))


def accuracies(
    demonstrations: int, module: LanguageModel, params: dict, key: Array, of: Language, task: TextTask, count: int
) -> Array:
    """(n + 1,) accuracies on ``count`` sequences of a task behind 0 .. n demonstrations."""
    examples = demonstrations + 1
    words, classes = sentences(key, of, task, count * examples)
    rows = example_rows(task, words, classes).reshape(count, -1)
    tokens = jnp.concatenate([jnp.full((count, 1), BEGIN), rows], axis=1)
    asked = 2 + LENGTH + EXAMPLE * np.arange(examples)  # the field before a label predicts it
    logits = unembedded(params["params"], last_residual(module, params, tokens)[:, asked])[
        ..., FIRST_LABEL + task.labels
    ]
    among = jnp.where(jnp.arange(CLASSES)[None, None] < task.classes, logits, -jnp.inf)
    return (among.argmax(-1) == classes.reshape(count, examples)).mean(0)
