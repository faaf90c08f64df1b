"""An estimate and its 95 % interval over members: mean, share, median; and one value without chance."""

import math

import numpy as np

LEVEL = 0.95
MEDIAN_MEMBERS = math.ceil(1 - math.log2(1 - LEVEL))
"""Members from which on a median has an interval: all M lie on one side of it with probability 2^(1 - M)."""


def t_interval(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Mean over members and its 95 % t interval; with one member the interval is the whole line.

    Infinite values of one sign (a member that never gets there) leave the interval open on their side; its other end is
    that of the median: if most members are beyond a bound, the claim fails.
    """
    from scipy.special import stdtrit

    mean = float(values.mean())
    if values.size < 2:
        return mean, (-math.inf, math.inf)
    if not np.isfinite(values).all():
        low, high = median_interval(values)[1]
        return mean, (
            -math.inf if (values == -math.inf).any() else low,
            math.inf if (values == math.inf).any() else high,
        )
    if np.ptp(values) == 0:  # whose mean would be off by rounding
        return float(values[0]), (float(values[0]), float(values[0]))
    half = float(stdtrit(values.size - 1, 0.5 + LEVEL / 2) * values.std(ddof=1) / math.sqrt(values.size))
    return mean, (mean - half, mean + half)


def wilson_interval(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Fraction of members for which the statistic is 1, and its 95 % Wilson interval."""
    from scipy.special import ndtri

    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError("a fraction needs a statistic that is 0 or 1 for each member")
    members, share = values.size, float(values.mean())
    z = float(ndtri(0.5 + LEVEL / 2))
    centre = (2 * members * share + z**2) / (2 * (members + z**2))
    half = z / (2 * (members + z**2)) * math.sqrt(4 * members * share * (1 - share) + z**2)
    return share, (centre - half if share > 0 else 0.0, centre + half if share < 1 else 1.0)


def median_interval(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Median over members and its 95 % interval between order statistics; with too few members the whole line.

    The k-th smallest and the k-th largest of M values enclose it with probability 1 - 2 P(Bin(M, 1/2) < k); k is the
    largest for which that is 95 % or more (as in ``scipy.stats.quantile_test``).
    """
    from scipy.special import bdtr

    median, ordered = float(np.median(values)), np.sort(values)
    k = int((bdtr(np.arange(values.size), values.size, 0.5) < 0.5 - LEVEL / 2).sum())
    if k < 1:
        return median, (-math.inf, math.inf)
    return median, (float(ordered[k - 1]), float(ordered[-k]))


def exact_value(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The one value of a quantity without chance, and the interval that holds it alone."""
    if values.size != 1:
        raise ValueError(f"an exact quantity has one value, got {values.size}")
    return float(values[0]), (float(values[0]), float(values[0]))


INTERVALS = {"t": t_interval, "wilson": wilson_interval, "median": median_interval, "exact": exact_value}
