"""A trained layer of DeltaNet is least mean squares at the best rate (this lab).

The layer reads examples in their order. With keys k = W_k x its state is S <- S + k (y - S.k), and the query reads
c (W_q x_q).S: least mean squares (LMS) at the rate b where W_k^T W_k = c W_q^T W_k = b I. For D standard normal inputs
and no noise the best rate is 1/(D + 2) at every N, and leaves the error (1 - 1/(D + 2))^N. Keys and labels divided by
|k| leave (1 - 1/D)^N, and linear attention, one step of gradient descent, (D + 1)/(N + D + 1). Tasks may walk,
w <- w + sqrt(q) xi after each example. Errors are squared errors over D. Every layer is a ``Transformer`` on joint
tokens; ``identify`` is asked which algorithm it computes, and built layers at several rates too.

Panels: error over N; loss over training; error over the examples of a walking task.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import training
from experiments.identification.networks import functions
from experiments.settings import Members, member_keys
from experiments.training import always, model, paired_losses
from icl_lab.fast import batch_learner
from icl_lab.identify import identify
from icl_lab.lab import Experiment, from_json, main, setting
from icl_lab.lab.constraints import multiple_of, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import Transformer
from icl_lab.models.attention import ATTENTIONS, delta_attention, mesa_attention
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler, gaussian_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.theory import lms_errors, tracking
from icl_lab.training import Training

LAYOUT = joint_layout(sign=1)
KINDS = {"linear": "linear", "delta": "delta", "normalised": "normalised delta"}
ALGORITHMS = {"gd": "GD", "lms": "LMS", "nlms": "normalised LMS", "ridge": "ridge"}
TRAINED_AS = {"gd": "linear", "lms": "delta", "nlms": "normalised"}  # ridge is only built


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Standard normal inputs and tasks; all layers are trained alike."""

    input_size: int = setting(10, "D", at_least=1)
    lengths: tuple[int, ...] = setting((10, 40), "N; the first is that of normalised keys and of names", at_least=1)
    walk: float = setting(0.01, "q, variance of a walking task's step; 0: no such training", at_least=0, argument=False)
    walk_length: int = setting(100, "N of walking tasks", at_least=1)
    walk_size: int = setting(5, "D of walking tasks", at_least=1)
    walk_noise: float = setting(0.5, "s, noise on the labels of walking tasks", at_least=0, argument=False)
    algorithms: tuple[str, ...] = setting(tuple(ALGORITHMS), "names to be given", choices=(*ALGORITHMS, "none"))
    init_variance: float = setting(0.004, "variance of the initial weights", above=0, argument=False)
    steps: int = setting(6000, "training steps at the first N, a multiple of measure_every", at_least=1)
    later_steps: int = setting(6000, "the same at another N and on walking tasks", at_least=1)
    measure_every: int = setting(200, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.005, "Adam's learning rate at the start; it falls to zero as a cosine", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    eval_tasks: int = setting(10_000, "prompts that measure a member, the same at every measurement", at_least=1)
    test_tasks: int = setting(200_000, "prompts for each error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, input_size=2, lengths=(3, 5), walk_length=4, walk_size=2, algorithms=("lms",), steps=20,
        later_steps=20, measure_every=10, batch=16, eval_tasks=32, test_tasks=64,
    ),
    "quick": Config(
        members=6, lengths=(10,), walk=0.0, algorithms=("none",), steps=1200, measure_every=600, batch=128,
        eval_tasks=1000, test_tasks=20_000,
    ),
    "lab": Config(
        walk=0.04, walk_length=30, walk_size=2, steps=4000, later_steps=1000, measure_every=500, batch=128,
        eval_tasks=2000, test_tasks=50_000,
    ),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = *(multiple_of(name, "measure_every") for name in ("steps", "later_steps")), rising("lengths")


class Case(NamedTuple):
    """One training: the layer, and the prompts it is trained on."""

    kind: str
    length: int
    walking: bool = False


def size(config: Config, case: Case) -> int:
    """D of a training."""
    return config.walk_size if case.walking else config.input_size


def cases(config: Config) -> dict[str, Case]:
    """Every training by its stage."""
    first, *more = config.lengths
    still_cases = [Case(kind, first) for kind in KINDS] + [Case(kind, n) for n in more for kind in ("linear", "delta")]
    walking = {"walking": Case("delta", config.walk_length, walking=True)} if config.walk else {}
    return {f"{case.kind}_{case.length}": case for case in still_cases} | walking


def _named(config: Mapping[str, Any]) -> list[str]:
    return [f"{how}_{a}" for a in ALGORITHMS if a in config["algorithms"] for how in ("built", "trained")]


STAGE: dict[str, Any] = {"stage": lambda config: cases(from_json(Config, config))}
STEPS, LOSS = quantity("steps", "step"), quantity("{kind}_loss", "member", "step", kind=tuple(KINDS))
WEIGHTS = quantity("{stage}/{of}", "member", "row", "column", of=("read", "keys"), **STAGE)
UNTRAINED = quantity("untrained/{of}", "member", "row", "column", of=("read", "keys"))
ERROR = quantity("error_{tested}/{stage}", "member", tested="lengths", **STAGE)
WALKING = quantity("walking/{of}", "member", of=lambda config: ("error",) if config["walk"] else ())
NAMED = quantity("{who}/{name}", "member", who=_named, name=tuple(ALGORITHMS))


def network(config: Config, kind: str, d: int) -> Transformer:
    """One layer with keys as wide as inputs."""
    scale = config.init_variance * (d + 1)
    return Transformer(attention=KINDS[kind], parametrisation="key_query", key_size=d, init_scale=scale)


def learner(config: Config, kind: str, d: int, params: dict) -> BatchLearner:
    """That layer on B prompts of any length."""
    return batch_learner(network(config, kind, d), params, LAYOUT)


def closed_form(config: Config, case: Case) -> float:
    """Error over D that the best layer of a case leaves; of a walking task, that at which it settles."""
    d, n, normalised = size(config, case), case.length, case.kind == "normalised"
    if case.kind == "linear":
        return (d + 1) / (n + d + 1)
    if case.walking:
        return tracking(d, config.walk_noise, config.walk)[1] / d
    return lms_errors(d, np.full(n, 1.0 if normalised else 1 / (d + 2)), normalised=normalised)[-1] / d


def sampler(config: Config, case: Case) -> Sampler:
    """The prompts of a case."""
    drawn = partial(gaussian_regression, context_length=case.length, covariance=np.eye(size(config, case)))
    return walking(drawn(label_noise=config.walk_noise), config.walk) if case.walking else drawn()


def walking(still: Sampler, variance: float) -> Sampler:
    """Tasks that take a step after each example, w <- w + sqrt(q) xi; the query is asked of the last one."""

    def draw(key: Array, batch: int) -> Sample:
        key, steps = jax.random.split(key)
        sample = still(key, batch)
        prompt, target = sample.prompt, sample.target
        steps = variance**0.5 * jax.random.normal(steps, prompt.x.shape)
        path = jnp.cumsum(steps, axis=1)  # (B, N, D), after each example
        prompt = dataclasses.replace(prompt, y=prompt.y + (prompt.x * (path - steps)).sum(2, keepdims=True))
        target = target + (prompt.x_query * path[:, -1]).sum(1, keepdims=True)
        return Sample(prompt, target, {"w": sample.latent["w"] + path[:, -1, :, None]})

    return draw


def trainings(config: Config) -> Table:
    """Every layer, by Adam with a learning rate that falls to zero."""

    def planned(stream: int, case: Case) -> Training:
        n, d, first = case.length, size(config, case), case.length == config.lengths[0] and not case.walking
        schedule = config if first else dataclasses.replace(config, steps=config.later_steps)
        return training.planned(
            schedule, model(network(config, case.kind, d), n, d, LAYOUT), keys=member_keys(config, stream),
            optimizer=training.falling_adam(schedule.steps),
            sampler_of=always(sampler(config, case)),
        )  # fmt: skip

    return {name: planned(stream, case) for stream, (name, case) in enumerate(cases(config).items())}


def weights(params: dict, d: int) -> dict[str, np.ndarray]:
    """(..., D, D) what is read and written: c W_q^T W_k, which one example shows, and W_k^T W_k, of inputs alone."""
    q, k, pv = (np.asarray(params["params"][name], np.float64)[..., 0, 0, :, :] for name in ("w_q", "w_k", "w_pv"))
    read = pv[..., -1:, -1:] * (q @ np.swapaxes(k, -1, -2))
    return {"read": read[..., :d, :d], "keys": (k @ np.swapaxes(k, -1, -2))[..., :d, :d]}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Weights, errors at every N on the same prompts, and names."""
    all_cases, d, params = cases(config), config.input_size, {}
    for stage, case in all_cases.items():
        fit = fits[stage]
        yield "facts", {stage: {"error": closed_form(config, case)}}
        if case.walking:
            learners = lambda member: {"error": learner(config, "delta", config.walk_size, member)}  # noqa: E731
            yield WALKING, _errors(learners, config, case, fit.params, 901)
            continue
        params[stage] = fit.params
        yield WEIGHTS.at(stage=stage), weights(fit.params, d)
        if case.length == config.lengths[0]:
            yield LOSS.at(kind=case.kind), fit.metrics["loss"]
    yield STEPS, fits[f"linear_{config.lengths[0]}"].steps
    first = model(network(config, "delta", d), config.lengths[0], d, LAYOUT)
    yield UNTRAINED, weights(jax.vmap(first.init)(member_keys(config, 902)), d)
    for n in config.lengths:
        learners = lambda member: {s: learner(config, all_cases[s].kind, d, member[s]) for s in member}  # noqa: E731
        yield ERROR.at(tested=n), _errors(learners, config, Case("", n), params, 900)
    factors = np.linspace(0.6, 1.4, config.members)
    for algorithm in sorted({*config.algorithms} & {*ALGORITHMS}):
        yield NAMED.at(who=f"built_{algorithm}"), names(config, partial(built_learner, config, algorithm), factors)
        if kind := TRAINED_AS.get(algorithm):
            trained_params = params[f"{kind}_{config.lengths[0]}"]
            yield NAMED.at(who=f"trained_{algorithm}"), names(config, partial(learner, config, kind, d), trained_params)


def built_learner(config: Config, algorithm: str, factor: Array) -> BatchLearner:
    """The attention that is an algorithm, on inputs as keys, at so many times its best rate, D or strength."""
    d, n = config.input_size, config.lengths[0]
    kind = {
        "gd": lambda: ATTENTIONS["linear"], "lms": lambda: delta_attention(rates=factor / (d + 2)),
        "nlms": lambda: delta_attention(rates=factor, normalised=True), "ridge": lambda: mesa_attention(factor * d),
    }[algorithm]()  # fmt: skip
    gain = factor / (n + d + 1) if algorithm == "gd" else 1.0

    def one(prompt: Prompt) -> Array:
        return gain * kind.pattern(prompt.x_query[None], prompt.x)[0] @ prompt.y

    return jax.vmap(one)


def names(config: Config, of: Callable[[Any], BatchLearner], params: Any) -> dict[str, np.ndarray]:
    """(M,) by algorithm, whether it is the name that a member is given; gradient descent is of one step."""
    n, d, prompts = config.lengths[0], config.input_size, sampler(config, Case("", config.lengths[0]))
    result = identify(functions(of, params, config.members), context_length=n, input_size=d, sampler=prompts)
    given = [m.family if m.family != "GD" or m.steps == 1 else None for m in result.members]
    return {key: np.array([float(one == name) for one in given]) for key, name in ALGORITHMS.items()}


def _errors(learners: Any, config: Config, case: Case, params: Any, stream: int) -> dict[str, np.ndarray]:
    keys, drawn = member_keys(config, stream), always(sampler(config, case))
    losses = paired_losses(learners, drawn, params, keys, config.test_tasks, chunk=2000)
    return {name: 2 * loss / size(config, case) for name, loss in losses.items()}


EXPERIMENT = Experiment(
    "online.delta_rule", __doc__, PRESETS, measured, (STEPS, LOSS, WEIGHTS, UNTRAINED, ERROR, WALKING, NAMED),
    trainings=trainings, constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
