"""How ``pretrain`` trains one network through the stages of its curriculum, and what it measures."""

import dataclasses
import functools
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
from icl_lab.lab import setting
from icl_lab.lab.trainings import After, Fits, Table
from icl_lab.models import LanguageModel
from icl_lab.models.language import last_residual, unembedded
from icl_lab.prompts.text import BEGIN, CLASSES, FIRST_LABEL, LENGTH, Language, TextTask, language, sentences
from icl_lab.prompts.text_sequences import EXAMPLE, STAGES, Sequences, curriculum, example_rows, unrelated
from icl_lab.prompts.text_tasks import HELD_OUT, held_out_sets, held_out_tasks
from icl_lab.training import Fit, Training

LAST = STAGES[-1]
WORLDS = 100
"""PRNG stream of languages and held-out tasks."""
TEST = 200
"""PRNG stream of the test at the end."""
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


@functools.cache
def worlds_of(config: Config) -> dict[str, Any]:
    """The ``language`` of every network, its held-out ``tasks``, and the sets of labels that are ``held_out``."""

    def world(key: Array) -> dict[str, Any]:
        of_language, of_tasks = jax.random.split(key)
        drawn = language(of_language)
        return {"language": drawn, "tasks": held_out_tasks(of_tasks, drawn), "held_out": held_out_sets(of_tasks)}

    keys = member_keys(config, WORLDS, config.first + config.members)[config.first :]
    return jax.device_get(jax.jit(jax.vmap(world))(keys))


def trainings_of(config: Config, prefix: str, module: LanguageModel, members: int) -> Table:
    """Every stage of the first M networks of a module, a training each, named by prefix, number and stage.

    A stage starts where the one before ended. It ends when its ``late_loss`` is at its goal, the last one after
    ``steps``; a network that has not got to the last stage after ``most_steps`` stops there.
    """

    def planned(m: int, stage: str, fits: Fits) -> Training | None:
        i, number = STAGES.index(stage), config.first + m
        before = [] if config.text else [fits[f"{prefix}_{number}_{earlier}"] for earlier in STAGES[:i]]
        through, left = _progress(config, before)
        steps, goal = (config.steps, -np.inf) if stage == LAST else (left, config.stage_loss[i])
        if not through or not steps:
            return None
        world = jax.tree.map(lambda leaf: leaf[m : m + 1], worlds_of(config))
        start = {"start": before[-1].params} if before else {}
        key = jax.random.fold_in(member_keys(config, 0, number + 1)[number], i)[None]
        return _planned(config, module, stage, steps, goal, key, world | start)

    return {
        f"{prefix}_{config.first + m}_{stage}": After(functools.partial(planned, m, stage))
        for m in range(members)
        for stage in _stages(config)
    }


def _stages(config: Config) -> tuple[str, ...]:
    return (LAST,) if config.text else STAGES


def _progress(config: Config, fits: list[Fit | None]) -> tuple[bool, int]:
    """Whether a network came through these stages, the first ones, and the steps left for others but the last."""
    trained = [fit for fit in fits if fit is not None]
    ended = [float(fit.metrics["late_loss"][0, -1]) <= goal for fit, goal in zip(trained, config.stage_loss)]
    return len(trained) == len(fits) and all(ended), config.most_steps - sum(int(fit.steps[-1]) for fit in trained)


def measured_of(
    config: Config, prefix: str, module: LanguageModel, members: int, fits: Fits
) -> tuple[dict, dict[str, Any]]:
    """Params (M, ..) of the networks at the end of their last stage, and what was measured (``_network``)."""
    networks = [_network(config, f"{prefix}_{config.first + m}", fits) for m in range(members)]
    params, metrics = jax.tree.map(lambda *leaves: np.stack(leaves), *networks)
    return params, metrics | {"final_accuracy": _final_accuracies(config, module, params)}


