"""A layer that copies tokens and one gradient step after it: by position, by hand, or for every token."""

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
    """The best step after a head that copies the next token for every token: as a learner, and its exact loss."""
    rate, label_rate, loss = copy_everything_optimum(**law_sizes(config))
    rates = np.append(np.full(config.input_size - 1, rate), label_rate) / config.context_length

    def predict(prompt: Prompt) -> Array:
        weights = (prompt.x.T @ prompt.y)[:, 0]
        weights = weights.at[-1].add(prompt.y[:-1, 0] @ prompt.x[1:, -1])
        return (jnp.asarray(rates, weights.dtype) * weights @ prompt.x_query)[None]

    return predict, float(loss)


def by_position(network: Transformer, params: dict, layout: Layout, looks: Array, prompts: Prompt) -> Array:
    """Predictions when the first layer has these patterns (H, T, 2N) whatever the tokens: by position alone."""
    patterns = jnp.stack([looks, jnp.zeros_like(looks)])
    first = jnp.array([True, False])[:, None, None, None]
    put_in = Intervention(replace={"attention": patterns}, mask={"attention": first})
    run = traced(network, params, layout)
    return jax.vmap(lambda prompt: run(prompt, put_in)[0])(prompts)


def by_hand(config: Task, eta: float, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    """(M,) the largest difference of the hand-built stack from the GD step, over rms; its attention (2N + 1, 2N)."""
    n, size = config.context_length, 2 * config.context_length + 2
    network, layout = Transformer(layers=2, attention=("softmax", "linear")), separate_layout(size, "one_hot")

    @jax.jit
    def found(keys: Array) -> tuple[Array, Array]:
        weights = copy_then_gradient_descent_weights(
            eta, context_length=n, input_size=config.input_size, position_size=size
        )

        def difference(key: Array) -> Array:
            prompts = sampler(config)(key, tasks).prompt
            gd = jax.vmap(gradient_descent(eta, 1))(prompts)
            return jnp.abs(batch_learner(network, weights, layout)(prompts) - gd).max() / jnp.sqrt((gd**2).mean())

        attention = mean_attention(network, weights, sampler(config)(keys[0], 2).prompt, layout)[0]
        return jax.lax.map(difference, keys), attention

    return jax.device_get(found(member_keys(config, 950)))
