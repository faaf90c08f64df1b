"""Claims of ``shifts``, and what they read off its record. Errors are over that of predicting 0."""

import numpy as np

from experiments.statistics import Statistic
from experiments.zhang_frei_bartlett.shift_families import (
    OVER_LENGTHS,
    TRAININGS,
    Config,
    closed_form,
    points,
    training_config,
)
from icl_lab.lab import Claim, Record, claims_of, from_json
from icl_lab.theory import isotropic_risk, optimum, risk


def _sampled(training: str, family: str) -> Statistic:
    """(M,) the network's error on prompts over the closed form of its own A, averaged over the points."""
    name = f"{training}/{family}"
    return lambda record: (record[f"{name}/trained"] / record[f"{name}/exact"]).mean(axis=1)


def _predicted(training: str, family: str) -> Statistic:
    """(M,) the network's error over the closed form of the best A, averaged over the points."""

    def statistic(record: Record) -> np.ndarray:
        config = training_config(from_json(Config, record.config), training)
        best = optimum(np.diag(config.spectrum), config.context_length)
        exact = np.array([closed_form(config, family, point, best) for point in points(config, family)])
        return (record[f"{training}/{family}/trained"] / exact).mean(axis=1)

    return statistic


def _mean(name: str) -> Statistic:
    """(M,) mean over the points of a family."""
    return lambda record: record[name].mean(axis=1)


def _last(name: str) -> Statistic:
    """(M,) the last point of a family: its largest scale, its longest prompt."""
    return lambda record: record[name][:, -1]


def _spread(name: str) -> Statistic:
    """(M,) largest over smallest error of a family."""
    return lambda record: record[name].max(axis=1) / record[name].min(axis=1)


def _limit(c: float) -> Statistic:
    """(M,) limit N, M -> infinity of the error of the isotropic layer on inputs scaled by c, over c^2 D.

    The learned A is taken to N = infinity by the exact ratio of the two best A, (N + D + 1) / N.
    """

    def statistic(record: Record) -> np.ndarray:
        n, d = record.config["context_length"], len(record.config["spectrum"])
        a = record["isotropic/product"] * (n + d + 1) / n
        lam = c**2 * np.eye(d)
        return np.array([risk(one, test_length=np.inf, covariance=lam) for one in a]) / (c**2 * d)

    return statistic


def _over_own_prompts(name: str) -> Statistic:
    """(M,) error on the longest prompts over that of the best isotropic layer on the prompts of its training."""

    def statistic(record: Record) -> np.ndarray:
        config = record.config
        own = isotropic_risk(len(config["spectrum"]), config["context_length"], config["test_lengths"][-1])
        return _last(name)(record) / own

    return statistic


_PAPER = "Zhang, Frei & Bartlett 2023, section 4.2 (closed form: this lab)"
_GARG = "Garg et al. 2022, out-of-distribution prompts (closed form: this lab)"
_WORDS = {
    "inputs": "scaled inputs", "weights": "scaled weights", "query": "queries along an eigenvector",
    "task": "tasks along an eigenvector", "orthants": "contexts in an orthant", "subspace": "prompts in a subspace",
    "rescaled": "prompts in a subspace, rescaled",
    "orthogonal": "queries orthogonal to the context (square of the prediction)",
}  # fmt: skip


_claim = claims_of("zhang_frei_bartlett.shifts")


def _families() -> tuple[Claim, ...]:
    found = []
    for training, families in TRAININGS.items():
        for family in families:
            name, paper = f"{training}_{family}", _GARG if family in OVER_LENGTHS else _PAPER
            who = f"{training} layer, {_WORDS[family]}: the network over the closed form of"
            if name == "isotropic_orthogonal":
                continue  # its closed form is 0
            found += [
                _claim(f"sampled_{name}", paper, f"{who} its own A (mean ratio).", _sampled(training, family),
                       1.0, 0.02, "2 million prompts a point leave .5 %; blocks that are not in A add less than 1 %",
                       kind="identity"),
                _claim(f"predicted_{name}", paper, f"{who} the best A (mean ratio).", _predicted(training, family),
                       1.0, 0.05, "Adam leaves 1 to 2 % on an entry of A; d log error / d log A is at most 4"),
            ]  # fmt: skip
    return tuple(found)


CLAIMS = (
    *_families(),
    _claim("weights_invariant", _PAPER, "The error is the same whatever the scale of the task (largest over smallest; "
           "control: scale of the inputs).", _spread("spectrum/weights/trained"), 1.0, 0.02,
           "what noise leaves in u12 and u21, about .01, adds an answer that does not scale with the task",
           control=_spread("spectrum/inputs/trained")),
    *(
        _claim(f"limit_{c:g}", _PAPER, f"Inputs times {c:g}: the error tends to (1 - c^2)^2 (exact, from the learned A "
               "taken to N = infinity).", _limit(c), (1 - c**2) ** 2, share * (1 - c**2) ** 2,
               f"2 % of A, times d log error / d log A, which is {power}")
        for c, share, power in ((0.5, 0.02, "-.7"), (2.0, 0.06, "2.7"), (3.0, 0.05, "2.3"))
    ),
    _claim("inputs_fail", _GARG, "With the largest inputs the layer is worse than predicting 0 (control: least "
           "squares).", _last("isotropic/inputs/trained"), 1.0, 0.0, "the closed form is 49 at c = 3", relation=">=",
           control=_last("isotropic/inputs/least_squares")),
    _claim("orthants_fail", _GARG, "With its longest contexts in one orthant the layer's error is ten times that on "
           "its training distribution (control: least squares, over that of predicting 0).",
           _over_own_prompts("isotropic/orthants/trained"), 10.0, 1.0, "the closed form is 10.7; within 10 %",
           relation=">=", control=_last("isotropic/orthants/least_squares")),
    _claim("subspace_is_easier", _GARG, "In a subspace its error is smaller than on its training distribution "
           "(ratio, longest prompts; control: in an orthant).",
           _over_own_prompts("isotropic/subspace/trained"), 1.0, 0.0,
           "the closed form is .77", relation="<=", control=_over_own_prompts("isotropic/orthants/trained")),
    _claim("rescaled_subspace_fails", _GARG, "With inputs rescaled to their former mean square, as in the code of Garg "
           "et al., it is not tolerated: half the error of predicting 0 or more (control: least squares).",
           _last("isotropic/rescaled/trained"), 0.5, 0.0, "the closed form is .99 on the longest prompts",
           relation=">=", control=_last("isotropic/rescaled/least_squares")),
    _claim("orthogonal_isotropic", _GARG, "For a query orthogonal to the context the isotropic layer predicts 0 (mean "
           "square over that of the answer, mean over M; control: trained on the spectrum).",
           _mean("isotropic/orthogonal/trained"), 0.01, 0.0, "errors of 2 % on every entry of A leave .002",
           relation="<=", control=_mean("spectrum/orthogonal/trained")),
    _claim("orthogonal_spectrum", _GARG, "The layer trained on the spectrum does not (control: least squares).",
           _mean("spectrum/orthogonal/trained"), 0.5, 0.0, "the closed form is .79", relation=">=",
           control=_mean("isotropic/orthogonal/least_squares")),
)  # fmt: skip
