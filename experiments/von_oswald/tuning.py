"""The solvers that a network is compared with, at their best: closed form, exact oracle, or Adam on sampled tasks."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.settings import member_keys
from experiments.von_oswald.common import (
    Networks,
    Setting,
    Task,
    constructed,
    interpolated,
    law_sizes,
    model,
    one_layer,
    planned,
    sampler,
    unpack,
)
from icl_lab.fast import batch_learner
from icl_lab.lab.trainings import After, Fits
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner, Sampler, input_variance
from icl_lab.solvers import oracle
from icl_lab.solvers.oracle import TunedSolver
from icl_lab.theory.gradient_descent import one_step as theory
from icl_lab.training import Fit, Model, Training
from icl_lab.training.plans import members_at_once


def best_step(config: Task) -> tuple[float, float]:
    """Best learning rate of one GD step on these tasks, and its loss: closed forms."""
    eta, loss = theory.one_step_optimum(**law_sizes(config))
    return float(eta), float(loss)


def zero_loss(config: Task) -> float:
    """Loss of predicting zero on these tasks: closed form."""
    return float(theory.one_step_loss(0.0, **law_sizes(config)))


def with_best_step(config: Task) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: the trained layer, the best GD step, and the mean of their weights."""
    layer, weights = one_layer(config), constructed(config, best_step(config)[0])
    gd, middle = layer.learner(weights), interpolated(layer, weights, config)
    return lambda params: {"trained": layer.learner(params), "gd": gd, "interpolated": middle(params)}


def eigenvalues(config: Task, key: Array, contexts: int) -> np.ndarray:
    """(contexts, D) eigenvalues of X^T X of random contexts."""
    n, d = config.context_length, config.input_size
    return oracle.context_eigenvalues(key, contexts, context_length=n, input_size=d, input_range=config.input_range)


class Compared(NamedTuple):
    """One network of a figure and what it is compared with.

    Attributes:
      name: of the network.
      stage: its place in the figure, which decides its keys.
      network: the module.
      plain: the module of the constructions: one head, no MLP.
      setting: its training.
      gd_solver: best GD.
      gdpp_solver: best GD++.
      released: GD++ as the released start leads to; None without a token clip.
      gd: constructed weights of best GD, for ``plain``.
      gdpp: constructed weights of best GD++, for ``plain``.
    """

    name: str
    stage: int
    network: LinearSelfAttention
    plain: LinearSelfAttention
    setting: Setting
    gd_solver: TunedSolver
    gdpp_solver: TunedSolver
    released: TunedSolver | None
    gd: dict
    gdpp: dict

    def solvers(self) -> dict[str, BatchLearner]:
        """Best GD and best GD++ as learners."""
        built = model(self.plain, self.setting)
        return {"gd": built.learner(self.gd), "gd++": built.learner(self.gdpp)}


def compared_with(config: Networks, name: str, fits: Fits) -> Compared:
    """A network to run, with its solvers tuned and their weights constructed.

    K-step GD and GD++ have one value for each weight set of the network: GD one learning rate for all steps, GD++ one
    (eta, gamma) for all steps of a looped network, one a step of a free one. Without a token clip both are the optimum
    of the exact loss given the contexts' eigenvalues. With one, that loss does not hold (the best free GD++ steps pass
    through tokens far beyond 10), and GD++ is the better end of the stage of ``tunings`` on held-out tasks.
    """
    network, one = unpack(config)[name]
    plain, released = _plain(network), None
    gd, gdpp = _exactly(config, plain)
    if network.token_clip:
        fit = fits[f"{name}_tuning"]
        ends = zip(tuned(fit, _starts(config, plain)), *(fit.metrics[of][:, -1] for of in ("loss", "error")))
        solvers = [TunedSolver(eta, gamma, float(loss), float(error)) for (eta, gamma), loss, error in ends]
        gdpp, released = solvers[int(np.nanargmin([solver.loss for solver in solvers]))], solvers[0]
    weights = (constructed(one, s.learning_rates, s.gammas) for s in (gd, gdpp))
    return Compared(name, config.networks.index(name), network, plain, one, gd, gdpp, released, *weights)


def tunings(config: Networks) -> dict[str, After]:
    """The tuning of GD++ through the token clip of each network that has one, as the stage ``<network>_tuning``.

    Adam starts from the released start (the tuned eta of GD, gamma = eta / N^2), as in the released code, and from the
    optimum without clip that descent from there reaches.
    """

    def tuning_of(network: LinearSelfAttention) -> After:
        plain, distribution = _plain(network), lambda _: sampler(config)
        return After(
            lambda _: tuning(
                config, plain, _starts(config, plain), distribution, jnp.zeros(2),
                steps=config.tuning_steps, batch=config.tuning_batch,
            ),
            sampler=distribution,
        )  # fmt: skip

    return {f"{name}_tuning": tuning_of(network) for name, (network, _) in unpack(config).items() if network.token_clip}


