"""Language models with momentum attention (Dai et al. 2022, Table 6), and what their gain is a gain of.

Dai et al. add a decaying sum of earlier values to the output of every head, by analogy with momentum in gradient
descent. They report perplexities lower by 0.3 to 0.8 %, from one training each. Here byte-level models are trained on
the sources of the pinned jax package, with several coefficients, fixed and learned, and with two local mixers of equal
cost that have nothing to do with momentum: a shift by one token, and the mean of the last few values. Members of one
number share start and data whatever their mixer, so every difference is paired.

Early in training any local mixer is far ahead, because attention has not yet learned to look at the tokens before. So
the gap after long training counts. At the preset lab the learning rate is constant for most of the steps. The gap is
called stable if it hardly changes over the second half of these, and its limit is extrapolated from them.

The same validation bytes are predicted at three context lengths, T / 4, T / 2 and T. Also measured: after how many
steps momentum reaches the final loss of a network without it, how far back attention looks in both, and the learned
coefficients. The comparison with the local mixers decides whether a gain is due to momentum.
"""

import dataclasses
import functools
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.dai import mixed_language
from experiments.dai.mixed_language import Network, Setting, next_token_losses
from icl_lab.lab import Experiment, constraints, main, setting
from icl_lab.lab.constraints import below, multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LanguageModel
from icl_lab.prompts.corpus import Corpus, package_sources, windows

BYTES = 256


@dataclasses.dataclass(frozen=True)
class Config(Network):
    """The published language model, on bytes."""

    eval_windows: int = setting(256, "windows of T bytes that measure a member during training", at_least=1)
    final_windows: int = setting(4096, "windows of final losses, the same for all mixers", at_least=1)
    attention_windows: int = setting(32, "windows that show where attention looks", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "recent_1"), layers=1, heads=1, width=8, context=8, batch=2,
        steps=4, measure_every=2, warm_up=1, learning_rate=1e-2, eval_windows=2, final_windows=4, attention_windows=2,
    ),
    "quick": Config(
        members=6, mixers=("vanilla", "momentum_0.5", "recent_1"), layers=2, heads=2, width=32, spread=0.1, context=64,
        batch=8, steps=40, measure_every=20, warm_up=20, learning_rate=5e-3, eval_windows=16, final_windows=32,
        attention_windows=8,
    ),
    "lab": Config(
        mixers=("vanilla", "momentum_0.3", "momentum_0.5", "learned_0.5", "recent_1", "recent_2"), layers=2, heads=2,
        width=64, spread=0.08, context=128, batch=8, steps=4000, measure_every=100, warm_up=100, decay=0.2,
        learning_rate=3e-3, eval_windows=64, final_windows=512, attention_windows=16,
    ),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError for a context longer than a part of the corpus."""
    constraints.check(config, [below("context", min(corpus().training.size, corpus().validation.size))])


@functools.cache
def corpus() -> Corpus:
    """The sources of the pinned jax package."""
    return package_sources("jax")


STEPS = quantity("steps", "step")
LOSS = quantity("loss", "mixer", "member", "step")
TRAIN_LOSS = quantity("train_loss", "mixer", "member", "step")
ETA = quantity("eta", "mixer", "member", "step", "layer", "head")
FINAL = quantity("final", "mixer", "member", "context")
LAGS = quantity("lags", "mixer", "member", "layer", "lag")


def trainings(config: Config) -> Table:
    """V mixers times M members."""
    network, text = mixed_language.network_of(config, BYTES), corpus()
    # the bytes of a window: T, and the one before the first
    draw, held_out = (windows(part, config.context + 1) for part in (text.training, text.validation))

    def loss(params: dict, key: Array, setting: Setting) -> Array:
        return next_token_losses(network, params, setting, draw(key, config.batch)).mean()

    def measure(params: dict, key: Array, setting: Setting) -> dict[str, Array]:
        tokens = held_out(key, config.eval_windows)
        eta = jax.nn.sigmoid(params["params"].get("eta", jnp.full((config.layers, config.heads), -jnp.inf)))
        return {"loss": next_token_losses(network, params, setting, tokens).mean(), "eta": eta}

    return mixed_language.trainings_of(config, network, loss, measure)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Arrays (V, M, ..)."""
    text, network = corpus(), mixed_language.network_of(config, BYTES)
    held_out = windows(text.validation, config.context + 1)

    def finish(params: dict, key: Array, setting: Setting) -> dict[str, Array]:
        tokens = held_out(key, config.final_windows)

        def at(parts: int) -> Array:  # the same bytes, each predicted from at most T / parts before it
            part = lambda window: next_token_losses(network, params, setting, divided(window[None], parts)).mean()  # noqa: E731
            return jax.lax.map(part, tokens, batch_size=min(16, config.final_windows)).mean()

        lags = mixed_language.attention_by_lag(network, params, setting, tokens[: config.attention_windows, :-1])
        return {"final": jnp.stack([at(parts) for parts in (4, 2, 1)]), "lags": lags}

    yield mixed_language.measured_of(config, fits, finish)
    sizes = {"training_bytes": text.training.size, "validation_bytes": text.validation.size}
    of_corpus = {"corpus_sha256": text.digest, "corpus_files": text.files, **sizes, "unigram": _unigram(text)}
    yield "facts", of_corpus | {"parameters": _parameters(network)}


def divided(tokens: Array, parts: int) -> Array:
    """(B, T + 1) windows as (B parts, T / parts + 1): the same T bytes to predict, from shorter contexts."""
    size = (tokens.shape[1] - 1) // parts
    return jnp.concatenate([tokens[:, i * size : (i + 1) * size + 1] for i in range(parts)])


def _parameters(network: LanguageModel) -> int:
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1,), jnp.int32))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _unigram(text: Corpus) -> float:
    """Nats a validation byte costs under the frequencies of the training part: what a network without context has."""
    frequency = np.bincount(text.training, minlength=BYTES) + 1.0
    return float(-np.log(frequency / frequency.sum())[text.validation].mean())


EXPERIMENT = Experiment(
    "dai.momentum_language_model", __doc__, PRESETS, measured, (STEPS, LOSS, TRAIN_LOSS, ETA, FINAL, LAGS),
    trainings=trainings, check=check, effort={"quick": "little"},
    constraints=(*mixed_language.CONSTRAINTS, multiple_of("context", 4)),  # losses are taken at T/4, T/2 and T
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
