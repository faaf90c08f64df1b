"""The fingerprint of two networks of von Oswald et al. 2022: what they do to each eigenvalue, beside the algorithms.

One layer, and one whose weights are shared over three passes, by the kept parameters of their lab record. A context is
built around one eigenvalue l of X^T X / N, with labels along it, and the answer gives the residual factor 1 - l h(l).
No algorithm is fitted on these contexts: the fits are those of ``identify``, on training prompts and contexts with
eigenvalues spread over the training range. So the curves are a test of the name.

Above, the measured factor: members as lines, the spread over rotations as a band, the named algorithm and the two best
filters of other classes over it. Below, the residual of every family on training prompts and on inputs twice as large.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.identification.findings import FINDINGS
from experiments.identification.networks import identify_members, members_of
from experiments.identification.von_oswald import GALLERY
from experiments.settings import Members
from icl_lab.compare.identify.picture import draw
from icl_lab.lab import Experiment, NotRun, Record, Session, claims_of, load_run, main, setting
from icl_lab.lab.style import Figure

NETWORKS = ("looped_1", "looped_3")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Which networks."""

    networks: tuple[str, ...] = setting(NETWORKS, "trainings of von_oswald.weight_maps", choices=NETWORKS)


PRESETS = {
    "smoke": Config(members=1, networks=("looped_1",)),
    "quick": Config(members=1, networks=("looped_1",)),
    "lab": Config(),
    "paper": Config(),
}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Identifies the members of every network; words and arrays of its fingerprint."""
    kept, metrics, arrays = load_run(GALLERY / "weight_maps" / "lab"), {}, {}
    with session.bar("networks", len(config.networks)) as advance:
        for done, name in enumerate(config.networks, 1):
            found = identify_members(members_of(kept, name, config.members), kept.record.config, config.seed)
            metrics[name], arrays[name] = found.fingerprint()
            metrics[name] |= {"said": str(found), "explained": found.explain(0), "stability": found.stability}
            advance(done, len(config.networks))
    return metrics, arrays


def figures(record: Record) -> dict[str, Figure]:
    """The fingerprint of every network."""
    return {name: draw(record.metrics[name], record[name]) for name in record.config["networks"]}


def off(name: str, beyond: bool = False) -> Callable[[Record], np.ndarray]:
    """(M,) largest distance of the measured residual factor from that of the member's name, inside the training range.

    ``beyond`` it: up to four times its largest eigenvalue. A member without a name, or with one that is no filter, is
    infinitely far.
    """

    def value(record: Record) -> np.ndarray:
        if f"{name}/r" not in record.arrays:
            raise NotRun(f"the network {name}")
        grid, (low, high) = record[f"{name}/grid"], record[f"{name}/training"]
        there = grid > high if beyond else (grid >= low) & (grid <= high)
        apart = np.abs(record[f"{name}/r"] - record[f"{name}/named"])[:, there].max(1)
        return np.where(np.isfinite(apart), apart, np.inf)

    return value


claim = claims_of("identification.fingerprint", "This lab, networks of von Oswald et al. 2022", presets=("lab",),
                  relation="<=", interval="median")  # fmt: skip
REASON = "no algorithm is named that is further from the predictions than .05"

CLAIMS = (
    claim("one_layer", "", "One layer: residual factors of network and named algorithm, largest distance inside the "
          "training range.", off("looped_1"), 0.05, reason=REASON, kind="identity"),
    claim("three_passes", "", "Three passes: the same.", off("looped_3"), 0.05, reason=REASON),
    claim("one_layer_beyond", "", "One layer: the same up to four times the largest eigenvalue of training.",
          off("looped_1", beyond=True), 0.05, reason="one linear layer is linear in the eigenvalue, exactly",
          kind="identity"),
)  # fmt: skip

AXES = {
    "*/grid": ("point",), "*/r": ("member", "point"), "*/spread": ("member", "point"), "*/named": ("member", "point"),
    "*/dense": ("dense_point",), "*/curves": ("{0}_curve", "dense_point"), "*/training": ("end",),
    "*/residual": ("{0}_family",), "*/doubled": ("{0}_family",),
}  # fmt: skip

QUICK = {"one_layer": None, "three_passes": None}
"""Quick asks one member of one network, for a preview of the figure."""

EXPERIMENT = Experiment(
    "identification.fingerprint", __doc__, PRESETS, run, figures, CLAIMS, axes=AXES, quick=QUICK,
    parts=lambda config: [f"{name}/*" for name in config["networks"]], finding=FINDINGS["fingerprint"],
    given=True, reads=("von_oswald.weight_maps",),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
