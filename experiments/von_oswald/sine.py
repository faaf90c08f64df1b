"""Sine regression with MLPs: learned features and a gradient step on them (von Oswald et al. 2022, Fig. 4).

Tasks y = a sin(x + p). A network of embedding, MLP and linear self-attention is trained whole. Its control has the same
embedding and MLP, trained *through* attention layers that are fixed: K steps of gradient descent on the last layer
(Proposition 1), so that the MLP meta-learns features m for them. Attention after an MLP is kernel smoothing,
prediction = sum_i k(q, i) v_i + offset with k(q, i) = h_q A h_i (Proposition 2); further layers without MLP iterate it:
functional gradient descent. The released code draws amplitude and phase from one key, which makes them one number
(--laws=dependent); networks are trained on such tasks and on tasks with both drawn apart.

Panels, one row for each distribution of the tasks and each depth: one task before and after the attention; loss;
agreement of the two networks over training; the kernels of both at one query.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import SCHEDULE, Setting, model, planned
from icl_lab.compare import compare_batches
from icl_lab.constructions import gradient_descent_weights
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import as_long_as, holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention, learner, traced
from icl_lab.models.kernels import kernel_form
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler, sine_regression
from icl_lab.solvers import functional_gradient_descent
from icl_lab.training import Model
from icl_lab.training.plans import squared_error


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 4 as the released code runs it."""

    input_size: int = setting(1, "D: a sine has one input", at_least=1, at_most=1)
    input_range: float = setting(10.0, "r, inputs are U(-r/2, r/2)", above=0)
    amplitudes: tuple[float, ...] = setting((0.1, 0.5), "lowest and highest amplitude; the text says 0.1, 5", above=0)
    laws: tuple[str, ...] = setting(
        ("independent", "dependent"),
        "amplitude and phase drawn apart, or from one number as in the released code",
        choices=("independent", "dependent"),
    )
    layers: tuple[int, ...] = setting(
        (1, 1), "K for each of laws: loops of the attention layer, gradient steps", at_least=1
    )
    width: int = setting(40, "E, width of the embedding", at_least=2)
    mlp_width: int = setting(160, "hidden width of the MLP", at_least=1)
    steps: int = setting(50_000, "training steps: 50,000 in the figure, 20,000 in the notebook", at_least=1)
    measure_every: int = setting(1000, "steps between measurements", at_least=1)
    gradient_clip: float = setting(100.0, "clip of the gradient's norm", above=0)
    control_rate: float = setting(3e-4, "Adam's learning rate for the control (b2 = 0.999)", above=0)
    inner_rate: float = setting(0.1, "eta of the control's fixed gradient steps", above=0)
    control_scale: float = setting(
        0.002, "variance at the control's start: over D + 1 up to the hidden layer, over E after it", above=0
    )
    depth: int = setting(4, "layers up to which the trained features are compared with functional GD", at_least=1)
    population_tasks: int = setting(100_000, "tasks for final losses, shared by network and control", at_least=1)


PRESETS = {
    "smoke": Config(members=2, context_length=4, batch=8, steps=20, measure_every=10, eval_tasks=8, width=6,
                    mlp_width=8, laws=("independent",), layers=(1,), depth=2, population_tasks=16),
    "quick": Config(members=2, batch=128, steps=20, measure_every=20, eval_tasks=64, depth=2, population_tasks=1000),
    "lab": Config(batch=128, steps=20_000, measure_every=500, eval_tasks=1000),
    "paper": Config(),
}  # fmt: skip


def pair(law: str, layers: int) -> str:
    """The name of a network and its control."""
    return f"{law}_{layers}"


def pairs(config: Mapping[str, Any]) -> list[str]:
    """Names of the networks with their controls, by a configuration's plain mapping."""
    return [pair(phase, layers) for phase, layers in zip(config["laws"], config["layers"])]


NETWORKS = ("trained", "control")
STEPS = quantity("steps", "step")
CURVE = quantity("{pair}/{metric}", "member", "step", pair=pairs)
FINAL = quantity("{pair}/final/{which}", "member", pair=pairs, which=NETWORKS)
VALUE_R2 = quantity("{pair}/value_r2", "member", pair=pairs)
FUNCTIONAL_ERROR = quantity("{pair}/functional_error", "member", "depth", pair=pairs)
X = quantity("{pair}/task/x", "context", "input", pair=pairs)
Y = quantity("{pair}/task/y", "context", "output", pair=pairs)
GRID = quantity("{pair}/task/grid", "point", "input", pair=pairs)
TASK = quantity("{pair}/task/curve", "point", "output", pair=pairs)
QUERIES = quantity("{pair}/task/queries", "query", "input", pair=pairs)
ANSWER = quantity("{pair}/task/{which}/{when}", "point", "output", pair=pairs, which=NETWORKS, when=("before", "after"))
KERNEL = quantity("{pair}/task/{which}/kernel", "query", "point", pair=pairs, which=NETWORKS)


