"""What ``landscape`` claims and shows: exact quantities, judged by their worst cell of a grid; and random starts."""

from typing import Any

import numpy as np

from experiments.panels import side_by_side
from experiments.reddy import landscape as binary
from experiments.reddy import landscape_panels as drawn
from experiments.statistics import Statistic, of_record, ratio
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Figure
from icl_lab.theory import balanced_alpha

FORMS = {"simplified": "simplified form", "mean_field": "mean field"}


def farthest(values: np.ndarray, expected: float) -> np.ndarray:
    """(1,) the value that is farthest from what is expected."""
    values = np.ravel(values)
    return values[[np.abs(values - expected).argmax()]]


def largest(quantity: Quantity) -> Statistic:
    """Largest absolute value of an array of the record."""
    return lambda record: np.abs(quantity(record)).max()[None]


def least(quantity: Quantity) -> Statistic:
    """Smallest, over cells, of the largest absolute value of an array (cells, ...) of the record."""
    return lambda record: np.abs(quantity(record)).reshape(len(quantity(record)), -1).max(axis=1).min()[None]


@of_record
def cliff_width(record: Record, form: str) -> np.ndarray:
    """Time from .9 to .5 of log N, of the time up to .9: the longest of all cells."""
    top, middle = binary.WAIT(record, form=form)
    return ((middle - top) / top).max()[None]


@of_record
def foot_width(record: Record, form: str) -> np.ndarray:
    """Time from half to a tenth of log N, of the time up to half, at L = 4N: the longest over N."""
    widths = []
    for n, loss in zip(record.config["lengths"], binary.LENGTHS_LOSS(record, form=form)):
        middle, foot = np.interp([-np.log(n) / 2, -np.log(n) / 10], -loss, binary.TIMES(record, form=form))
        widths.append(foot / middle - 1)
    return np.max(widths)[None]


@of_record
def narrowing(record: Record, form: str) -> np.ndarray:
    """Width of the cliff, the longest over L, at one N over that at the N before it: the largest over neighbours."""
    top, middle = binary.WAIT(record, form=form)
    widths = ((middle - top) / top).max(axis=1)
    return (widths[1:] / widths[:-1]).max()[None]


@of_record
def narrowing_with_labels(record: Record, form: str) -> np.ndarray:
    """Width of the cliff at one L over that at the L before it: the largest over neighbours and N."""
    top, middle = binary.WAIT(record, form=form)
    widths = (middle - top) / top
    return (widths[:, 1:] / widths[:, :-1]).max()[None]


@of_record
def shelf_drop(record: Record, form: str, share: float = 0.9) -> np.ndarray:
    """Share of the way from log L to log N that the loss has gone at a share of the wait, L = 4N: most over N."""
    times, drops = binary.TIMES(record, form=form), []
    for n, loss in zip(record.config["lengths"], binary.LENGTHS_LOSS(record, form=form)):
        wait = np.interp(-np.log(n) / 2, -loss, times)
        drops.append((np.log(4 * n) - np.interp(share * wait, times, loss)) / np.log(4))
    return np.max(drops)[None]


@of_record
def grows(record: Record, form: str, axis: str, in_units: bool = False) -> np.ndarray:
    """Ratio of the waits of neighbouring cells, more pairs over fewer, or fewer labels over more: the smallest.

    ``in_units``: of the closed form of the wait for many pairs.
    """
    wait = binary.WAIT(record, form=form)[1]
    if in_units:
        wait = wait / binary.WAIT_LIMIT(record)
    return (wait[1:] / wait[:-1] if axis == "pairs" else wait[:, :-1] / wait[:, 1:]).min()[None]


def limit_ratio(record: Record) -> np.ndarray:
    """Wait of the simplified form over its closed form for many pairs, at the longest prompts: farthest from 1."""
    return farthest(binary.WAIT(record, form="simplified")[1, -1] / binary.WAIT_LIMIT(record)[-1], 1.0)


def path_error(record: Record) -> np.ndarray:
    """alpha over its closed form in beta_1, less one, on the simplified flow once beta_1 is above .01: the largest."""
    beta_1, alpha, _ = binary.PATH(record, form="simplified").T
    beta_1, alpha = beta_1[beta_1 > 0.01], alpha[beta_1 > 0.01]
    return farthest(alpha / balanced_alpha(beta_1, record.config["context_length"]) - 1, 0.0)


@of_record
def escape_slope(record: Record, form: str) -> np.ndarray:
    """Growth of the escape time per e-fold of the start, in units of 1/rate, at the two smallest: farthest from 1."""
    times, scales = binary.ESCAPE(record, form=form), record.config["scales"]
    folds = np.log(scales[-2] / scales[-1])
    slopes = (times[:, :, -1] - times[:, :, -2]) * binary.RATE(record, form=form)[:, None] / folds
    return farthest(slopes, 1.0)


claim = claims_of("reddy.landscape", "Reddy 2023, ", interval="exact")


_QUICK = (
    Quick(1e-6, "exact: the same differences in float64, of fewer cells"),
    Quick(1e-10, "exact: the same differences in float64"),
    Quick(0.03, "exact as the start goes to zero: the smallest is 1e-3 for 1e-6, which leaves corrections of its size "
                "over the distance of the saddle"),
)  # fmt: skip


def _headline(form: str, place: int) -> dict[str, Any]:
    """That the claim of the mean field, not that of the simplified form, is among those that sum it up."""
    return {"headline": place, "quick": _QUICK[place - 1]} if form == "mean_field" else {}


