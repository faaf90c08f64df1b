"""The phenomenological loss of induction-head learning: three logits, each inside the next, and its origin.

The setting of Reddy 2023 (equations 7-9), N item-label pairs of distinct labels out of L, the target's item among them
once, contents orthonormal, items without spread. ``beta_1`` is the logit with which layer 1 attends to the previous
token, ``alpha`` that with which layer 2 attends where the target's item was written, ``xi`` that of the read-out. The
two forms are reconstructions from what the paper says of its loss, working definitions, whose origin the paper
describes: critical if and only if L = N. What follows from them here is derived (this lab).

At the origin both forms are log L with gradient (0, 0, -(L - N)/(L T)), T = 2N + 1, and the Hessian has two entries,

    k = N (L - N) / (L T)^2  along xi,     h < 0  between alpha and xi (``nested_logit_hessian``).

So at L = N the origin is a strict saddle, with eigenvalues h, -h and, along beta_1, zero: the loss is log N wherever
alpha or xi is zero, and beta_1 = any, alpha = xi = 0 is a line of such saddles. A start of size s leaves it in the time
log(1/s)/|h| + constant: a logarithm, not a power, since the saddle is of second order.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import sigmoid
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike, NDArray

FORMS = ("simplified", "mean_field")


def nested_logit_loss(
    beta_1: ArrayLike, alpha: ArrayLike, xi: ArrayLike, *, context_length: int, labels: int
) -> NDArray[np.float64] | np.float64:
    """log[1 + (N-1) exp(-xi (p+ - p-)) + (L-N) exp(-xi p+)]: the simplified form, one for every position.

    p+ = e^(alpha c) / (e^(alpha c) + 2N) is the attention to the right label, p- = 1 / (e^(alpha c) + 2N) that to any
    other token, c = 1 / (1 + 2N e^(-beta_1)) the weight of layer 1 on the previous token (Reddy 2023, equations 7-9;
    reconstructed).

    Args:
      beta_1: logit of layer 1, any shape.
      alpha: logit of layer 2.
      xi: logit of the read-out.
      context_length: N.
      labels: L.

    Returns:
      float64; the three logits broadcast.

    Raises:
      ValueError: naming the argument, for logits that are not finite, N < 1, L < N or not whole.
    """
    return _evaluated("simplified", (beta_1, alpha, xi), context_length, labels)


def mean_field_loss(
    beta_1: ArrayLike, alpha: ArrayLike, xi: ArrayLike, *, context_length: int, labels: int
) -> NDArray[np.float64] | np.float64:
    """The same of the reduced induction-head model itself, averaged over the place of the matched pair (this lab).

    The exact mean field: layer 1 of token j attends to the previous token with e^(beta_1) / (e^(beta_1) + j - 1) and to
    each other token up to itself with 1 / (e^(beta_1) + j - 1); the overlap of its buffer with the target is its weight
    on the matched item, at the target itself also that on itself; layer 2 is a softmax of alpha times the overlaps
    over all T tokens; the logit of a context label is xi times the attention to it, that of another label zero. It is
    the loss of ``ReducedInduction`` with beta_2 = 0, orthonormal contents and a linear read-out.

    Arguments, return and errors as ``nested_logit_loss``.
    """
    return _evaluated("mean_field", (beta_1, alpha, xi), context_length, labels)


def nested_logit_gradient(context_length: int, labels: int) -> NDArray[np.float64]:
    """(3,) gradient at the origin, in the order beta_1, alpha, xi: (0, 0, -(L-N) / (L (2N+1))), in both forms.

    Reddy 2023: the origin is critical only at L = N. Errors as ``nested_logit_loss``.
    """
    check_sizes(context_length, labels)
    tokens = 2 * context_length + 1
    return np.array([0.0, 0.0, -(labels - context_length) / (labels * tokens)])


def nested_logit_hessian(context_length: int, labels: int, form: str = "simplified") -> NDArray[np.float64]:
    """(3, 3) Hessian at the origin, in the order beta_1, alpha, xi (this lab).

    Its entries are k = N (L-N) / (L T)^2 along xi and h between alpha and xi, T = 2N + 1:

        simplified   h = -[(N-1) T + 2N (L-N)] / (L T^3),
        mean_field   h = [(1/2 - N s) / L - H_N / (2N) + s] / T,   s = [sum_i (i/(2i-1) + 1/2) / N + 2/T] / T,

    with the harmonic number H_N; s is the mean overlap of a token with the target. At L = N they are
    -(N-1) / (N T^2) and -(H_N - 1) / (2 N T). One pair (N = L = 1) leaves nothing to choose, and h = 0.

    Args:
      context_length: N.
      labels: L.
      form: ``simplified`` or ``mean_field``.

    Raises:
      ValueError: as ``nested_logit_loss``, or for an unknown form.
    """
    check_sizes(context_length, labels)
    check_form(form)
    n, tokens = context_length, 2 * context_length + 1
    if form == "simplified":
        mixed = -((n - 1) * tokens + 2 * n * (labels - n)) / (labels * tokens**3)
    else:
        i = np.arange(1, n + 1)
        overlap = ((i / (2 * i - 1) + 0.5).mean() + 2 / tokens) / tokens
        mixed = ((0.5 - n * overlap) / labels - (1 / i).sum() / (2 * n) + overlap) / tokens
    hessian = np.zeros((3, 3))
    hessian[1, 2] = hessian[2, 1] = mixed
    hessian[2, 2] = n * (labels - n) / (labels * tokens) ** 2
    return hessian


def check_sizes(context_length: int, labels: int) -> None:
    """ValueError naming the argument unless N >= 1 and L >= N are whole numbers."""
    for name, value, least in (("context_length", context_length, 1), ("labels", labels, context_length)):
        if not np.isfinite(value) or value != int(value) or value < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, got {value}")


def check_form(form: str) -> None:
    """ValueError for an unknown form of the loss."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, got {form!r}")


