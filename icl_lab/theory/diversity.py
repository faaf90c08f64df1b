"""Linear attention fitted by ridge regression to prompts of k tasks: its error on tasks that it has not seen.

x ~ N(0, I/d), tasks w ~ N(0, C), labels y = w.x + e with E e^2 = rho. The reduced model predicts <G, H> for

    H = x_q h^T,   h = [(d/l) sum_i y_i x_i,  (1/l) sum_i y_i^2],

d (d + 1) features, so that its fit to n prompts is linear regression in closed form. In the limit of large d, with
l = alpha d examples a prompt, k = kappa d tasks in training and n = tau d^2 prompts, h is the task plus noise of
variance nu = (tr C / d + rho) / alpha a coordinate, and the last feature is a constant, which counts for nothing. (Lu
et al. 2025; covariances of the tasks: Letey et al. 2026.)

*Derivation* (this lab; it gives their formula for tau > 1). With S = (1/k) sum w w^T of the tasks in training, the
features have the covariance (I/d) x A, A = S + nu, and the labels' best fit is S A^-1. A ridge zeta that is left of the
fit, which is 0 for tau > 1 and has (1/d) tr A (A + zeta)^-1 = tau for tau < 1 (fewer prompts than features: the least
of all fits), makes that G = S R = 1 - v R with R = (S + v)^-1, v = nu + zeta. Its errors on tasks seen and unseen are

    L = rho + v^2 M - v^3 M2 + nu s,   L' = rho + v^2 tr(C' R^2)/d + nu' s,   s = 1 - 2 v M + v^2 M2,

M = tr R / d, M2 = tr R^2 / d, and C', nu' of the tasks at test. With a = (1 - 2 zeta M + zeta^2 M2) / tau, the sampling
of prompts makes them

    seen: L / (1 - a),   unseen: L' + L / (1 - a) [tr(C' (R - zeta R^2))/d + nu' (M - zeta M2)] / tau.

R and R^2 are those of a sample covariance: Silverstein's fixed point (``task_resolvent``).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.prompts.tracing import check_number
from icl_lab.theory.arguments import checked_covariance

Floats = NDArray[np.float64]


class Resolvent(NamedTuple):
    """What (S + v)^-1 and its square are in the limit, in the basis of C, and their mean eigenvalues."""

    first: Floats
    second: Floats
    mean: float
    mean_square: float


class DiversityError(NamedTuple):
    """Mean squared errors of a noisy label, on new prompts of the tasks in training and of new tasks."""

    seen: float
    unseen: float


def task_resolvent(covariance: ArrayLike, diversity: float, shift: float) -> Resolvent:
    """(S + v)^-1 and (S + v)^-2 for S = (1/k) sum w w^T of k = kappa d tasks w ~ N(0, C), in the limit of large d.

    R = (c C + v)^-1 with c = 1 - (1 - v M) / kappa and M = tr R / d (Silverstein & Bai 1995), which has one root, and
    R^2 = -dR/dv = R [((M - v M2) / kappa) C + 1] R with M2 = tr R^2 / d, which is linear in M2. For C = I this is the
    law of Marchenko and Pastur: v M^2 / kappa + (v + 1 - 1 / kappa) M = 1.

    Args:
      covariance: (D, D) C, positive semidefinite, not 0.
      diversity: kappa above 0; infinity is S = C.
      shift: v above 0.

    Raises:
      ValueError: naming the argument that is not allowed.
    """
    c = _checked(covariance, "covariance")
    _check_infinite(diversity=diversity)
    check_number("shift", shift, above=0, scalar=True)
    values, basis = np.linalg.eigh(c)
    first, second = _resolvent(np.maximum(values, 0.0), diversity, shift)
    return Resolvent((basis * first) @ basis.T, (basis * second) @ basis.T, float(first.mean()), float(second.mean()))


def diversity_error(
    train: ArrayLike, test: ArrayLike | None = None, *, context: float, diversity: float, prompts: float,
    noise_variance: float,
) -> DiversityError:  # fmt: skip
    """Errors of linear attention that is fitted to n prompts of k tasks, ridge to 0, in the limit of large d.

    Formulas: this module. For tau > 1 ``unseen`` is rho + (r'/alpha) (1 + (g - 2 nu) M + nu^2 M2) + g tr(C' R)/d
    + nu^2 tr(C' R^2)/d with g = (rho + nu - nu^2 M) / (tau - 1) and r' = tr C'/d + rho (Lu et al. 2025; Letey et al.
    2026). D, the size of the matrices, only says how finely they show the limiting spectrum: for C = I it may be 1.

    Args:
      train: (D, D) C of the tasks in training, positive semidefinite, not 0.
      test: (D, D) C' of the tasks at test, None: ``train``.
      context: alpha, examples of a prompt over d.
      diversity: kappa, tasks in training over d; may be infinite.
      prompts: tau, prompts in training over d^2, not 1, where the error is infinite; may be infinite.
      noise_variance: rho.

    Raises:
      ValueError: naming the argument that is not allowed.
    """
    c = _checked(train, "train")
    d = len(c)
    c_test = c if test is None else _checked(test, "test", d)
    check_number("context", context, above=0, scalar=True)
    check_number("noise_variance", noise_variance, at_least=0, scalar=True)
    _check_infinite(diversity=diversity, prompts=prompts)
    if prompts == 1:
        raise ValueError(f"prompts must not be 1, where the error is infinite, got {prompts}")
    rho, tau = noise_variance, prompts
    nu, nu_test = ((np.trace(matrix) / d + rho) / context for matrix in (c, c_test))
    values, basis = np.linalg.eigh(c)
    values, aimed = np.maximum(values, 0.0), np.einsum("ji,jk,ki->i", basis, c_test, basis)  # C' in the basis of C
    zeta = 0.0 if tau > 1 else _left_ridge(values, diversity, nu, tau)
    v = nu + zeta
    first, second = _resolvent(values, diversity, v)
    m, m2 = first.mean(), second.mean()
    shrunk = 1 - 2 * v * m + v**2 * m2
    seen = (rho + v**2 * m - v**3 * m2 + nu * shrunk) / (1 - (1 - 2 * zeta * m + zeta**2 * m2) / tau)
    sampled = (aimed @ (first - zeta * second) / d + nu_test * (m - zeta * m2)) / tau
    unseen = rho + v**2 * (aimed @ second) / d + nu_test * shrunk + seen * sampled
    return DiversityError(float(seen), float(unseen))


def _resolvent(values: Floats, diversity: float, shift: float) -> tuple[Floats, Floats]:
    """(D,) eigenvalues of R and of R^2 for those of C. With u = v / c, R = 1 / (c (l + u)): a root of what falls in u.

    c = 1 - (1/kappa) mean l / (l + u) gives v = u - (u/kappa) mean l / (l + u), which rises in u wherever it is above
    0; its root lies between v and v + mean l / kappa.
    """
    from scipy.optimize import brentq  # scipy takes long to import

    if math.isinf(diversity):
        first = 1 / (values + shift)
        return first, first**2

    def left(u: float) -> float:
        return u - u / diversity * float(np.mean(values / (values + u))) - shift

    u = brentq(left, shift, (shift + values.mean() / diversity) * (1 + 1e-12), xtol=1e-300, rtol=1e-15)
    first = u / shift / (values + u)
    m = first.mean()
    tilt = np.mean(values * first**2) / diversity
    m2 = (np.mean(first**2) + m * tilt) / (1 + shift * tilt)
    return first, first**2 * ((m - shift * m2) / diversity * values + 1)


def _left_ridge(values: Floats, diversity: float, nu: float, tau: float) -> float:
    """zeta with (1/d) tr A (A + zeta)^-1 = 1 - zeta M(nu + zeta) = tau, which falls in zeta from 1 to 0."""
    from scipy.optimize import brentq

    def left(zeta: float) -> float:
        return 1 - zeta * float(_resolvent(values, diversity, nu + zeta)[0].mean()) - tau

    high = nu + values.max()
    while left(high) > 0:
        high *= 2
    return brentq(left, 0.0, high, xtol=1e-300, rtol=1e-14)


def _check_infinite(**arguments: float) -> None:
    """ValueError naming the argument that is no number above 0; infinity is one."""
    for name, value in arguments.items():
        if value is None or value != math.inf:
            check_number(name, value, above=0, scalar=True)


def _checked(value: ArrayLike, name: str, size: int | None = None) -> Floats:
    """(D, D) positive semidefinite and not 0."""
    matrix = checked_covariance(value, name, semidefinite=True, size=size)
    if not np.trace(matrix) > 0:
        raise ValueError(f"{name} must not be 0 throughout, got trace 0")
    return matrix
