"""The figure without a script: the default state of ``view.js``, drawn from the same record."""

from typing import Any

import numpy as np

from experiments.onsets import crossing
from experiments.page.explorables.birth import live
from experiments.page.explorables.birth.data import ARMS, CURVES
from icl_lab.lab.records import Record

WIDTH, HEIGHT = 360, 230  # of the plot
APART, ABOVE, BELOW = 44, 118, 148  # of the tokens: distance, and where arcs of the two layers begin
THICK, CELL = 14, 12  # an arc of all attention, a cell of the maps
ITEM = 1  # the target is like x2
FORMED = 0.9  # accuracy from which the head is said to have formed
NAMES = {"ic": "accuracy", "cla": "CLA", "tla2": "TLA2", "ila1": "ILA1", "tila2": "TILA2"}


def onset(curve: np.ndarray, steps: np.ndarray, n: int) -> float:
    """Step at which accuracy is half-way from guessing a label of the context, 1/N, to 1."""
    return float(crossing(curve[None], steps, (1 + 1 / n) / 2)[0])


def start(found: Record) -> int:
    """The measurement that is shown first: the control's first with an accuracy of ``FORMED``."""
    return int(np.argmax(found.arrays["control/curves"][0] >= FORMED))


def context(found: Record) -> dict[str, Any]:
    """What the template ``birth.html`` shows: the control at the first step at which the head has formed."""
    n, steps, time = found.config["context_length"], found.arrays["steps"], start(found)
    curves = dict(zip(CURVES, found.arrays["control/curves"].astype(float)))
    maps = found.arrays["control/attention"][time] / 255
    maps = np.concatenate([maps[:, : 2 * n], maps[:, 2 * n + ITEM, None]], axis=1)  # (2, T, T)
    tokens, now = 2 * n + 1, {name: float(curve[time]) for name, curve in curves.items()}
    return {
        "width": WIDTH, "height": HEIGHT, "above": ABOVE, "below": BELOW, "cell": CELL, "n": n, "tokens": tokens,
        "step": f"{steps[time]:,}", "last": f"{steps[-1]:,}", "hold": f"{found.config['hold']:,}",
        "item": 2 * ITEM, "names": NAMES, "arms": list(ARMS.values()),
        "curves": {
            name: "M" + "L".join(f"{WIDTH * s / steps[-1]:.1f} {_py(value)}" for s, value in zip(steps, curve))
            for name, curve in curves.items()
        },
        "cursor": round(WIDTH * time / (len(steps) - 1), 1),
        "arcs": [
            {"d": arc(query, key, layer), "kind": kind(query, key, layer, n), "width": f"{THICK * value:.1f}"}
            for layer in (0, 1) for query in range(1, tokens) if layer == 0 or query == 2 * n for key in range(query)
            for value in [maps[layer, query, key]]
        ],
        "maps": [
            [(CELL * key, CELL * query, f"{maps[layer, query, key]:.2f}")
             for query in range(tokens) for key in range(query + 1)]
            for layer in (0, 1)
        ],
        "own": [
            (live.ITEMS if at % 2 == 0 else live.LETTERS, chosen) for at, chosen in enumerate(live.usual(n))
        ],
        "accuracy": percent(found.metrics["accuracy"]), "other_answers": round(1000 * found.metrics["other_answers"]),
        "values": {name: percent(value) for name, value in now.items()},
        "said": f"At step {steps[time]:,} the head has formed: labels attend to their items ({percent(now['ila1'])}), "
        f"the target to its item’s label ({percent(now['tila2'])}), and {percent(now['ic'])} of the answers are right.",
    }  # fmt: skip


def arc(query: int, key: int, layer: int) -> str:
    """From a token back to another one: above the tokens in the first layer, below them in the second."""
    height, edge = 12 + 12 * (query - key), BELOW if layer else ABOVE
    top = edge + 2 * height if layer else edge - 2 * height
    return f"M{_px(query)} {edge}Q{(_px(query) + _px(key)) // 2} {top} {_px(key)} {edge}"


def kind(query: int, key: int, layer: int, n: int) -> str:
    """What an arc counts for: ILA1, TILA2 (and TLA2), TLA2 alone, or nothing."""
    if layer:
        return ("tila2" if key == 2 * ITEM + 1 else "tla2") if key % 2 else ""
    return "ila1" if query % 2 and query == key + 1 else ""


def percent(share: float) -> str:
    """A share in whole percent."""
    return f"{100 * share:.0f} %"


def _px(token: int) -> int:
    return APART // 2 + APART * token


def _py(value: float) -> float:
    return round(float(HEIGHT * (1 - value)), 1)
