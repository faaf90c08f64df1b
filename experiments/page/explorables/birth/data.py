"""What the page holds of the record: mean attention and curves of one network under four conditions of training."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from experiments.page.explorables.birth import live
from icl_lab.lab.records import Record, RecordError, load
from icl_lab.pages import packed

FOLDER = Path(__file__).with_name("record")
ARMS = {
    "control": "nothing frozen",
    "cla_held": "classifier frozen",
    "ila1_held": "first layer frozen",
    "ila1_given": "first layer given",
}
"""Conditions of ``reddy.clamping``, and what the page calls them."""
CURVES = ("ic", "cla", "tla2", "ila1", "tila2")
"""Accuracy on novel classes, and the progress measures (``icl_lab.compare.progress_measures``)."""
HALF = 1 / 510
"""What rounding to 255ths takes from an entry of a map, at most."""
FLOAT = 1e-5  # float32 sums over 1,000 sequences


def measures(maps: np.ndarray, share: np.ndarray) -> dict[str, np.ndarray]:
    """ILA1, TLA2 and TILA2, (R,) each, of maps (R, 2, 3N, 2N + 1): they are sums of entries.

    Args:
      maps: attention of the tokens of the context, then that of the target where it is like item 1, .., N.
      share: (N,) share of the sequences whose target is like each item.
    """
    n = len(share)
    to_labels = maps[:, 1, 2 * n :, 1::2]  # (R, item that the target is like, label)
    return {
        "ila1": np.mean([maps[:, 0, 2 * i + 1, 2 * i] for i in range(n)], axis=0),
        "tla2": to_labels.sum(2) @ share,
        "tila2": np.diagonal(to_labels, axis1=1, axis2=2) @ share,
    }


def bound(name: str, n: int) -> float:
    """How far a measure of rounded maps may be from the recorded one.

    ILA1 is a mean of N entries and TILA2 one with weights that sum to one, ``HALF`` each; TLA2 is such a mean of sums
    of N entries.
    """
    return (n if name == "tla2" else 1) * HALF + FLOAT


def record(folder: Path = FOLDER) -> Record:
    """The committed record, whose maps give the curves of ILA1, TLA2 and TILA2.

    Raises:
      RecordError: if they do not, within ``bound``.
    """
    record = load(folder)
    share = record.arrays["share"].astype(float)
    for arm in ARMS:
        curves = dict(zip(CURVES, record.arrays[f"{arm}/curves"]))
        for name, again in measures(record.arrays[f"{arm}/attention"] / 255, share).items():
            if not (off := abs(again - curves[name]).max()) <= bound(name, len(share)):
                raise RecordError(f"{folder}: maps of {arm} give another {name.upper()}, by {off:.1g}")
    return record


def data(found: Record) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON; curves and shares are packed (``icl_lab.pages.packed``), maps are bytes."""
    arrays = found.arrays
    return {
        "n": found.config["context_length"],
        "hold": found.config["hold"],
        "steps": arrays["steps"].tolist(),
        "share": packed(arrays["share"]),
        "live": live.data({name: arrays[f"live/{name}"] for name in live.ARRAYS}),
        "half": HALF,
        "float": FLOAT,
        "arms": [
            {
                "key": arm, "name": name, "curves": packed(arrays[f"{arm}/curves"]),  # (5, R)
                "maps": base64.b64encode(arrays[f"{arm}/attention"].tobytes()).decode(),  # (R, 2, 3N, 2N + 1)
            }
            for arm, name in ARMS.items()
        ],
    }  # fmt: skip
