"""How minibatch noise breaks the balance that gradient flow conserves (this lab).

With r = (u12; u) and K = (U11; u21^T) the layer of Zhang, Frei & Bartlett 2023 predicts r^T (E E^T / N) K x_q, on every
prompt the same for (c r, K / c). So on every batch <r, g_r> = <K, g_K> for the gradient, and one step of SGD with rate
eta changes the balance b = |r|^2 - |K|_F^2 by

    b' - b = eta^2 (|g_r|^2 - |g_K|^2)   exactly:

the flow conserves b (u^2 - |U11|_F^2 of the paper), population gradient descent moves it by a first-order error, which
ends with the gradient, and a batch of B prompts by noise, which does not. At the optimum u U11 = Gam^-1, per flow time,

    db/dt = (eta / B) (R / u^2 - u^2 Q),   R / u^2 = E |g_r|^2 and u^2 Q = E |g_K|^2 of one prompt,

as eta -> 0, a function of eta / B alone; at a finite rate the weights fluctuate around the optimum, which adds to the
gradients of r and of K (``fluctuations``). Of the equivalent weights SGD drifts to those with the least total gradient
noise, u^4 = R / Q, far below the balanced u^4 = |Gam^-1|_F^2: the layer is deeper than it looks, Q carries
(w^T Shat w)^2.

That part of Q sits in u21, a block the population flow never enters. A batch has there the Hessian u^2 times the mean
of (w^T Shat w)^2 x_q x_q^T, on average H = u^2 m2 Lam with m2 = E (w^T Shat w)^2 = (1 + 2/N) (tr(Lam)^2 + 2 tr Lam^2),
the largest curvature of all. In the eigenbasis of Lam the variances v of u21 obey, with m4 = E (w^T Shat w)^4, exactly
for u12 = 0 and everything else at the optimum,

    v' = v - 2 eta h v + eta^2 E g^2,
    E g_i^2 = (1 - 1/B) h_i^2 v_i + (u^4 m4 / B) (2 lam_i^2 v_i + lam_i sum_j lam_j v_j) + u^2 c_i / B,

c_i the directions' shares of that part of Q. At rest E |g_u21|^2 = (2 / eta) sum_i h_i v_i, more than the u^2 Q / B of
u21 = 0, and without bound where eta reaches ``edge_rate``, about 2 / h_1 and less for small batches: SGD cannot stay at
the u of the flow unless its rate is below that.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, checked_covariance, checked_matrix
from icl_lab.theory.linear_attention.closed_forms import gamma, optimum
from icl_lab.theory.linear_attention.prompt_moments import Chain, Polynomial, combined, evaluate, mean_of_chains

REFRESHED = 0.02  # relative change of the weights after which ``mean_field`` computes the noise anew
NEAR_EDGE = 0.999  # share of the edge at which ``mean_field`` keeps the noise of u21, to leave it finite

PREDICTION = ("w", "S", "A", "q")
"""h^T A x_q as a chain."""


def gradient_moments(
    a: ArrayLike, covariance: ArrayLike, context_length: int, spread: ArrayLike | None = None
) -> tuple[float, float]:
    """R and Q: E|g_r|^2 = R / u^2 and E|g_K|^2 = u^2 Q for the gradient of one prompt at A = u U11, u12 = u21 = 0.

    With e = h^T A x_q - <w, x_q>, h = Shat w, Gaussian inputs and tasks, exact for any A,

        R = E e^2 (|Shat A x_q + x_q (x_q^T A x_q) / N|^2 + (w^T Shat A x_q)^2),
        Q = E e^2 (|h|^2 |x_q|^2 + (w^T Shat w)^2 x_q^T F x_q).

    Args:
      a: (D, D) A.
      covariance: (D, D) Lam.
      context_length: N.
      spread: (D, D) symmetric F, None for the identity.

    Raises:
      ValueError: naming the argument, for a covariance that is not symmetric positive definite, N < 1, or shapes that
        do not fit.
    """
    lam = checked_covariance(covariance, "covariance")
    check_length(context_length, "context_length")
    a = checked_matrix(a, "a", len(lam))
    f = np.eye(len(lam)) if spread is None else checked_matrix(spread, "spread", len(lam))
    return _moments(a, lam, context_length, f)


def edge_rate(u: ArrayLike, covariance: ArrayLike, context_length: int, batch: float = math.inf) -> np.ndarray:
    """The learning rate from which the variance of u21 grows at every step of SGD, so that it cannot stay at u.

    2 / (u^2 rho), rho the largest eigenvalue of m2 Lam (1 - 1/B) + (m4 / (m2 B)) (2 Lam + l l^T) in the eigenbasis of
    Lam, l_i = lam_i^(1/2). Population gradient descent can stay: it keeps u21 = 0. Read the other way, SGD of rate eta
    keeps u below sqrt(edge_rate(1) / eta).

    Args:
      u: any shape.
      covariance: (D, D) Lam.
      context_length: N.
      batch: B; infinity gives 2 / h_1.

    Raises:
      ValueError: as ``gradient_moments``, or for B < 1.
    """
    lam = checked_covariance(covariance, "covariance")
    check_length(context_length, "context_length")
    check_length(batch, "batch", infinite=True)
    h, growth = _label_dynamics(np.linalg.eigvalsh(lam), context_length, batch)
    return 2 / (np.asarray(u, np.float64) ** 2 * np.linalg.eigvalsh(growth / np.sqrt(np.outer(h, h)))[-1])


def quiet_scale(covariance: ArrayLike, context_length: int) -> float:
    """u = (R / Q)^(1/4) to which SGD of small rate drifts: of all u with u U11 = Gam^-1 that of least gradient noise.

    Errors as ``gradient_moments``.
    """
    r, q = gradient_moments(optimum(covariance, context_length), covariance, context_length)
    return (r / q) ** 0.25


def mean_field(
    u11: ArrayLike,
    u: float,
    covariance: ArrayLike,
    context_length: int,
    rates: Sequence[float] | np.ndarray,
    batch: float,
    every: int,
) -> dict[str, np.ndarray]:
    """SGD from u12 = u21 = 0 without its fluctuations but with what they do to the balance, step by step.

    A step of population gradient descent, then the scale (u, U11) -> (c u, U11 / c) that adds to b the mean of
    eta^2 (|g_r|^2 - |g_K|^2) over the batch's noise, u21 at rest (at the edge of stability, just below it). What r and
    U11 add by fluctuating is left out: of the order of eta tr(Lam^2 Gam^-1) / u^2, 7 % of |g_r|^2 where SGD ends.
    ``batch=math.inf`` is population gradient descent itself.

    Args:
      u11: (D, D) at the start.
      u: at the start, positive.
      covariance: (D, D) Lam.
      context_length: N.
      rates: learning rate of every step.
      batch: B prompts, at least 1.
      every: steps between what is returned; divides their number.

    Returns:
      ``u`` (T,), ``balance`` (T,), ``product`` (T, D, D) at the steps 0, every, 2 every, ..

    Raises:
      ValueError: as ``gradient_moments``; for u not positive, B < 1, or steps that ``every`` does not divide.
    """
    lam = checked_covariance(covariance, "covariance")
    matrix = checked_matrix(u11, "u11", len(lam))
    if not u > 0 or every < 1 or len(rates) % every:
        raise ValueError(f"u must be positive and every divide {len(rates)}, got {u} and {every}")
    edge = float(edge_rate(1.0, lam, context_length, batch))  # of eta u^2
    gam_lam, squared = gamma(lam, context_length) @ lam, lam @ lam

    values, vectors = np.linalg.eigh(lam)
    h, growth = _label_dynamics(values, context_length, batch)
    rows, weights, noise, seen = [], np.append(matrix, u), (0.0, 0.0), np.zeros(matrix.size + 1)
    for step, eta in enumerate([*rates, 0.0]):
        u, matrix = float(weights[-1]), weights[:-1].reshape(matrix.shape)
        if step % every == 0:
            rows.append((u, u**2 - (matrix**2).sum(), u * matrix))
        if np.linalg.norm(weights - seen) > REFRESHED * np.linalg.norm(weights) or step % every == 0:
            louder = _label_noise(min(eta * u**2, NEAR_EDGE * edge), h, growth)
            noise = _moments(u * matrix, lam, context_length, vectors * louder @ vectors.T)
            seen = weights
        g_u = u * ((gam_lam @ matrix @ lam) * matrix).sum() - (squared * matrix).sum()
        g_matrix = u**2 * gam_lam @ matrix @ lam - u * squared
        spread = noise[0] / u**2 - g_u**2 - u**2 * noise[1] + (g_matrix**2).sum()
        u, matrix = u - eta * g_u, matrix - eta * g_matrix
        size = (matrix**2).sum()
        balance = u**2 - size + eta**2 * spread / batch
        scale = np.sqrt((balance + np.sqrt(balance**2 + 4 * u**2 * size)) / 2) / u
        weights = np.append(matrix / scale, u * scale)
    us, balances, products = zip(*rows)
    return {"u": np.array(us), "balance": np.array(balances), "product": np.stack(products)}


def _label_dynamics(values: np.ndarray, n: float, batch: float) -> tuple[np.ndarray, np.ndarray]:
    """h (D,) and P (D, D) of v' = v - 2 eta u^2 h v + eta^2 u^4 P v, for the variances of u21 in the eigenbasis."""
    lam, label = np.diag(values), ("w", "S", "w")
    m2, m4 = (evaluate(mean_of_chains(*[label] * k), n, L=lam) for k in (2, 4))
    h = m2 * values
    return h, (1 - 1 / batch) * np.diag(h**2) + m4 / batch * (2 * lam**2 + np.outer(values, values))


