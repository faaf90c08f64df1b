"""Trains the first member of ``reddy.clamping`` again, and keeps its mean attention along the way, and the network.

    python -m experiments.page.explorables.birth.recording

This takes three minutes. The network that is kept (``live``) is that of the end, with nothing frozen. The committed lab
record of the binary keeps no attention; its first member's curves are the same but for rounding, which grows over 5,000
steps. The record is committed beside this file.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.page.explorables import Made, make
from experiments.page.explorables.birth import live
from experiments.page.explorables.birth.data import ARMS, CURVES, FOLDER
from experiments.reddy.clamping import PRESETS, conditions, plan
from experiments.reddy.settings import by_part, member_laws
from experiments.reddy.training import accuracy, evaluation_samples, induction_model, progress
from experiments.settings import member_keys
from icl_lab.models.inspection import Trace
from icl_lab.prompts import Sample

CONFIG = dataclasses.replace(PRESETS["lab"], members=1)
LIVE = 7_100
"""Stage of the keys of the items that the reader has, and of the sequences on which rounding is judged."""


def attention(sample: Sample, logits: Array, trace: Trace) -> dict[str, Array]:
    """What is read off a sequence: whether the answer is right, ``match`` (N,) and ``attention`` (2, 3N, 2N + 1).

    ``match`` marks the items that the target is like. Rows of ``attention`` are those of the tokens of the context, and
    the target's once for each item: zero for an item that it is not like.
    """
    match = sample.latent["match"].astype(logits.dtype)
    pattern = trace.attention[:, 0]
    rows = jnp.concatenate([pattern[:, :-1], match[None, :, None] * pattern[:, -1:]], 1)
    return {"ic": (logits.argmax() == sample.target).astype(logits.dtype), "match": match, "attention": rows}


def in_255ths(sums: np.ndarray, share: np.ndarray) -> np.ndarray:
    """(R, 2, 3N, T) uint8: the mean attention, rounded to 255ths.

    Args:
      sums: (R, 2, 3N, T) means of ``attention`` over all sequences.
      share: (N,) share of the sequences whose target is like each item; the target's rows are means over those.
    """
    weights = np.concatenate([np.ones(2 * len(share)), np.where(share > 0, share, 1)])
    return np.rint(255 * sums / weights[:, None]).clip(0, 255).astype(np.uint8)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return make(__doc__, "birth", FOLDER, _train, argv)


def _train() -> Made:
    model = induction_model(CONFIG)

    def measure(params: dict, key: Array, now: dict) -> dict[str, Array]:
        samples = evaluation_samples(CONFIG, now["setting"]["law"], "ic", key)
        return progress(lambda prompt: model.run(params, prompt, now["intervention"], now["step"]), samples, attention)

    fit = dataclasses.replace(plan(CONFIG, model), measure=measure).carried_out()
    every = by_part(fit.metrics, conditions(CONFIG.only))
    share = every["control"]["match"][0, 0]  # the test sequences are the same at every measurement
    arrays: dict[str, Any] = {"steps": fit.steps, "share": share}
    for arm in ARMS:
        arrays[f"{arm}/curves"] = np.stack([every[arm][name][0] for name in CURVES])
        arrays[f"{arm}/attention"] = in_255ths(every[arm]["attention"][0], share)
    params, distribution = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (fit.params, member_laws(CONFIG)))
    (key,) = member_keys(CONFIG, LIVE)
    kept = live.recorded(params, distribution, CONFIG, key)
    samples = evaluation_samples(CONFIG, distribution, "ic", key)
    first = jnp.zeros_like(samples.target)
    samples = dataclasses.replace(samples, prompt=dataclasses.replace(samples.prompt, offset=first))
    logits = model.logits(params, samples.prompt)
    facts = {
        "accuracy": float(accuracy(logits, samples)),
        "other_answers": live.other_answers(kept, np.asarray(logits), samples),
    }
    arrays |= {f"live/{name}": value for name, value in kept.items()}
    return vars(CONFIG), facts, arrays


if __name__ == "__main__":
    jax.config.update("jax_default_matmul_precision", "highest")  # as the binary
    sys.exit(main())
