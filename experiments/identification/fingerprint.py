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
from collections.abc import Iterator
from typing import Any

from experiments.identification.networks import GALLERY, identify_members, members_of
from experiments.settings import Members
from icl_lab.lab import Experiment, load_run, main, setting
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield

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


OF: dict[str, Any] = {"network": "networks"}
GRID, TRAINING = quantity("{network}/grid", "point", **OF), quantity("{network}/training", "end", **OF)
FACTORS = quantity("{network}/{factor}", "member", "point", factor=("r", "spread", "named"), **OF)
DENSE = quantity("{network}/dense", "dense_point", **OF)
CURVES = quantity("{network}/curves", "{network}_curve", "dense_point", **OF)
RESIDUALS = quantity("{network}/{on}", "{network}_family", on=("residual", "doubled"), **OF)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Identifies the members of every network; words and arrays of its fingerprint."""
    kept = load_run(GALLERY / "weight_maps" / "lab")
    with fits.bar("networks", len(config.networks)) as advance:
        for done, name in enumerate(config.networks, 1):
            result = identify_members(members_of(kept, name, config.members), kept.record.config, config.seed)
            words, arrays = result.fingerprint()
            yield {name: arrays}
            facts = {"said": str(result), "explained": result.explain(0), "stability": result.stability}
            yield "facts", {name: words | facts}
            advance(done, len(config.networks))


EXPERIMENT = Experiment(
    "identification.fingerprint", __doc__, PRESETS, measured, (GRID, TRAINING, FACTORS, DENSE, CURVES, RESIDUALS),
    given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
