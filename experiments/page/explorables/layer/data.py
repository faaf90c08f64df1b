"""What the page holds of the record: weights of every member along its training, and predictions of JAX."""

from pathlib import Path
from typing import Any

import numpy as np

from icl_lab.lab.records import Record, RecordError, load
from icl_lab.pages import packed

FOLDER = Path(__file__).with_name("record")
TOLERANCE = 1e-5  # float32 sums of 24 products of size 1
PROMPT = [[0.8, 0.3], [-0.5, 0.7], [0.2, -0.8], [-0.9, -0.3], [0.5, 0.9], [-0.2, -0.4], [0.9, -0.6], [-0.7, 0.1]]
TRUTH = [0.9, 0.6]
"""The default prompt: inputs, and the weights by which they are labelled."""


def record(folder: Path = FOLDER) -> Record:
    """The committed record, whose predictions its own weights give.

    Raises:
      RecordError: if they do not, to ``TOLERANCE``.
    """
    record = load(folder)
    arrays = record.arrays
    tokens = np.concatenate([arrays["x"], arrays["y"][..., None]], axis=-1).astype(float)  # (P, N, 3)
    query = np.pad(arrays["query"], [(0, 0), (0, 1)])
    a, b = arrays["a"][:, -1].astype(float), arrays["b"][:, -1].astype(float)
    scores = np.einsum("pi,mij,pnj->mpn", query, a, tokens)
    again = -np.einsum("mpn,pni,mi->mp", scores, tokens, b[:, :, -1])
    if not (worst := abs(again - arrays["predictions"]).max()) <= TOLERANCE:
        raise RecordError(f"{folder}: its weights give other predictions, by {worst:.1g}; allowed is {TOLERANCE:g}")
    return record


def of_one_direction(found: Record) -> int:
    """The first member, counted from 1, whose A has rank one on the query: its answer moves along one direction."""
    sizes = np.linalg.svd(found.arrays["a"][:, -1, :2], compute_uv=False)
    return int(np.argmin(sizes[:, 1] / sizes[:, 0])) + 1


def data(found: Record) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON; arrays are packed (``icl_lab.pages.packed``)."""
    arrays = found.arrays
    flat = [arrays[name].reshape(*arrays[name].shape[:2], 9) for name in ("a", "b")]
    return {
        "weights": packed(np.concatenate(flat, axis=-1)),  # (M, T, 18)
        "steps": arrays["steps"].tolist(),
        "rate": found.metrics["learning_rate"],
        "waits": (arrays["loss"][:, -1] > 1.5 * found.metrics["closed_form"]).tolist(),
        "prompt": PROMPT,
        "truth": TRUTH,
        "tolerance": TOLERANCE,
        "check": {name: packed(arrays[name]) for name in ("x", "y", "query", "predictions")},
    }
