"""Claims of ``landscape``: exact quantities, judged by their worst cell of a grid of N and L; and random starts."""

import numpy as np

from experiments.statistics import Statistic
from icl_lab.lab import Record, claims_of
from icl_lab.theory import balanced_alpha

FORMS = {"simplified": "simplified form", "mean_field": "mean field"}


def farthest(values: np.ndarray, expected: float) -> np.ndarray:
    """(1,) the value that is farthest from what is expected."""
    values = np.ravel(values)
    return values[[np.abs(values - expected).argmax()]]


def largest(name: str) -> Statistic:
    """Largest absolute value of an array of the record."""
    return lambda record: np.abs(record.arrays[name]).max()[None]


def least(name: str) -> Statistic:
    """Smallest, over cells, of the largest absolute value of an array (cells, ...) of the record."""
    return lambda record: np.abs(record.arrays[name]).reshape(len(record.arrays[name]), -1).max(axis=1).min()[None]


def cliff_width(form: str) -> Statistic:
    """Time from .9 to .5 of log N, of the time up to .9: the longest of all cells."""

    def statistic(record: Record) -> np.ndarray:
        top, middle = record.arrays[f"{form}/wait"]
        return ((middle - top) / top).max()[None]

    return statistic


def narrowing(form: str) -> Statistic:
    """Width of the cliff, the longest over L, at one N over that at the N before it: the largest over neighbours."""

    def statistic(record: Record) -> np.ndarray:
        top, middle = record.arrays[f"{form}/wait"]
        widths = ((middle - top) / top).max(axis=1)
        return (widths[1:] / widths[:-1]).max()[None]

    return statistic


def shelf_drop(form: str) -> Statistic:
    """Share of the way from log L to log N that the loss has gone at nine tenths of the wait, L = 4N: most over N."""

    def statistic(record: Record) -> np.ndarray:
        times, found = record.arrays[f"{form}/times"], []
        for n, loss in zip(record.config["lengths"], record.arrays[f"{form}/lengths_loss"]):
            wait = np.interp(-np.log(n) / 2, -loss, times)
            found.append((np.log(4 * n) - np.interp(0.9 * wait, times, loss)) / np.log(4))
        return np.max(found)[None]

    return statistic


def grows(form: str, axis: str) -> Statistic:
    """Ratio of the waits of neighbouring cells, more pairs over fewer, or fewer labels over more: the smallest."""

    def statistic(record: Record) -> np.ndarray:
        wait = record.arrays[f"{form}/wait"][1]
        return (wait[1:] / wait[:-1] if axis == "pairs" else wait[:, :-1] / wait[:, 1:]).min()[None]

    return statistic


def limit_ratio(record: Record) -> np.ndarray:
    """Wait of the simplified form over its closed form for many pairs, at the longest prompts: farthest from 1."""
    return farthest(record.arrays["simplified/wait"][1, -1] / record.arrays["wait_limit"][-1], 1.0)


def path_error(record: Record) -> np.ndarray:
    """alpha over its closed form in beta_1, less one, on the simplified flow once beta_1 is above .01: the largest."""
    beta_1, alpha, _ = record.arrays["simplified/path"].T
    beta_1, alpha = beta_1[beta_1 > 0.01], alpha[beta_1 > 0.01]
    return farthest(alpha / balanced_alpha(beta_1, record.config["context_length"]) - 1, 0.0)


def escape_slope(form: str) -> Statistic:
    """Growth of the escape time per e-fold of the start, in units of 1/rate, at the two smallest: farthest from 1."""

    def statistic(record: Record) -> np.ndarray:
        times, scales = record.arrays[f"{form}/escape"], record.config["scales"]
        folds = np.log(scales[-2] / scales[-1])
        slopes = (times[:, :, -1] - times[:, :, -2]) * record.arrays[f"{form}/rate"][:, None] / folds
        return farthest(slopes, 1.0)

    return statistic


def random_ratio(form: str) -> Statistic:
    """(M,) escape time of a random start over the prediction from the start."""
    return lambda record: record.arrays[f"{form}/random"] / record.arrays[f"{form}/random_predicted"]


_claim = claims_of("reddy.landscape", "Reddy 2023, ", interval="exact")


