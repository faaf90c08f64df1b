"""What all members of one call are asked."""

import dataclasses
from collections.abc import Mapping

from icl_lab.identify.asking import Floats
from icl_lab.identify.family import Family
from icl_lab.identify.probes import Battery, Units


@dataclasses.dataclass(frozen=True)
class Setting:
    """Units, the prompts, rotations, and the families to try."""

    units: Units
    battery: Battery
    turns: Floats
    families: Mapping[str, Family]


@dataclasses.dataclass(frozen=True)
class Judged:
    """The contexts by which families are judged, and what M members answer there, in units.

    Attributes:
      eigenvalues: (C, r), as ``probes.Spectrum`` has them; every other context is a training prompt.
      weights: (C, Q, r), likewise.
      raw: (M, C, Q) f.
      mean: (M, C, Q) the symmetrised f.
      doubled: (M, C / 2, Q) the same on the training prompts with inputs twice as large, labels following.
    """

    eigenvalues: Floats
    weights: Floats
    raw: Floats
    mean: Floats
    doubled: Floats
