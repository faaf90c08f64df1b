"""Iterations on the in-context loss L(W) = 1/(2N) sum_i |W^T x_i - y_i|^2, all from W = 0; predictions are W^T x_q.

S = X^T X / N and B = X^T Y / N, so the gradient is S W - B.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import power_of_two, pseudo_inverse, spectrum
from icl_lab.prompts.naming import named_by_arguments
from icl_lab.prompts.prompt import Learner, Prompt, ShapeError, check_prompt
from icl_lab.prompts.tracing import check_number, is_traced, whole

NEWTON_STARTS = ("identity", "covariance")


@named_by_arguments
def nesterov(learning_rate: ArrayLike, momentum: ArrayLike, steps: int) -> Learner:
    """Nesterov's accelerated gradient: V = W + m (W - W_before), W <- V - eta dL/dW(V) (Nesterov 1983, m constant).

    Args:
      learning_rate: eta.
      momentum: m; 0 is gradient descent.
      steps: K.

    Raises:
      ValueError: for fewer than one step, or rates that are not one number each.
    """
    steps = whole("steps", steps)
    check_number("learning_rate", learning_rate, scalar=True)
    check_number("momentum", momentum, scalar=True)

    def solve(s: Array, b: Array) -> Array:
        before = w = jnp.zeros_like(b)
        for _ in range(steps):
            ahead = w + momentum * (w - before)
            before, w = w, ahead - learning_rate * (s @ ahead - b)
        return w

    return _of_moments(solve)


@named_by_arguments
def chebyshev(low: ArrayLike, high: ArrayLike, steps: int) -> Learner:
    """Chebyshev iteration: of all K-step polynomial methods the one with the smallest largest residual on [a, b].

    The residual factor of an eigenvalue l of S is T_K(z(l)) / T_K(z(0)), z(l) = (b + a - 2 l) / (b - a), by the
    three-term recurrence (Golub & Varga 1961; Saad, Iterative Methods, algorithm 12.1).

    Args:
      low: a, with 0 < a < b.
      high: b.
      steps: K.

    Raises:
      ValueError: for fewer than one step, or bounds that do not rise from above 0.
    """
    steps = whole("steps", steps)
    check_number("low", low, above=0, scalar=True)
    check_number("high", high, above=-np.inf if is_traced(low) else float(np.asarray(low)), scalar=True)

    def solve(s: Array, b: Array) -> Array:
        a, c = jnp.asarray(low, b.dtype), jnp.asarray(high, b.dtype)
        centre, half = (c + a) / 2, (c - a) / 2
        ratio = half / centre
        step = b / centre
        w, rho = step, ratio
        for _ in range(steps - 1):
            rho_next = 1 / (2 / ratio - rho)
            step = rho_next * rho * step + 2 * rho_next / half * (b - s @ w)
            w, rho = w + step, rho_next
        return w

    return _of_moments(solve)


@named_by_arguments
def newton(start: ArrayLike, steps: int, *, of: str = "identity", normalised: bool = False) -> Learner:
    """Least squares by Newton's iteration for the inverse, M <- M (2 I - S M); W = M B (Schulz 1933; Fu et al. 2023).

    From M = a I the residual factor is (1 - a l)^(2^K), that of 2^K steps of gradient descent; from M = a S it is
    (1 - a l^2)^(2^K).

    Args:
      start: a.
      steps: K.
      of: ``identity`` or ``covariance``: what M starts as a multiple of.
      normalised: a is in units of 1/l_max, or for ``covariance`` 1/l_max^2 (Fu et al. 2023), of each context.

    Raises:
      ValueError: for fewer than one step, another start, or an a that is not one number.
    """
    if of not in NEWTON_STARTS:
        raise ValueError(f"of must be one of {NEWTON_STARTS}, got {of!r}")
    check_number("start", start, scalar=True)
    steps = whole("steps", steps)

    def solve(s: Array, b: Array) -> Array:
        eye = jnp.eye(s.shape[0], dtype=s.dtype)
        top = spectrum(s)[0].max(initial=0) if normalised else jnp.ones((), s.dtype)
        top = jnp.where(top > 0, top, 1)  # inputs that are all zero
        shape = eye / top if of == "identity" else s / top / top  # top^2 and its inverse leave float32
        inverse = jnp.asarray(start, s.dtype) * shape
        for _ in range(steps):
            inverse = inverse @ (2 * eye - s @ inverse)
        return inverse @ b

    return _of_moments(solve, dual=True)


@named_by_arguments
def conjugate_gradients(steps: int) -> Learner:
    """K steps of conjugate gradients on S w = b, each output by itself (Hestenes & Stiefel 1952).

    Not linear in the labels: step lengths depend on them. Exact once K is the number of distinct eigenvalues. Where it
    is exact before the last step, derivatives are those of least squares (the steps left have none of their own).

    Raises:
      ValueError: for fewer than one step.
    """
    steps = whole("steps", steps)

    def one(s: Array, b: Array) -> Array:
        of_s, of_b = power_of_two(s), power_of_two(b)  # in these units nothing overflows or meets a floor
        return _conjugate_gradients(steps, s / of_s, b / of_b) * (of_b / of_s)

    return _of_moments(jax.vmap(one, (None, 1), 1))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _conjugate_gradients(steps: int, s: Array, b: Array) -> Array:
    return _descended(steps, s, b)[0]


@_conjugate_gradients.defjvp
def _conjugate_gradients_jvp(steps: int, at: tuple[Array, Array], moved: tuple[Array, Array]) -> tuple[Array, Array]:
    """Where S W = B is solved early, d(S W) = dB fixes dW but for the null space of S."""
    (s, _), (ds, db) = at, moved
    w, dw, solved = jax.jvp(partial(_descended, steps), at, moved, has_aux=True)
    return w, dw + jnp.where(solved, pseudo_inverse(s) @ (db - ds @ w - s @ dw), 0)


def _descended(steps: int, s: Array, b: Array) -> tuple[Array, Array]:
    """(D,) W after K steps, and whether it solves S W = B, to rounding, whatever the last of them does."""
    rounding = jnp.finfo(b.dtype).tiny + 10 * jnp.finfo(b.dtype).eps ** 2 * (b @ b)
    w, residual, direction = jnp.zeros_like(b), b, b
    for _ in range(steps):
        image, size = s @ direction, residual @ residual
        going = size > rounding  # solved: stay; with 1 below where it is not, gradients stay finite
        length = jnp.where(going, size / jnp.where(going, jnp.maximum(direction @ image, rounding), 1), 0)
        w, residual = w + length * direction, residual - length * image
        direction = residual + jnp.where(going, residual @ residual / jnp.where(going, size, 1), 0) * direction
    return w, (size <= 1000 * rounding) | (steps >= len(b))  # looser: steps on what rounding left come before it stays


@named_by_arguments
def gradient_flow(time: ArrayLike) -> Learner:
    """Gradient descent with infinitely small steps up to a time t: the residual factor is exp(-t l).

    Args:
      time: t, the sum of the learning rates.

    Raises:
      ValueError: for a time that is not one number.
    """
    check_number("time", time, scalar=True)
    return _of_moments(lambda s, b: _flow(s, b, jnp.asarray(time, s.dtype)), dual=True)


@jax.custom_jvp
def _flow(s: Array, b: Array, t: Array) -> Array:
    """h(S) B with h(l) = (1 - exp(-t l)) / l."""
    values, vectors = _spectrum(s)
    return vectors @ (_flow_factor(values, t)[:, None] * (vectors.T @ b))


@_flow.defjvp
def _flow_jvp(at: tuple[Array, Array, Array], moved: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """d h(S) = V (F * V^T dS V) V^T, with F the divided differences of h (Daleckii & Krein; Higham 2008, theorem 3.11).

    The derivative of eigenvectors, which equal eigenvalues do not have, is not needed.
    """
    (s, b, t), (ds, db, dt) = at, moved
    values, vectors = _spectrum(s)
    factor, turned = _flow_factor(values, t)[:, None], vectors.T @ b
    inner = _divided(values, t) * (vectors.T @ ds @ vectors) @ turned + factor * (vectors.T @ db)
    return vectors @ (factor * turned), vectors @ (inner + dt * jnp.exp(-t * values)[:, None] * turned)


def _spectrum(s: Array) -> tuple[Array, Array]:
    values, vectors = spectrum(s)
    return jnp.maximum(values, 0), vectors  # below 0 are rounding errors, which would grow with t


def _flow_factor(values: Array, t: Array) -> Array:
    small = jnp.abs(values * t) < jnp.finfo(values.dtype).eps ** 0.5  # two terms of the series are exact to rounding
    series = t * (1 - values * t / 2)
    return jnp.where(small, series, -jnp.expm1(-t * values) / jnp.where(small, 1, values))


def _divided(values: Array, t: Array) -> Array:
    """(D, D) (h(a) - h(b)) / (a - b), at a = b the derivative: (exp(-t b) h(a - b) - h(b)) / a, a the larger one."""
    a, b = jnp.maximum(values[:, None], values[None]), jnp.minimum(values[:, None], values[None])
    x, y = t * a, t * b
    small = jnp.abs(x) < jnp.finfo(values.dtype).eps ** 0.2  # four terms of the series are exact to rounding
    series = -(t**2) * (1 / 2 - (x + y) / 6 + (x**2 + x * y + y**2) / 24 - (x + y) * (x**2 + y**2) / 120)
    closed = (jnp.exp(-y) * _flow_factor(a - b, t) - _flow_factor(b, t)) / jnp.where(small, 1, a)
    return jnp.where(small, series, closed)


@named_by_arguments
def preconditioned_gradient_descent(preconditioner: Array, steps: int = 1) -> Learner:
    """W <- W - P dL/dW: gradient descent with a matrix for a learning rate.

    What one layer of linear attention learns where inputs are not isotropic (Ahn et al. 2023, theorem 1; Zhang, Frei &
    Bartlett 2023).

    Args:
      preconditioner: P (D, D).
      steps: K.

    Raises:
      ValueError: for fewer than one step.
      ShapeError: when it predicts, for a matrix of another size.
    """
    steps = whole("steps", steps)
    check_number("preconditioner", preconditioner)
    preconditioner = jnp.asarray(preconditioner)

    def solve(s: Array, b: Array) -> Array:
        if preconditioner.shape != s.shape:
            raise ShapeError(f"preconditioner must be {s.shape}, got {preconditioner.shape}")
        w = jnp.zeros_like(b)
        for _ in range(steps):
            w = w - preconditioner @ (s @ w - b)
        return w

    return _of_moments(solve)


def _of_moments(solve: Callable[[Array, Array], Array], dual: bool = False) -> Learner:
    """The learner that predicts W^T x_q with W (D, O) = solve(S, B).

    ``dual`` is for a solve that is a function h(S) of the matrix, times B, and multiplies what rounding leaves in its
    null space. With fewer examples than inputs S has one; then W = X^T h(X X^T / N) Y / N, which is the same.
    """

    def predict(prompt: Prompt) -> Array:
        n, d, _ = check_prompt(prompt)
        if n == 0:  # nothing to learn from: W stays 0
            return jnp.zeros(prompt.y.shape[1], prompt.y.dtype)
        if dual and n < d:
            return prompt.x_query @ prompt.x.T @ solve(prompt.x @ prompt.x.T / n, prompt.y / n)
        return prompt.x_query @ solve(prompt.x.T @ prompt.x / n, prompt.x.T @ prompt.y / n)

    return predict
