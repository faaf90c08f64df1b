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
