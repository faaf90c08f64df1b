"""Does momentum attention acquire in-context learning earlier, or better? (Dai et al. 2022, Table 7.)

Dai et al. report that language models with momentum attention answer more few-shot questions, by 2.8 points on average,
from one training each. Here small networks are trained on two tasks at once that only the context solves: repeated
strings of random tokens, which take an induction head; and pairs of a word and a label, whose map is drawn afresh for
every sequence (trained on pairs alone, networks guess a label of the context far longer). The loss stays on a plateau
and then drops, so there is a time of acquisition. Networks without momentum, with momentum, and with local mixers of
equal cost have the same starts and the same data: times and accuracies are paired. Accuracy is also measured on
sequences that are harder than those of training: longer strings, more words.

The first part of an induction head copies the previous token into each token. A local mixer does so before training
starts. So the deciding comparison is that of momentum with the shift by one token.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.dai.mixed_language import CONSTRAINTS, Network, Setting, logits, measured_of, network_of, trainings_of
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_most, holds, multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield

TASKS = ("strings", "pairs")
"""Repeated random strings; pairs of a word and a label."""


@dataclasses.dataclass(frozen=True)
class Config(Network):
    """The published network, on token sequences of ours."""

    words: int = setting(1024, "V, words: the tokens of strings, the first ones of pairs", at_least=2)
    labels: int = setting(8, "labels of pairs, at most as many as words", at_least=2)
    shown: int = setting(64, "different words in a sequence of pairs, at most half of the words", at_least=1)
    eval_sequences: int = setting(1024, "sequences that measure a member, of training's kind and harder", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "recent_1"), layers=1, heads=1, width=8, context=16, batch=2,
        steps=4, measure_every=2, warm_up=1, learning_rate=1e-2, words=8, labels=2, shown=2, eval_sequences=4,
    ),
    "quick": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "recent_1"), layers=2, heads=2, width=32, spread=0.1, context=32,
        batch=32, steps=60, measure_every=20, warm_up=20, learning_rate=5e-3, words=16, labels=4, shown=4,
        eval_sequences=64,
    ),
    "lab": Config(
        members=9, mixers=("vanilla", "momentum_0.5", "recent_1", "recent_4"), layers=2, heads=2,
        width=64, spread=0.08, context=48, batch=32, steps=2000, measure_every=40, warm_up=50, learning_rate=3e-3,
        words=32, labels=8, shown=4, eval_sequences=128,
    ),
    "paper": Config(),
}  # fmt: skip


STEPS = quantity("steps", "step")
CURVE = quantity("{task}/{metric}", "mixer", "member", "step", task=TASKS, metric=("accuracy", "loss", "harder"))
TRAIN_LOSS = quantity("train_loss", "mixer", "member", "step")


def trainings(config: Config) -> Table:
    """V mixers (here V is not the words) times M members on both tasks, half of every batch each."""
    network = network_of(config, config.words + config.labels)

    def score(params: dict, setting: Setting, drawn: Sequences) -> tuple[Array, Array]:
        """Mean loss and accuracy of the scored tokens."""
        predicted, target = logits(network, params, setting, drawn.tokens[:, :-1]), drawn.tokens[:, 1:]
        losses = optax.softmax_cross_entropy_with_integer_labels(predicted, target)
        weight = drawn.scored / jnp.maximum(drawn.scored.sum(), 1)
        return (weight * losses).sum(), (weight * (predicted.argmax(-1) == target)).sum()

    def loss(params: dict, key: Array, setting: Setting) -> Array:
        halves = [draw(key, config.batch // 2) for draw in samplers(config).values()]
        return score(params, setting, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *halves))[0]

    def measure(params: dict, key: Array, setting: Setting) -> dict[str, Array]:
        metrics: dict[str, Array] = {}
        for task, draw in samplers(config).items():
            metrics[f"{task}/loss"], metrics[f"{task}/accuracy"] = score(
                params, setting, draw(key, config.eval_sequences)
            )
        for task, draw in samplers(config, harder=True).items():
            _, metrics[f"{task}/harder"] = score(params, setting, draw(key, config.eval_sequences))
        return metrics

    return trainings_of(config, network, loss, measure)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Arrays (V, M, R)."""
    yield measured_of(config, fits)


class Sequences(NamedTuple):
    """Sequences of a task.

    Attributes:
      tokens: (B, T + 1) ids.
      scored: (B, T) whether token t + 1 follows from those before it.
    """

    tokens: Array
    scored: Array


def strings(key: Array, batch: int, *, tokens: int, words: int, harder: bool) -> Sequences:
    """Repeated random strings: the period is 2 to T / 4 tokens, of harder ones T / 4 + 1 to T / 2.

    Scored are the tokens from the second of the first repetition on: the token before tells the place in the string.
    """
    period_key, word_key = jax.random.split(key)
    low, high = (tokens // 4 + 1, tokens // 2) if harder else (2, tokens // 4)
    period = jax.random.randint(period_key, (batch, 1), low, high + 1)
    string = jax.random.randint(word_key, (batch, tokens // 2), 0, words)
    place = jnp.arange(tokens + 1)[None]
    return Sequences(jnp.take_along_axis(string, place % period, axis=1), place[:, 1:] > period)


def pairs(key: Array, batch: int, *, tokens: int, words: int, labels: int, shown: int, harder: bool) -> Sequences:
    """Words, each with its label after it; which label is drawn for every sequence. Harder: twice as many words.

    Scored are the labels of words that came before. Labels are the ids from ``words`` on.
    """
    shown = 2 * shown if harder else shown
    which_key, label_key, order_key = jax.random.split(key, 3)
    chosen = jax.vmap(lambda k: jax.random.permutation(k, words)[:shown])(jax.random.split(which_key, batch))
    label = words + jax.random.randint(label_key, (batch, shown), 0, labels)
    count = tokens // 2 + 1
    order = jax.random.randint(order_key, (batch, count), 0, shown)
    both = jnp.stack([jnp.take_along_axis(part, order, axis=1) for part in (chosen, label)], axis=2)
    seen = ((order[:, :, None] == order[:, None]) & jnp.tri(count, k=-1, dtype=bool)[None]).any(2)
    scored = jnp.stack([jnp.zeros_like(seen), seen], axis=2).reshape(batch, -1)
    return Sequences(both.reshape(batch, -1)[:, : tokens + 1], scored[:, 1 : tokens + 1])


def samplers(config: Config, *, harder: bool = False) -> dict[str, Callable[[Array, int], Sequences]]:
    """``(key, batch) -> Sequences`` of both tasks."""
    sizes: dict[str, Any] = {"tokens": config.context, "words": config.words, "harder": harder}
    return {
        "strings": partial(strings, **sizes),
        "pairs": partial(pairs, **sizes, labels=config.labels, shown=config.shown),
    }


EXPERIMENT = Experiment(
    "dai.momentum_icl", __doc__, PRESETS, measured, (STEPS, CURVE, TRAIN_LOSS),
    trainings=trainings, effort={"quick": "little"},
    constraints=(
        *CONSTRAINTS,
        multiple_of("context", 8),  # strings have periods up to T / 2
        multiple_of("batch", 2),  # each task has half of it
        at_most("labels", "words"),
        holds("at most half of --words", "shown", "words", when=lambda c: 2 * c.shown <= c.words),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
