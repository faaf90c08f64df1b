"""Steps of gradient descent in L layers with one rate (looped) or a rate each (free), on noiseless linear regression.

With S = X^T X / N of a context of N inputs x ~ N(0, I_D), w ~ N(0, I) and a query outside S, layers of rates a_j leave

    MSE / D = E p(l)^2,   p(l) = prod_j (1 - a_j l),

the mean over the eigenvalues l of S, each with weight 1/D. It is a polynomial in the rates, and what it needs of S are
the moments E tr S^k / D, k <= 2L, which are exact (``gram_moments``). A *spectrum* is a pair (nodes, weights), any law
of l; ``gram_spectrum`` is that of S as far as a given degree sees it. Inputs of another covariance C with
w ~ N(0, C^-1) are the same problem after whitening. (Loops: Gatmiry et al. 2024; layers: Ahn et al. 2023; exact
moments, free optimum and saddle: this lab.)
"""

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.prompts.tracing import check_number, check_sizes, whole

Floats = NDArray[np.float64]
Spectrum = tuple[Floats, Floats]


def gram_moments(context_length: int, input_size: int, order: int) -> list[Fraction]:
    """[E tr S^k / D for k = 0 .. order], exact. For W = N S and F a product of traces tr W^q Stein's lemma gives

        E tr(W^k) F = (N + k - 1) E tr(W^(k-1)) F + sum_(m=0)^(k-2) E tr(W^(m+1)) tr(W^(k-2-m)) F
                      + sum_q 2 q E tr(W^(k+q-1)) F / tr(W^q).

    So E tr S^2 / D = (N + D + 1) / N. ValueError for sizes N, D or an order below 1.
    """
    n, d, order = check_sizes(context_length=context_length, input_size=input_size, order=order)

    @functools.cache
    def mean(powers: tuple[int, ...]) -> int:
        if not powers:
            return 1
        k, rest = powers[0], powers[1:]

        def of(new: Sequence[int], rest: tuple[int, ...] = rest) -> int:
            return d ** new.count(0) * mean(tuple(sorted((*filter(None, new), *rest), reverse=True)))

        total = (n + k - 1) * of([k - 1]) + sum(of([m + 1, k - 2 - m]) for m in range(k - 1))
        return total + sum(2 * q * of([k + q - 1], rest[:i] + rest[i + 1 :]) for i, q in enumerate(rest))

    return [Fraction(1), *(Fraction(mean((k,)), d * n**k) for k in range(1, order + 1))]


def gram_spectrum(context_length: int, input_size: int, degree: int) -> Spectrum:
    """(nodes, weights) with sum weights f(nodes) = E tr f(S) / D for polynomials f of this degree: Gauss's rule.

    Its Jacobi matrix comes from ``gram_moments`` by Chebyshev's algorithm in fractions (Gautschi 2004, section 2.1).
    L layers of gradient descent need the degree 2L. ValueError for sizes N, D or a degree below 1.
    """
    count = whole("degree", degree) // 2 + 1
    moments = gram_moments(context_length, input_size, 2 * count - 1)
    before, now = [Fraction(0)] * (2 * count), moments
    centres, sizes = [moments[1]], [Fraction(1)]
    for j in range(1, count):
        after = [Fraction(0)] * (2 * count)
        for k in range(j, 2 * count - j):
            after[k] = now[k + 1] - centres[-1] * now[k] - sizes[-1] * before[k]
        centres.append(after[j + 1] / after[j] - now[j] / now[j - 1])
        sizes.append(after[j] / now[j - 1])
        before, now = now, after
    return _gauss([float(c) for c in centres], np.sqrt([float(size) for size in sizes[1:]]))


