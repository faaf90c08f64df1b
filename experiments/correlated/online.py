"""What does a layer that learns online lose where neighbouring inputs resemble each other, and does momentum help?

A layer of DeltaNet with normalised keys reads examples in their order: with k = W_k x its state is S <- S + m,
m <- mu m + b (k/|k|) (y - S.k)/|k|, and the query reads (W_q x_q).S. At W_q = W_k this is normalised least mean squares
(LMS), at b = 1 and mu = 0 randomised Kaczmarz, which leaves (1 - 1/D)^N of independent inputs. Here inputs have
E x_i x_j^T = c^|i-j| I, and both b and mu are trained, from 1/2 and 0.3. An error e is worth
ln e / ln(1 - 1/D) independent examples; to linear attention a context is worth N_eff = N^2 / tr K^2. Keys as they are,
LMS at 1/(D + 2), have heavy tails there: few contexts carry the error. Errors are squared errors over that of
predicting zero; those of a layer and of the algorithms beside it are of the same prompts.

Panels: error over the correlation; independent examples that a context is worth; what momentum gains.
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

from experiments import training
from experiments.identification.networks import functions
from experiments.settings import Members, member_keys
from experiments.training import always, paired_losses
from icl_lab.identify import identify
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models.online import delta_of_grams
from icl_lab.prompts import BatchLearner, Prompt, Sampler, correlated_context, gaussian_regression
from icl_lab.training import Model

KINDS = ("delta", "momentum")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Standard normal inputs and tasks, no noise; all layers are trained alike."""

    input_size: int = setting(5, "D", at_least=1)
    context_length: int = setting(20, "N", at_least=2)
    correlations: tuple[float, ...] = setting(
        (0.0, 0.5, 0.8), "c, correlation of neighbouring inputs, in training and at test", at_least=0, at_most=1
    )
    identified: bool = setting(True, "whether layers without momentum are identified, at the last correlation")
    drawn: int = setting(100_000, "contexts of a member of which the largest errors are counted", at_least=1)
    steps: int = setting(4000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.005, "Adam's learning rate at the start; it falls to zero as a cosine", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    eval_tasks: int = setting(2000, "prompts that measure a member, the same at every measurement", at_least=1)
    test_tasks: int = setting(200_000, "prompts for each error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, input_size=2, context_length=4, correlations=(0.0, 0.8), drawn=1000, steps=20, measure_every=10,
        batch=16, eval_tasks=32, test_tasks=64, identified=False,
    ),
    "quick": Config(
        members=6, correlations=(0.8,), drawn=10_000, steps=750, measure_every=250, batch=128, eval_tasks=1000,
        test_tasks=20_000,
        identified=False,
    ),
    "lab": Config(steps=3000, batch=128, test_tasks=100_000),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (multiple_of("steps", "measure_every"), once("correlations"))

AT: dict[str, Any] = {"at": lambda config: (f"{c:g}" for c in config["correlations"])}
STEPS, LOSS = quantity("steps", "step"), quantity("{kind}_{at}/loss", "member", "step", kind=KINDS, **AT)
ERROR = quantity("{kind}_{at}/{of}", "member", kind=KINDS, **AT, of=("error", "kaczmarz", "hasty"))
LEARNED = quantity("{kind}_{at}/{of}", "member", **AT, kind=KINDS, of=("rate", "momentum"))
KEYS = quantity("{kind}_{at}/keys", "member", "row", "column", **AT, kind=KINDS)
TAIL = quantity("tail_{at}/{of}", "member", **AT, of=("as_they_are", "normalised"))
NAMED = quantity(
    "{who}/named", "member", who=lambda config: ("built", "untrained", "trained") if config["identified"] else ()
)


def online(params: dict, prompt: Prompt, *, normalised: bool = True) -> Array:
    """(B, 1) what the layer says of B prompts."""
    keys, queries = prompt.x @ params["w_k"].T, prompt.x_query @ params["w_q"].T
    scores, gram = jnp.einsum("bd,bnd->nb", queries, keys), jnp.einsum("bnd,bmd->nmb", keys, keys)
    rule = {"rates": params["rate"], "momentum": params["momentum"], "normalised": normalised}
    read = delta_of_grams(scores[None, None], gram[None], **rule)[0, 0]
    return (read * prompt.y[:, :, 0].T).sum(0)[:, None]


def layer(config: Config, kind: str) -> Model:
    """The layer; without momentum it has none to train."""
    d = config.input_size

    def init(key: Array) -> dict:
        w_q, w_k = jax.random.normal(key, (2, d, d)) * jnp.array([0.01, d**-0.5])[:, None, None]
        learned = {"w_q": w_q, "w_k": w_k, "rate": jnp.array(0.5)}
        return learned | ({"momentum": jnp.array(0.3)} if kind == "momentum" else {})

    def predict(params: dict, prompt: Prompt) -> Array:
        return online({"momentum": 0.0} | params, prompt)

    return Model(init, predict, name=f"online layer ({kind})")


def untrained(config: Config, kind: str) -> dict:
    """The parameters of layers before training, with a leading axis of members."""
    return jax.vmap(layer(config, kind).init)(member_keys(config, 910))


def built(config: Config, rate: Any, momentum: Any = 0.0) -> dict:
    """The parameters at which the layer is LMS, normalised or not, or the heavy ball of one example a step."""
    eye = jnp.eye(config.input_size)
    return {"w_q": eye, "w_k": eye, "rate": jnp.asarray(rate), "momentum": jnp.asarray(momentum)}


def sampler(config: Config, correlation: Any) -> Sampler:
    """Contexts of a correlation, which may be traced."""
    independent = gaussian_regression(context_length=config.context_length, covariance=np.eye(config.input_size))
    return correlated_context(independent, correlation)


def trainings(config: Config) -> Table:
    """Every layer at every correlation, by Adam with a learning rate that falls to zero."""
    return {
        f"{kind}_{c:g}": training.planned(
            config, layer(config, kind), keys=member_keys(config, stream), settings=jnp.full(config.members, c),
            optimizer=training.falling_adam(config.steps), sampler_of=lambda _, now: sampler(config, now),
        )
        for kind in KINDS
        for stream, c in enumerate(config.correlations)
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """What layers learned, their errors beside those of built ones, the tails of these, and names."""
    yield STEPS, fits[f"delta_{config.correlations[0]:g}"].steps
    for stream, c in enumerate(config.correlations):
        drawn, keys = sampler(config, c), member_keys(config, 900 + stream)
        for kind in KINDS:
            at, fit = {"kind": kind, "at": f"{c:g}"}, fits[f"{kind}_{c:g}"]
            params = {"momentum": np.zeros(config.members)} | fit.params
            losses = paired_losses(partial(_beside, config), always(drawn), params, keys, config.test_tasks)
            yield ERROR.at(**at), {name: 2 * loss / config.input_size for name, loss in losses.items()}
            yield LOSS.at(**at), fit.metrics["loss"]
            yield LEARNED.at(**at), {name: np.asarray(params[name], np.float64) for name in ("rate", "momentum")}
            w_k = np.asarray(params["w_k"], np.float64)
            yield KEYS.at(**at), np.swapaxes(w_k, 1, 2) @ w_k
        yield TAIL.at(at=f"{c:g}"), tails(config, drawn, keys)
    if config.identified:
        trained, model = fits[f"delta_{c:g}"].params, layer(config, "delta")
        kaczmarz = jax.vmap(partial(built, config))(np.linspace(0.7, 1.1, config.members))
        for who, params, learner in (
            ("built", kaczmarz, partial(partial, online)),
            ("untrained", untrained(config, "delta"), model.learner),
            ("trained", trained, model.learner),
        ):
            yield NAMED.at(who=who), named(config, drawn, params, learner)


def _beside(config: Config, trained: dict) -> Mapping[str, BatchLearner]:
    """The layer, Kaczmarz, and Kaczmarz with a momentum of 0.3."""
    beside = {"kaczmarz": built(config, 1.0), "hasty": built(config, 1.0, 0.3)}
    return {"error": partial(online, trained)} | {name: partial(online, params) for name, params in beside.items()}


def tails(config: Config, drawn: Sampler, keys: Array) -> dict[str, np.ndarray]:
    """(M,) share of the error in the thousandth of contexts that has most of it, keys as they are and normalised."""

    @jax.jit
    def share(key: Array) -> dict[str, Array]:
        sample, shares = drawn(key, config.drawn), {}
        for name, rate in (("as_they_are", 1 / (config.input_size + 2)), ("normalised", 1.0)):
            predictions = online(built(config, rate), sample.prompt, normalised=name == "normalised")
            errors = jnp.sort(((predictions - sample.target) ** 2)[:, 0])
            shares[name] = errors[-max(1, config.drawn // 1000) :].sum() / errors.sum()
        return shares

    return {name: np.asarray(value) for name, value in jax.lax.map(share, keys).items()}


def named(config: Config, drawn: Sampler, params: dict, learner: Callable[[dict], BatchLearner]) -> np.ndarray:
    """(M,) whether ``identify`` calls a layer normalised LMS."""
    result = identify(
        functions(learner, params, config.members), context_length=config.context_length, input_size=config.input_size,
        sampler=drawn,
    )  # fmt: skip
    return np.array([float(member.family == "normalised LMS") for member in result.members])


EXPERIMENT = Experiment(
    "correlated.online", __doc__, PRESETS, measured, (STEPS, LOSS, ERROR, LEARNED, KEYS, TAIL, NAMED),
    trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
