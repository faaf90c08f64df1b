"""The solvers that a network is compared with, at their best: closed form, exact oracle, or Adam on sampled tasks."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.settings import member_keys
from experiments.training import members_at_once
from experiments.von_oswald.common import Networks, Setting, Task, constructed, law_sizes, model, sampler, unpack
from icl_lab.fast import batch_learner
from icl_lab.lab.session import Session
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner, Sampler, input_variance
from icl_lab.solvers import oracle
from icl_lab.solvers.oracle import TunedSolver
from icl_lab.theory.gradient_descent import one_step as theory


def best_step(config: Task) -> tuple[float, float]:
    """Best learning rate of one GD step on these tasks, and its loss: closed forms."""
    eta, loss = theory.one_step_optimum(**law_sizes(config))
    return float(eta), float(loss)


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


def compared(session: Session, config: Networks) -> Iterator[Compared]:
    """Each network to run, with its solvers tuned and their weights constructed."""
    for name, (network, one) in unpack(config).items():
        plain = network.clone(heads=1, mlp_width=0)
        gd, gdpp, released = tuned(session, name, config, plain)
        weights = (constructed(one, s.learning_rates, s.gammas) for s in (gd, gdpp))
        yield Compared(name, config.networks.index(name), network, plain, one, gd, gdpp, released, *weights)


def tuned(
    session: Session, stage: str, config: Networks, network: LinearSelfAttention
) -> tuple[TunedSolver, TunedSolver, TunedSolver | None]:
    """K-step GD and GD++ tuned for this network, each with one value for each of its weight sets.

    GD has one learning rate for all steps; GD++ has one (eta, gamma) for all steps of a looped network, one a step of a
    free one. Without a token clip both are the optimum of the exact loss given the contexts' eigenvalues. With one,
    that loss does not hold (the best free GD++ steps pass through tokens far beyond 10), and GD++ is tuned by Adam
    through the clipped network: from the released start (the tuned eta of GD, gamma = eta / N^2) and from the optimum
    without clip that descent from there reaches; the better of the two on held-out tasks is taken. The third value is
    what the released start alone leads to, as in the released code.
    """
    gd, gdpp = exactly_tuned(config, network, config.tuning_contexts, starts=1 if network.token_clip else 16)
    if not network.token_clip:
        return gd, gdpp, None
    released = np.stack([gd.learning_rates, gd.learning_rates / config.context_length**2])
    starts = np.stack([released, np.stack([gdpp.learning_rates, gdpp.gammas])])
    values, losses, errors = tune_on_tasks(
        session, f"{stage}_tuning", config, network, starts, lambda _: sampler(config), jnp.zeros(2),
        steps=config.tuning_steps, batch=config.tuning_batch,
    )  # fmt: skip
    ends = zip(values, losses, errors)
    found = [TunedSolver(eta, gamma, float(loss), float(error)) for (eta, gamma), loss, error in ends]
    return gd, found[int(np.nanargmin(losses))], found[0]


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


def tune_on_tasks(
    session: Session,
    stage: str,
    config: Task,
    network: LinearSelfAttention,
    starts: np.ndarray,
    law: Callable[[Any], Sampler],
    settings: Array,
    *,
    steps: int,
    batch: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(eta, gamma) tuned by Adam on the sampled loss of the constructed network, all starts in one program.

    What is trained are logarithms of factors on the start, so that one learning rate suits both and a gamma of zero
    stays zero: GD.

    Args:
      session: where it runs.
      stage: its name.
      config: sizes of the tasks.
      network: the module whose constructed weights are tuned.
      starts: (M, 2, S) starting values.
      law: ``setting -> sampler``.
      settings: (M,) settings of the sampler.
      steps: Adam's steps (learning rate .01, cosine decay).
      batch: tasks of a step.

    Returns:
      (M, 2, S) tuned values, and (M,) held-out losses with their standard errors.
    """
    given = {"start": jnp.asarray(starts, jnp.float32), "law": settings}

    def losses(logs: Array, key: Array, setting: dict, tasks: int) -> Array:
        eta, gamma = jnp.exp(logs) * setting["start"]
        samples = law(setting["law"])(key, tasks)
        weights = constructed(config, eta, gamma)
        return 0.5 * (batch_learner(network, weights)(samples.prompt) - samples.target)[:, 0] ** 2

    def held_out(logs: Array, key: Array, setting: dict) -> dict[str, Array]:
        found = losses(logs, key, setting, config.eval_tasks)
        return {"loss": found.mean(), "error": found.std() / found.size**0.5}

    fitted = session.fit(
        stage,
        lambda key, setting: jnp.zeros(starts.shape[1:]),
        lambda logs, key, setting: losses(logs, key, setting, batch).mean(),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, steps))),
        member_keys(config, 50, len(starts)),
        given,
        steps=steps,
        measure=held_out,
        members_at_once=members_at_once(batch, network.layers),
    )
    values = np.exp(np.asarray(fitted.params, np.float64)) * starts
    return values, fitted.metrics["loss"][:, -1], fitted.metrics["error"][:, -1]


def solver_json(solver: TunedSolver) -> dict[str, Any]:
    """A tuned solver as plain JSON values."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in dataclasses.asdict(solver).items()}
