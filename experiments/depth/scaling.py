"""How the error of linear attention falls with depth, and what a symmetric start does to it (Bordelon et al. 2025).

Prompts of power-law covariance: eigenvalues l_k = k^-alpha, task power l_k w_k^2 ~ k^-(alpha beta + 1), every prompt
turned by its own rotation. Layers x_q.u, u <- u + A_j X^T (y - X u) / N from u = 0 leave prod_j (1 - a_j l) of the task
where A_j = a_j I. In infinitely long prompts tied layers leave L^-beta of the error and free ones L^-(beta (2 + alpha))
(``icl_lab.theory.power_spectrum``); but the tied optimum is a saddle among free layers, and layers that start equal
have first to leave it. Errors are squared errors over that of predicting zero.

Parts: least errors of the law of many modes and of few; descent on the rates from the saddle; networks of tied layers
on isotropic prompts of N = D examples; networks on turned prompts, kind_L: zeros (free layers that start at 0), apart
(free, from rates of their own), inputs (layers that may move the inputs too: GD++).
"""

import dataclasses
import re
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments import training
from experiments.depth import looped
from experiments.settings import Members, member_keys
from experiments.training import Model, always, paired_losses
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import Prompt, Sample, Sampler, linear_regression
from icl_lab.training import Fit

