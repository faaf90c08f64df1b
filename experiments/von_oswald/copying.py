"""A layer that copies tokens and one gradient step after it: by position, by hand, or for every token."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.von_oswald.common import Task, law_sizes, sampler
from icl_lab.compare.copying import mean_attention
from icl_lab.constructions import copy_then_gradient_descent_weights
from icl_lab.fast import batch_learner
from icl_lab.models import Intervention, Transformer, traced
from icl_lab.prompts import Learner, Prompt
from icl_lab.prompts.layouts import Layout, separate_layout
from icl_lab.solvers import gradient_descent
from icl_lab.theory.gradient_descent.copy_everything import copy_everything_optimum


def copy_everything(config: Task) -> tuple[Learner, float]:
    """The best step behind a head that copies the next token for every token: as a learner, and its exact loss."""
    rate, label_rate, loss = copy_everything_optimum(**law_sizes(config))
    rates = jnp.full(config.input_size, rate).at[-1].set(label_rate) / config.context_length

    def predict(prompt: Prompt) -> Array:
        weights = (prompt.x.T @ prompt.y)[:, 0]
        weights = weights.at[-1].add(prompt.y[:-1, 0] @ prompt.x[1:, -1])
        return (rates * weights @ prompt.x_query)[None]

    return predict, float(loss)


def by_position(network: Transformer, params: dict, layout: Layout, looks: Array, prompts: Prompt) -> Array:
    """Predictions when the first layer has these patterns (H, T, 2N) whatever the tokens: by position alone."""
    patterns = jnp.stack([looks, jnp.zeros_like(looks)])
    first = jnp.array([True, False])[:, None, None, None]
    put_in = Intervention(replace={"attention": patterns}, mask={"attention": first})
    run = traced(network, params, layout)
    return jax.vmap(lambda prompt: run(prompt, put_in)[0])(prompts)


def by_hand(config: Task, eta: float, tasks: int) -> dict[str, np.ndarray]:
    """Attention (2N + 1, 2N) of the hand-built first layer; (M,) the largest difference from the GD step, over rms."""
    n, size = config.context_length, 2 * config.context_length + 2
    build = partial(copy_then_gradient_descent_weights, context_length=n, input_size=config.input_size)
    weights = jax.jit(lambda: build(eta, position_size=size))()
    network, layout = Transformer(layers=2, attention=("softmax", "linear")), separate_layout(size, "one_hot")

    def difference(key: Array) -> Array:
        prompts = sampler(config)(key, tasks).prompt
        gd = jax.vmap(gradient_descent(eta, 1))(prompts)
        return jnp.abs(batch_learner(network, weights, layout)(prompts) - gd).max() / jnp.sqrt((gd**2).mean())

    def attention(key: Array) -> Array:
        return mean_attention(network, weights, sampler(config)(key, 2).prompt, layout)[0]

    keys = member_keys(config, 950)
    return {
        "hand_built_difference": np.asarray(jax.jit(lambda k: jax.lax.map(difference, k))(keys)),
        "hand_built_attention": np.asarray(jax.jit(attention)(keys[0])),
    }
