"""The committed record of ``identification.in_training``, and what the page shows of it."""

from typing import Any

import numpy as np

from experiments.binaries import GALLERY
from experiments.identification.in_training import ANSWER, LOSS, NAMES, NONE, STEPS, TIMES
from icl_lab.lab.records import Record

FOLDER = GALLERY / "identification" / "in_training" / "lab"
NETWORKS = {  # what one is called, and several
    "one_layer": ("One layer", "one-layer networks"),
    "two_loops": ("Two loops of one layer", "two-loop networks"),
    "softmax_heads": ("Two softmax heads", "two-head networks"),
    "five_layers": ("Five free layers", "five-layer networks"),
    "delta_net": ("A layer of DeltaNet", "DeltaNet layers"),
}
KINDS = {  # letter: the name, what is said of a network that has it, and its class in the style of pages
    "G": ("GD", "named GD", "orange"),
    "+": ("GD++", "named GD++", "green"),
    "P": ("preconditioned GD", "named preconditioned GD", "olive"),
    "C": ("centred GD", "named centred GD", "violet"),
    "S": ("softmax regression", "named softmax regression", "violet"),
    "L": ("least squares", "named least squares", "blue"),
    "F": ("gradient flow", "named gradient flow", "blue"),
    "R": ("ridge", "named ridge", "blue"),
    "D": ("LMS", "named LMS", "orange"),
    "X": ("another name", "named otherwise", "red"),
    "0": ("zero", "at zero", ""),
    "?": ("not separable", "between two names", ""),
    "·": ("no name", "without a name", ""),
}
OTHER, ZERO, WAVERS, UNNAMED = "X0?·"
LETTERS = {name: letter for letter, (name, _, _) in KINDS.items()}


def letters(found: Record, network: str) -> list[str]:
    """The names of each member, a letter an answer."""
    answers, wavers = (ANSWER(found, network=network, answer=one) for one in ("algorithm", "wavers"))
    return [
        "".join(
            (WAVERS if wavering else UNNAMED) if name == NONE else LETTERS.get(NAMES[int(name)], OTHER)
            for name, wavering in zip(*member)
        )
        for member in zip(answers, wavers)
    ]


def data(found: Record) -> dict[str, Any]:
    """What the figure shows: by network, names and losses of members at the steps at which they are asked."""
    networks = []
    for key in found.config["networks"]:
        steps, times = STEPS(found, network=key), TIMES(found, network=key)
        loss = LOSS(found, network=key)[:, np.searchsorted(steps, times)]
        name, plural = NETWORKS[key]
        networks.append({
            "key": key, "name": name, "plural": plural, "times": times.tolist(), "names": letters(found, key),
            "fallen": fallen(loss.mean(axis=0)),
            "loss": [[float(f"{value:.3g}") for value in member] for member in loss],
        })  # fmt: skip
    present = {letter for network in networks for member in network["names"] for letter in member}
    return {
        "networks": networks, "start": start(networks),
        "kinds": {letter: kind for letter, kind in KINDS.items() if letter in present},
    }  # fmt: skip


def fallen(loss: np.ndarray) -> list[int]:
    """Percent of the fall that is done, of (T,) a loss; it is of drawn prompts, and may pass its last one by chance."""
    share = (loss[0] - loss) / (loss[0] - loss[-1])
    return (100 * share.clip(0, 1)).round().astype(int).tolist()


def read_by_script(shown: dict[str, Any]) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON: all but the losses, whose lines are in the page."""
    return shown | {"networks": [{k: one[k] for k in one if k != "loss"} for one in shown["networks"]]}


def start(networks: list[dict[str, Any]]) -> tuple[int, int]:
    """Network and answer that are shown first: the first answer at which most members of a network have a name."""
    for network, one in enumerate(networks):
        for time, members in enumerate(zip(*one["names"])):
            if sum(letter not in (ZERO, WAVERS, UNNAMED) for letter in members) > len(members) / 2:
                return network, time
    return 0, len(networks[0]["times"]) - 1
