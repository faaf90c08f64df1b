"""SGD around an optimum of linear attention at a finite learning rate: its gradients, and where u drifts (this lab).

The layer of Zhang, Frei & Bartlett 2023 with u12 = u21 = 0 and u U11 = Gam^-1 is optimal at every u. There a prompt's
gradient is e J, e the error and J the derivative of the prediction, so that the Hessian is H = E J J^T and the noise of
a batch of B prompts C / B, C = E e^2 J J^T. Around the optimum the weights fluctuate with the covariance S that solves
S = (1 - eta H) S (1 - eta H) + eta^2 C / B, and in the eigenbasis of H the gradient of a batch has

    E g_a g_b = (C_ab / B) (1 + eta h_a h_b / (h_a + h_b - eta h_a h_b)),

the noise itself as eta h -> 0, twice as much at eta h = 1, and without bound at eta h = 2, the edge of stability. The
balance b = |r|^2 - |K|_F^2 changes by eta^2 (|g_r|^2 - |g_K|^2) a step (``balance``), and u along the optima with it.
At small u the largest curvature is that of u, about tr(Lam^2 Gam^-1) / u^2; at large u that of u21, u^2 m2 Lam: SGD of
rate eta keeps u between two edges, and near either of them drifts much faster than its noise alone would tell.

In the eigenbasis of Lam everything splits by parity: u with the diagonal of U11; the other entries of U11; u12_i with
u21_i. Exact as B -> infinity at fixed eta; of the next order in 1 / B only the noise of u21, which has the heaviest
tail, is kept: what E (w^T Shat w)^4 adds where u21 is not zero. Measured (D = 5, N = 20, u = .25, eta = .02): B times
the drift is 914 +- 19 at B = 512, predicted 952, by the noise alone 366. Use it from B = 128 on, and no nearer than 3 %
to ``resting_scale`` for the sign: at eta = .03 and B = 64 SGD raises u = .416, where it predicts a fall to .411.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, checked_covariance
from icl_lab.theory.flows.balance import PREDICTION, quiet_scale, with_squared_error
from icl_lab.theory.linear_attention.closed_forms import gamma
from icl_lab.theory.linear_attention.prompt_moments import Polynomial, combined, evaluate, mean_of_chains


class Moments(NamedTuple):
    """E J J^T (index 0) and E e^2 J J^T (index 1) of one prompt at the optimum with u = 1, in the eigenbasis of Lam."""

    even: Matrix  # (2, D + 1, D + 1) of u and the diagonal of U11
    apart: Matrix  # (2, D, D) of U11_ij alone, i != j (zero on the diagonal)
    odd: Matrix  # (2, D, 2, 2) of (u12_i, u21_i)
    kurtosis: Matrix  # (D, D) what variances v_j of u21 add to the noise of u21_i


def optimum_moments(covariance: ArrayLike, context_length: int) -> Moments:
    """The second moments of one prompt's derivatives and gradients at the optimum with u = 1; at another u the
    derivative by r = (u12; u) is divided by u, that by K = (U11; u21^T) multiplied.

    Raises:
      ValueError: naming the argument, for a covariance that is not symmetric positive definite, or N < 1.
    """
    lam = np.diag(np.linalg.eigvalsh(checked_covariance(covariance, "covariance")))
    check_length(context_length, "context_length")
    given = {"L": lam, "A": np.linalg.inv(gamma(lam, context_length))}
    units = [np.diag(row) for row in np.eye(len(lam))]

    def value(polynomial: Polynomial, **letters: Matrix) -> float:
        return evaluate(polynomial, context_length, **given, **letters)

    blocks: list[list[Matrix]] = [[], [], []]
    for squared in (False, True):
        of = _polynomials(squared)
        both = [[(value(of["11"], F=f, G=g), value(of["apart"], F=f, G=g)) for g in units] for f in units]
        diagonal, off_diagonal = np.moveaxis(np.array(both), -1, 0)
        mixed = np.array([value(of["u1"], F=f) for f in units])
        blocks[0].append(np.block([[np.array([[value(of["uu"])]]), mixed[None]], [mixed[:, None], diagonal]]))
        blocks[1].append(off_diagonal * (1 - np.eye(len(lam))))
        names = (("rr", "rk"), ("rk", "kk"))
        blocks[2].append(np.array([[[value(of[name], F=f) for name in row] for row in names] for f in units]))
    label = ("w", "S", "w")
    m2, m4 = (value(mean_of_chains(*[label] * k)) for k in (2, 4))
    l = lam.diagonal()  # noqa: E741
    kurtosis = m4 * (np.outer(l, l) + 2 * np.diag(l**2)) - np.diag((m2 * l) ** 2)
    even, apart, odd = (np.stack(pair) for pair in blocks)
    return Moments(even, apart, odd, kurtosis)


@functools.cache
def _polynomials(squared: bool) -> dict[str, Polynomial]:
    """E J J^T, or with e^2, of u ("u"), U11 ("1"), u12 ("r") and u21 ("k"); F and G pick entries."""
    mean = with_squared_error if squared else mean_of_chains
    label, bent = ("w", "S", "w"), ("q", "A", "q")
    one, other, query = ("w", "S", "F", "q"), ("w", "S", "G", "q"), ("q", "F", "q")
    turned = ("q", "F", "S", "A", "q")
    return {
        "uu": mean(PREDICTION, PREDICTION),
        "u1": mean(PREDICTION, one),
        "11": mean(one, other),
        "apart": mean(("w", "S", "F", "S", "w"), ("q", "G", "q")),
        "rr": combined(
            (1, 0, mean(("q", "T", "S", "F", "S", "A", "q"))), (2, -1, mean(turned, bent)),
            (1, -2, mean(bent, bent, query)),
        ),
        "rk": combined((1, 0, mean(turned, label)), (1, -1, mean(bent, query, label))),
        "kk": mean(label, label, query),
    }  # fmt: skip


def curvatures(moments: Moments, u: float) -> Matrix:
    """Eigenvalues of the Hessian at the optimum with this u along u and U11, ascending: first 0, that of a change of u
    at a fixed product.
    """
    d = len(moments.kurtosis)
    apart = (u**2 * moments.apart[0])[~np.eye(d, dtype=bool)]
    return np.sort(np.concatenate([np.linalg.eigvalsh(moments.even[0] * _scaled(u, d)), apart]))


def stable(moments: Moments, u: float, learning_rate: float, batch: float) -> bool:
    """Whether SGD can stay at the optimum with this u: its fluctuations there are finite."""
    even = np.linalg.eigvalsh(moments.even[0] * _scaled(u, len(moments.kurtosis)))[-1]
    apart = u**2 * moments.apart[0].max()
    odd = np.abs(np.linalg.eigvals(_odd_step(moments, u, learning_rate, batch))).max()
    return bool(learning_rate * max(even, apart) < 2 and odd < 1)


def _scaled(u: float, count: int) -> Matrix:
    """(count + 1, count + 1) factors at u of moments of one entry of r and ``count`` entries of K."""
    factors = np.array([1 / u] + [u] * count)
    return np.outer(factors, factors)


def _odd_step(moments: Moments, u: float, rate: float, batch: float) -> Matrix:
    """(4D, 4D) how one step moves the covariances of (u12_i, u21_i)."""
    d = len(moments.kurtosis)
    step = np.zeros((d, 4, d, 4))
    for i, h in enumerate(moments.odd[0] * _scaled(u, 1)):
        step[i, :, i] = np.kron(np.eye(2) - rate * h, np.eye(2) - rate * h)
    step[:, 3, :, 3] += (rate * u**2) ** 2 / batch * moments.kurtosis
    return step.reshape(4 * d, 4 * d)


def balance_drift(moments: Moments, u: float, learning_rate: float, batch: float) -> float:
    """B E(|g_r|^2 - |g_K|^2) of a batch's gradient g around the optimum with this u, its fluctuations at rest.

    ``gradient_moments`` gives it for eta -> 0: R / u^2 - u^2 Q. The change of b a step is eta^2 / B times this.

    Args:
      moments: those of ``optimum_moments``.
      u: positive, at which ``stable``; elsewhere the value means nothing.
      learning_rate: eta.
      batch: B prompts.
    """
    d, eta = len(moments.kurtosis), learning_rate
    hessian, noise = moments.even * _scaled(u, d)
    h, vectors = np.linalg.eigh(hessian)
    both, sums = np.outer(h, h), h[:, None] + h[None]
    apart = sums - eta * both  # zero for the scale itself, along which a batch has no gradient
    louder = 1 + eta * both / np.where(np.abs(apart) > 1e-9 * h[-1], apart, np.inf)
    even = (vectors @ (vectors.T @ noise @ vectors * louder) @ vectors.T).diagonal()
    others = (u**2 * moments.apart[1] / (1 - eta * u**2 * moments.apart[0] / 2)).sum()
    hessian, noise = moments.odd * _scaled(u, 1)
    step = _odd_step(moments, u, eta, batch)
    fluctuations = np.linalg.solve(np.eye(4 * d) - step, eta**2 / batch * noise.ravel()).reshape(d, 2, 2)
    odd = batch * hessian @ fluctuations @ hessian + noise
    odd[:, 1, 1] += u**4 * moments.kurtosis @ fluctuations[:, 1, 1]
    return float(2 * even[0] - even.sum() - others + (odd[:, 0, 0] - odd[:, 1, 1]).sum())


def scale_course(
    times: Sequence[float] | np.ndarray,
    u: float,
    covariance: ArrayLike,
    context_length: int,
    learning_rate: float,
    batch: float,
) -> np.ndarray:
    """u over flow time eta * step of SGD that starts at the optimum, U11 = Gam^-1 / u.

    With kappa^2 = |Gam^-1|_F^2 the balance is b = u^2 - kappa^2 / u^2, and db/dt = (eta / B) ``balance_drift``: exact
    as B -> infinity at fixed eta, once the fluctuations have come to rest. As eta -> 0 it is a function of eta / B.

    Args:
      times: (T,) ascending, from 0 or later.
      u: at time 0, positive.
      covariance: (D, D) Lam.
      context_length: N.
      learning_rate: eta.
      batch: B prompts.

    Returns:
      (T,) float64.

    Raises:
      ValueError: as ``optimum_moments``; unless u and eta are positive, B at least 1 and u between the edges.
      RuntimeError: where the solver gives up.
    """
    from scipy.integrate import solve_ivp

    moments = optimum_moments(covariance, context_length)
    check_length(batch, "batch")
    if not (u > 0 and learning_rate > 0 and stable(moments, u, learning_rate, batch)):
        raise ValueError(
            f"u and learning_rate must be positive and SGD stable there, got u = {u} and learning_rate = "
            f"{learning_rate}; allowed are smaller rates, and u nearer to that of least gradient noise"
        )
    kappa = (np.linalg.inv(gamma(covariance, context_length)) ** 2).sum()

    def velocity(_: float, v: np.ndarray) -> np.ndarray:  # of v = u^2
        drift = balance_drift(moments, math.sqrt(v[0]), learning_rate, batch)
        return learning_rate / batch * drift / (1 + kappa / v**2)

    times = np.asarray(times, np.float64)
    course = solve_ivp(velocity, (0.0, max(float(times[-1]), 1e-300)), [u**2], "LSODA", times, rtol=1e-8, atol=1e-12)
    if not course.success:
        raise RuntimeError(f"the course of u was not found: {course.message}")
    return np.sqrt(course.y[0])


def resting_scale(covariance: ArrayLike, context_length: int, learning_rate: float, batch: float) -> float:
    """u at which ``balance_drift`` vanishes: where SGD of this rate and batch ends; ``quiet_scale`` as eta -> 0.

    Raises:
      ValueError: as ``optimum_moments``; where the rate is so large that SGD is stable at no u around.
    """
    from scipy.optimize import brentq

    moments, middle = optimum_moments(covariance, context_length), quiet_scale(covariance, context_length)
    us = [u for u in middle * np.geomspace(0.25, 4, 101) if stable(moments, u, learning_rate, batch)]
    drifts = [balance_drift(moments, u, learning_rate, batch) for u in us]
    if not us or not drifts[0] > 0 > drifts[-1]:
        raise ValueError(f"learning_rate must leave SGD stable around u = {middle:.3g}, got {learning_rate}")
    return float(brentq(lambda u: balance_drift(moments, u, learning_rate, batch), us[0], us[-1]))
