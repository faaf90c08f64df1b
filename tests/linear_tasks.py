"""Tasks of linear regression for tests, drawn by numpy: drawn by JAX, each shape would be a program to compile.

And what two forms of a network are compared in.
"""

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.prompts import Prompt, Sample


def linear_tasks(n, d, o=1, *, batch=4, largest=1.0, seed=7):
    """B tasks of N examples, D inputs up to ``largest`` and O outputs; w is standard normal."""
    rng, dtype = np.random.default_rng(seed), jnp.result_type(float)
    x, w = rng.uniform(-largest, largest, (batch, n + 1, d)), rng.normal(size=(batch, d, o))
    x, y = (values.astype(dtype) for values in (x, x @ w))
    return Sample(Prompt(x=x[:, :n], y=y[:, :n], x_query=x[:, n]), y[:, n], latent={})


def a_prompt(seed=0, n=7, d=4, o=2):
    """One prompt of normal numbers, whose labels no task has made; in float64 where that is switched on."""
    draw = np.random.default_rng(seed).normal
    return Prompt(x=jnp.asarray(draw(size=(n, d))), y=jnp.asarray(draw(size=(n, o))), x_query=jnp.asarray(draw(size=d)))


def values_and_slopes(predict, params):
    """Predictions, and the gradient by the parameters of something that is not linear in them."""

    def loss(p):
        values = predict(p)
        return jnp.sum(jnp.sin(3 * values)), values

    slopes, values = jax.jit(jax.grad(loss, has_aux=True))(params)
    return values, slopes