CLAIMS = (
    *(
        one
        for form, about in FORMS.items()
        for one in (
            claim(
                f"slope_{form}",
                "At the origin the slope is -(L-N)/(L(2N+1)) along xi (relative error of the closed form against "
                f"differences, the largest over cells of N and L; {about}).",
                largest(binary.SLOPE_ERROR.at(form=form)), where="section on the loss", at_most=0.0, tolerance=1e-6,
                **_headline(form, 1), kind="identity",
                reason="differences at 1e-3 in float64: their error is some 1e-7 of the slope",
            ),
            claim(
                f"critical_{form}",
                f"At L = N the slope of the origin is zero (largest entry over N; control: L > N, the cell "
                f"where it is smallest; {about}).",
                largest(binary.SADDLE_SLOPE.at(form=form)), where="Fig. A.4", at_most=0.0, tolerance=1e-10,
                **_headline(form, 2), control=least(binary.SLOPE.at(form=form)), kind="identity",
                reason="rounding of the loss, 1e-15, over the step of the differences, 1e-3",
            ),
            claim(
                f"saddle_{form}",
                "At L = N the origin is a strict saddle, of the closed-form rate (relative error against differences, "
                f"the largest over N; {about}).",
                largest(binary.SADDLE_RATE_ERROR.at(form=form)), where="Fig. A.4 (this lab)", at_most=0.0,
                tolerance=1e-4, kind="identity",
                reason="differences at 1e-3: rounding 1e-15 over 1e-6 and a curvature of some 1e-3 or more",
            ),
            claim(
                f"cliff_{form}",
                "From N = 4 on the shelf ends in a cliff: the loss falls from .9 to half of log N in at most a "
                f"twentieth of the time up to there (the longest over cells of N and L; {about}; the mean field has "
                ".053 at N = 3 and .120 at N = 2; control: from half to a tenth).",
                cliff_width(form), where="Fig. 7", at_most=0.05, control=foot_width(form),
                reason="much shorter than the wait; what is left after that falls as 1/t only",
            ),
            claim(
                f"narrowing_{form}",
                "The more pairs, the sharper the cliff: twice as many leave less than half of its width (the same "
                f"share, the largest ratio of neighbours; {about}; control: more labels).",
                narrowing(form), where="Fig. 7", at_most=0.5, control=narrowing_with_labels(form),
                reason="faster than 1/N; the shelf's length alone is N^(3/2)",
            ),
            *(
                claim(
                    f"wait_{axis}_{form}",
                    f"The wait grows with {'N' if axis == 'pairs' else 'N/L towards 1'} (ratio of neighbouring cells, "
                    f"the smallest; {about}; control: in units of its closed form for many pairs).",
                    grows(form, axis), where="section on the loss", at_least=1.001, control=grows(form, axis, True),
                    reason="an ordering of all neighbours; a thousandth is more than the error of the ODE solver",
                )
                for axis in ("pairs", "labels")
            ),
            claim(
                f"escape_{form}",
                "At L = N the escape time grows by 1/rate for each e-fold that the start is smaller, towards the right "
                f"label and away from it (farthest from 1, of N and sides; {about}).",
                escape_slope(form), where="Fig. A.4 (this lab)", near=1.0, tolerance=0.01,
                **_headline(form, 3), kind="identity",
                reason="exact as the start goes to zero; a power law would give the square of a thousand",
            ),
            claim(
                f"random_{form}",
                "From random starts of size .01 at L = N alpha + xi of the start predicts the escape time (ratio to "
                f"the prediction; {about}).",
                ratio(binary.RANDOM.at(form=form), binary.RANDOM_PREDICTED.at(form=form)), where="Fig. A.4 (this lab)",
                near=1.0, tolerance=0.02, interval="t", kind="identity",
                reason="beta_1 of the start moves the rate by about 1 %, either way",
            ),
        )
    ),
    *(
        claim(
            f"shelf_{form}",
            "At equal rates of the three logits the flow leaves the shelf before it has learned to answer with some "
            "label of the context, unlike the paper's slow phase, which goes down to log N: after nine tenths of the "
            "wait the loss has gone less than half of the way from log L to log N (the most over N, at L = 4N; "
            f"{about}; control: after 99 hundredths).",
            shelf_drop(form), where="Fig. 7 (this lab)", at_most=0.5, control=shelf_drop(form, 0.99),
            published=("shelf goes down to log N (1)", "Fig. 7"),
            reason="at equal rates of the three logits the way gone falls as (2N+1)^(-1/2)",
        )
        for form, about in FORMS.items()
    ),
    claim(
        "limit",
        "For many pairs the wait of the simplified form is (2 pi)^(1/4) (2N+1)^(3/2) (1-N/L)^(-1/2) (ratio at the "
        "largest N, farthest from 1 over L).",
        limit_ratio, where="section on the loss (this lab)", near=1.0, tolerance=0.03, kind="identity",
        reason="the first correction is of the order of 1/(2N+1), 1.5 % at N = 32",
    ),
    claim(
        "path",
        "On the flow of the simplified form alpha^2/2 - beta_1 - e^beta_1/(2N) is conserved (alpha over its closed "
        "form, less one, the largest along the path).",
        path_error, where="Fig. 7 (this lab)", near=0.0, tolerance=1e-5, kind="identity",
        reason="the tolerance of the ODE solver, 1e-8 a step",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Maps at L > N and L = N with the flow on them; the course of the loss, and the waits; the saddle."""
    waits = (drawn.course_panel, drawn.logits_panel, drawn.lengths_panel, drawn.factors_panel)
    return {
        "landscape": drawn.maps(record, binary.MAP, record.config["labels"]),
        "landscape_equal": drawn.maps(record, binary.EQUAL_MAP, record.config["context_length"]),
        "waits": side_by_side(record, *waits, columns=2),
        "saddle": side_by_side(record, drawn.plane_panel, drawn.escape_panel, drawn.random_panel),
    }
