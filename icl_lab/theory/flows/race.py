"""Which minimum a small dense start of linear attention reaches: a race of two modes out of the origin (this lab).

Near the origin the loss is (1/2) tr Lam - u tr(Lam^2 U11) - u12^T Lam^2 u21: in the eigenbasis of Lam the amplitude
a = (u + tr(Lam^2 U11) / ||Lam^2||_F) / sqrt 2, which retrieves all of w, grows at rate ||Lam^2||_F, and the amplitudes
b_i = (u12 + u21)_i / sqrt 2, which read component i alone, at lam_i^2. Whichever reaches size one first suppresses the
others: a leads to the optimum, b_1 to ``spurious_point`` or, where that is a saddle, to what lies below it.
"""

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.theory.arguments import checked_covariance
from icl_lab.theory.flows.gradient_flow import StableManifoldWarning, gradient_flow
from icl_lab.theory.linear_attention.closed_forms import optimal_loss


def growth_rates(covariance: ArrayLike) -> tuple[float, NDArray[np.float64]]:
    """Rates of growth near the origin: ||Lam^2||_F of retrieval, lam_i^2 (D,) of each component, the largest first.

    Retrieval is always the faster: their ratio lam_1^2 / ||Lam^2||_F is D^-1/2 for a flat spectrum and nears 1 for a
    steep one.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite.
    """
    squares = np.linalg.eigvalsh(checked_covariance(covariance, "covariance"))[::-1] ** 2
    return float(np.linalg.norm(squares)), np.asarray(squares, np.float64)


def race_threshold(
    covariance: ArrayLike, context_length: ArrayLike, *, size: float = 1e-3, horizon: float = 1e5
) -> NDArray[np.float64]:
    """C (K,) such that a small start with amplitudes (a, b_1) ends at the optimum iff |b_1| < C |a|^rho.

    rho = lam_1^2 / ||Lam^2||_F. In the linear regime |b_1| / |a|^rho does not change, so that its value on the surface
    that parts the two basins is a constant of the distribution, found by flows from (a, b_1) = size (r^-1/2, r^1/2), r
    narrowed in three rounds to a relative accuracy of 2 %. Infinite where every r up to 10^4 ends at the optimum.

    Args:
      covariance: (K, D, D) one covariance for each distribution.
      context_length: N, or (K,).
      size: of the start; anything small gives the same.
      horizon: time at which a flow is judged, by whether its loss is within 10^-3 of the optimal one, of what there
        is to gain.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, N < 1, or no stack of covariances.
    """
    given = np.asarray(covariance, np.float64)
    if given.ndim != 3:
        raise ValueError(f"covariance must be a stack (K, D, D), got shape {given.shape}")
    count, dimension = given.shape[:2]
    lengths = np.broadcast_to(np.asarray(context_length), (count,))
    best = np.array([optimal_loss(one, n) for one, n in zip(given, lengths)])
    gain = np.trace(given, axis1=1, axis2=2) / 2 - best
    spectra = np.linalg.eigvalsh(given)[:, ::-1]
    squares = spectra**2 / np.linalg.norm(spectra**2, axis=1, keepdims=True)
    low, high, points = np.full(count, -4.0), np.full(count, 4.0), 21
    never = np.ones(count, bool)
    for _ in range(3):
        ratio = np.linspace(low, high, points, axis=1)  # (K, R) log10 of b / a
        a, b = (size * 10 ** (sign * ratio / 2) / 2**0.5 for sign in (-1, 1))
        direction = np.eye(dimension)[0] * b[..., None]
        start = {"u": a, "u11": a[..., None, None] * (squares[:, None, :, None] * np.eye(dimension)),
                 "u12": direction, "u21": direction}  # fmt: skip
        with warnings.catch_warnings():  # at the threshold a flow may rest between the basins
            warnings.simplefilter("ignore", StableManifoldWarning)
            flow = gradient_flow(
                {name: value.reshape(count * points, *value.shape[2:]) for name, value in start.items()},
                np.repeat([np.diag(one) for one in spectra], points, axis=0),
                np.repeat(lengths, points), horizon, rtol=1e-5, atol=1e-6 * size,
            )  # fmt: skip
        won = flow.loss[:, -1].reshape(count, points) - best[:, None] < 1e-3 * gain[:, None]
        first = np.where(won.all(axis=1), points - 1, np.argmin(won, axis=1))
        never &= won.all(axis=1)
        rows = np.arange(count)
        low, high = ratio[rows, np.maximum(first - 1, 0)], ratio[rows, first]
    middle = (low + high) / 2
    rho = squares[:, 0]
    return np.where(never, np.inf, size ** (1 - rho) * 10 ** (middle * (1 + rho) / 2))


def race_margin(
    start: Mapping[str, ArrayLike], covariance: ArrayLike, threshold: float
) -> NDArray[np.float64] | np.float64:
    """C |a|^rho / |b| of starts: above one, a small start ends at the optimum, whatever its other entries.

    Args:
      start: ``u`` (...), ``u11`` (..., D, D), ``u12`` and ``u21`` (..., D).
      covariance: (D, D) Lam.
      threshold: C of ``race_threshold``.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, or a threshold that is not positive.
    """
    lam = checked_covariance(covariance, "covariance")
    if not threshold > 0:
        raise ValueError(f"threshold must be positive, got {threshold}")
    rate, squares = growth_rates(lam)
    vectors = np.linalg.eigh(lam)[1][:, ::-1][:, : _ties(squares)]
    u, u11, u12, u21 = (np.asarray(start[name], np.float64) for name in ("u", "u11", "u12", "u21"))
    a = (u + np.sum(lam @ lam * u11, axis=(-2, -1)) / rate) / 2**0.5
    b = np.linalg.norm((u12 + u21) @ vectors, axis=-1) / 2**0.5
    return threshold * np.abs(a) ** (squares[0] / rate) / b


def _ties(squares: NDArray[np.float64]) -> int:
    """How many components grow as fast as the first."""
    return int(np.sum(squares > squares[0] * (1 - 1e-6)))


def race_probability(scale: ArrayLike, threshold: float, covariance: ArrayLike) -> NDArray[np.float64]:
    """Probability that a dense Gaussian start of a small scale reaches the optimum: P(chi_k < C s^(rho-1) |z|^rho).

    a and b_1 are Gaussian of standard deviation s; k is the multiplicity of lam_1 (to 1e-6), since the components of
    the largest eigenvalue grow together. Tends to one as s -> 0, as s^(1-rho): slower than any scale can show where
    the spectrum is steep, rho near 1, and the race is then a draw, (2/pi) atan C.

    Args:
      scale: s, standard deviation of every entry, any shape.
      threshold: C of ``race_threshold``.
      covariance: (D, D) Lam.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, or a scale or threshold not above 0.
    """
    rate, squares = growth_rates(covariance)
    s = np.asarray(scale, np.float64)
    if not (np.all(s > 0) and threshold > 0):
        raise ValueError(f"scale and threshold must be positive, got {scale!r} and {threshold}")
    if np.isinf(threshold):
        return np.ones_like(s)
    rho, ties = squares[0] / rate, _ties(squares)

    from scipy import integrate, stats

    def probability(one: float) -> float:
        def density(z: float) -> float:
            return 2 * stats.norm.pdf(z) * stats.chi.cdf(threshold * one ** (rho - 1) * z**rho, ties)

        return integrate.quad(density, 0, 12)[0]

    return np.vectorize(probability, otypes=[np.float64])(s)
