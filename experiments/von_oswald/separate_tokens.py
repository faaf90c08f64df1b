"""Separate tokens: one layer copies labels to inputs, the next takes one GD step (von Oswald et al. 2022, Fig. 5).

Tokens x_1, (0, .., 0, y_1), x_2, .., x_q with positions beside them; two layers, softmax attention and then linear. To
take a gradient step the second layer needs x_j and y_j in one token: the first must copy. After a long plateau the loss
drops to nearly that of one step of gradient descent. With a linear first layer it does not: over 2N = 20 tokens ten
sinusoidal channels have five directions of any size (singular values 8.2 to 1.3, then 0.07), and the best attention
pattern that is linear in these has loss 0.302 (this lab, by regression on sampled tasks). Softmax makes it sharper.

Weights written by hand (Proposition 3) copy and then take exactly the gradient step, given positions that tell x-tokens
from y-tokens. Sinusoidal positions do not: a head with which x_j finds its next token, y_j, lets y_j find its own next
token too, x_{j+1}, whose last coordinate then acts as the label of y_j. The best step after such a head has a closed
form, 0.2128 for N = D = 10 against 0.2062 for GD (this lab, ``icl_lab.theory.gradient_descent.copy_everything``). With
2,048 tasks a step six of nine members that drop go below that bound, by attention that depends on content, not on
positions alone (the page of the paper). One-hot positions, a second control, do tell them apart: there x_j looks at
y_j, and y_j at itself, as in the weights by hand.

Panels: loss over training, with a linear first layer beside; copying sensitivities around the drop; agreement with GD
and with the step after a head that copies everything; where the first layer looks, trained and by hand. Members whose
loss does not drop in time are shown and counted, but not averaged.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import SCHEDULE, Setting, law_sizes, model, planned, sampler
from experiments.von_oswald.tuning import best_step, contexts_of, zero_loss
from icl_lab.compare.copying import copy_shares, copying_sensitivities, mean_attention
from icl_lab.constructions import copy_then_gradient_descent_weights
from icl_lab.fast import batch_learner
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_least, holds
from icl_lab.lab.quantities import Quantity, quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import Intervention, Transformer, traced
from icl_lab.prompts import BatchLearner, Learner, Prompt, Sample
from icl_lab.prompts.layouts import Layout, separate_layout
from icl_lab.solvers import gradient_descent, oracle
from icl_lab.theory.gradient_descent.copy_everything import copy_everything_optimum
from icl_lab.training import Training

FIRST_LAYERS = {"softmax": "softmax", "linear": "linear", "one_hot": "softmax"}
"""Attention of the first layer in each training."""


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 5; its curves run to about 50,000 steps, the released notebook to 10,000."""

    only: str = setting("all", "the one training to run, or all", choices=("all", *FIRST_LAYERS))
    steps: int = setting(50_000, "training steps, a multiple of measure_every: 10,000 in the notebook", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    gradient_clip: float = setting(10.0, "clip of the gradient's norm", above=0)
    init_scale: float = setting(0.02, "weights start with variance init_scale / layers / fan_in", above=0)
    key_size: int = setting(20, "width of queries, keys and values", at_least=1)
    positions: str = setting("sinusoidal", "positional encoding", choices=("sinusoidal", "one_hot"))
    position_size: int = setting(10, "channels of the positions: even, for one_hot at least 2N + 1", at_least=1)
    readout: str = setting(
        "position", "the prediction is minus the last position channel, or the label's", choices=("position", "label")
    )
    released_other: bool = setting(False, "count the next token among the others, as the released code does")
    control_members: int = setting(10, "trainings with a linear first layer, and with one-hot positions", at_least=2)
    copy_tasks: int = setting(1000, "tasks that measure what the first layer copies, at most eval_tasks", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)
    oracle_contexts: int = setting(
        100_000, "contexts on which two GD steps are tuned, and as many held out", at_least=2
    )


PRESETS = {
    "smoke": Config(
        members=2, control_members=2, context_length=3, input_size=2, batch=16, steps=20, measure_every=10,
        eval_tasks=16, position_size=4, key_size=4, copy_tasks=8, population_tasks=32, oracle_contexts=100,
    ),
    "quick": Config(
        members=3, control_members=2, context_length=5, input_size=5, batch=128, steps=200, measure_every=50,
        eval_tasks=500, copy_tasks=100, population_tasks=10_000, oracle_contexts=20_000, learning_rate=2e-3,
    ),
    "lab": Config(
        control_members=5, batch=256, steps=20_000, measure_every=250, eval_tasks=2000, copy_tasks=500,
    ),
    "paper": Config(),
}  # fmt: skip


def chosen(config: Mapping[str, Any]) -> list[str]:
    """The trainings to run, by a configuration's plain mapping."""
    return [name for name in FIRST_LAYERS if config.get("only", "all") in ("all", name)]


def of_each(name: str, *axes: str) -> dict[str, Quantity]:
    """Handles by training: the controls have members of their own."""
    member = dict.fromkeys(FIRST_LAYERS, "control_member") | {"softmax": "member"}
    return {
        training: quantity(f"{{training}}/{name}", member[training], *axes, training=chosen).at(training=training)
        for training in FIRST_LAYERS
    }


STEPS = quantity("steps", "step")
CURVE, FINAL, ATTENTION = of_each("{metric}", "step"), of_each("final/{learner}"), of_each("attention", "query", "key")
BY_HAND = quantity("hand_built_difference", "member")
BY_HAND_ATTENTION = quantity("hand_built_attention", "query", "key")


def trainings(config: Config) -> Table:
    """The stack and its two controls."""
    return {name: _planned(config, name) for name in chosen(vars(config))}


def _planned(config: Config, name: str) -> Training:
    stream, (network, layout) = [*FIRST_LAYERS].index(name), _stack(config, name)

    def copying(params: dict, samples: Sample) -> dict[str, Array]:
        prompts = jax.tree.map(lambda leaf: leaf[: config.copy_tasks], samples.prompt)
        shares = copy_shares(network, params, prompts, layout)
        sensitivities = copying_sensitivities(network, params, prompts, layout, released=config.released_other)
        return sensitivities | {f"share_{kind}": share[0] for kind, share in shares.items()}

    return planned(
        config,
        model(network, config, layout),
        stream=stream,
        members=config.members if name == "softmax" else config.control_members,
        references={} if stream else references(config),
        variants=lambda _: {"zero": lambda prompts: jnp.zeros((prompts.x.shape[0], 1))},
        extra=copying,
    )


def references(config: Config) -> dict[str, BatchLearner]:
    """One GD step, and the step after a head that copies everything."""
    gd = gradient_descent(best_step(config)[0], 1)
    return {"gd": jax.vmap(gd), "copying": jax.vmap(copy_everything(config)[0])}


def copy_everything(config: Config) -> tuple[Learner, float]:
    """The best step after a head that copies the next token for every token: as a learner, and its exact loss."""
    rate, label_rate, loss = copy_everything_optimum(**law_sizes(config))
    rates = np.append(np.full(config.input_size - 1, rate), label_rate) / config.context_length

    def predict(prompt: Prompt) -> Array:
        weights = (prompt.x.T @ prompt.y)[:, 0]
        weights = weights.at[-1].add(prompt.y[:-1, 0] @ prompt.x[1:, -1])
        return (jnp.asarray(rates, weights.dtype) * weights @ prompt.x_query)[None]

    return predict, float(loss)


def _stack(config: Config, name: str) -> tuple[Transformer, Layout]:
    """Network and layout of one of the trainings."""
    attention = (FIRST_LAYERS[name], "linear")
    network = Transformer(layers=2, attention=attention, key_size=config.key_size, init_scale=config.init_scale)
    if name == "one_hot":  # with the hand-built network's free channels
        return network, separate_layout(2 * config.context_length + 2, "one_hot", config.readout)
    return network, separate_layout(config.position_size, config.positions, config.readout)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The trainings, final losses and where the first layer looks; the weights by hand; exact losses."""
    eta, best = best_step(config)
    difference, attention = by_hand(config, eta)
    yield BY_HAND, difference
    yield BY_HAND_ATTENTION, attention
    prompts = jax.jit(sampler(config), static_argnums=1)(member_keys(config, 700, 1)[0], config.copy_tasks).prompt
    for name in fits:
        fit = fits[name]
        yield CURVE[name], fit.metrics
        keys = member_keys(config, 900 + [*FIRST_LAYERS].index(name), fit.diverged_at.size)
        of, tasks = learners(config, name, prompts), always(sampler(config))
        yield FINAL[name], paired_losses(of, tasks, fit.params, keys, config.population_tasks)
        yield ATTENTION[name], looks(config, name, prompts)(fit.params)[:, 0]
    yield STEPS, fit.steps
    yield (
        "facts",
        {
            "learning_rate": eta,
            "closed_form": best,
            "copy_everything": copy_everything(config)[1],
            "predict_zero": zero_loss(config),
            "two_steps": oracle.tune_gradient_descent(**contexts_of(config, config.oracle_contexts), steps=2).loss,
        },
    )


def learners(config: Config, name: str, prompts: Prompt) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: trained, the same looking by position as on the mean of these prompts, references."""
    (network, layout), beside = _stack(config, name), references(config)
    trained = model(network, config, layout)

    def of(params: dict) -> dict[str, BatchLearner]:
        attention = mean_attention(network, params, prompts, layout)
        positional = partial(by_position, network, params, layout, attention)
        return beside | {"trained": trained.learner(params), "positional": positional}

    return of


def by_position(network: Transformer, params: dict, layout: Layout, attention: Array, prompts: Prompt) -> Array:
    """Predictions when the first layer has this attention (H, T, 2N) whatever the tokens: by position alone."""
    patterns = jnp.stack([attention, jnp.zeros_like(attention)])
    first = jnp.array([True, False])[:, None, None, None]
    put_in = Intervention(replace={"attention": patterns}, mask={"attention": first})
    run = traced(network, params, layout)
    return jax.vmap(lambda prompt: run(prompt, put_in)[0])(prompts)


def looks(config: Config, name: str, prompts: Prompt) -> Callable[[dict], Array]:
    """``parameters of all members -> (M, H, 2N + 1, 2N)``, the first layer's mean attention on these prompts."""
    network, layout = _stack(config, name)
    return jax.jit(partial(jax.lax.map, lambda params: mean_attention(network, params, prompts, layout)))


def by_hand(config: Config, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """(M,) the largest difference of the hand-built stack from the GD step, over rms; its attention (2N + 1, 2N)."""
    n, size = config.context_length, 2 * config.context_length + 2
    network, layout = Transformer(layers=2, attention=("softmax", "linear")), separate_layout(size, "one_hot")

    @jax.jit
    def found(keys: Array) -> tuple[Array, Array]:
        weights = copy_then_gradient_descent_weights(
            eta, context_length=n, input_size=config.input_size, position_size=size
        )

        def difference(key: Array) -> Array:
            prompts = sampler(config)(key, config.copy_tasks).prompt
            gd = jax.vmap(gradient_descent(eta, 1))(prompts)
            return jnp.abs(batch_learner(network, weights, layout)(prompts) - gd).max() / jnp.sqrt((gd**2).mean())

        attention = mean_attention(network, weights, sampler(config)(keys[0], 2).prompt, layout)[0]
        return jax.lax.map(difference, keys), attention

    return jax.device_get(found(member_keys(config, 950)))


EXPERIMENT = Experiment(
    "von_oswald.separate_tokens", __doc__, PRESETS, measured,
    (STEPS, *CURVE.values(), *FINAL.values(), *ATTENTION.values(), BY_HAND, BY_HAND_ATTENTION),
    trainings=trainings, effort={"quick": "little"},
    constraints=(
        *SCHEDULE,
        at_least("context_length", 2),  # or no token is left but a token and the next
        holds("an even number with --positions=sinusoidal", "position_size",
              when=lambda c: c.positions != "sinusoidal" or c.position_size % 2 == 0),
        holds("at least 2N + 1 with --positions=one_hot", "position_size", "context_length",
              when=lambda c: c.positions != "one_hot" or c.position_size > 2 * c.context_length),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
