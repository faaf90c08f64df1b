"""Which algorithm is it? (``icl_lab.compare.identify``, ``docs/identify.md``)."""

from icl_lab.compare.identify import (
    FAMILIES,
    Family,
    Identified,
    LearnerError,
    Member,
    Model,
    Parameter,
    filter_family,
    identify,
)

__all__ = [
    "FAMILIES",
    "Family",
    "Identified",
    "LearnerError",
    "Member",
    "Model",
    "Parameter",
    "filter_family",
    "identify",
]
