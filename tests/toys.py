"""Experiments that stand for binaries where a test is about what carries them out."""

import numpy as np

from icl_lab.lab.claims import judge
from icl_lab.lab.experiment import PRESETS, Experiment


def made_up(name, presets, measured=lambda config, fits: (), quantities=(), about="A toy.", **said):
    """An experiment that says nothing of its record but what is given; a configuration stands for all presets."""
    presets = presets if isinstance(presets, dict) else dict.fromkeys(PRESETS, presets)
    said = {"claims": (), "figures": lambda record: {}} | said
    return Experiment(name, about, presets, measured, quantities, **said)


def verdicts(claims, record, left_out=()):
    """The verdict on each claim, by the last word of its id."""
    return {claim.id.split(".", 2)[-1]: judge(claim, record, left_out)["verdict"] for claim in claims}


def inside(claim, statistic, record):
    """Whether a statistic is in the claim's region for every member."""
    low, high = claim.region()
    values = statistic(record)
    return bool(np.all((values >= low) & (values <= high)))
