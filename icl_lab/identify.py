"""Which algorithm is it? (``icl_lab.compare.identify``, ``docs/identify.md``)."""

from icl_lab.compare.identify import *  # noqa: F403
from icl_lab.compare.identify import __all__ as __all__