def _label_noise(rate: float, h: np.ndarray, growth: np.ndarray) -> np.ndarray:
    """(D,) f by which c_i is louder at rest: E |g_u21|^2 = (u^2 / B) sum_i c_i f_i; ``rate`` is eta u^2."""
    return np.linalg.solve(np.diag(h) - rate / 2 * growth, h)


def with_squared_error(*chains: Chain) -> Polynomial:
    """Mean of a product of chains times the squared error of one prompt."""
    answer = ("w", "q")
    pairs = ((PREDICTION, PREDICTION), (PREDICTION, answer), (answer, answer))
    return combined(*((factor, 0, mean_of_chains(*pair, *chains)) for factor, pair in zip((1, -2, 1), pairs)))


def _moments(a: Matrix, lam: Matrix, n: float, f: Matrix) -> tuple[float, float]:
    r, q = _polynomials()
    return evaluate(r, n, L=lam, A=a), evaluate(q, n, L=lam, A=a, F=f)


@functools.cache
def _polynomials() -> tuple[Polynomial, Polynomial]:
    """R and Q of ``gradient_moments``."""
    bent = ("q", "A", "q")
    r = combined(
        (1, 0, with_squared_error(("q", "T", "S", "S", "A", "q"))),
        (2, -1, with_squared_error(("q", "S", "A", "q"), bent)),
        (1, -2, with_squared_error(bent, bent, ("q", "q"))),
        (1, 0, with_squared_error(PREDICTION, PREDICTION)),
    )
    q = combined(
        (1, 0, with_squared_error(("w", "S", "S", "w"), ("q", "q"))),
        (1, 0, with_squared_error(("w", "S", "w"), ("w", "S", "w"), ("q", "F", "q"))),
    )
    return r, q
