"""Training of one member: its start, a step, a measurement, as functions that ``fit`` compiles for all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

Tree = Any
Metrics = dict[str, Array]


@struct.dataclass
class TrainState:
    """What the next step needs. Inside ``fit`` every leaf has a leading member axis."""

    params: Tree
    opt_state: Tree
    step: Array  # steps taken (int32)
    diverged_at: Array  # step at which the loss or a gradient was not finite and the member was stopped, or -1


class Member(NamedTuple):
    """Training of one member, as functions to be compiled."""

    begin: Callable[[Array, Tree], TrainState]  # (key, setting) -> state
    step: Callable[[TrainState, Array, Tree], tuple[TrainState, Array]]  # (state, key, setting) -> (state, loss)
    observe: Callable[[TrainState, Array, Tree], Metrics]  # (state, key, setting) -> {name: array}

    def chunk(self, steps: int) -> Callable[[TrainState, Array, Tree], tuple[TrainState, Array]]:
        """Some steps, ``(state, key, setting) -> (state, mean loss)``."""

        def advance(state: TrainState, key: Array, setting: Tree) -> tuple[TrainState, Array]:
            state, losses = jax.lax.scan(lambda s, _: self.step(s, key, setting), state, length=steps)
            return state, losses.mean()

        return advance


def member(
    init: Callable[[Array, Tree], Tree],
    loss: Callable[[Tree, Array, Tree], Array],
    optimizer: optax.GradientTransformation | Callable[[Tree], optax.GradientTransformation],
    measure: Callable[[Tree, Array, Tree], Metrics] | None = None,
    schedule: Callable[[Tree, Array], Tree] | None = None,
    measure_schedule: Callable[[Tree, Array], Tree] | None = None,
) -> Member:
    """What ``fit`` does with one member; the arguments are those of ``fit``."""
    transformation = optimizer if callable(optimizer) else lambda _: optimizer

    def begin(key: Array, setting: Tree) -> TrainState:
        params = init(key, setting)
        return TrainState(params, transformation(setting).init(params), jnp.int32(0), jnp.int32(-1))

    def step(state: TrainState, key: Array, setting: Tree) -> tuple[TrainState, Array]:
        now = setting if schedule is None else schedule(setting, state.step)
        value, gradient = jax.value_and_grad(loss)(state.params, jax.random.fold_in(key, state.step), now)
        updates, opt_state = transformation(setting).update(gradient, state.opt_state, state.params)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(gradient))
        good = finite & (state.diverged_at < 0)
        keep = lambda new, old: jnp.where(good, new, old)  # noqa: E731
        params = jax.tree.map(keep, optax.apply_updates(state.params, updates), state.params)
        opt_state = jax.tree.map(keep, opt_state, state.opt_state)
        diverged_at = jnp.where((state.diverged_at < 0) & ~finite, state.step, state.diverged_at)
        return TrainState(params, opt_state, state.step + 1, diverged_at), value

    def observe(state: TrainState, key: Array, setting: Tree) -> Metrics:
        now = setting if measure_schedule is None else measure_schedule(setting, state.step)
        return {} if measure is None else measure(state.params, key, now)

    return Member(begin, step, observe)