def marchenko_pastur(ratio: float, degree: int) -> Spectrum:
    """(nodes, weights): ``gram_spectrum`` in the limit of many inputs N and dimensions D with N / D = ratio.

    Gauss's rule of the law of Marchenko and Pastur: with c = 1 / ratio its Jacobi matrix has 1, 1 + c, 1 + c, ... and
    beside them c^(1/2). So the best L free layers leave 1 / (1 + ratio + ... + ratio^L), and at ratio 1, where the law
    is that of 2 - 2 x for x of density (1 + x) (1 - x^2)^(-1/2) / pi, looped ones have the rate 1/2 at every depth and
    leave E x^(2L) = binom(2L, L) / 4^L. ValueError for a ratio that is not positive or a degree below 1.
    """
    count = whole("degree", degree) // 2 + 1
    check_number("ratio", ratio, above=0)
    return _gauss(np.append(1.0, np.full(count - 1, 1 + 1 / ratio)), np.full(count - 1, ratio**-0.5))


def power_spectrum(modes: int, decay: float, task_decay: float) -> Spectrum:
    """(nodes, weights): l_k = k^-decay, and the share of task power l_k E w_k^2 ~ k^-(decay task_decay + 1).

    Infinitely long prompts, each turned by its own rotation (Bordelon, Letey & Pehlevan 2025). L layers leave

        looped: L^-task_decay,    free: L^-(task_decay (2 + decay)),

    of the loss of none, up to constants, while far fewer layers than modes: a step reaches l above 1 / L. Free layers
    spend half of their zeros on the L / 2 largest l, and those of a Chebyshev polynomial on [0, L^-decay] reach
    l above L^-(2 + decay). (On a continuous law they reach L^-2 only.) ValueError for no mode, or an exponent that is
    not positive.
    """
    modes = whole("modes", modes)
    check_number("decay", decay, above=0)
    check_number("task_decay", task_decay, above=0)
    k = np.arange(1.0, modes + 1)
    weights = k ** -(decay * task_decay + 1)
    return k**-decay, weights / weights.sum()


def depth_error(rates: ArrayLike, spectrum: Spectrum) -> Floats:
    """(...) MSE / D of layers with rates (..., L)."""
    return _without(rates, spectrum) ** 2 @ spectrum[1]


def depth_gradient(rates: ArrayLike, spectrum: Spectrum) -> Floats:
    """(..., L) its derivatives, -2 E l (1 - a_j l) prod_(i != j) (1 - a_i l)^2."""
    (nodes, weights), all_of = spectrum, _without(rates, spectrum)
    terms = [all_of * _without(rates, spectrum, j) @ (weights * nodes) for j in range(np.shape(rates)[-1])]
    return -2 * np.stack(terms, axis=-1)


def depth_hessian(rates: ArrayLike, spectrum: Spectrum) -> Floats:
    """(L, L) second derivatives at rates (L,): 2 E l^2 p_i^2 where i = j, else 4 E l^2 p p_ij; p_i lacks factor i.

    At equal rates a, with c = E l^2 (1 - a l)^(2L - 2), these are 2 c and 4 c. The eigenvalues are (4 L - 2) c along
    the equal rates and, L - 1 times, **-2 c**: for every spectrum the best equal rates are a strict saddle if L >= 2.
    """
    (nodes, weights), size = spectrum, range(np.shape(rates)[-1])

    def entry(i: int, j: int) -> Floats:
        if i == j:
            return 2 * _without(rates, spectrum, i) ** 2
        return 4 * _without(rates, spectrum) * _without(rates, spectrum, i, j)

    return np.array([[entry(i, j) @ (weights * nodes**2) for j in size] for i in size])


def saddle_curvature(rate: float, layers: int, spectrum: Spectrum) -> float:
    """-2 E l^2 (1 - a l)^(2L - 2): curvature of ``depth_error`` at L equal rates a across them (``depth_hessian``).

    Gradient descent at the step b leaves equal rates as (1 - b curvature)^t.
    """
    nodes, weights = spectrum
    return float(-2 * (1 - rate * nodes) ** (2 * layers - 2) @ (weights * nodes**2))


