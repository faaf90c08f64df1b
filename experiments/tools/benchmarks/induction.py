"""A training step of the induction-head network (Reddy 2023) against a plain loop with numpy sampling."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.reddy import training
from experiments.reddy.settings import SMALL, Schedule, member_laws
from experiments.tools.benchmarks.programs import in_chunks
from experiments.tools.benchmarks.timing import Config, Row, chunks_of_fit, row, take_turns
from icl_lab.models import InductionNetwork
from icl_lab.prompts import NOVEL_CLASSES
from icl_lab.training import Training

SETTINGS = {"published": Schedule(), "small": Schedule(**SMALL)}
PLAIN, FULL, OURS = "plain loop", "full form in fit", "ours in fit"


def induction(config: Config) -> dict[str, list[Row]]:
    """A step at the published and at the small setting, and of all members of a lab run in one program.

    The plain loop draws its sequences one by one in numpy, as the released code does, and calls a jitted step of the
    vmapped network, which computes all positions of both layers. The full form in ``fit`` has that step with our
    sampler; ours has both.
    """
    title = "training step of InductionNetwork, {} setting, batch {}"
    return {title.format(name, setting.batch): _rows(setting, config) for name, setting in SETTINGS.items()}


def _rows(setting: Schedule, config: Config) -> list[Row]:
    members = {FULL: 1, OURS: 1}
    if config.induction_members > 1:
        members[f"{OURS}, {config.induction_members} members"] = config.induction_members
    trained = {name: program(setting, m, full=name == FULL) for name, m in members.items()}
    with chunks_of_fit({name: in_chunks(p, config.chunk) for name, p in trained.items()}) as fits:
        contenders = {PLAIN: (_plain_loop(setting, config.loop_steps), config.loop_steps)}
        contenders |= {name: (fits[name], members[name] * config.chunk) for name in trained}
        timings = take_turns(contenders, config.rounds)
    return [row(name, t, timings[PLAIN], **{"member-steps/s": 1e3 / t.ms}) for name, t in timings.items()]


def program(setting: Schedule, members: int, full: bool = False) -> Training:
    """Training as the binaries do it; in the full form every prompt passes the module."""
    model = training.induction_model(setting)
    if full:
        model = model._replace(logits=partial(_full_logits, model))
    setting = dataclasses.replace(setting, members=members)
    return training.planned(setting, model, member_laws(setting))


def _full_logits(model: training.Induction, params: dict, prompts: Any) -> Array:
    return jax.vmap(lambda prompt: model.run(params, prompt)[0])(prompts)


def _plain_loop(setting: Schedule, steps: int) -> Callable[[], Any]:
    """Some steps in a Python loop: a numpy batch, then a jitted step on its tokens."""
    start = jax.jit(training.induction_model(setting).init)(jax.random.key(0))
    optimizer = training.sgd(setting)
    network = InductionNetwork(setting.labels, setting.slots, setting.hidden)
    world = np.random.default_rng(0)
    scale = setting.input_size**-0.5
    tables = tuple(scale * world.normal(size=(k, setting.input_size)) for k in (setting.classes, setting.labels))

    @jax.jit
    def step(params: dict, state: Any, tokens: Array, targets: Array) -> tuple[dict, Any]:
        def loss(q: dict) -> Array:
            logits = jax.vmap(lambda t: network.apply(q, t)[0])(tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return cast(dict, optax.apply_updates(params, updates)), state

    def run() -> Any:
        rng, params, state = np.random.default_rng(1), start, optimizer.init(start)
        for _ in range(steps):
            params, state = step(params, state, *map(jnp.asarray, plain_batch(setting, rng, *tables)))
        return params

    return run


def plain_batch(
    setting: Schedule, rng: np.random.Generator, class_means: np.ndarray, label_vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (B, T, P + D) and answers (B,) of a batch of bursty sequences, drawn one after the other."""
    n, d, slots = setting.context_length, setting.input_size, setting.slots
    tokens = np.zeros((setting.batch, 2 * n + 1, slots + d), np.float32)
    targets = np.zeros(setting.batch, np.int32)
    fresh = d**-0.5 * rng.normal(size=(NOVEL_CLASSES, d))
    for s in range(setting.batch):
        means = fresh if rng.random() < setting.novel_share else class_means
        labels = rng.choice(setting.labels, n // setting.burstiness, replace=False)
        of_label = rng.integers(len(means) // setting.labels, size=labels.size)
        classes = rng.permutation(np.repeat(labels + setting.labels * of_label, setting.burstiness))
        classes = np.append(classes, classes[rng.integers(n)])
        noise = setting.spread * d**-0.5 * rng.normal(size=(n + 1, d))
        offset = rng.integers(slots - 2 * n)
        tokens[s, np.arange(2 * n + 1), offset + np.arange(2 * n + 1)] = 1
        tokens[s, ::2, slots:] = (means[classes] + noise) / np.sqrt(1 + setting.spread**2)
        tokens[s, 1::2, slots:] = label_vectors[classes[:n] % setting.labels]
        targets[s] = classes[n] % setting.labels
    return tokens, targets