CLAIMS = (
    *(
        claim
        for form, about in FORMS.items()
        for claim in (
            _claim(
                f"slope_{form}", "section on the loss",
                "At the origin the slope is -(L-N)/(L(2N+1)) along xi (relative error of the closed form against "
                f"differences, the largest over cells of N and L; {about}).",
                largest(f"{form}/slope_error"), 0.0, 1e-6, relation="<=", kind="identity",
                reason="differences at 1e-3 in float64: their error is some 1e-7 of the slope",
            ),
            _claim(
                f"critical_{form}", "Fig. A.4",
                f"At L = N the slope of the origin is zero (largest entry over N; control: L > N, the cell "
                f"where it is smallest; {about}).",
                largest(f"{form}/saddle_slope"), 0.0, 1e-10, relation="<=", control=least(f"{form}/slope"),
                kind="identity",
                reason="rounding of the loss, 1e-15, over the step of the differences, 1e-3",
            ),
            _claim(
                f"saddle_{form}", "Fig. A.4 (this lab)",
                "At L = N the origin is a strict saddle, of the closed-form rate (relative error against differences, "
                f"the largest over N; {about}).",
                largest(f"{form}/saddle_rate_error"), 0.0, 1e-4, relation="<=", kind="identity",
                reason="differences at 1e-3: rounding 1e-15 over 1e-6 and a curvature of some 1e-3 or more",
            ),
            _claim(
                f"cliff_{form}", "Fig. 7",
                "From N = 4 on the shelf ends in a cliff: the loss falls from .9 to half of log N in at most a "
                f"twentieth of the time up to there (the longest over cells of N and L; {about}; the mean field has "
                ".053 at N = 3 and .120 at N = 2).",
                cliff_width(form), 0.05, 0.0, relation="<=",
                reason="much shorter than the wait; what is left after that falls as 1/t only",
            ),
            _claim(
                f"narrowing_{form}", "Fig. 7",
                "The more pairs, the sharper the cliff: twice as many leave less than half of its width (the same "
                f"share, the largest ratio of neighbours; {about}).",
                narrowing(form), 0.5, 0.0, relation="<=", reason="faster than 1/N; the shelf's length alone is N^(3/2)",
            ),
            *(
                _claim(
                    f"wait_{axis}_{form}", "section on the loss",
                    f"The wait grows with {'N' if axis == 'pairs' else 'N/L towards 1'} (ratio of neighbouring cells, "
                    f"the smallest; {about}).",
                    grows(form, axis), 1.001, 0.0, relation=">=",
                    reason="an ordering of all neighbours; a thousandth is more than the error of the ODE solver",
                )
                for axis in ("pairs", "labels")
            ),
            _claim(
                f"escape_{form}", "Fig. A.4 (this lab)",
                "At L = N the escape time grows by 1/rate for each e-fold that the start is smaller, towards the right "
                f"label and away from it (farthest from 1, of N and sides; {about}).",
                escape_slope(form), 1.0, 0.01, kind="identity",
                reason="exact as the start goes to zero; a power law would give the square of a thousand",
            ),
            _claim(
                f"random_{form}", "Fig. A.4 (this lab)",
                "From random starts of size .01 at L = N alpha + xi of the start predicts the escape time (ratio to "
                "the "
                f"prediction; {about}).",
                random_ratio(form), 1.0, 0.02, interval="t", kind="identity",
                reason="beta_1 of the start moves the rate by about 1 %, either way",
            ),
        )
    ),
    *(
        _claim(
            f"shelf_{form}", "Fig. 7 (this lab)",
            "At equal rates of the three logits the flow leaves the shelf before it has learned to answer with some "
            "label of the context, unlike the paper's slow phase, which goes down to log N: after nine tenths of the "
            "wait the loss has gone less than half of the way from log L to log N (the most over N, at L = 4N; "
            f"{about}).",
            shelf_drop(form), 0.5, 0.0, relation="<=",
            reason="at equal rates of the three logits the way gone falls as (2N+1)^(-1/2)",
        )
        for form, about in FORMS.items()
    ),
    _claim(
        "limit", "section on the loss (this lab)",
        "For many pairs the wait of the simplified form is (2 pi)^(1/4) (2N+1)^(3/2) (1-N/L)^(-1/2) (ratio at the "
        "largest N, farthest from 1 over L).",
        limit_ratio, 1.0, 0.03, kind="identity",
        reason="the first correction is of the order of 1/(2N+1), 1.5 % at N = 32",
    ),
    _claim(
        "path", "Fig. 7 (this lab)",
        "On the flow of the simplified form alpha^2/2 - beta_1 - e^beta_1/(2N) is conserved (alpha over its closed "
        "form, less one, the largest along the path).",
        path_error, 0.0, 1e-5, kind="identity", reason="the tolerance of the ODE solver, 1e-8 a step",
    ),
)  # fmt: skip
