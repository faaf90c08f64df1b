"""Does momentum attention descend with momentum? Linear attention on in-context linear regression (Dai et al. 2022, 4).

Dai et al. read attention as gradient descent and add to it, by analogy with momentum, a decaying sum of earlier values.
One layer of linear self-attention learns one step of gradient descent (von Oswald et al. 2022). Here it is trained with
momentum, and with local mixers of equal cost, and compared with three learners: gradient descent; gradient descent with
momentum (heavy ball); and the literal reading of the analogy, one pass over the demonstrations that sums their
gradients at zero with momentum, so that early ones weigh more.

What theory says (this lab, ``icl_lab/theory/linear_attention/momentum.py``):

- Joint tokens (x, y), one layer. The added sum does not depend on the query, so it is not a step of any descent. Its
  effect on the loss is exactly weight decay on the values. So the layer remains one plain step, no mixer has a lower
  loss than that step, and a learned coefficient falls.
- Tokens x_1, y_1, x_2, .., x_q without positions, two layers. Attention alone cannot tell which input a label belongs
  to, and its loss stays that of predicting zero. A mixer copies x_j into the token of y_j, and the second layer takes
  the step. A shift by one token copies without noise; momentum also adds earlier inputs, with weights eta^2, eta^4, ..,
  as noise. So momentum does here what any local mixer does, and one without momentum does it better.

Members stay on the plateau of the start or leave it, so a mean over all says nothing: claims are about the share that
leaves, and about what those that left became.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.dai import descents, mixers
from experiments.dai.linear_mixing import MixedNetwork
from experiments.settings import Members, member_keys
from experiments.training import always, mean_in_chunks
from icl_lab.compare import compare_batches
from icl_lab.lab import Experiment, arguments, main, setting
from icl_lab.lab.constraints import multiple_of, once
from icl_lab.lab.quantities import Domain, quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import folded_weights
from icl_lab.prompts import BatchLearner, Sample, Sampler, linear_regression
from icl_lab.theory.linear_attention.momentum import copied_pairs, mixed_step_optimum, mixer_penalty
from icl_lab.training import Training
from icl_lab.training.plans import members_at_once, squared_error

MIXERS = ("vanilla", "momentum_0.3", "momentum_0.5", "momentum_0.9", "learned_0.5", "recent_1", "recent_4")
PARTS = ("joint", "alternating")
"""One layer on joint tokens; two layers on alternating tokens."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The tasks and the training of one layer of von Oswald et al. 2022; Dai et al. publish no regression."""

    mixers: tuple[str, ...] = setting(MIXERS, f"beside attention: {mixers.ALLOWED}")
    context_length: int = setting(10, "N, context pairs in a prompt", at_least=2)
    input_size: int = setting(10, "D, dimension of the inputs of joint tokens", at_least=1)
    batch: int = setting(2048, "fresh tasks in a training step of joint tokens", at_least=1)
    steps: int = setting(5000, "training steps of joint tokens, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's, on joint tokens", above=0)
    gradient_clip: float = setting(1e-3, "clip of the gradient's norm, on joint tokens", above=0)
    init_scale: float = setting(0.002, "weights of joint tokens start with variance init_scale / fan_in", above=0)
    adam_b2: float = setting(0.98, "Adam's b2", at_least=0, at_most=0.9999, argument=False)
    descents: tuple[int, ...] = setting((2, 10), "steps K of heavy ball to compare with", at_least=2)
    oracle_contexts: int = setting(100_000, "contexts on which heavy ball is tuned", at_least=2)
    alternating_size: int = setting(5, "D of alternating tokens", at_least=1)
    alternating_batch: int = setting(512, "fresh tasks in a training step of alternating tokens", at_least=1)
    alternating_steps: int = setting(10_000, "their training steps, a multiple of measure_every", at_least=1)
    alternating_rate: float = setting(3e-3, "Adam's learning rate for them, with cosine decay to 0", above=0)
    alternating_clip: float = setting(0.1, "clip of their gradient's norm", above=0)
    alternating_scale: float = setting(0.1, "their weights start with this variance / layers / fan_in", above=0)
    eval_tasks: int = setting(10_000, "tasks that measure a member during training", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)
    only: tuple[str, ...] = setting(PARTS, "parts to run", choices=PARTS)


