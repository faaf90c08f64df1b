"""Does linear attention know the noise? Looped layers that are trained on noisy labels, against ridge regression.

Prompts of von Oswald et al. 2022, with noise of variance sigma^2 on the labels of the context; tasks have variance 1.
The Bayes predictor is ridge regression with the strength lambda = sigma^2 on the sum of squares. A layer is trained for
so many loops at every noise, and once where the noise of every prompt is drawn among all of them (Vladymyrov et al.
2024). To its predictions ridge is fitted by its strength alone; the residual is the relative error of this fit.

One loop is a step of gradient descent at the rate a = v / (E S^2 + v sigma^2 / N), v the variance of the inputs and
E S^2 = v^2 (N + D - 2 + k) / N their fourth moments (k the kurtosis, 9/5). Errors are of the noiseless target.

Where the noise varies between prompts, a strength is fitted for prompts of each noise apart: it follows the noise in a
network that reads the noise off the labels, and stays where it cannot. One loop is linear in the labels and cannot.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.settings import member_keys
from experiments.training import Model, paired_losses, planned
from experiments.von_oswald.common import DECAYS, Task, model, sampler
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler, input_variance
from icl_lab.solvers import gradient_descent, least_squares, ridge

STRENGTHS = np.geomspace(1e-4, 1e2, 601)
"""At which ridge is tried; neighbours are 2.3 % apart."""


@dataclasses.dataclass(frozen=True)
class Config(Task):
    """Every depth is one program: members of all noises beside each other."""

    members: int = setting(5, "independent trainings at every depth and noise", at_least=1)
    depths: tuple[int, ...] = setting((1, 2, 4, 6), "loops of the layer", at_least=1)
    noises: tuple[float, ...] = setting((0.0, 1 / 16, 1 / 4, 4 / 9), "sigma^2 of each training, rising", at_least=0)
    steps: int = setting(20_000, "training steps, a multiple of measure_every", at_least=1)
    decay_steps: int = setting(5000, "last steps, in which the learning rate falls to 0", at_least=0)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    batch: int = setting(512, "fresh tasks in a training step", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's learning rate at the start", above=0)
    gradient_clip: float = setting(10.0, "clip of the gradient's norm of more than two loops; else 0.001", above=0)
    token_clip: float = setting(10.0, "clip of the tokens of more than three loops", above=0)
    test_tasks: int = setting(100_000, "prompts for each error of a member", at_least=1)
    fitted_tasks: int = setting(4000, "prompts to whose predictions ridge is fitted", at_least=1)


PRESETS = {
    "smoke": Config(
        members=1, context_length=4, input_size=2, eval_tasks=16, depths=(1, 2), noises=(0.0, 0.25), steps=4,
        decay_steps=2, measure_every=2, batch=8, test_tasks=32, fitted_tasks=32,
    ),
    "quick": Config(
        members=2, eval_tasks=500, depths=(1,), noises=(0.25, 4 / 9), steps=500, decay_steps=100, batch=256,
        test_tasks=2000, fitted_tasks=1000,
    ),
    "lab": Config(eval_tasks=1000, steps=6000, decay_steps=1500, batch=256),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (*DECAYS, once("depths"), rising("noises"))


def named(noise: float) -> str:
    """The noise of a training in the names of its arrays."""
    return f"{noise:.3g}"


DEPTH: dict[str, Any] = {"depth": "depths"}
NOISE: dict[str, Any] = DEPTH | {"noise": lambda config: [named(noise) for noise in config["noises"]]}
STEPS, LOSS = quantity("steps", "step"), quantity("loops_{depth}/loss", "trained", "step", **DEPTH)
ERROR = quantity("loops_{depth}/{noise}/{of}", "member", of=("error", "bayes", "step"), **NOISE)
RIDGE = quantity("loops_{depth}/{noise}/{of}", "member", of=("strength", "residual"), **NOISE)
FOLLOWED = quantity("loops_{depth}/varies/{of}", "member", "noise", of=("strength", "residual"), **DEPTH)


def noisy(config: Config, noise: Any, varies: Any = 0.0) -> Sampler:
    """Prompts whose labels have noise of this variance, or where it ``varies`` (1) of one drawn for each prompt."""
    clean, all_noises = sampler(config), jnp.asarray(config.noises, jnp.float32)

    def draw(key: Array, batch: int) -> Sample:
        tasks, choice, normal = jax.random.split(key, 3)
        sample = clean(tasks, batch)
        variances = jax.random.choice(choice, all_noises, (batch, 1, 1))
        size = jnp.sqrt(jnp.where(varies > 0, variances, noise))
        y = sample.prompt.y + size * jax.random.normal(normal, sample.prompt.y.shape)
        return dataclasses.replace(sample, prompt=dataclasses.replace(sample.prompt, y=y))

    return draw


def layer(config: Config, depth: int) -> Model:
    """A layer of linear self-attention, so many loops."""
    clip = config.token_clip if depth > 3 else 0.0
    return model(LinearSelfAttention(layers=depth, looped=True, token_clip=clip, init_scale=config.init_scale), config)


def trainings(config: Config) -> Table:
    """Every depth, members of all noises and then those where it varies, by Adam as in von Oswald et al. 2022."""
    noises = jnp.asarray(np.repeat([*config.noises, 0.0], config.members), jnp.float32)
    varies = jnp.asarray(np.repeat([0.0] * len(config.noises) + [1.0], config.members), jnp.float32)

    def adam(depth: int) -> Any:
        clip = config.gradient_clip if depth > 2 else 1e-3
        falling = optax.join_schedules(
            [optax.constant_schedule(1.0), optax.linear_schedule(1.0, 0.0, max(config.decay_steps, 1))],
            [config.steps - config.decay_steps],
        )
        return lambda member_config: optax.chain(
            optax.clip_by_global_norm(clip),
            optax.adam(lambda step: member_config.learning_rate * falling(step), b2=config.adam_b2),
        )

    return {
        f"loops_{depth}": planned(
            config, layer(config, depth), keys=member_keys(config, stream, noises.size), settings=(noises, varies),
            sampler_of=lambda member_config, noise: noisy(member_config, *noise), optimizer=adam(depth),
        )
        for stream, depth in enumerate(config.depths)
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Errors beside those of the Bayes predictor and of one step, and the strength of ridge in the predictions."""
    for depth in config.depths:
        fit, layers = fits[f"loops_{depth}"], layer(config, depth)
        yield LOSS.at(depth=depth), fit.metrics["loss"]
        sets = jax.tree.map(lambda leaf: leaf.reshape(-1, config.members, *leaf.shape[1:]), fit.params)
        for i, noise in enumerate(config.noises):
            at, params = {"depth": depth, "noise": named(noise)}, jax.tree.map(lambda leaf: leaf[i], sets)  # noqa: B023
            beside = references(config, noise)
            losses = paired_losses(
                lambda one: {"error": layers.learner(one), **beside},  # noqa: B023
                lambda _: noisy(config, noise), params, member_keys(config, 900 + i), config.test_tasks,  # noqa: B023
            )  # fmt: skip
            yield ERROR.at(**at), {name: 2 * loss for name, loss in losses.items()}
            yield RIDGE.at(**at), strength(config, layers, params, noise)
        ridges = [strength(config, layers, jax.tree.map(lambda leaf: leaf[-1], sets), noise) for noise in config.noises]
        yield FOLLOWED.at(depth=depth), {name: np.stack([one[name] for one in ridges], 1) for name in ridges[0]}
    yield STEPS, fit.steps