KINDS = ("zeros", "apart", "inputs")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Learning rates fall to zero as a cosine; plain gradient descent but for tied layers and for inputs_L."""

    decay: float = setting(1.75, "alpha: eigenvalues are k^-alpha", above=0)
    task_decay: float = setting(0.5, "beta: task power beyond mode k is about k^-(alpha beta)", above=0)
    many: int = setting(1_000_000, "modes of the law on which exponents are measured", at_least=2)
    many_depths: tuple[int, ...] = setting((8, 16, 32, 64), "L of these errors, rising", at_least=1)
    few: int = setting(45, "modes of the published experiments", at_least=3)
    few_depths: tuple[int, ...] = setting((1, 2, 4, 8, 16), "L of errors there, rising", at_least=1)
    limit_depths: tuple[int, ...] = setting((1, 2, 4, 8, 16), "L of isotropic errors in the limit N = D", at_least=1)
    descents: tuple[int, ...] = setting((2, 4), "L of the descents on the rates, on few modes", at_least=2)
    jitters: tuple[float, ...] = setting((1e-2, 1e-3, 1e-4, 1e-5), "how far apart these rates start", above=0)
    descent_rate: float = setting(1.0, "step of these descents", above=0)
    descent_steps: int = setting(1500, "steps of these descents", at_least=1)
    sizes: tuple[int, ...] = setting((16, 32), "N = D of isotropic prompts, rising", at_least=2)
    tied: tuple[int, ...] = setting((1, 2, 4, 8), "L of tied layers on them", at_least=1)
    tasks: int = setting(8, "tasks on the same inputs, so that fewer prompts say as much", at_least=1)
    tied_steps: int = setting(1600, "their training steps, a multiple of measure_every", at_least=1)
    tied_batch: int = setting(32, "fresh prompts in a step of theirs", at_least=1)
    adam_rate: float = setting(0.01, "Adam's learning rate at the start", above=0)
    input_size: int = setting(16, "modes of turned prompts", at_least=2)
    networks: tuple[str, ...] = setting(
        ("zeros_2", "zeros_4", "apart_4", "inputs_2"), f"kind_L, of L layers; kinds {', '.join(KINDS)}"
    )
    spread: float = setting(3.0, "apart_L starts at A_j = s_j I, s_j uniform below this", above=0)
    learning_rate: float = setting(8.0, "of gradient descent at the start", above=0)
    inputs_rate: float = setting(0.03, "Adam's for inputs_L at the start", above=0)
    init_scale: float = setting(0.1, "standard deviation of the weights of inputs_L at the start", above=0)
    steps: int = setting(1000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    batch: int = setting(64, "fresh prompts in a training step", at_least=1)
    eval_tasks: int = setting(500, "prompts that measure a member during training", at_least=1)
    final_tasks: int = setting(5000, "prompts for each final error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, many=200, many_depths=(4, 8), few=8, few_depths=(1, 2, 4), limit_depths=(1, 2), descents=(2,),
        descent_steps=200, sizes=(2, 4), tied=(1, 2), input_size=3, networks=("zeros_2", "apart_2"), steps=10,
        tied_steps=10, tied_batch=8, measure_every=5, learning_rate=0.3, batch=8, eval_tasks=16, final_tasks=32,
    ),
    "quick": Config(
        members=6, many=100_000, many_depths=(8, 16, 32), descents=(2,), sizes=(4, 8), tied=(1,), input_size=4,
        networks=("zeros_2",), steps=50, tied_steps=500, measure_every=50, learning_rate=1.0, eval_tasks=100,
        final_tasks=2000,
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"), multiple_of("tied_steps", "measure_every"),
    once("networks", "tied", "sizes", "descents", "jitters"),
    holds("kind_L", "networks",
          when=lambda c: all(re.fullmatch(rf"({'|'.join(KINDS)})_[1-9]\d*", name) for name in c.networks)),
    holds("above L", "input_size", "networks",
          when=lambda c: all(int(name.split("_")[1]) < c.input_size for name in c.networks)),
    holds("fewer than the modes", "few_depths", "few", when=lambda c: max(c.few_depths + c.descents) < c.few),
    holds("fewer than the modes", "many_depths", "many", when=lambda c: max(c.many_depths) < c.many),
)  # fmt: skip

BEST = quantity("{of}/{learner}", "{of}_depth", of=("many", "few", "limit"), learner=("tied", "free"))
SHIFTED = quantity("shifted/{learner}", "few_depth", learner=("tied", "free"))
LEFT = quantity("descent_{depth}/left", "member", "jitter", depth="descents")
STEPS = quantity("steps", "step")
TIED = quantity("size_{size}/tied_{depth}/{learner}", "member", size="sizes", depth="tied", learner=("trained", "tied"))
LOSS = quantity("{network}/loss", "member", "step", network="networks")
ERROR = quantity("{network}/{learner}", "member", network="networks", learner=("trained", "tied", "free"))
MEANS = quantity("{network}/a", "member", "{network}_layer", network="networks")

Law = tuple[np.ndarray, np.ndarray]


def modes(config: Config, count: int) -> Law:
    """The law of so many modes."""
    return theory.power_spectrum(count, config.decay, config.task_decay)


def layers_of(size: int, count: int, own: int, spread: float = 0.0) -> Model:
    """``count`` layers U <- U + A_j X^T (Y - X U) / N, of which ``own`` have weights of their own; X^T X once for all.

    Linear self-attention of the blocks of ``looped.model``, of the query's labels alone. A_j starts at s_j I, s_j
    uniform below the spread.
    """

    def predict(params: dict, prompts: Prompt) -> Array:
        x, n = prompts.x, prompts.x.shape[1]
        gram, seen = jnp.einsum("bnd,bne->bde", x, x) / n, jnp.einsum("bnd,bno->bdo", x, prompts.y) / n
        u = jnp.zeros_like(seen)
        for j in range(count):
            u = u + jnp.einsum(
                "de,beo->bdo", params["params"]["a"][j % own], seen - jnp.einsum("bde,beo->bdo", gram, u)
            )
        return jnp.einsum("bd,bdo->bo", prompts.x_query, u)

    start = lambda key: spread * jax.random.uniform(key, (own, 1, 1)) * jnp.eye(size)[None]  # noqa: E731
    return Model(lambda key: {"params": {"a": start(key)}}, predict, count, "layers")


def model(config: Config, name: str) -> Model:
    """A network on turned prompts."""
    kind, count = name.split("_")
    if kind == "inputs":
        return looped.model(config, name)  # type: ignore[arg-type]  # which reads input_size and init_scale
    return layers_of(config.input_size, int(count), int(count), config.spread if kind == "apart" else 0.0)


def isotropic(config: Config, size: int) -> Sampler:
    """Prompts of N = D standard normal inputs."""
    return linear_regression(context_length=size, input_size=size, output_size=config.tasks, input_law="normal")


def turned(config: Config) -> Sampler:
    """Prompts as infinitely long ones: N = D inputs (D l_k)^(1/2) o_k, X^T X / N = sum l_k o_k o_k^T, o a rotation.

    w.o_k ~ N(0, mu_k / l_k), so that the error of predicting zero is 1; the query is N(0, X^T X / N).
    """
    size, spectrum = config.input_size, modes(config, config.input_size)
    eigenvalues, powers = (values.astype(np.float32) for values in spectrum)

    def sampler(key: Array, batch: int) -> Sample:
        turn, task, query = (
            jax.random.normal(one, (batch, *shape))
            for one, shape in zip(jax.random.split(key, 3), ((size, size), (size,), (size,)))
        )
        rows = _turned(turn)
        of = lambda inner: jnp.einsum("bk,bkd->bd", inner, rows)  # noqa: E731
        w, x_query = of(task * (powers / eigenvalues)[None] ** 0.5), of(query * eigenvalues[None] ** 0.5)
        x = rows * (size * eigenvalues)[None, :, None] ** 0.5
        y = jnp.einsum("bnd,bd->bn", x, w)[..., None]
        target = (w * x_query).sum(-1, keepdims=True)
        return Sample(prompt=Prompt(x=x, y=y, x_query=x_query), target=target, latent={"w": w[..., None]})

    return sampler


def _turned(normal: Array) -> Array:
    """(B, D, D) orthonormal rows, uniform but for their signs, of as many normal numbers (Stewart 1980).

    Reflections H_k = I - 2 v v^T / |v|^2 that turn e_k into a normal vector of what is left. In place of QR, whose
    batches wait for each other for ever on few cores.
    """
    size = normal.shape[-1]
    columns = jnp.broadcast_to(jnp.eye(size), normal.shape)
    for k in range(size - 1):
        v = normal[:, k] * (jnp.arange(size) >= k)[None]
        side = jnp.where(v[:, k] < 0, -1, 1) * jnp.linalg.norm(v, axis=1)
        v = v.at[:, k].add(side)
        v = v / jnp.linalg.norm(v, axis=1, keepdims=True)
        columns = columns - 2 * jnp.einsum("bij,bj,bk->bik", columns, v, v)
    return columns.swapaxes(1, 2)


def trainings(config: Config) -> Table:
    """Tied layers at every size and depth, by Adam; the networks on turned prompts, inputs_L by Adam too."""
    short = dataclasses.replace(config, steps=config.tied_steps, batch=config.tied_batch)
    falling = optax.cosine_decay_schedule
    tied = lambda now: optax.adam(falling(now.adam_rate, config.tied_steps))  # noqa: E731
    moving = lambda now: optax.adam(falling(now.inputs_rate, config.steps))  # noqa: E731
    plain = lambda now: optax.sgd(falling(now.learning_rate, config.steps))  # noqa: E731
    table = {
        f"size_{size}/tied_{depth}": (short, layers_of(size, depth, own=1), isotropic(config, size), tied)
        for size in config.sizes
        for depth in config.tied
    }
    for name in config.networks:
        table[name] = config, model(config, name), turned(config), moving if name.startswith("inputs") else plain
    return {
        name: training.planned(
            run_config, trained, keys=member_keys(run_config, stream), optimizer=optimizer, sampler_of=always(sampler)
        )
        for stream, (name, (run_config, trained, sampler, optimizer)) in enumerate(table.items())
    }


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Least errors; steps to leave the saddle; errors of the networks and of exact rates on the same prompts."""
    few = modes(config, config.few)
    for name, spectrum in {"many": modes(config, config.many), "few": few, "limit": None}.items():
        depths = getattr(config, f"{name}_depths")
        spectrum = spectrum or theory.marchenko_pastur(1.0, 2 * max(depths) + 2)
        tied = [theory.depth_error(np.full(depth, theory.looped_rate(depth, spectrum)), spectrum) for depth in depths]
        yield BEST.at(of=name), {"tied": np.array(tied), "free": theory.free_errors(max(depths), spectrum)[[*depths]]}
    for learner in ("tied", "free"):
        moved = [theory.depth_error(best(few, depth)[learner], (1.5 * few[0], few[1])) for depth in config.few_depths]
        yield SHIFTED.at(learner=learner), np.array(moved)
    for depth in config.descents:
        yield LEFT.at(depth=depth), left(config, depth, few)
    for stream, (size, depth) in enumerate(((size, depth) for size in config.sizes for depth in config.tied), 900):
        fit, spectrum = fits[f"size_{size}/tied_{depth}"], theory.gram_spectrum(size, size, 2 * depth)
        exact = {"tied": np.array([theory.looped_rate(depth, spectrum)])}
        totals = errors(config, layers_of(size, depth, own=1), fit, isotropic(config, size), stream, exact)
        yield TIED.at(size=size, depth=depth), {key: value / (size * config.tasks) for key, value in totals.items()}
    for stream, name in enumerate(config.networks, 950):
        fit, exact = fits[name], best(modes(config, config.input_size), int(name.split("_")[1]))
        yield ERROR.at(network=name), errors(config, model(config, name), fit, turned(config), stream, exact)
        yield LOSS.at(network=name), fit.metrics["loss"]
        yield MEANS.at(network=name), np.diagonal(fit.params["params"]["a"], axis1=2, axis2=3).mean(axis=2)
    yield STEPS, fit.steps


