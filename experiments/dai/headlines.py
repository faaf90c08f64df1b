"""The claims that sum up each binary of this paper, and how the preset quick judges them.

A verdict other than *holds* is what the first quick record said, or that it stops before the criterion.
"""

from experiments.dai.momentum_icl_claims import times
from icl_lab.claims import NOT_REACHED, NOT_RESOLVED, Criterion, Quick
from icl_lab.lab import Record


def _acquired(record: Record) -> bool:
    """Whether every member learns to label by pairs with one mixer at least."""
    return bool((times(record, "pairs").min(axis=0) < 1).all())


QUICK: dict[str, dict[str, Quick | None]] = {
    "dual_form": {
        "relaxed": Quick(1e-4, "an identity, to the same rounding, in every head of one network", identity=True),
        "softmax": Quick(1e-4, "an identity, to the same rounding, in every head of one network", identity=True),
        "relaxed_direction": None,
    },
    "implicit_finetuning": {
        "sim_aou_over_wrong_task": None,
        "sim_aou_no_more_than_untrained": None,
        "full_batch_has_no_order": Quick(1e-4, "an identity, to the same rounding, of one network", identity=True),
    },
    "layers": {"sim_aou_rises": None, "sim_aou_rises_above_floor": None},
    "momentum_icl": {
        "sooner_pairs": Quick(
            0.0, "60 steps of width 32 for 2,000 of width 64", NOT_REACHED,
            Criterion("every member labels words by pairs with accuracy .8, with one mixer", _acquired),
        ),
        "better_pairs": None,
    },
    "momentum_language_model": {
        "gap_remains": None,
        "gain_whole": Quick(0.0, "40 steps of width 32 for 4,000 of 64; the gap is not stable", NOT_REACHED),
        "no_more_than_local_mixers": None,
    },
    "momentum_regression": {
        "floor": Quick(0.03, "10^4 paired tasks for 10^5: three times the noise"),
        # one member or more is still on the plateau and has no value
        "penalty": Quick(0.15, "10^4 tasks for 10^5: three times the noise", NOT_RESOLVED),
        "analogy": None,
    },
}  # fmt: skip
