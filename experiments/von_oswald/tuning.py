"""The solvers that a network is compared with, at their best: closed form, exact oracle, or Adam on sampled tasks."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

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
    training_tasks,
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


def best_layer(config: Task) -> BatchLearner:
    """The best GD step, as a layer with constructed weights."""
    return one_layer(config).learner(constructed(config, best_step(config)[0]))


def with_best_step(config: Task) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: the trained layer, the best GD step, and the mean of their weights."""
    layer, gd = one_layer(config), best_layer(config)
    middle = interpolated(layer, constructed(config, best_step(config)[0]), config)
    return lambda params: {"trained": layer.learner(params), "gd": gd, "interpolated": middle(params)}


def eigenvalues(config: Task, key: Array, contexts: int) -> np.ndarray:
    """(contexts, D) eigenvalues of X^T X of random contexts."""
    n, d = config.context_length, config.input_size
    return oracle.context_eigenvalues(key, contexts, context_length=n, input_size=d, input_range=config.input_range)


class Compared(NamedTuple):
    """One network of a figure and what it is compared with.

    Attributes:
      stage: its place in the figure, which decides its keys.
      network: the module.
      plain: the module of the constructions: one head, no MLP.
      setting: its training.
      solvers: best ``gd`` and ``gd++``; with a token clip also ``released``, GD++ as the released start leads to.
    """

    stage: int
    network: LinearSelfAttention
    plain: LinearSelfAttention
    setting: Setting
    solvers: dict[str, TunedSolver]

    @property
    def match(self) -> str:
        """The solver that the network can be: GD for one layer, as the gamma of the last application has no effect."""
        return "gd" if self.network.layers == 1 else "gd++"

    def weights(self, name: str) -> dict:
        """Constructed weights of a solver, for ``plain``."""
        return constructed(self.setting, self.solvers[name].learning_rates, self.solvers[name].gammas)

    def learners(self, *names: str) -> dict[str, BatchLearner]:
        """Solvers as learners."""
        built = model(self.plain, self.setting)
        return {name: built.learner(self.weights(name)) for name in names}


def compared_with(config: Networks, name: str, fits: Fits) -> Compared:
    """A network to run, with its solvers tuned.

    K-step GD and GD++ have one value for each weight set of the network: GD one learning rate for all steps, GD++ one
    (eta, gamma) for all steps of a looped network, one a step of a free one. Without a token clip both are the optimum
    of the exact loss given the contexts' eigenvalues. With one, that loss does not hold (the best free GD++ steps pass
    through tokens far beyond 10), and GD++ is the better end of the stage of ``tunings`` on held-out tasks.
    """
    network, setting = unpack(config)[name]
    plain = _plain(network)
    solvers = dict(zip(("gd", "gd++"), _exactly(config, plain)))
    if network.token_clip:
        fit = fits[f"{name}_tuning"]
        ends = zip(tuned(fit, _starts(config, plain)), *(fit.metrics[of][:, -1] for of in ("loss", "error")))
        clipped = [TunedSolver(eta, gamma, float(loss), float(error)) for (eta, gamma), loss, error in ends]
        solvers |= {"gd++": clipped[int(np.nanargmin([one.loss for one in clipped]))], "released": clipped[0]}
    return Compared(config.networks.index(name), network, plain, setting, solvers)


def tunings(config: Networks) -> dict[str, After]:
    """The tuning of GD++ through the token clip of each network that has one, as the stage ``<network>_tuning``.

    Adam starts from the released start (the tuned eta of GD, gamma = eta / N^2), as in the released code, and from the
    optimum without clip that descent from there reaches.
    """
    plain = {name: _plain(network) for name, (network, _) in unpack(config).items() if network.token_clip}
    return {
        f"{name}_tuning": tuning(config, network, partial(_starts, config, network), lambda _: sampler(config))
        for name, network in plain.items()
    }


