"""The claims that sum up each binary of this paper, and how the preset quick judges them.

A verdict other than *holds* is what the first quick record said, or that it stops before the criterion.
"""

from icl_lab.claims import Quick

_BOUND = "a bound without slack at lab either"

QUICK: dict[str, dict[str, Quick | None]] = {
}  # fmt: skip
