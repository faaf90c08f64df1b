"""Which layer does what? What a read-out knows after each layer of trained linear attention, and how fast it grows.

Networks of ``von_oswald.multi_step``, by the kept parameters of its lab record: five layers with weights of their own,
and layers trained for two and for ten loops, which run longer here. After j layers the read-out is the label of the
query's token times one gain, fitted to the targets on prompts of its own. A linear read-out of the whole token would
know no more of GD++: its inputs do not change sign with the task, so they do not correlate with the target. Couplings
of labels to inputs break this in trained networks.

The residual factor after j layers, r_j(l) = 1 - l h_j(l), is measured as by ``identify``. Its *steps* are
K_j = ln |r_j(l)| / ln |r_1(l)| at the smallest eigenvalue of training (5 % quantile): how many times the first layer
would have to be applied. GD has K_j = j, and Newton's iteration from a I has 2^(j - 1). GD(2^k) *is* k steps of
Newton, so predictions of the whole network cannot tell them apart, and growth over layers can. It tells nothing of
large eigenvalues, and not whether a network has learned: any loop that does little to an eigenvalue adds.

Of the GPT-2s of ``garg.linear_functions`` on dense tasks a linear read-out of the query's token is fitted before the
first of two layers and after each: after 2D examples, to the normalised stream, from which the network itself reads.

Controls: networks as they are drawn, and layers in the opposite order. Errors are squared errors over that of
predicting zero.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.garg import linear_functions
from experiments.identification.networks import GALLERY, functions, sampler_of
from experiments.settings import Members, member_keys
from experiments.von_oswald import multi_step
from experiments.von_oswald.common import model, unpack
from icl_lab.identify import battery, fingerprint, in_units
from icl_lab.lab import Experiment, load_run, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.flags import from_json
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.models import GPT, traced
from icl_lab.models.layers import layer_norm
from icl_lab.prompts import Prompt, Sample
from icl_lab.prompts.layouts import alternating_layout
from icl_lab.training import Model

NETWORKS = ("free_5", "looped_2", "looped_10")
GPTS = ("trained", "untrained", "reversed")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Which networks, and how many prompts."""

    networks: tuple[str, ...] = setting(NETWORKS, "trainings of von_oswald.multi_step", choices=NETWORKS)
    loops: int = setting(10, "loops at which looped layers are read", at_least=1)
    gpts: int = setting(10, "members of garg.linear_functions; 0: none", at_least=0, at_most=10)
    tasks: int = setting(20_000, "prompts that fit a read-out, and as many others for an error", at_least=2)


PRESETS = {
    "smoke": Config(members=1, networks=("looped_2",), loops=2, gpts=1, tasks=96),
    # as many prompts as a fingerprint asks at once, so every depth is one program
    "quick": Config(members=2, networks=("free_5",), gpts=0, tasks=3072),
    "lab": Config(),
    "paper": Config(),
}


def learners(networks: tuple[str, ...]) -> list[str]:
    """Trained networks and their controls, by name."""
    kinds = {"free": ("", "_untrained", "_reversed"), "looped": ("", "_untrained")}
    return [name + kind for name in networks for kind in kinds[name.split("_")[0]]]


