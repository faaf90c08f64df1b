"""Tasks of linear regression for tests, drawn by numpy: drawn by JAX, each shape would be a program to compile."""

import jax.numpy as jnp
import numpy as np

from icl_lab.prompts import Prompt, Sample


def linear_tasks(n, d, o=1, *, batch=4, largest=1.0, seed=7):
    """B tasks of N examples, D inputs up to ``largest`` and O outputs; w is standard normal."""
    rng, dtype = np.random.default_rng(seed), jnp.result_type(float)
    x, w = rng.uniform(-largest, largest, (batch, n + 1, d)), rng.normal(size=(batch, d, o))
    x, y = (values.astype(dtype) for values in (x, x @ w))
    return Sample(Prompt(x=x[:, :n], y=y[:, :n], x_query=x[:, n]), y[:, n], latent={})
