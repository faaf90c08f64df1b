"""What ``logistic`` claims."""

import math
from collections.abc import Callable

import numpy as np

from experiments.statistics import ratio
from icl_lab.lab import NotRun, Record, claims_of


def _cosine(name: str, reference: str) -> Callable[[Record], np.ndarray]:
    """(M,) final sensitivity cosine of a network with an algorithm."""

    def statistic(record: Record) -> np.ndarray:
        if reference not in (others := record.metrics["cosines_with"]):
            raise NotRun(reference)
        return record[f"cosines/{name}"][:, others.index(reference)]

    return statistic


def gain(record: Record) -> np.ndarray:
    """(M,) what one linear layer gains over predicting one half, as a share of what the best logistic step gains."""
    trained, step = (record[f"final/{name}"] for name in ("linear_1", "logistic_1"))
    return (math.log(2) - trained) / (math.log(2) - step)


def nearer_to_gd_plus_plus(record: Record) -> np.ndarray:
    """(M,) cosine of two linear layers with two GD++ steps above the one with two logistic steps."""
    return _cosine("linear_2", "gd++_2")(record) - _cosine("linear_2", "logistic_2")(record)


def softmax_cosine(record: Record) -> np.ndarray:
    """(M,) cosine of the softmax layer with one logistic step, of members whose loss is below 1.1 times the step's."""
    return np.where(
        ratio("final/softmax_1", "final/logistic_1")(record) < 1.1, _cosine("softmax_1", "logistic_1")(record), np.nan
    )


def _rate(record: Record) -> np.ndarray:
    return record["linear_1/rate"][:, -1] / record.metrics["parameters"]["logistic_1"][0]


_ALL = {"lab": "holds"}

claim = claims_of("von_oswald.logistic", "von Oswald et al. 2022, named as future work (this lab)", presets=("lab",))

CLAIMS = (
    claim(
        "one_step_gain", "",
        "One linear layer gains over predicting one half what the best logistic step gains (share).", gain,
        1.0, 0.01,
        reason="the best layer is the best step, by convexity and symmetry; 1 % for the jitter of Adam and for rates "
        "tuned on finitely many tasks",
        expected_verdict=_ALL,
    ),
    claim(
        "one_step_cosine", "",
        "One linear layer has the sensitivities of one logistic step: cosine at least .99 (control: two logistic "
        "steps).",
        _cosine("linear_1", "logistic_1"), 0.99, relation=">=",
        reason="as above; the same bound as for looped layers in Fig. 3", control=_cosine("linear_1", "logistic_2"),
        expected_verdict=_ALL,
    ),
    claim(
        "one_step_rate", "", "The learning rate read off the layer is that of the best logistic step (ratio).",
        _rate, 1.0, 0.05,
        reason="the loss is flat there: 5 % of the rate cost less than 1 % of the gain",
    ),
    claim(
        "two_layers_loss", "",
        "Two linear layers reach the loss of two tuned GD++ steps on squared errors, their output scaled (ratio).",
        ratio("final/linear_2", "final/gd++_2"), 1.0, 0.02,
        reason="2 % as for looped layers in Fig. 3", control=ratio("final/linear_2", "final/squared_2"),
    ),
    claim(
        "two_layers_cosine", "",
        "Two linear layers have the sensitivities of those GD++ steps: cosine at least .99 (control: two logistic "
        "steps, which pass too; which is nearer is another claim).",
        _cosine("linear_2", "gd++_2"), 0.99, relation=">=", reason="as for looped layers in Fig. 3",
        control=_cosine("linear_2", "logistic_2"),
    ),
    claim(
        "two_layers_which", "",
        "Two linear layers are nearer to GD++ on squared errors than to two logistic steps (difference of the "
        "cosines).",
        nearer_to_gd_plus_plus, 0.0, relation=">=",
        reason="a linear layer cannot compute the logistic residual but can transform inputs; any difference in favour",
    ),
    claim(
        "two_layers_no_worse", "",
        "And yet no worse than two logistic steps at their best rates (ratio of losses).",
        ratio("final/linear_2", "final/logistic_2"), 1.0, 0.01, relation="<=",
        reason="tuned GD++ lies below the logistic steps by half a per cent; 1 % for the jitter of Adam",
    ),
    claim(
        "softmax_above", "",
        "One softmax layer with two heads stays above one logistic step (ratio of losses at least 1.005).",
        ratio("final/softmax_1", "final/logistic_1"), 1.005, relation=">=", interval="median",
        reason="its heads attend by averages, which centre the inputs (see softmax); members of pilots that used both "
        "heads were 1.3 % to 1.6 % above",
    ),
    claim(
        "softmax_cosine", "",
        "Members that use both heads agree with it in sensitivities: cosine at least .97 (control: all members).",
        softmax_cosine, 0.97, relation=">=",
        reason="pilots: .982 in all four that did; the others stay at 1.2 times its loss and cosine .81",
        control=_cosine("softmax_1", "logistic_1"),
    ),
    claim(
        "map_above", "",
        "Five logistic steps at tuned rates beat the most probable w of the true prior (ratio of losses).",
        ratio("final/logistic_5", "final/map"), 1.0, relation="<=",
        reason="the most probable w is overconfident, early stopping is not; any difference in favour",
    ),
)  # fmt: skip