PRESETS = {
    "smoke": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "learned_0.5", "recent_1"), context_length=3, input_size=2,
        batch=8, steps=4, measure_every=2, descents=(2,), oracle_contexts=50, alternating_size=2, alternating_batch=8,
        alternating_steps=4, eval_tasks=16, population_tasks=32,
    ),
    "quick": Config(
        members=6, mixers=("vanilla", "momentum_0.5", "recent_1"), context_length=5, input_size=5, batch=128,
        steps=1500, measure_every=50, descents=(2, 5), oracle_contexts=5000, alternating_size=3, alternating_batch=64,
        alternating_steps=1500, eval_tasks=1000, population_tasks=10_000,
    ),
    "lab": Config(
        members=20, batch=256, steps=4000, alternating_batch=64, alternating_steps=6000, eval_tasks=2000,
        population_tasks=100_000, oracle_contexts=20_000,
    ),
    "paper": Config(),
}  # fmt: skip


STEPS = quantity("{part}/steps", "{part}_step", part="only")
LOSS = quantity("{part}/loss", "mixer", "member", "{part}_step", part="only")
ETA = quantity("{part}/eta", "mixer", "member", "{part}_step", "{part}_layer", part="only")
FINAL = quantity("{part}/final/{learner}", "mixer", "member", part="only")
JOINT: dict[str, Domain] = {"part": lambda config: [part for part in config["only"] if part == "joint"]}
COMPARED = quantity(
    "{part}/{learner}/{metric}", "mixer", "member", **JOINT,
    learner=lambda config: ["without", "gd", "analogy", *(f"heavy_ball_{steps}" for steps in config["descents"])],
)  # fmt: skip
PENALTY = quantity("{part}/penalty", "mixer", "member", **JOINT)
VALUES_NORM = quantity("{part}/values_norm", "mixer", "member", **JOINT)


def trainings(config: Config) -> Table:
    """One training for each part; members of one number share start, tasks and evaluation whatever their mixer."""
    return {name: _planned(config, name) for name in PARTS if name in config.only}


class Part(NamedTuple):
    """What is trained: V mixers times M members in one program.

    Attributes:
      network: of all of them.
      batch: fresh tasks in a training step.
      steps: of training.
      rate: Adam's learning rate, or its schedule, and the clip of the gradient's norm.
    """

    network: MixedNetwork
    batch: int
    steps: int
    rate: Callable[[Config], tuple[Any, float]]

    def settings(self, config: Config) -> dict[str, Array]:
        """(V M, ..) of all of them."""
        tokens = self.network.tokens
        return mixers.settings(config.mixers, config.members, tokens, tokens - 1)


def _part(config: Config, name: str) -> Part:
    n = config.context_length
    if name == "joint":
        return Part(
            MixedNetwork(1, n, config.input_size, config.init_scale), config.batch, config.steps,
            lambda cfg: (cfg.learning_rate, cfg.gradient_clip),
        )  # fmt: skip
    return Part(
        MixedNetwork(2, n, config.alternating_size, config.alternating_scale, alternating=True),
        config.alternating_batch, config.alternating_steps,
        lambda cfg: (optax.cosine_decay_schedule(cfg.alternating_rate, cfg.alternating_steps), cfg.alternating_clip),
    )  # fmt: skip


def _planned(config: Config, name: str) -> Training:
    part = _part(config, name)
    network, draw = part.network, _sampler(config, part.network.input_size)
    keys = mixers.paired_keys(config, config.mixers, PARTS.index(name))

    def adam(setting: dict) -> optax.GradientTransformation:
        rate, clip = part.rate(setting["config"])
        return optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate, b2=setting["config"].adam_b2))

    return Training(
        lambda key, setting: network.init(key, setting["logit"]),
        lambda params, key, setting: _loss(network.learner(params, setting), draw(key, part.batch)),
        adam,
        keys,
        part.settings(config) | {"config": arguments(config, keys.shape[0])},
        steps=part.steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: {
            "loss": _loss(network.learner(params, setting), draw(key, config.eval_tasks)),
            "eta": jax.nn.sigmoid(params["params"]["eta"]),
        },
        members_at_once=members_at_once(part.batch, 1),
        sampler=always(draw),
    )


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """What each part became; arrays are (V, M, ..)."""
    parts = {"joint": _joint, "alternating": _alternating}
    for name, fit in fits.items():
        facts, arrays = parts[name](config, _part(config, name), fit.params)
        arrays |= {metric: fit.metrics[metric] for metric in ("loss", "eta")}
        arrays = jax.tree.map(lambda values: np.reshape(values, (-1, config.members, *values.shape[1:])), arrays)
        yield {name: {"steps": fit.steps, **arrays}}
        yield "facts", {f"{name}_{fact}": value for fact, value in facts.items()}


