"""Language models whose attention has a mixer: how the binaries on momentum train them, and what they measure."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.dai import mixers
from experiments.settings import Members
from icl_lab.lab import arguments, setting
from icl_lab.lab.constraints import below, multiple_of
from icl_lab.lab.trainings import After, Fits, Table
from icl_lab.models.language import LanguageModel, block, embedded, language_logits, of_layer
from icl_lab.training import Training

MIXERS = (
    "vanilla", "momentum_0.3", "momentum_0.5", "momentum_0.9", "normalised_0.9", "learned_0.5", "recent_1", "recent_4",
)  # fmt: skip

Setting = dict[str, Array]
"""Setting of a member (``mixers.settings``)."""
Loss = Callable[[dict, Array, Setting], Array]
Measure = Callable[[dict, Array, Setting], dict[str, Array]]


@dataclasses.dataclass(frozen=True)
class Network(Members):
    """The networks and their optimizer; defaults are those of the published language models with momentum."""

    mixers: tuple[str, ...] = setting(MIXERS, f"beside attention: {mixers.ALLOWED}; the paper does not give its E")
    members: int = setting(5, "trainings of each mixer, paired on start and data; the paper has one", at_least=1)
    layers: int = setting(24, "L", at_least=1)
    heads: int = setting(16, "H, a divisor of the width", at_least=1)
    width: int = setting(1024, "E, of the residual stream", at_least=1)
    spread: float = setting(0.02, "standard deviation of the initial weights: GPT-2's", above=0)
    context: int = setting(1024, "T, tokens that are predicted from in training", at_least=8)
    batch: int = setting(512, "windows in a training step", at_least=1)
    steps: int = setting(500_000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(10_000, "steps between measurements", at_least=1)
    warm_up: int = setting(20_000, "steps of linear warm-up, fewer than steps", at_least=0)
    decay: float = setting(
        1.0, "share of the steps after warm-up, the last ones, over which the rate falls linearly to 0", above=0,
        at_most=1,
    )  # fmt: skip
    learning_rate: float = setting(3e-4, "Adam's largest learning rate (b1 0.9, b2 0.98, epsilon 1e-6)", above=0)
    gradient_clip: float = setting(2.0, "clip of the gradient's norm", above=0)


CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    *mixers.CONSTRAINTS,
    multiple_of("width", "heads"),
    below("warm_up", "steps"),
)


def network_of(config: Network, vocabulary: int) -> LanguageModel:
    """The module, without a mixer of its own."""
    return LanguageModel(
        vocabulary, config.layers, config.heads, config.width, positions=config.context, spread=config.spread
    )


def learning_rate(config: Network, step: ArrayLike) -> Array:
    """It rises linearly over ``warm_up``, stays, and falls linearly to 0 over the last steps (``decay``)."""
    step = jnp.asarray(step)
    rising = step / config.warm_up if config.warm_up else 1.0
    falling = (config.steps - step) / (config.decay * (config.steps - config.warm_up))
    return config.learning_rate * jnp.clip(jnp.minimum(rising, falling), 0.0, 1.0)


def falls_from(config: Mapping[str, Any]) -> float:
    """The step from which the learning rate falls, of the configuration of a record."""
    return config["steps"] - config["decay"] * (config["steps"] - config["warm_up"])


def optimizer(config: Network) -> optax.GradientTransformation:
    """Adam after a clip of the gradient's norm."""
    rate = partial(learning_rate, config)
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, b1=0.9, b2=0.98, eps=1e-6))


def initial(network: LanguageModel, key: Array, own: Setting) -> dict:
    """Parameters of a member: those of the network, the same whatever the mixer; ``eta`` (L, H) where it is learned."""
    weights = network.init(key, jnp.zeros((1,), jnp.int32))["params"]
    learned = {"eta": jnp.full((network.layers, network.heads), own["logit"])} if "logit" in own else {}
    return {"params": weights | learned}


def trainings_of(config: Network, network: LanguageModel, loss: Loss, measure: Measure) -> Table:
    """``training`` of all fixed mixers, ``training_learned`` of the others; M members of each mixer.

    They are two programs: the gradient of a coefficient costs as much as half a step. Patterns of long contexts are
    large, so they are made when they are needed.

    Args:
      config: the setting, with the names of its V mixers.
      network: the module.
      loss: ``(params, key, setting) -> ()``.
      measure: ``(params, key, setting) -> {name: array}`` during training.
    """

    def planned(names: list[str], fits: Fits) -> Training:
        keys = mixers.paired_keys(config, names)
        return Training(
            lambda key, setting: initial(network, key, setting),
            loss,
            lambda setting: optimizer(setting["config"]),
            keys,
            _settings(config, names) | {"config": arguments(config, keys.shape[0])},
            steps=config.steps,
            measure_every=config.measure_every,
            measure=measure,
            members_at_once=1 if jax.default_backend() == "cpu" else None,
        )

    return {stage: After(partial(planned, names)) for stage, names in _stages(config).items()}


