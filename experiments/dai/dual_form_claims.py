"""What ``dual_form`` claims: identities exact to rounding, and that the relaxed form points where softmax heads do.

All networks of an encoding count, whether or not they learn in context; each position encoding is judged apart.
"""

from typing import Any

import numpy as np

from experiments.dai.by_encoding import TEN, Values, array, claims_by_encoding
from experiments.statistics import array as array_of_record
from icl_lab.lab import Claim, Record, claims_of

ROUNDING = "sums of some hundred products in float32, relative error 6e-8 each, with cancellation"


def _largest(name: str, layers: int | None = None) -> Values:
    """(M,) largest error over tasks, heads and layers, or the first of them."""

    def largest(record: Record, positions: str) -> np.ndarray:
        values = array(name)(record, positions)[:, :, :layers]
        return values.reshape(len(values), -1).max(1)

    return largest


_AT_LAB = dict.fromkeys(
    ("relaxed_direction", "relaxed_direction_sinusoidal", "relaxed_direction_demonstrations", "no_shrinking",
     "relaxed_over_mean"), "fails",
)  # fmt: skip
"""Verdicts that are expected at lab where a claim is not expected to hold; written before the record."""
_judged = claims_of("dai.dual_form", at_lab=_AT_LAB, presets=("lab",))


def _claim(*positional: Any, **named: Any) -> list[Claim]:
    return claims_by_encoding(_judged, *positional, gate=False, **{"minimum_members": TEN} | named)


def _identity(name: str, where: str, statement: str, of: Values) -> list[Claim]:
    how = {"relation": "<=", "tolerance": 1e-4, "reason": ROUNDING, "minimum_members": 2, "kind": "identity"}
    return _claim(name, where, statement, of, **how)


_PAPER, _LAB = "Dai et al. 2022, section 3", "this lab"

CLAIMS = (
    *(
        _judged(f"descent_{kind}", "Dai et al. 2022, dual form of a linear layer",
                f"A linear layer after sequential descent is W0 and linear attention to its training inputs ({kind}).",
                array_of_record(f"descent/{kind}"), 0.0, tolerance=bound, relation="<=", kind="identity",
                reason=f"64 steps and as many products in {kind}")
        for kind, bound in (("float32", 1e-5), ("float64", 1e-13))
    ),
    *(
        claim for claims in (
            _identity("relaxed", _PAPER, "Relaxed attention is (W_ZSL + dW_ICL) q in every head.",
                      _largest("relaxed_identity")),
            _identity("softmax", _LAB,
                      "A softmax head is (1 - a) F_ZSL + a Attn_demonstrations, of the same query, keys, values.",
                      _largest("softmax_identity")),
            _identity("zero_shot_run", _LAB,
                      "In the first layer that F_ZSL is the head's output in a run of the query alone, in the same "
                      "positions.",
                      _largest("zero_shot_identity", 1)),
            _identity("fine_tuning", _PAPER,
                      "What fine-tuning does to relaxed heads of the first layer is the three terms of dW_FT.",
                      _largest("finetuning_identity")),
            _claim("relaxed_direction", _PAPER,
                   "Relaxed attention stands for the softmax head: their outputs point the same way (mean cosine).",
                   array("cosine"), None, 0.9, relation=">=", second=True,
                   reason="at .9 what is left at the best scale is .44 of the output; below, most is not explained"),
            _claim("relaxed_direction_demonstrations", _PAPER,
                   "dW_ICL q points where the head's attention to the demonstrations does (mean cosine).",
                   array("demonstrations_cosine"), None, 0.9, relation=">=", reason="as for the whole head"),
            _claim("relaxed_over_mean", _LAB,
                   "Relaxed attention points nearer to the head's output than the plain mean of all values does, which "
                   "ignores the query, by .1 at least.",
                   array("cosine"), array("mean_cosine"), 0.1, relation=">=",
                   reason="less than a tenth of the range of a cosine is no help; paired by network, task and head"),
            _claim("no_shrinking", _PAPER,
                   "Demonstrations leave the zero-shot part as it is, as in the relaxed form (1 - a, 1 there).",
                   lambda record, positions: 1 - array("mass")(record, positions), None, 1.0, tolerance=0.1,
                   reason="a tenth of the output; without any attention to the demonstrations it is 1"),
        ) for claim in claims
    ),
)  # fmt: skip