def trainings(config: Config) -> Table:
    """For every distribution network and control side by side, on the same tasks: their learner answers with both."""
    table = {}
    for i, (phase, layers) in enumerate(zip(config.laws, config.layers)):
        both = _both(config, layers)
        table[pair(phase, layers)] = planned(
            config, _side_by_side(both), stream=i, sampler_of=partial(_sampler, phase=phase), objective=_both_errors,
            variants=partial(_learners, both), extra=partial(_compared, both), optimizer=_optimizers,
        )  # fmt: skip
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Network and control over training, at the end, on one task, and as kernel machines."""
    for i, (phase, layers) in enumerate(zip(config.laws, config.layers)):
        name, network, sampler = pair(phase, layers), _network(config, layers), _sampler(config, phase=phase)
        fit, learners = fits[name], partial(_learners, _both(config, layers))
        yield CURVE.at(pair=name), fit.metrics
        keys, tasks = member_keys(config, 900 + i), config.population_tasks
        yield FINAL.at(pair=name), paired_losses(learners, always(sampler), fit.params, keys, tasks)
        first = jax.tree.map(lambda leaf: leaf[0], fit.params)
        networks = {"trained": first["trained"], "control": _whole(config, first["control"])}
        keys = member_keys(config, 970 + i)
        shown = jax.jit(partial(_one_task, config, network, sampler))(networks, member_keys(config, 950, 1)[0])
        yield {name: {"task": shown}}
        if layers == 1:
            r2 = jax.jit(jax.vmap(partial(_value_r2, config, network, sampler)))
            yield VALUE_R2.at(pair=name), r2(fit.params["trained"], keys)
        deep = jax.jit(jax.vmap(partial(_as_gradient_steps, config, network, sampler)))
        yield FUNCTIONAL_ERROR.at(pair=name), deep(fit.params["control"], keys)
    yield STEPS, fit.steps


def _sampler(config: Config, _: Any = None, *, phase: str) -> Sampler:
    return sine_regression(
        context_length=config.context_length, input_range=config.input_range, amplitude=config.amplitudes,
        dependent=phase == "dependent",
    )  # fmt: skip


def _network(config: Config, layers: int) -> LinearSelfAttention:
    return LinearSelfAttention(
        layers=layers, looped=True, embedding=config.width, embedding_mlp=config.mlp_width, init_scale=config.init_scale
    )


def _both(config: Config, layers: int) -> dict[str, Model]:
    """A network and its control."""
    network = _network(config, layers)
    return {"trained": model(network, config), "control": _control(network, config)}


def _control(network: LinearSelfAttention, config: Config) -> Model:
    """Embedding and MLP trained through fixed gradient steps on the features, all channels but the last.

    They start as in the released code (the text says: as the network does): untruncated normals, of variance
    control_scale / (D + 1) for the embedding and the MLP's first matrix, control_scale / E for its second.
    """
    d, e, hidden, scale = config.input_size, config.width, config.mlp_width, config.control_scale
    plain = model(network, config)

    def init(key: Array) -> dict:
        keys = jax.random.split(key, 3)
        return {
            "embedding": (scale / (d + 1)) ** 0.5 * jax.random.normal(keys[0], (d + 1, e)),
            "embedding_mlp_in": (scale / (d + 1)) ** 0.5 * jax.random.normal(keys[1], (e, hidden)),
            "embedding_mlp_in_bias": jnp.zeros(hidden),
            "embedding_mlp_out": (scale / e) ** 0.5 * jax.random.normal(keys[2], (hidden, e)),
            "embedding_mlp_out_bias": jnp.zeros(e),
        }

    return Model(init, lambda params, prompts: plain.predict(_whole(config, params), prompts), network.layers)


def _whole(config: Config, features: dict) -> dict:
    """The control's features with its fixed attention layers: the pytree of the network."""
    fixed = gradient_descent_weights(
        config.inner_rate, context_length=config.context_length, input_size=config.width - 1
    )
    return {"params": jax.tree.map(lambda leaf: leaf.astype(jnp.float32), fixed["params"]) | features}


def _side_by_side(both: dict[str, Model]) -> Model:
    """Both as one model with two outputs, so that every task's loss is the sum of theirs."""

    def init(key: Array) -> dict:
        return {which: one.init(subkey) for (which, one), subkey in zip(both.items(), jax.random.split(key))}

    def predict(params: dict, prompts: Prompt) -> Array:
        return jnp.concatenate([one(prompts) for one in _learners(both, params).values()], axis=1)

    return Model(init, predict, both["trained"].layers)


def _learners(both: dict[str, Model], params: dict) -> dict[str, BatchLearner]:
    return {which: one.learner(params[which]) for which, one in both.items()}