OF: dict[str, Any] = {"learner": lambda config: learners(config["networks"])}
GRID, LOW = quantity("{learner}/grid", "point", **OF), quantity("{learner}/low", **OF)
FACTOR = quantity("{learner}/r", "member", "{learner}_layer", "point", **OF)
READ = quantity("{learner}/{read}", "member", "{learner}_layer", read=("gain", "error"), **OF)
GPT_ERROR = quantity("gpt/{of}/error", "gpt", "gpt_layer", of=lambda config: GPTS if config["gpts"] else ())


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Read-outs and residual factors after every layer."""
    kept = load_run(GALLERY / "multi_step" / "lab")
    of = from_json(multi_step.Config, kept.record.config)
    sizes = of.context_length, of.input_size
    units, _, _ = battery(sampler_of(kept.record.config), *sizes, config.seed)
    drawn = [sampler_of(kept.record.config)(jax.random.key(config.seed + half), config.tasks) for half in (1, 2)]
    halves = [[np.asarray(part) for part in (one.prompt.x, one.prompt.y, one.prompt.x_query)] for one in drawn]
    targets = [np.asarray(one.target)[:, 0] for one in drawn]
    names = learners(config.networks)
    with fits.bar("networks", len(names)) as advance:
        for network in config.networks:
            kinds, members = learners((network,)), config.members
            trained = [kept.params(member, network) for member in range(members)]
            results: dict[str, dict[str, list]] = {name: {"gain": [], "error": [], "r": []} for name in kinds}
            for every in after_each(config, of, network, trained):
                for k, name in enumerate(kinds):
                    many = every[k * members : (k + 1) * members]
                    output = [[member(*prompts)[:, 0] for prompts in halves] for member in many]
                    gains = [f @ targets[0] / max(f @ f, 1e-300) for f, _ in np.asarray(output, float)]
                    errors = [((g * f - targets[1]) ** 2).mean() for g, (_, f) in zip(gains, np.asarray(output, float))]
                    prints = [fingerprint(in_units(flat(member), units), units, *sizes, config.seed) for member in many]
                    results[name]["gain"].append(gains)
                    results[name]["error"].append(np.array(errors) / (targets[1] ** 2).mean())
                    results[name]["r"].append([one["r"] for one in prints])
            for name, series in results.items():
                yield GRID.at(learner=name), prints[0]["grid"]
                yield LOW.at(learner=name), np.array(units.low)
                yield FACTOR.at(learner=name), np.stack(series.pop("r"), axis=1)
                yield READ.at(learner=name), {read: np.stack(value, axis=1) for read, value in series.items()}
            advance(names.index(name) + 1, len(names))
    if config.gpts:
        yield GPT_ERROR, gpt_errors(config)


def gpt_errors(config: Config) -> dict[str, np.ndarray]:
    """(members, L + 1) errors of read-outs before the first layer and after each, of trained networks and controls."""
    kept = load_run(GALLERY.parent / "garg" / "linear_functions" / "lab")
    of = from_json(linear_functions.Config, kept.record.config)
    network = GPT(of.layers, of.heads, of.width, 2 * of.context_length + 1, of.spread)
    trained = [kept.params(member, "dense") for member in range(config.gpts)]
    tokens = jnp.zeros((1, of.input_size))
    drawn = jax.vmap(lambda key: network.init(key, tokens))(member_keys(config, 2, config.gpts))
    every = {
        "trained": trained,
        "untrained": [jax.tree.map(lambda leaf, m=m: leaf[m], drawn) for m in range(config.gpts)],
        "reversed": [backwards(one) for one in trained],
    }
    sampler = linear_functions.sampler(of, "dense", context_length=2 * of.input_size)
    samples = jax.jit(lambda key: sampler(key, 2 * config.tasks))(jax.random.key(config.seed))
    target, read = np.asarray(samples.target[:, 0], float), jax.jit(partial(streams, network))
    return {
        name: np.stack([[read_out(layer, target) for layer in np.asarray(read(one, samples), float)] for one in many])
        for name, many in every.items()
    }


def backwards(params: Any) -> Any:
    """GPT-2's parameters with its layers in the opposite order."""
    of_layers = ("w_", "qkv_", "p_", "attention_", "mlp_")
    return {"params": {k: leaf[::-1] if k.startswith(of_layers) else leaf for k, leaf in params["params"].items()}}


def streams(network: GPT, params: Any, samples: Sample) -> Array:
    """(L + 1, B, E) normalised stream of the query's token, before the first layer and after each."""

    def of_prompt(prompt: Prompt) -> Array:
        stream = traced(network, params, alternating_layout())(prompt)[1].residual[:, -1]
        return layer_norm(stream, (jnp.ones(network.width), jnp.zeros(network.width)))

    return jax.lax.map(of_prompt, samples.prompt, batch_size=500).swapaxes(0, 1)


def read_out(stream: np.ndarray, target: np.ndarray) -> float:
    """The relative error on the second half of (B, E) tokens of the linear read-out that is fitted to the first."""
    fitted, held_out = np.split(np.column_stack([stream, np.ones(len(stream))]), 2)
    weights = np.linalg.lstsq(fitted, target[: len(fitted)])[0]
    return float(((held_out @ weights - target[len(fitted) :]) ** 2).mean() / (target[len(fitted) :] ** 2).mean())


def after_each(config: Config, of: multi_step.Config, network: str, trained: list) -> Iterator[list[Callable]]:
    """Members of all learners of a network, in one program, as they are read after one layer, two, and so on."""
    whole = unpack(of)[network][0]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trained)
    every = [params, jax.vmap(model(whole, of).init)(member_keys(config, 1))]
    if not whole.looped:
        every.append(jax.tree.map(lambda leaf: leaf[:, ::-1], params))
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *every)
    for layers in range(1, 1 + (config.loops if whole.looped else whole.layers)):
        first: Model = model(dataclasses.replace(whole, layers=layers), of)
        weights = stacked if whole.looped else jax.tree.map(lambda leaf: leaf[:, :layers], stacked)  # noqa: B023
        yield functions(first.learner, weights, len(every) * config.members)


def flat(member: Callable) -> Callable:
    """A member as a function of labels (B, N), with answers (B,)."""
    return lambda x, y, q: np.asarray(member(x, y[:, :, None], q)[:, 0], float)


EXPERIMENT = Experiment(
    "identification.layers", __doc__, PRESETS, measured, (GRID, LOW, FACTOR, READ, GPT_ERROR),
    given=True, constraints=(once("networks"),),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
