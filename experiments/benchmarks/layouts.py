"""Training steps of networks on other tasks or tokens: sines behind an embedding, and x and y as tokens apart."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from experiments.benchmarks.programs import Program, collected, in_chunks, looped
from experiments.benchmarks.timing import Config, Row, chunks_of_fit, row, take_turns
from experiments.settings import member_keys
from experiments.von_oswald import common, separate_tokens, sine
from icl_lab.fast.pointwise import gelu
from icl_lab.fast.tasks_last import by_shared
from icl_lab.models import LinearSelfAttention, Transformer, learner
from icl_lab.prompts import Sample, Sampler, sine_regression
from icl_lab.prompts.layouts import Layout, separate_layout

SINE = f"sine network, batch {sine.PRESETS['lab'].batch}"


class Case(NamedTuple):
    """What is trained: a network on a sampler's prompts, which a layout turns into tokens (None: joint ones)."""

    network: Transformer
    setting: Any
    sampler: Sampler
    layout: Layout | None = None

    def program(self) -> Program:
        """Training as the binaries do it, without measurements on the way."""
        keys, model = member_keys(self.setting, members=1), common.model(self.network, self.setting, self.layout)
        how: dict[str, Any] = {"keys": keys, "measured": False, "sampler_of": lambda *_: self.sampler}
        return collected(lambda session: common.train(session, "", self.setting, model, **how))

    def by_plain_loop(self, steps: int) -> Callable[[], Any]:
        """A Python loop that calls a jitted sampler of one task, vmapped, then a jitted step of the vmapped network."""
        p = self.program()
        optimizer = p.optimizer(p.first())

        @jax.jit
        def draw(key: Array, t: Array) -> Sample:
            keys = jax.random.split(jax.random.fold_in(key, t), self.setting.batch)
            return jax.vmap(lambda k: jax.tree.map(lambda leaf: leaf[0], self.sampler(k, 1)))(keys)

        def loss(params: dict, samples: Sample) -> Array:
            predictions = jax.vmap(learner(self.network, params, self.layout))(samples.prompt)
            return 0.5 * ((predictions - samples.target) ** 2).sum(axis=1).mean()

        @jax.jit
        def update(params: dict, state: Any, samples: Sample) -> tuple[dict, Any, Array]:
            value, gradient = jax.value_and_grad(loss)(params, samples)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, value

        return looped(p, lambda params, state, key, t: update(params, state, draw(key, t)), steps)


def cases() -> dict[str, Case]:
    """Figs. 4 and 5 of von Oswald et al. at their lab presets: a sine network, and the softmax stack on own tokens."""
    waves, apart = sine.PRESETS["lab"], separate_tokens.PRESETS["lab"]
    network = LinearSelfAttention(layers=1, looped=True, embedding=waves.width, embedding_mlp=waves.mlp_width)
    sampler = sine_regression(
        context_length=waves.context_length, input_range=waves.input_range, amplitude=waves.amplitudes
    )
    stack = Transformer(layers=2, attention=("softmax", "linear"), key_size=apart.key_size)
    layout = separate_layout(apart.position_size, apart.positions, apart.readout)
    return {
        SINE: Case(network, waves, sampler),
        f"separate tokens, batch {apart.batch}": Case(stack, apart, common.sampler(apart), layout),
    }


def mlp_alone(config: sine.Config) -> tuple[Callable[[], Any], int]:
    """What a step of the sine network cannot do without: GELU and the MLP's second matrix, and their gradients."""
    blocks, tokens, tasks = -(-config.batch // 64), config.context_length + 1, min(64, config.batch)
    x = jax.random.normal(jax.random.key(0), (blocks, tokens, config.mlp_width, tasks))
    w = jax.random.normal(jax.random.key(1), (config.mlp_width, config.width))
    bias, times = jnp.zeros(config.mlp_width), 20

    @jax.jit
    def run(x: Array, w: Array) -> tuple[Array, Array]:
        def once(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            out, pull = jax.vjp(lambda x, w: by_shared(gelu(x, bias), w), *carry)
            return jax.tree.map(lambda value, change: value - 1e-6 * change, carry, pull(out))

        return lax.fori_loop(0, times, once, (x, w))

    return lambda: run(x, w), times


def layouts(config: Config) -> dict[str, list[Row]]:
    """A training step of each: plain, and ours in ``fit``; and ``mlp_alone``, a bound for the sine network's."""
    found = cases()
    with chunks_of_fit({name: in_chunks(case.program(), config.chunk) for name, case in found.items()}) as fits:
        alone = f"{SINE}, GELU and a matrix of its MLP alone"
        contenders, reference = {alone: mlp_alone(sine.PRESETS["lab"])}, {alone: f"{SINE}, plain loop"}
        for name, case in found.items():
            contenders[f"{name}, plain loop"] = (case.by_plain_loop(config.loop_steps), config.loop_steps)
            contenders[f"{name}, fit"] = (fits[name], config.chunk)
            reference |= dict.fromkeys((f"{name}, plain loop", f"{name}, fit"), f"{name}, plain loop")
        timings = take_turns(contenders, config.rounds)
    rows = [row(name, timing, timings[reference[name]]) for name, timing in timings.items()]
    return {"training step on other tokens": rows}