def _stages(config: Network) -> dict[str, list[str]]:
    """The mixers of each training, by its name."""
    learned = [name for name in config.mixers if mixers.kind(name) == "learned"]
    fixed = {"training": [name for name in config.mixers if name not in learned]}  # vanilla is one of them
    return fixed | ({"training_learned": learned} if learned else {})


def _settings(config: Network, names: list[str]) -> Setting:
    """(V M, ..) settings of the members of some mixers, all of them learned or none."""
    settings = mixers.settings(tuple(names), config.members, config.context)
    return settings if mixers.kind(names[0]) == "learned" else {"mixing": settings["mixing"]}


def measured_of(config: Network, fits: Fits, finish: Measure | None = None) -> dict[str, np.ndarray]:
    """``steps`` (R,); (V, M, R, ..) measured during the trainings, (V, M, ..) at their end, by name.

    Args:
      config: the setting.
      fits: of ``trainings_of``.
      finish: what is measured at the end, with keys of its own; None for nothing.
    """
    by_mixer: dict[str, dict[str, np.ndarray]] = {}
    for stage, names in _stages(config).items():
        values = dict(fits[stage].metrics)
        if finish is not None:
            last = jax.jit(lambda *members: jax.lax.map(lambda one: finish(*one), members))
            ended = last(fits[stage].params, mixers.paired_keys(config, names, 900), _settings(config, names))
            values |= {name: np.asarray(value) for name, value in ended.items()}
        for i, name in enumerate(names):
            by_mixer[name] = {k: v[i * config.members : (i + 1) * config.members] for k, v in values.items()}
    arrays = {k: np.stack([by_mixer[name][k] for name in config.mixers]) for k in by_mixer["vanilla"]}
    return {"steps": fits["training"].steps, **arrays}


def logits(network: LanguageModel, params: dict, own: Setting, tokens: Array) -> Array:
    """(B, T, vocabulary) logits of a member: (B, T) tokens, at most as many as its mixer has."""
    return language_logits(network, params, tokens, _beside(params, own, tokens.shape[1]))


def next_token_losses(network: LanguageModel, params: dict, own: Setting, tokens: Array) -> Array:
    """(B, T) nats of the tokens 1 .. T, each given those before it: (B, T + 1) tokens."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(network, params, own, tokens[:, :-1]), tokens[:, 1:])


def attention_by_lag(network: LanguageModel, params: dict, own: Setting, tokens: Array) -> Array:
    """(L, T / 2) attention to the token so many places back, mean over heads, prompts and the tokens from T / 2 on.

    It is that of the softmax, without what the mixer adds. The last lag holds all that is farther back.
    """
    weights, t = params["params"], tokens.shape[1]
    beside, rows, attention = _beside(params, own, t), embedded(network, params["params"], tokens), []
    lag = jnp.minimum(jnp.arange(t // 2, t)[:, None] - jnp.arange(t)[None], t // 2 - 1)
    for layer in range(network.layers):
        rows, attended = block(network, of_layer(weights, layer), rows, beside[layer])
        q, k = attended.queries[:, t // 2 :], attended.keys
        scores = jnp.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
        pattern = jax.nn.softmax(jnp.where(lag >= 0, scores, -jnp.inf), axis=-1).mean((0, 1))  # (T / 2, T)
        mass = jnp.where(lag >= 0, pattern, 0) / pattern.shape[0]
        attention.append(jnp.zeros(t // 2).at[jnp.maximum(lag, 0)].add(mass))
    return jnp.stack(attention)


def _beside(params: dict, setting: Setting, tokens: int) -> Array:
    """(L, H or 1, T, T) what the mixer adds to the patterns."""
    if "eta" in params["params"]:
        return mixers.mixing(setting, params["params"]["eta"])[..., :tokens, :tokens]
    layers = params["params"]["w_q"].shape[0]
    return jnp.broadcast_to(setting["mixing"][:tokens, :tokens], (layers, 1, tokens, tokens))