def after(
    config: Setting,
    network_model: Model,
    late: Callable[[Fits], dict[str, Any]],
    sampler_of: Callable[[Any, Any], Sampler] = training_tasks,
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


def contexts_of(config: Task, contexts: int) -> dict[str, Any]:
    """Random contexts, as many held out, and sizes of the tasks, as ``icl_lab.solvers.oracle`` takes them to tune."""
    fitting, held_out = (eigenvalues(config, key, contexts) for key in member_keys(config, 10_000, 2))
    return {
        "eigenvalues": fitting,
        "held_out": held_out,
        "context_length": config.context_length,
        "input_variance": input_variance("uniform", config.input_range),
    }


@cache
def exactly_tuned(
    config: Task, network: LinearSelfAttention, contexts: int, starts: int = 16
) -> tuple[TunedSolver, TunedSolver]:
    """GD and GD++ tuned on the exact loss without token clip, one value for each weight set of the network."""
    given = contexts_of(config, contexts) | {"steps": network.layers}
    solvers = (
        oracle.tune_gradient_descent(**given),
        oracle.tune_gd_plus_plus(**given, shared=network.looped, starts=starts),
    )
    sets = 1 if network.looped else network.layers
    return tuple(  # type: ignore[return-value]
        dataclasses.replace(s, learning_rates=s.learning_rates[:sets], gammas=s.gammas[:sets]) for s in solvers
    )


def tuning(
    config: Any,
    network: LinearSelfAttention,
    starts: Callable[[], np.ndarray],
    sampler_of: Callable[[Any], Sampler],
    settings: ArrayLike = 0.0,
) -> After:
    """The training of (eta, gamma) by Adam on the sampled loss of the constructed network, all starts in one program.

    What is trained are logarithms of factors on the start, so that one learning rate suits both and a gamma of zero
    stays zero: GD.

    Args:
      config: a ``Task`` with Adam's ``tuning_steps`` (learning rate .01, cosine decay) of ``tuning_batch`` tasks each.
      network: the module whose constructed weights are tuned.
      starts: makes (M, 2, S) starting values.
      sampler_of: ``setting -> sampler``.
      settings: (M,) settings of the sampler, or one of all.

    Returns:
      The training, whose last ``loss`` and its standard ``error`` are of held-out tasks.
    """

    def losses(logs: Array, key: Array, setting: dict, tasks: int) -> Array:
        eta, gamma = jnp.exp(logs) * setting["start"]
        samples = sampler_of(setting["sampler"])(key, tasks)
        weights = constructed(config, eta, gamma)
        return 0.5 * (batch_learner(network, weights)(samples.prompt) - samples.target)[:, 0] ** 2

    def held_out(logs: Array, key: Array, setting: dict) -> dict[str, Array]:
        task_losses = losses(logs, key, setting, config.eval_tasks)
        return {"loss": task_losses.mean(), "error": task_losses.std() / task_losses.size**0.5}

    def plan(_: Fits) -> Training:
        steps, batch, first = config.tuning_steps, config.tuning_batch, jnp.asarray(starts(), jnp.float32)
        return Training(
            lambda key, setting: jnp.zeros_like(setting["start"]),
            lambda logs, key, setting: losses(logs, key, setting, batch).mean(),
            optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, steps))),
            member_keys(config, 50, len(first)),
            {"start": first, "sampler": jnp.broadcast_to(settings, len(first))},
            steps=steps,
            measure=held_out,
            members_at_once=members_at_once(batch, network.layers),
        )

    return After(plan)


def tuned(fit: Fit, starts: np.ndarray) -> np.ndarray:
    """(M, 2, S) values of eta and gamma that a ``tuning`` from these starts ends with."""
    return np.exp(np.asarray(fit.params, np.float64)) * starts


def solver_json(solver: TunedSolver) -> dict[str, Any]:
    """A tuned solver as plain JSON values."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in dataclasses.asdict(solver).items()}