def _joint(config: Config, part: Part, params: dict) -> tuple[dict[str, Any], dict[str, Any]]:
    """One layer on joint tokens, compared with the descents."""
    network, n, size = part.network, config.context_length, part.network.input_size
    step, best = descents.best_step(n, size)
    heavy_balls, tuned = descents.best_heavy_balls(
        member_keys(config, 10_000, 1)[0], config.descents, config.oracle_contexts, context_length=n, input_size=size
    )

    def learners(params: dict, setting: dict) -> dict[str, BatchLearner]:
        plain = network.learner(params, setting | {"mixing": 0 * setting["mixing"], "learned": 0 * setting["learned"]})
        by_name = {"trained": network.learner(params, setting), "without": plain, "gd": step, **heavy_balls}
        return by_name | {"analogy": descents.pass_over_demonstrations(setting["mixing"], size)}

    each, eta = part.settings(config), params["params"]["eta"]
    finals = _finals(config, params, each, size, learners, compared=True)
    rows = np.asarray(jax.vmap(lambda setting, eta: mixers.mixing(setting, eta)[0, -1])(each, eta))
    columns = np.asarray(jax.vmap(lambda params: folded_weights(params)[1][0, 0, :, -1])(params))
    penalty = [float(mixer_penalty(row, b, input_variance=descents.VARIANCE)) for row, b in zip(rows, columns)]
    finals |= {"penalty": np.array(penalty), "values_norm": np.linalg.norm(columns, axis=1)}
    return {"best_step": best, "zero": size * descents.VARIANCE / 2, **tuned}, finals


def _alternating(config: Config, part: Part, params: dict) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two layers on tokens x_1, y_1, x_2, .., x_q without positions."""
    network, n, size = part.network, config.context_length, part.network.input_size
    step, best = descents.best_step(n, size)
    zero = lambda prompts: jnp.zeros((prompts.x.shape[0], 1))  # noqa: E731
    learners = lambda params, setting: {"trained": network.learner(params, setting), "gd": step, "zero": zero}  # noqa: E731
    finals = _finals(config, params, part.settings(config), size, learners)
    sizes: dict[str, Any] = {"input_size": size, "input_variance": descents.VARIANCE}
    by_hand = {
        name: mixed_step_optimum(copied_pairs(mixers.fixed_mixing(name, 2 * n + 1, 2 * n)), **sizes)[1]
        for name in config.mixers
        if mixers.kind(name) in ("momentum", "normalised", "recent")
    }
    return {"best_step": best, "zero": size * descents.VARIANCE / 2, "by_hand": by_hand}, finals


def _sampler(config: Config, size: int) -> Sampler:
    return linear_regression(context_length=config.context_length, input_size=size)


def _loss(learner: BatchLearner, samples: Sample) -> Array:
    return squared_error(learner(samples.prompt), samples).mean()


def _finals(
    config: Config,
    params: dict,
    settings: dict[str, Array],
    size: int,
    learners: Callable[[dict, dict], dict[str, BatchLearner]],
    *,
    compared: bool = False,
) -> dict[str, Any]:
    """(V M,) ``final`` losses of all learners on the same tasks; how the trained one compares with each other one."""
    draw = _sampler(config, size)

    def one(member: tuple[dict, dict, Array]) -> dict[str, Array]:
        params, setting, key = member

        def means(k: Array, tasks: int) -> dict[str, Any]:
            samples, others = draw(k, tasks), learners(params, setting)
            final = {name: _loss(learner, samples) for name, learner in others.items()}
            trained = others.pop("trained")
            between = {name: compare_batches(trained, other, samples) for name, other in others.items() if compared}
            return {"final": final, **between}

        return mean_in_chunks(means, key, config.population_tasks)

    keys = mixers.paired_keys(config, config.mixers, 900 + size)
    finals = jax.jit(lambda *members: jax.lax.map(one, members))(params, settings, keys)
    return jax.tree.map(np.asarray, finals)


EXPERIMENT = Experiment(
    "dai.momentum_regression", __doc__, PRESETS, measured,
    (STEPS, LOSS, ETA, FINAL, COMPARED, PENALTY, VALUES_NORM),
    trainings=trainings,
    constraints=(
        *mixers.CONSTRAINTS,
        mixers.includes("momentum"),
        multiple_of("steps", "measure_every"),
        multiple_of("alternating_steps", "measure_every"),
        once("descents"),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
