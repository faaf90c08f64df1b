"""The claims that sum up each binary of this paper, and how the preset quick judges them.

A verdict other than *holds* is what the first quick record said, or that it stops before the criterion.
"""

from icl_lab.claims import Quick

_BOUND = "a bound without slack at lab either"

QUICK: dict[str, dict[str, Quick | None]] = {
    "logistic": {
        "one_step_gain": Quick(0.03, "4,000 steps for 20,000 and a fifth of the tuning tasks; nothing learned is 0"),
        "one_step_cosine": Quick(0.0, _BOUND),
        "two_layers_which": None,
    },
}  # fmt: skip