def best(law: Law, depth: int) -> dict[str, np.ndarray]:
    """The best rates (L,) of a law, tied and free."""
    return {"tied": np.full(depth, theory.looped_rate(depth, law)), "free": theory.free_rates(depth, law)}


def errors(config: Config, own: Model, fit: Fit, sampler: Sampler, stream: int, exact: dict) -> dict[str, np.ndarray]:
    """(M,) mean squared errors of a network, and of layers at exact rates, on the same prompts."""
    eye = np.eye(fit.params["params"]["a"].shape[-1], dtype=np.float32)
    weights = lambda rates: np.asarray(rates, np.float32)[:, None, None] * eye  # noqa: E731
    built = {name: {"params": {"a": weights(rates)}} for name, rates in exact.items()}
    beside = {name: layers_of(len(eye), own.layers, len(exact[name])).learner(params) for name, params in built.items()}
    learners = lambda params: {"trained": own.learner(params), **beside}  # noqa: E731
    losses = paired_losses(learners, always(sampler), fit.params, member_keys(config, stream), config.final_tasks)
    return {name: 2 * values for name, values in losses.items()}


def left(config: Config, depth: int, law: Law) -> np.ndarray:
    """(M, J) steps of descent on the mean error, from tied rates moved by a jitter, until it is 5 % lower; NaN: not.

    A member is a direction of the move, which has the mean 0 over the layers and the root mean square 1.
    """
    tied, rng = best(law, depth)["tied"], np.random.default_rng([config.seed, depth])
    apart = rng.normal(size=(config.members, 1, depth))
    apart = (apart - apart.mean(2, keepdims=True)) / apart.std(2, keepdims=True)
    rates, level = tied + np.array(config.jitters)[:, None] * apart, 0.95 * theory.depth_error(tied, law)
    steps = np.full(rates.shape[:2], np.nan)
    for step in range(config.descent_steps):
        still = np.isnan(steps)[..., None]  # those that have left may meet a curvature too large for this step
        rates = rates - still * config.descent_rate * theory.depth_gradient(rates, law)
        steps[(theory.depth_error(rates, law) < level) & still[..., 0]] = step + 1
    return steps


EXPERIMENT = Experiment(
    "depth.scaling", __doc__, PRESETS, measured, (BEST, SHIFTED, LEFT, STEPS, TIED, LOSS, ERROR, MEANS),
    trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
