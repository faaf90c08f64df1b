"""Experiments that stand for binaries where a test is about what carries them out; records that are made by hand."""

import dataclasses

import numpy as np

from icl_lab.lab.experiment import PRESETS, Experiment
from icl_lab.lab.flags import setting, to_json
from icl_lab.lab.judging import judge
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings that every binary has."""

    seed: int = setting(0, "seed", at_least=0)
    members: int = setting(3, "members", at_least=1)


def made_up(name, presets, measured=lambda config, fits: (), quantities=(), about="A toy.", **said):
    """An experiment that says nothing of its record but what is given; a configuration stands for all presets."""
    presets = presets if isinstance(presets, dict) else dict.fromkeys(PRESETS, presets)
    said = {"claims": (), "figures": lambda record: {}} | said
    return Experiment(name, about, presets, measured, quantities, **said)


def measured_at_lab(binary, pieces):
    """The record of a binary, given as its module, that measured these pieces."""
    metrics, arrays, _ = collected(pieces)
    return Record(binary.EXPERIMENT.name, "lab", to_json(binary.PRESETS["lab"]), metrics, arrays)


def measured_with(config, pieces):
    """The record at lab of a binary that measured these pieces under this configuration."""
    metrics, arrays, _ = collected(pieces)
    return Record("toy", "lab", config, metrics, arrays)


def verdicts(claims, record, left_out=()):
    """The verdict on each claim, by the last word of its id."""
    return {claim.id.split(".", 2)[-1]: judge(claim, record, left_out)["verdict"] for claim in claims}


def inside(claim, statistic, record):
    """Whether a statistic is in the claim's region for every member."""
    low, high = claim.region()
    values = statistic(record)
    return bool(np.all((values >= low) & (values <= high)))
