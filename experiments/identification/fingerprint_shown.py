"""What ``fingerprint`` claims and shows."""

import numpy as np

from experiments.identification.fingerprint import FACTORS, GRID, TRAINING
from experiments.statistics import of_record
from icl_lab.identify.picture import draw
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.style import Figure


def figures(record: Record) -> dict[str, Figure]:
    """The fingerprint of every network."""
    return {name: draw(record.metrics[name], record[name]) for name in record.config["networks"]}


@of_record
def off(record: Record, name: str, beyond: bool = False, named: str = "") -> np.ndarray:
    """(M,) largest distance of the measured residual factor from that of the member's name, inside the training range.

    ``beyond`` it: up to four times its largest eigenvalue. A member without a name, or with one that is no filter, is
    infinitely far. ``named``: the network whose names they are, "": this one.
    """
    for one in {name, named or name} - set(record.config["networks"]):
        raise NotRun(f"the network {one}")
    grid, (low, high) = GRID(record, network=name), TRAINING(record, network=name)
    mask = grid > high if beyond else (grid >= low) & (grid <= high)
    r = FACTORS(record, network=name, factor="r")
    filters = FACTORS(record, network=named or name, factor="named")
    apart = np.abs(r - filters)[:, mask].max(1)
    return np.where(np.isfinite(apart), apart, np.inf)


claim = claims_of(
    "identification.fingerprint", "This lab, networks of von Oswald et al. 2022", presets=("lab",), at_most=0.05,
    interval="median", reason="no algorithm is named that is further from the predictions than .05",
)  # fmt: skip

CLAIMS = (
    claim(
        "one_layer",
        "One layer: residual factors of network and named algorithm, largest distance inside the training range.",
        off("looped_1"), kind="identity", headline=1,
    ),
    claim(
        "three_passes", "Three passes: the same (control: the algorithms of one layer).", off("looped_3"), headline=2,
        control=off("looped_3", named="looped_1"),
    ),
    claim(
        "one_layer_beyond", "One layer: the same up to four times the largest eigenvalue of training.",
        off("looped_1", beyond=True), kind="identity",
        reason="one linear layer is linear in the eigenvalue, exactly",
    ),
)  # fmt: skip
