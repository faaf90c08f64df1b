"""A training step of the small language models of Dai et al.: the plain form against the one that ``pretrain`` uses."""

import math

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.benchmarks.timing import Config, Row, row, take_turns
from experiments.dai.common import network, worlds
from experiments.dai.pretrain import PRESETS
from experiments.dai.pretrain_stages import PART, next_token_losses
from icl_lab.fast.microbatches import in_microbatches
from icl_lab.prompts.text_sequences import Sequences, curriculum, sequence_length
from icl_lab.prompts.text_tasks import held_out_sets

PLAIN, OURS = "vmap over whole sequences", "one matrix, microbatches"


def pretraining(config: Config) -> dict[str, list[Row]]:
    """Loss and gradient of one batch of the mixture for each position encoding, drawing the batch included."""
    lab = PRESETS["lab"]
    of, _, keys = jax.tree.map(lambda leaf: leaf[0], worlds(lab))
    sample = curriculum(of, held_out_sets(keys), lab.demonstrations)["mixture"]
    tokens = sequence_length(lab.demonstrations) - 1
    # 12 E^2 products a layer and token and those of attention, V E for the logits; the backward pass has twice as many
    each = lab.layers * (12 * lab.width**2 + 2 * tokens * lab.width) + 104 * lab.width
    gflop = 1e-9 * 3 * 2 * lab.batch * tokens * each
    contenders, reference = {}, {}
    for positions in lab.positions:
        module = network(lab, positions)
        params = dict(jax.jit(module.init)(jax.random.key(0), jnp.zeros(2, int)))

        def weighted(losses: Array, sequences: Sequences) -> Array:
            weights = jnp.where(sequences.labels[:, 1:], lab.label_weight, 1.0)
            return ((losses * weights).sum(1) / weights.sum(1)).mean()

        def plain(params: dict, part: Sequences, module=module) -> Array:
            logits = jax.vmap(lambda own: module.apply(params, own)[0])(part.tokens)[:, :-1]
            return weighted(optax.softmax_cross_entropy_with_integer_labels(logits, part.tokens[:, 1:]), part)

        def ours(params: dict, part: Sequences, module=module) -> Array:
            return weighted(next_token_losses(module, params, part.tokens)[0], part)

        for form, loss in ((PLAIN, plain), (OURS, in_microbatches(ours, math.gcd(PART, lab.batch)))):
            step = jax.jit(lambda params, key, loss=loss: jax.value_and_grad(loss)(params, sample(key, lab.batch)))
            contenders[name := f"{positions}, {form}"] = (lambda step=step, own=params: step(own, jax.random.key(1)), 1)
            reference[name] = f"{positions}, {PLAIN}"
    timings = take_turns(contenders, config.rounds)
    rows = [
        row(name, timing, timings[reference[name]], **{"GFLOP/s": 1e3 * gflop / timing.ms})
        for name, timing in timings.items()
    ]
    return {f"pre-training step, {lab.batch} sequences of {tokens} tokens": rows}