def looped_rate(layers: int, spectrum: Spectrum) -> float:
    """The best one rate of L layers: the root of E l (1 - a l)^(2L - 1), which falls in a.

    For L = 1 it is N / (N + D + 1), with the error (D + 1) / (N + D + 1). ValueError for no layer.
    """
    from scipy.optimize import brentq  # scipy takes long to import

    layers, (nodes, weights) = whole("layers", layers), spectrum
    slope, high = lambda a: (1 - a * nodes) ** (2 * layers - 1) @ (weights * nodes), 1 / nodes.max()
    while slope(high) > 0:  # from 1 / min l, where it is negative, powers would overflow
        high *= 2
    return float(brentq(slope, 0.0, high, xtol=1e-15))


def free_rates(layers: int, spectrum: Spectrum) -> Floats:
    """(L,) the best rates of L layers, the largest first: 1 / zeros of the orthogonal polynomial of the law l d(law).

    Of all p with p(0) = 1, E p^2 is least where E p l q = 0 for all q of degree below L. The zeros are real, positive
    and all different, so that this minimum is one over rates, in any order. By Lanczos's algorithm. ValueError for no
    layer, or at least as many as there are nodes above 0.
    """
    layers, (nodes, weights) = whole("layers", layers), spectrum
    _fewer(layers, nodes[nodes > 0], " above 0")
    centres, off = _lanczos((nodes, weights * nodes), layers)
    return 1 / np.linalg.eigvalsh(_tridiagonal(centres, off[:-1]))


def free_errors(layers: int, spectrum: Spectrum) -> Floats:
    """(L + 1,) MSE / D of the best 0, 1, ... L free layers: 1 / sum_(j <= L) pi_j(0)^2, pi orthonormal in the law.

    The least E p^2 of p(0) = 1 (Christoffel's function at 0): p = sum_j c_j pi_j has E p^2 = |c|^2 and p(0) = c.pi(0),
    so Schwarz's inequality gives it. By Lanczos's algorithm, in time L^2 nodes and memory L nodes, for millions of
    them. ValueError for no layer, or at least as many as there are nodes.
    """
    layers = whole("layers", layers)
    _fewer(layers, spectrum[0])
    centres, off = _lanczos(spectrum, layers)
    values = [1.0, -centres[0] / off[0]]
    for j in range(1, layers):
        values.append(-(centres[j] * values[-1] + off[j - 1] * values[-2]) / off[j])
    return 1 / np.cumsum(np.square(values))


def _fewer(layers: int, nodes: Floats, which: str = "") -> None:
    if layers >= nodes.size:
        raise ValueError(f"layers must be fewer than the {nodes.size} nodes{which}, got {layers}")


def _lanczos(spectrum: Spectrum, degree: int) -> tuple[Floats, Floats]:
    """Jacobi coefficients a_0 .. a_(n-1) and b_1 .. b_n of a law (of any mass), with full reorthogonalisation."""
    nodes, weights = spectrum
    basis, centres, off = np.empty((degree + 1, nodes.size)), np.empty(degree), np.empty(degree)
    basis[0] = np.sqrt(weights / weights.sum())
    for j in range(degree):
        new = nodes * basis[j]
        centres[j] = new @ basis[j]
        for _ in range(2):  # twice is enough
            new -= (basis[: j + 1] @ new) @ basis[: j + 1]
        off[j] = np.linalg.norm(new)
        basis[j + 1] = new / off[j]
    return centres, off


def _tridiagonal(centres: ArrayLike, off: ArrayLike) -> Floats:
    return np.diag(centres) + np.diag(off, 1) + np.diag(off, -1)


def _gauss(centres: ArrayLike, off: ArrayLike) -> Spectrum:
    """Gauss's rule of a Jacobi matrix of mass 1."""
    nodes, vectors = np.linalg.eigh(_tridiagonal(centres, off))
    return nodes, vectors[0] ** 2


def _without(rates: ArrayLike, spectrum: Spectrum, *left_out: int) -> Floats:
    """(..., nodes) prod_j (1 - a_j l) without some factors."""
    kept = np.delete(np.asarray(rates, np.float64), left_out, axis=-1)
    return np.prod(1 - kept[..., None] * spectrum[0], axis=-2)
