"""Fine-tuning a small language model over the grid of learning rates in one program, against Python loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.benchmarks.timing import Config, Row, row, take_turns
from icl_lab.models.language import LanguageModel, language_logits
from icl_lab.solvers.finetuning import TUNED, finetune, untrained

NETWORK = LanguageModel(vocabulary=104, layers=4, heads=4, width=64, positions=0, rotary=100.0, scaled=True)
EXAMPLES, TOKENS = 12, 7
RATES = tuple(digit * 10.0**power for power in range(-4, 2) for digit in range(1, 10))
STEPS, LOOP, GRID = "loop over rates and examples", "loop over rates", "grid in one program"


def finetuning(config: Config) -> dict[str, list[Row]]:
    """Milliseconds a learning rate: of fine-tuning on the demonstrations, and with the answers to queries after it.

    Everything is compiled. The baseline is a Python loop over learning rates that calls one program for all examples
    (and all queries); the loop over rates and examples calls a program for each example, as the released code does. The
    grid is ``vmap`` of the baseline's program.
    """
    rng, rates = np.random.default_rng(0), RATES[: config.rates]
    params = jax.jit(lambda key: untrained(key, NETWORK))(jax.random.key(0))
    examples, queries = (
        jnp.asarray(rng.integers(NETWORK.vocabulary, size=(n, TOKENS)), jnp.int32)
        for n in (EXAMPLES, config.finetuning_queries)
    )
    learn = f"fine-tuning, {len(rates)} learning rates, {EXAMPLES} examples of {TOKENS} tokens"
    asked = f"{learn}, and answers to {len(queries)} queries"
    return {
        learn: _rows(config, params, rates, examples, None),
        asked: _rows(config, params, rates, examples, queries),
    }


def _rows(config: Config, params: dict, rates: tuple[float, ...], examples: Array, queries: Array | None) -> list[Row]:
    def whole(weights: dict) -> dict:
        return params | {"params": params["params"] | weights}

    def tune(weights: dict, texts: Array, rate: Array) -> dict:
        after = finetune(NETWORK, whole(weights), texts, jnp.full(len(texts), TOKENS), rate).params["params"]
        return {name: after[name] for name in TUNED}

    def read(weights: dict, asked: Array | None) -> Any:
        if asked is None:
            return weights
        return jnp.argmax(language_logits(NETWORK, whole(weights), asked)[:, -1], axis=-1)

    def run(rate: Array, weights: dict, texts: Array, asked: Array | None) -> Any:
        return read(tune(weights, texts, rate), asked)

    start, every = {name: params["params"][name] for name in TUNED}, jnp.asarray(rates)
    texts = [examples[n : n + 1] for n in range(EXAMPLES)]
    step, finish, one = jax.jit(tune), jax.jit(read), jax.jit(run)
    grid = jax.jit(jax.vmap(run, (0, None, None, None)))

    def by_steps() -> list[Any]:
        found = []
        for rate in every:
            weights = start
            for text in texts:
                weights = step(weights, text, rate)
            found.append(weights if queries is None else finish(weights, queries))
        return found

    contenders = {
        LOOP: (lambda: [one(rate, start, examples, queries) for rate in every], len(rates)),
        STEPS: (by_steps, len(rates)),
        GRID: (lambda: grid(every, start, examples, queries), len(rates)),
    }
    timings = take_turns(contenders, config.rounds)
    return [row(name, timing, timings[LOOP]) for name, timing in timings.items()]
