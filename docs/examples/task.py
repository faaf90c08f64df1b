"""A new task: quadratic regression y = x^T W x + noise, learnt by a network and solved exactly by ridge regression.

A task is a sampler ``(key, batch) -> Sample``; what is trained on it by ``icl_lab.training.fit`` is a layer of linear
attention, two members in one program. The target is even in x_query, so no learner that is linear in x_query beats
predicting zero; a learner that is given the products x_i x_j in place of x does, and ridge regression on the products
is the Bayes predictor, below which no network can come.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
from jax import Array

from icl_lab.compare import mean_loss
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Learner, Prompt, Sample, Sampler
from icl_lab.solvers import ridge
from icl_lab.training import fit


def quadratic_regression(*, context_length: int, input_size: int, label_noise: float = 0.1) -> Sampler:
    """Sampler of tasks y = x^T W x + s z with x ~ U(-1, 1)^D and entries of W and z from N(0, 1).

    Args:
      context_length: N, number of context pairs.
      input_size: D.
      label_noise: s, in the context only: the target is without noise.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, 1), x_query (B, D), target (B, 1), latent ``w`` (B, D, D).

    Raises:
      ValueError: for sizes below 1.
    """
    n, d = context_length, input_size
    if n < 1 or d < 1:
        raise ValueError(f"context_length and input_size must be at least 1, got {n} and {d}")

    def sampler(key: Array, batch: int) -> Sample:
        x_key, w_key, noise_key = jax.random.split(key, 3)
        points = jax.random.uniform(x_key, (batch, n + 1, d), minval=-1.0)  # the query is the last point
        w = jax.random.normal(w_key, (batch, d, d))
        clean = jnp.einsum("bni,bij,bnj->bn", points, w, points)[:, :, None]
        y = clean[:, :n] + label_noise * jax.random.normal(noise_key, (batch, n, 1))
        return Sample(Prompt(x=points[:, :n], y=y, x_query=points[:, n]), target=clean[:, n], latent={"w": w})

    return sampler


def with_products(prompt: Prompt) -> Prompt:
    """The prompt (or batch of prompts) with all D^2 products x_i x_j in place of x."""
    products = lambda x: (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1)  # noqa: E731
    return replace(prompt, x=products(prompt.x), x_query=products(prompt.x_query))


def on_products(of_prompt: Learner) -> Learner:
    """The learner that sees products in place of inputs: a learner is a function, so this is a composition."""
    return lambda prompt: of_prompt(with_products(prompt))


def main(steps: int = 300, batch: int = 128, n: int = 10, d: int = 2, noise: float = 0.1) -> dict[str, float]:
    """Trains two members; returns mean losses, half squared errors on the same fresh tasks, by learner."""
    sampler = quadratic_regression(context_length=n, input_size=d, label_noise=noise)
    network = LinearSelfAttention(init_scale=0.1)

    def loss(params: dict, key: Array, _: None) -> Array:
        samples = sampler(key, batch)
        predictions = batch_learner(network, params)(with_products(samples.prompt))
        return 0.5 * jnp.mean(jnp.sum((predictions - samples.target) ** 2, axis=1))

    fitted = fit(
        lambda key, _: network.init(key, jnp.zeros((n + 1, d * d + 1))),  # tokens (T, E): products and label
        loss, optax.adam(1e-2), jax.random.split(jax.random.key(0), 2), steps=steps,
    )  # fmt: skip
    member = jax.tree.map(lambda leaf: leaf[0], fitted.params)
    learners = {
        "zero": lambda prompt: jnp.zeros(1),
        "linear ridge": ridge(noise**2),
        "network": on_products(learner(network, member)),
        "Bayes": on_products(ridge(noise**2)),
    }

    def losses() -> dict[str, Array]:
        samples = sampler(jax.random.key(1), 2000)
        return {name: mean_loss(one, samples) for name, one in learners.items()}

    return jax.tree.map(float, jax.jit(losses)())


if __name__ == "__main__":
    print("mean loss:", ", ".join(f"{name} {value:.4f}" for name, value in main().items()))
