"""Random attention stacks on joint tokens, their predictions and distances, compiled once for each shape."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.compare import align_weights
from icl_lab.models import Transformer, learner
from icl_lab.prompts import Prompt

N = 3


def merged(a, b):
    return {"params": {"w_kq": jnp.asarray(a), "w_pv": jnp.asarray(b)}}


def random_weights(rng, sets, heads, width):
    return rng.normal(size=(2, sets, heads, width, width)) * 0.4 / np.sqrt(heads)


def prompts(rng, d, o, batch=4):
    x, y, q = (rng.normal(size=(batch, *shape)) for shape in ((N, d), (N, o), (d,)))
    return Prompt(x=jnp.asarray(x), y=jnp.asarray(y), x_query=jnp.asarray(q))


@cache
def predictor(layers, looped, heads, kind, attention):
    network = Transformer(layers=layers, looped=looped, heads=heads, attention=attention, parametrisation=kind)
    return jax.jit(lambda params, batch: jax.vmap(learner(network, params))(batch))


@cache
def aligner(**options):
    return jax.jit(lambda *params: align_weights(*params, **options)["distance"])


@cache
def for_each(function):
    """The function of (one of many, the same for all)."""
    return jax.jit(jax.vmap(function, (0, None)))


def predict(params, batch, layers, looped, attention="linear"):
    heads = next(iter(params["params"].values())).shape[1]
    kind = "merged" if "w_kq" in params["params"] else "separate"
    return np.asarray(predictor(layers, looped, heads, kind, attention)(params, batch))


def gap(one, other, batch, *stack):
    """Largest change of a prediction, relative to the size of predictions."""
    before, after = predict(one, batch, *stack), predict(other, batch, *stack)
    return np.abs(after - before).max() / np.abs(before).max()


def distance(one, other, **options):
    return np.asarray(aligner(**options)(one, other))
