"""All families, by name, in the order in which the first of equal ones gives a class its name."""

from icl_lab.identify.family import Family, centred, with_intercept
from icl_lab.identify.filters import FILTERS
from icl_lab.identify.others import OTHERS
from icl_lab.identify.robust import ROBUST
from icl_lab.identify.sets import MIXTURE

CENTRED = ("GD", "GD++", "ridge", "least squares", "gradient flow")
"""Filters that are also tried on centred inputs and labels, without and with the mean of the labels."""

INTERCEPT = ("ridge", "least squares")
"""Filters that are also tried with an intercept."""

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *FILTERS,
        *(centred(family, add_mean=mean) for mean in (False, True) for family in FILTERS if family.name in CENTRED),
        *(with_intercept(family) for family in FILTERS if family.name in INTERCEPT),
        *OTHERS,
        *ROBUST,
        MIXTURE,
    )
}