def checked_logits(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """float64 finite logits; ValueError naming the argument otherwise."""
    logits = np.asarray(values, np.float64)
    if not np.isfinite(logits).all():
        raise ValueError(f"{name} must be finite, got {values!r}")
    return logits


def room(form: str, n: int) -> int:
    """Pairs that a program of the mean field has room for, a power of two, so that many N share it; none are needed for
    the simplified form.
    """
    return max(8, 2 ** (int(n) - 1).bit_length()) if form == "mean_field" else 0


def loss_of(form: str, pairs: int):
    """``((3,) logits, N, L) -> ()`` loss of one form in JAX; N and L may be traced, N at most ``pairs``."""
    return _simplified if form == "simplified" else lambda logits, n, labels: _mean_field(logits, n, labels, pairs)


def _simplified(logits: Array, n: Array, labels: Array) -> Array:
    beta_1, alpha, xi = logits
    others = jnp.log(2.0 * n)
    previous = sigmoid(beta_1 - others)
    right = sigmoid(alpha * previous - others)
    other = sigmoid(others - alpha * previous) / (2 * n)
    exponents = jnp.stack([jnp.zeros_like(xi), -xi * (right - other), -xi * right])
    return logsumexp(exponents, b=jnp.stack([jnp.ones_like(xi), n - 1.0, labels - n]))


def _mean_field(logits: Array, n: Array, labels: Array, pairs: int) -> Array:
    beta_1, alpha, xi = logits
    j = jnp.arange(1, 2 * pairs + 2)[None]  # (1, tokens), counted from 1 as in the paper
    m = jnp.arange(1, pairs + 1)[:, None]  # (pairs, 1) the matched pair, its item token 2m - 1
    last = 2 * n + 1
    count = jnp.log(jnp.maximum(j - 1.0, 1.0))
    previous = sigmoid(beta_1 - count)
    other = jnp.where(j == 1, 1.0, sigmoid(count - beta_1) / jnp.maximum(j - 1, 1))
    overlap = jnp.where(j == 2 * m, previous, jnp.where(j >= 2 * m - 1, other, 0.0)) + jnp.where(j == last, other, 0.0)
    scores = jnp.where(j <= last, alpha * overlap, -jnp.inf)
    seen = jax.nn.softmax(scores, axis=1)[:, 1::2]  # (pairs, pairs) attention to each label
    matched = jnp.diagonal(seen)[:, None]
    exponents = jnp.concatenate([xi * (seen - matched), -xi * matched], axis=1)
    weights = jnp.concatenate([(n >= m.T) & (m > 0), jnp.zeros_like(m, bool)], axis=1).astype(xi.dtype)
    weights = weights.at[:, -1].set(labels - n)
    losses = logsumexp(exponents, b=weights, axis=1)
    return jnp.where(m[:, 0] <= n, losses, 0.0).sum() / n


def _evaluated(form: str, logits: tuple[ArrayLike, ...], n: int, labels: int) -> NDArray[np.float64] | np.float64:
    check_sizes(n, labels)
    named = zip(("beta_1", "alpha", "xi"), logits)
    grid = np.stack(np.broadcast_arrays(*(checked_logits(value, name) for name, value in named)), axis=-1)
    with jax.enable_x64(True):
        losses = _program(form, room(form, n))(grid.reshape(-1, 3), float(n), float(labels))
        return np.asarray(losses).reshape(grid.shape[:-1])[()]


@functools.cache
def _program(form: str, pairs: int):
    return jax.jit(jax.vmap(loss_of(form, pairs), in_axes=(0, None, None)))