def references(config: Config, noise: float) -> Mapping[str, BatchLearner]:
    """The Bayes predictor, and one step at the best rate."""
    bayes = ridge(noise) if noise else least_squares()
    return {"bayes": jax.vmap(bayes), "step": jax.vmap(gradient_descent(best_rate(config, noise), steps=1))}


def best_rate(config: Config, noise: float) -> float:
    """The rate a of the best step of gradient descent."""
    n, d, v = config.context_length, config.input_size, input_variance("uniform", config.input_range)
    return 1 / (v * (n + d - 2 + 9 / 5) / n + noise / n)


def strength(config: Config, own: Model, params: Any, noise: float) -> dict[str, np.ndarray]:
    """(M,) strength of ridge in the predictions on prompts of a noise, and the residual."""
    prompt = noisy(config, noise)(jax.random.key(config.seed + 1), config.fitted_tasks).prompt
    predictions = jax.jit(jax.vmap(lambda one: own.learner(one)(prompt)[:, 0]))(params)
    return fitted_ridge(prompt, np.asarray(predictions, float))


def fitted_ridge(prompt: Prompt, said: np.ndarray) -> dict[str, np.ndarray]:
    """The strength lambda of ridge on the sum of squares that is nearest to predictions (M, B), and the residual."""
    x, y, q = (np.asarray(part, float) for part in (prompt.x, prompt.y[:, :, 0], prompt.x_query))
    values, basis = np.linalg.eigh(np.einsum("bnd,bne->bde", x, x))
    weights = np.einsum("bdk,bd->bk", basis, q) * np.einsum("bdk,bnd,bn->bk", basis, x, y, optimize=True)
    tried = np.stack([(weights / (np.maximum(values, 0) + one)).sum(1) for one in STRENGTHS])  # (S, B)
    off = np.sqrt(((said[:, None] - tried) ** 2).sum(2) / (said**2).sum(1)[:, None])
    return {"strength": STRENGTHS[off.argmin(1)], "residual": off.min(1)}


EXPERIMENT = Experiment(
    "identification.noise", __doc__, PRESETS, measured, (STEPS, LOSS, ERROR, RIDGE, FOLLOWED), trainings=trainings,
    constraints=CONSTRAINTS, effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
