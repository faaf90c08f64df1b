"""What ``dual_form`` claims: identities exact to rounding, and that the relaxed form points where softmax heads do.

All networks of an encoding count, whether or not they learn in context; each position encoding is judged apart.

Figures: relaxed attention against the softmax heads, layer by layer.
"""

from functools import partial

import numpy as np

from experiments.dai.by_encoding import TEN, claims_by_encoding, of_encoding, of_networks, values_of
from experiments.dai.common import encodings
from experiments.dai.dual_form import DESCENT, FINETUNING, HEADS
from experiments.panels import SERIES
from icl_lab.claims import FAILS, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Figure, panels

ROUNDING = "sums of some hundred products in float32, relative error 6e-8 each, with cancellation"


@of_encoding
def _largest(record: Record, encoding: str, quantity: Quantity, layers: int | None = None) -> np.ndarray:
    """(M,) largest error over tasks, heads and layers, or the first of them."""
    values = of_networks(record, quantity, encoding)[:, :, :layers]
    return values.reshape(len(values), -1).max(1)


def _kept(record: Record, encoding: str) -> np.ndarray:
    """(M, 6, L, H) 1 - a."""
    return 1 - of_networks(record, HEADS.at(metric="mass"), encoding)


_AT_LAB = dict.fromkeys(
    ("relaxed_direction", "relaxed_direction_sinusoidal", "relaxed_direction_demonstrations", "no_shrinking",
     "relaxed_over_mean"), FAILS,
)  # fmt: skip
"""Verdicts that are expected at lab where a claim is not expected to hold; written before the record."""
_judged = claims_of("dai.dual_form", at_lab=_AT_LAB, presets=("lab",))
_claim = partial(claims_by_encoding, _judged, gate=False, minimum_members=TEN)
_identity = partial(_claim, at_most=0.0, tolerance=1e-4, reason=ROUNDING, minimum_members=2, kind="identity")
_PAPER, _LAB = "Dai et al. 2022, section 3", "this lab"
_COSINE = values_of(HEADS.at(metric="cosine"))
_QUICK = Quick(1e-4, "an identity, to the same rounding, in every head of one network", identity=True)

CLAIMS = (
    *(
        _judged(f"descent_{kind}",
                f"A linear layer after sequential descent is W0 and linear attention to its training inputs ({kind}).",
                DESCENT.at(precision=kind), at_most=0.0, tolerance=bound, kind="identity",
                where="Dai et al. 2022, dual form of a linear layer", reason=f"64 steps and as many products in {kind}")
        for kind, bound in (("float32", 1e-5), ("float64", 1e-13))
    ),
    *(
        claim for claims in (
            _identity("relaxed", "Relaxed attention is (W_ZSL + dW_ICL) q in every head.",
                      _largest(HEADS.at(metric="relaxed_identity")), where=_PAPER, headline=1, quick=_QUICK),
            _identity("softmax",
                      "A softmax head is (1 - a) F_ZSL + a Attn_demonstrations, of the same query, keys, values.",
                      _largest(HEADS.at(metric="softmax_identity")), where=_LAB, headline=2, quick=_QUICK),
            _identity("zero_shot_run",
                      "In the first layer that F_ZSL is the head's output in a run of the query alone, in the same "
                      "positions.",
                      _largest(HEADS.at(metric="zero_shot_identity"), 1), where=_LAB),
            _identity("fine_tuning",
                      "What fine-tuning does to relaxed heads of the first layer is the three terms of dW_FT.",
                      _largest(FINETUNING), where=_PAPER),
            _claim("relaxed_direction",
                   "Relaxed attention stands for the softmax head: their outputs point the same way (mean cosine).",
                   _COSINE, at_least=0.9, where=_PAPER, second=True, headline=3,
                   published=("relaxed attention models softmax heads (cosine 1)", "section 3"),
                   reason="at .9 what is left at the best scale is .44 of the output; below, most is not explained"),
            _claim("relaxed_direction_demonstrations",
                   "dW_ICL q points where the head's attention to the demonstrations does (mean cosine).",
                   values_of(HEADS.at(metric="demonstrations_cosine")), at_least=0.9, where=_PAPER,
                   reason="as for the whole head"),
            _claim("relaxed_over_mean",
                   "Relaxed attention points nearer to the head's output than the plain mean of all values does, which "
                   "ignores the query, by .1 at least.",
                   _COSINE, values_of(HEADS.at(metric="mean_cosine")), at_least=0.1, where=_LAB,
                   reason="less than a tenth of the range of a cosine is no help; paired by network, task and head"),
            _claim("no_shrinking",
                   "Demonstrations leave the zero-shot part as it is, as in the relaxed form (1 - a, 1 there).",
                   _kept, near=1.0, tolerance=0.1, where=_PAPER,
                   reason="a tenth of the output; without any attention to the demonstrations it is 1"),
        ) for claim in claims
    ),
)  # fmt: skip

PANELS = {
    "direction of the head": ("cosine", {"cosine": "relaxed attention", "mean_cosine": "plain mean of values"}),
    "error of relaxed attention": (
        "relative error",
        {"relative_error": "as it is", "scaled_error": "at the best scale"},
    ),
    "softmax mass on demonstrations": ("mass a", {"mass": "a"}),
}
LOGARITHMIC = ("error of relaxed attention",)


def figures(record: Record) -> dict[str, Figure]:
    """One figure: a row for each position encoding, a point for each head of each network, lines their mean."""
    schemes = encodings(record)
    figure, axes = panels(len(PANELS), len(schemes), shape=0.74)
    for row, encoding in zip(axes, schemes):
        for at, (title, (label, series)) in zip(row, PANELS.items()):
            for i, ((name, text), look) in enumerate(zip(series.items(), SERIES)):
                heads = np.moveaxis(HEADS(record, positions=encoding, metric=name).mean(1), 1, 0)  # (L, M, H)
                points, x = heads.reshape(len(heads), -1), np.arange(1, len(heads) + 1) + 0.12 * i
                at.plot(x, points, **look | {"linestyle": "", "markersize": 2, "alpha": 0.4})
                at.plot(x, points.mean(1), color=look["color"], linestyle=look["linestyle"], label=text)
            at.set(title=f"{title}, {encoding}", xlabel="layer", ylabel=label)
            at.set_xticks(range(1, len(heads) + 1))
            if title in LOGARITHMIC:
                at.set_yscale("log")
            elif label == "cosine":
                at.set_ylim(-1.05, 1.05)
            else:
                at.set_ylim(bottom=0)
            if len(series) > 1:
                at.legend()
    return {"relaxed": figure}