def _network(config: Config, prefix: str, fits: Fits) -> tuple[dict, dict[str, Any]]:
    """One network at the end of its last stage: its params, and what was measured.

    That is ``reached``, how many stages came to their end; ``end/late_loss``, ``end/label_entropy`` and ``end/steps``
    (4,) where every stage ended; and by stage the curves of ``_measured`` (R, ..), NaN where it was not measured.
    """
    done = {stage: fit for stage in _stages(config) if (fit := fits[f"{prefix}_{stage}"]) is not None}
    curves = {stage: {name: values[0] for name, values in fit.metrics.items()} for stage, fit in done.items()}
    end = {
        name: np.array([curves[stage][name][-1] if stage in done else np.nan for stage in STAGES], float)
        for name in ("late_loss", "label_entropy")
    }
    end["steps"] = np.array([done[stage].steps[-1] if stage in done else 0 for stage in STAGES])
    through, _ = _progress(config, [*done.values()])
    reached = len(STAGES) if LAST in done else len(done) - (not through)
    nothing, padded = {name: curve[:0] for name, curve in next(iter(curves.values())).items()}, {}
    for stage in STAGES:
        rows = (config.steps if stage == LAST else config.most_steps) // config.measure_every + 1
        padded[stage] = {name: _padded(curve, rows) for name, curve in curves.get(stage, nothing).items()}
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[0], [*done.values()][-1].params)
    return params, {"reached": np.array(reached), "end": end, **padded}


def _padded(curve: np.ndarray, rows: int) -> np.ndarray:
    missing = np.full((rows - len(curve), *curve.shape[1:]), np.nan, np.float32)
    return np.concatenate([curve, missing])


def _planned(
    config: Config, module: LanguageModel, stage: str, steps: int, goal: float, keys: Array, settings: dict[str, Any]
) -> Training:
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

    return Training(
        init, loss,
        optax.chain(optax.clip_by_global_norm(config.clip), optax.adamw(schedule, weight_decay=config.weight_decay)),
        keys, settings,
        steps=steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: _measured(config, module, stage, params, key, setting),
        members_at_once=1 if jax.default_backend() == "cpu" else None,
        until=lambda row: bool(np.isfinite(row["train_loss"]).all() and (row["late_loss"] <= goal).all()),
        kept=False,
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
    the held-out tasks after 0 .. n demonstrations, among the task's labels.
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
        "accuracy": _accuracies_of_tasks(config, module, params, of_tasks, setting, config.held_out_tasks),
    }


def _final_accuracies(config: Config, module: LanguageModel, params: dict) -> np.ndarray:
    """(M, 6, n + 1) accuracies of the networks at the end, on ``test_tasks`` new sequences of each task."""
    members = len(jax.tree.leaves(params)[0])
    worlds = jax.tree.map(lambda leaf: leaf[:members], worlds_of(config))
    keys = member_keys(config, TEST, config.first + members)[config.first :]

    def member(inputs: tuple) -> Array:
        key, params, world = inputs
        return _accuracies_of_tasks(config, module, params, key, world, config.test_tasks)

    return np.asarray(jax.jit(lambda *inputs: jax.lax.map(member, inputs))(keys, params, worlds))


def _accuracies_of_tasks(
    config: Config, module: LanguageModel, params: dict, key: Array, setting: dict, count: int
) -> Array:
    """(6, n + 1) accuracies of one network on ``count`` sequences of each task."""

    def one(pair: tuple) -> Array:
        return accuracies(config.demonstrations, module, params, pair[0], setting["language"], pair[1], count)

    return jax.lax.map(one, (jax.random.split(key, len(HELD_OUT)), setting["tasks"]))


def accuracies(
    demonstrations: int, module: LanguageModel, params: dict, key: Array, of: Language, task: TextTask, count: int
) -> Array:
    """(n + 1,) accuracies on ``count`` sequences of a task after 0 .. n demonstrations."""
    examples = demonstrations + 1
    words, classes = sentences(key, of, task, count * examples)
    rows = example_rows(task, words, classes).reshape(count, -1)
    tokens = jnp.concatenate([jnp.full((count, 1), BEGIN), rows], axis=1)
    places = 2 + LENGTH + EXAMPLE * np.arange(examples)  # the field before a label predicts it
    logits = unembedded(params["params"], last_residual(module, params, tokens)[:, places])[
        ..., FIRST_LABEL + task.labels
    ]
    among = jnp.where(jnp.arange(CLASSES)[None, None] < task.classes, logits, -jnp.inf)
    return (among.argmax(-1) == classes.reshape(count, examples)).mean(0)