def _compared(both: dict[str, Model], params: dict, samples: Sample) -> dict[str, Array]:
    """The network trained whole against its control."""
    learners = _learners(both, params)
    metrics = compare_batches(learners["trained"], learners["control"], samples)
    return {f"control_{name}": value for name, value in metrics.items()}


def _both_errors(predictions: Array, samples: Sample) -> Array:
    """(B,) the sum of the losses of both, whose predictions are (B, 2); the loss of one, (B, 1)."""
    target = jnp.broadcast_to(samples.target, predictions.shape)
    return squared_error(predictions, dataclasses.replace(samples, target=target))


def _optimizers(config: Config) -> optax.GradientTransformation:
    """Adam of each, after a clip of its own gradient."""
    clip = lambda rate, b2: optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, b2=b2))  # noqa: E731
    of_each = {"trained": clip(config.learning_rate, config.adam_b2), "control": clip(config.control_rate, 0.999)}
    return optax.partition(of_each, {name: name for name in of_each})


def _one_task(
    config: Config, network: LinearSelfAttention, sampler: Sampler, networks: dict[str, dict], key: Array
) -> dict[str, Any]:
    """One task: its curve, its context, and on a grid of queries each network with and without attention."""
    sample = jax.tree.map(lambda leaf: leaf[0], sampler(key, 1))
    grid = jnp.linspace(-config.input_range / 2, config.input_range / 2, 100)[:, None]
    curve = sample.latent["amplitude"] * jnp.sin(grid + sample.latent["phase"])
    task: dict[str, Any] = {"grid": grid, "curve": curve, "x": sample.prompt.x, "y": sample.prompt.y}

    def on_grid(params: dict) -> Array:
        one = learner(network, params)
        return jax.vmap(lambda query: one(dataclasses.replace(sample.prompt, x_query=query)))(grid)

    for name, params in networks.items():
        silent = {"params": params["params"] | {"w_p": jnp.zeros_like(params["params"]["w_p"])}}
        task[name] = {"before": on_grid(silent), "after": on_grid(params)}
        if network.layers == 1:
            queries = jnp.array([-0.3, 0.0, 0.3])[:, None] * config.input_range
            form = kernel_form(network, params)
            kernels = jax.vmap(lambda query, form=form: form(Prompt(grid, curve, query)).kernel[0])(queries)
            task[name]["kernel"], task["queries"] = kernels, queries
    return task


def _value_r2(config: Config, network: LinearSelfAttention, sampler: Sampler, params: dict, key: Array) -> Array:
    """Squared correlation of the values v_i of a layer as kernel smoothing with the labels y_i."""
    prompts = sampler(key, config.eval_tasks).prompt
    values = jax.vmap(kernel_form(network, params))(prompts).values
    return jnp.corrcoef(values[:, 0].ravel(), prompts.y.ravel())[0, 1] ** 2


def _as_gradient_steps(
    config: Config, network: LinearSelfAttention, sampler: Sampler, features: dict, key: Array
) -> Array:
    """(depth,) error of K attention layers after trained features against K steps of functional GD, K = 1..depth.

    The MLP stands before the first layer only, so the features m are fixed and the kernel is m.m; one step is kernel
    smoothing. Root mean square of the difference over that of the predictions.
    """
    samples, weights = sampler(key, config.eval_tasks), _whole(config, features)

    def by_descent(prompt: Prompt, steps: int) -> Array:
        tokens = traced(network, weights)(prompt)[1].residual[0]
        embedded = Prompt(tokens[:-1, :-1], tokens[:-1, -1:], tokens[-1, :-1])
        return functional_gradient_descent(jnp.dot, config.inner_rate, steps)(embedded) - tokens[-1, -1:]

    errors = []
    for steps in range(1, config.depth + 1):
        deep = model(network.clone(layers=steps), config).predict(weights, samples.prompt)
        descent = jax.vmap(partial(by_descent, steps=steps))(samples.prompt)
        errors.append(jnp.sqrt(((deep - descent) ** 2).mean() / (descent**2).mean()))
    return jnp.stack(errors)


EXPERIMENT = Experiment(
    "von_oswald.sine", __doc__, PRESETS, measured,
    (STEPS, CURVE, FINAL, VALUE_R2, FUNCTIONAL_ERROR, X, Y, GRID, TASK, QUERIES, ANSWER, KERNEL),
    trainings=trainings, effort={"quick": "little"},
    constraints=(
        *SCHEDULE,
        as_long_as("laws", "layers"),
        holds("each pair of the two once", "laws", "layers",
              when=lambda c: len(set(zip(c.laws, c.layers))) == len(c.laws)),
        holds("lowest,highest", "amplitudes",
              when=lambda c: len(c.amplitudes) == 2 and c.amplitudes[0] <= c.amplitudes[1]),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
