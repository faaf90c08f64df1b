"""The trained network for the reader's own sequence: matrices in float16, and sequences that JAX has answered.

Its tokens begin in the first slot, so that most of the slots are never used, and queries and keys act only by their
product: this is half of what the network holds.
"""

import base64
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.reddy.settings import Data
from icl_lab.models import InductionNetwork
from icl_lab.pages import packed
from icl_lab.prompts import ItemLabelLaw, Sample

MATRICES = (
    "items", "labels", "mlp_bias", "read_out", "scores_0", "values_0", "scores_1", "values_1",
    "mlp_0", "mlp_1", "mlp_2",
)  # fmt: skip
"""In the order in which the page has them; what tokens hold, then those of the network."""
ARRAYS = (*MATRICES, "sequences", "logits")
ITEMS = ("● circle", "▲ triangle", "■ square", "◆ diamond", "★ star", "✚ cross")
"""What the page calls the items, of classes that the network has never seen."""
LETTERS = "ABCDEF"
"""What it calls the labels that the reader can choose, the first ones of all."""
SEQUENCES = 8  # whose logits are exported
TOLERANCE = 2.0**-23
"""Largest difference from JAX that the page allows, over the largest logit.

Both calculate in float64 from the same float16 numbers. Exported logits are rounded to float32, which is half of it;
what rounding in both calculations may take is less than the other half (a test bounds it).
"""
Arrays = Mapping[str, Any]


def folded(params: Mapping[str, Any], config: Data) -> dict[str, np.ndarray]:
    """The network as products of matrices in float16, for tokens that begin in the first slot.

    With channels in the order slots in use, contents, other slots: ``scores_k`` = W_q W_k^T and ``values_k`` = W_v of
    layer k, those of the first without the rows on which tokens are zero; and the classifier.
    """
    weights = {name: np.asarray(value, float) for name, value in params["params"].items()}
    used, slots = 2 * config.context_length + 1, config.slots
    order = [*range(used), *range(slots, slots + config.input_size), *range(used, slots)]
    seen = used + config.input_size
    scores = (weights["w_q"] @ weights["w_k"].transpose(0, 2, 1))[:, order][:, :, order]
    values = weights["w_v"][:, order][:, :, order]
    matrices = {name: weights[name] for name in MATRICES if name in weights} | {"mlp_0": weights["mlp_0"][order]}
    matrices |= {"scores_0": scores[0, :seen, :seen], "values_0": values[0, :seen]}
    matrices |= {"scores_1": scores[1], "values_1": values[1]}
    return {name: value.astype(np.float16) for name, value in matrices.items()}


def answered(
    arrays: Arrays, items: np.ndarray, labels: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the network of ``folded`` makes of S sequences, in float64: ``InductionNetwork`` with keys W_k = I.

    Args:
      arrays: its matrices.
      items: (S, N, D).
      labels: (S, N, D).
      target: (S, D).

    Returns:
      (S, L) logits and (S, 2, T, T) attention.
    """
    count, n, size = items.shape
    contents = np.concatenate([np.stack([items, labels], 2).reshape(count, 2 * n, size), target[:, None]], 1)
    width, (seen, _) = len(arrays["mlp_0"]), arrays["scores_0"].shape
    positions = np.broadcast_to(np.eye(2 * n + 1), (count, 2 * n + 1, 2 * n + 1))
    tokens = np.pad(np.concatenate([positions, contents], 2), ((0, 0), (0, 0), (0, width - seen)))
    whole = {name: np.asarray(arrays[name], float) for name in MATRICES[2:]}
    whole["scores_0"] = np.pad(whole["scores_0"], (0, width - seen))
    whole["values_0"] = np.pad(whole["values_0"], ((0, width - seen), (0, 0)))
    with jax.enable_x64(True):
        params = {name: jnp.asarray(whole[name]) for name in ("mlp_0", "mlp_1", "mlp_2", "mlp_bias", "read_out")}
        params |= {"w_q": jnp.stack([whole["scores_0"], whole["scores_1"]]), "w_k": jnp.stack([jnp.eye(width)] * 2)}
        params |= {"w_v": jnp.stack([whole["values_0"], whole["values_1"]])}
        network = InductionNetwork(whole["read_out"].shape[1], 2 * n + 1, whole["mlp_1"].shape[0])
        run = jax.jit(jax.vmap(lambda one: network.apply({"params": params}, one)))
        logits, trace = run(jnp.asarray(tokens))
        return np.asarray(logits), np.asarray(trace.attention)[:, :, 0]


def of_reader(arrays: Arrays, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``answered`` of sequences (S, 2N + 1) of numbers of items and labels: x_1, l_1, .., x_N, l_N, target."""
    items, labels = (np.asarray(arrays[name], float) for name in ("items", "labels"))
    return answered(arrays, items[sequences[:, :-1:2]], labels[sequences[:, 1::2]], items[sequences[:, -1]])


def other_answers(arrays: Arrays, logits: np.ndarray, samples: Sample) -> float:
    """Share of sequences to which the network of ``folded`` gives another answer than these logits (S, L)."""
    prompt = jax.tree.map(np.asarray, samples.prompt)
    again, _ = answered(arrays, prompt.x, prompt.y, prompt.x_query)
    return float(np.mean(again.argmax(1) != np.asarray(logits).argmax(1)))


def recorded(params: Mapping[str, Any], law: ItemLabelLaw, config: Data, key: jax.Array) -> dict[str, np.ndarray]:
    """Arrays of the record: ``MATRICES``, and ``sequences`` (S, 2N + 1) with JAX's ``logits`` (S, L)."""
    size, few = config.input_size, len(ITEMS)  # as many labels
    arrays = folded(params, config)
    arrays["items"] = (size**-0.5 * np.asarray(jax.random.normal(key, (few, size)))).astype(np.float16)
    arrays["labels"] = np.asarray(law.label_vectors[:few], np.float16)
    tokens = 2 * config.context_length + 1
    sequences = np.random.default_rng(config.seed).integers(0, few, (SEQUENCES, tokens)).astype(np.uint8)
    logits = of_reader(arrays, sequences)[0].astype(np.float32)
    return arrays | {"sequences": sequences, "logits": logits}


def usual(n: int) -> list[int]:
    """The sequence that is there when the reader begins: item k has label k, and the target is like the second item."""
    return [at // 2 for at in range(2 * n)] + [1]


def data(arrays: Arrays) -> dict[str, Any]:
    """What ``view.js`` reads of it, as JSON: matrices are float16, little endian, one after another, in base64."""
    matrices = [np.atleast_2d(arrays[name]) for name in MATRICES]
    return {
        "matrices": base64.b64encode(b"".join(one.astype("<f2").tobytes() for one in matrices)).decode(),
        "shapes": [one.shape for one in matrices],
        "sequences": arrays["sequences"].tolist(),
        "logits": packed(arrays["logits"]),
        "tolerance": TOLERANCE,
    }