def after(
    config: Setting,
    network_model: Model,
    late: Callable[[Fits], dict[str, Any]],
    sampler_of: Callable[[Any, Any], Sampler] = lambda now, _: sampler(now),
    **options: Any,
) -> After:
    """``planned``, with options that take long to prepare or need other fits: references that are tuned first."""
    return After(
        lambda fits: planned(config, network_model, sampler_of=sampler_of, **options, **late(fits)),
        network_model.learner,
        lambda setting: sampler_of(config, setting),
    )


def _plain(network: LinearSelfAttention) -> LinearSelfAttention:
    """The module of the constructions that a network is compared with."""
    return network.clone(heads=1, mlp_width=0)


def _exactly(config: Networks, plain: LinearSelfAttention) -> tuple[TunedSolver, TunedSolver]:
    return exactly_tuned(config, plain, config.tuning_contexts, starts=1 if plain.token_clip else 16)


def _starts(config: Networks, plain: LinearSelfAttention) -> np.ndarray:
    """(2, 2, S) starts of a tuning: the released one, and the optimum without clip."""
    gd, gdpp = _exactly(config, plain)
    released = np.stack([gd.learning_rates, gd.learning_rates / config.context_length**2])
    return np.stack([released, np.stack([gdpp.learning_rates, gdpp.gammas])])


@functools.cache
def exactly_tuned(
    config: Task, network: LinearSelfAttention, contexts: int, starts: int = 16
) -> tuple[TunedSolver, TunedSolver]:
    """GD and GD++ tuned on the exact loss without token clip, one value for each weight set of the network."""
    fitting, held_out = (eigenvalues(config, key, contexts) for key in member_keys(config, 10_000, 2))
    given: dict[str, Any] = {
        "held_out": held_out,
        "context_length": config.context_length,
        "input_variance": input_variance("uniform", config.input_range),
    }
    solvers = (
        oracle.tune_gradient_descent(fitting, network.layers, **given),
        oracle.tune_gd_plus_plus(fitting, network.layers, shared=network.looped, starts=starts, **given),
    )
    sets = 1 if network.looped else network.layers
    return tuple(  # type: ignore[return-value]
        dataclasses.replace(s, learning_rates=s.learning_rates[:sets], gammas=s.gammas[:sets]) for s in solvers
    )


def tuning(
    config: Task,
    network: LinearSelfAttention,
    starts: np.ndarray,
    sampler_of: Callable[[Any], Sampler],
    settings: Array,
    *,
    steps: int,
    batch: int,
) -> Training:
    """The training of (eta, gamma) by Adam on the sampled loss of the constructed network, all starts in one program.

    What is trained are logarithms of factors on the start, so that one learning rate suits both and a gamma of zero
    stays zero: GD.

    Args:
      config: sizes of the tasks.
      network: the module whose constructed weights are tuned.
      starts: (M, 2, S) starting values.
      sampler_of: ``setting -> sampler``.
      settings: (M,) settings of the sampler.
      steps: Adam's steps (learning rate .01, cosine decay).
      batch: tasks of a step.

    Returns:
      The training, whose last ``loss`` and its standard ``error`` are of held-out tasks.
    """
    given = {"start": jnp.asarray(starts, jnp.float32), "sampler": settings}

    def losses(logs: Array, key: Array, setting: dict, tasks: int) -> Array:
        eta, gamma = jnp.exp(logs) * setting["start"]
        samples = sampler_of(setting["sampler"])(key, tasks)
        weights = constructed(config, eta, gamma)
        return 0.5 * (batch_learner(network, weights)(samples.prompt) - samples.target)[:, 0] ** 2

    def held_out(logs: Array, key: Array, setting: dict) -> dict[str, Array]:
        task_losses = losses(logs, key, setting, config.eval_tasks)
        return {"loss": task_losses.mean(), "error": task_losses.std() / task_losses.size**0.5}

    return Training(
        lambda key, setting: jnp.zeros(starts.shape[1:]),
        lambda logs, key, setting: losses(logs, key, setting, batch).mean(),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, steps))),
        member_keys(config, 50, len(starts)),
        given,
        steps=steps,
        measure=held_out,
        members_at_once=members_at_once(batch, network.layers),
        sampler=lambda setting: sampler_of(setting["sampler"]),
    )


def tuned(fit: Fit, starts: np.ndarray) -> np.ndarray:
    """(M, 2, S) values of eta and gamma that a ``tuning`` from these starts ends with."""
    return np.exp(np.asarray(fit.params, np.float64)) * starts


def solver_json(solver: TunedSolver) -> dict[str, Any]:
    """A tuned solver as plain JSON values."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in dataclasses.asdict(solver).items()}
