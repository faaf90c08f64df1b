"""What the population gradient flow descends: losses of linear attention in the eigenbasis of the covariance.

The population losses are covariant under rotations, x -> Q^T x, U11 -> Q^T U11 Q, vectors -> Q^T v, so that the flow
runs where Lam is diagonal. There no loss needs a product of matrices, which is what makes thousands of flows cheap on a
CPU. All losses are half mean squared errors, for JAX, one member each, in whatever precision the arrays have.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, checked_covariance


class Law(NamedTuple):
    """The distribution of the prompts: eigenvalues of the covariance (D,) and context length N, a scalar."""

    eigenvalues: Array
    context_length: Array


def retrieval_loss(a: Array, law: Law) -> Array:
    """L(A) of ``population_loss``, for A (D, D) in the eigenbasis (Zhang, Frei & Bartlett 2023, section 5)."""
    lam, n = law
    gam = (1 + 1 / n) * lam + lam.sum() / n
    fit = jnp.sum((gam * lam)[:, None] * lam[None, :] * a**2)
    return 0.5 * fit - jnp.sum(lam**2 * jnp.diagonal(a)) + 0.5 * lam.sum()


def merged_loss(params: Mapping[str, Array], law: Law) -> Array:
    """Loss of merged keys and queries, A = sum_h u_h U11_h: ``u`` () and ``u11`` (D, D), or with an axis of heads."""
    return retrieval_loss(jnp.tensordot(params["u"], params["u11"], axes=params["u"].ndim), law)


def separate_loss(params: Mapping[str, Array], law: Law) -> Array:
    """Loss of separate keys and queries of rank R, A = sum_hr value_h key_hr query_hr^T (Zhang et al. 2025).

    ``value`` (H,), ``key`` and ``query`` (H, R, D).
    """
    return retrieval_loss(jnp.einsum("h,hri,hrj->ij", params["value"], params["key"], params["query"]), law)


def blocks_loss(params: Mapping[str, Array], law: Law) -> Array:
    """Loss with every block that matters (``theory.block_loss``, of which this is the form for a diagonal Lam).

    The part of the prediction that is even in w, beside the merged prediction at A = u U11 + u12 u21^T, costs half of

        sum_i lam_i [h^2 + p^2/N + k^2/N^2 + 2 g (tr(Lam) h + (2/N) p') + (1 + 2/N)(tr(Lam)^2 + 2 tr Lam^2) g^2]_i
        + (u12^T Lam u12) sum_ij lam_i lam_j [U_ij^2 / N + (U_ij + U_ji)^2 / (2 N^2)],   g = u u21,

    p = U^T Lam u12, k = p + U Lam u12, h = p + (k + tr(U Lam) u12)/N, p' = U^T Lam^2 u12 and U = U11.
    """
    lam, n = law
    u, u11, u12, u21 = (params[name] for name in ("u", "u11", "u12", "u21"))
    trace, seen, gate = lam.sum(), lam * u12, u * u21
    p = seen @ u11
    k = p + u11 @ seen
    h = p + (k + jnp.sum(lam * jnp.diagonal(u11)) * u12) / n
    square = (1 + 2 / n) * (trace**2 + 2 * jnp.sum(lam**2))
    crossed = 2 * gate * (trace * h + 2 / n * ((lam * seen) @ u11))
    linear = h**2 + p**2 / n + (k / n) ** 2 + crossed + square * gate**2
    pairs = lam[:, None] * lam[None, :] * (u11**2 / n + (u11 + u11.T) ** 2 / (2 * n**2))
    even = jnp.sum(lam * linear) + jnp.sum(seen * u12) * jnp.sum(pairs)
    return retrieval_loss(u * u11 + u12[:, None] * u21[None, :], law) + 0.5 * even


class Parametrisation(NamedTuple):
    """One way to write the layer.

    Attributes:
      shapes: letters of each parameter's axes: d input, h head, r rank.
      loss: ``(params, law) -> loss``.
    """

    shapes: Mapping[str, str]
    loss: Callable[[Mapping[str, Array], Law], Array]


PARAMETRISATIONS = (
    Parametrisation({"u": "", "u11": "dd"}, merged_loss),
    Parametrisation({"u": "h", "u11": "hdd"}, merged_loss),
    Parametrisation({"u": "", "u11": "dd", "u12": "d", "u21": "d"}, blocks_loss),
    Parametrisation({"value": "h", "key": "hrd", "query": "hrd"}, separate_loss),
)


def parametrisation_of(arrays: Mapping[str, Matrix]) -> tuple[Parametrisation, int, int]:
    """The parametrisation that these arrays are, its number of members and D."""
    for kind in PARAMETRISATIONS:
        if kind.shapes.keys() != arrays.keys() or any(arrays[k].ndim != 1 + len(s) for k, s in kind.shapes.items()):
            continue
        sizes: dict[str, int] = {}
        for name, letters in kind.shapes.items():
            for letter, length in zip("m" + letters, arrays[name].shape):
                if sizes.setdefault(letter, length) != length or length < 1:
                    raise ValueError(f"start: {name} has shape {arrays[name].shape}, which does not fit the others")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"start: {name} must be finite")
        return kind, sizes["m"], sizes["d"]
    allowed = "; ".join(", ".join(f"{k} (m{s})" for k, s in kind.shapes.items()) for kind in PARAMETRISATIONS)
    given = ", ".join(f"{name} {value.shape}" for name, value in arrays.items())
    raise ValueError(f"start is no parametrisation: got {given}; allowed is one of: {allowed}")


def eigenbases(covariance: ArrayLike, members: int, size: int) -> tuple[Matrix, Matrix]:
    """Eigenvalues (M, D), from the largest down, and eigenvectors (M, D, D) as columns."""
    given = np.asarray(covariance, np.float64)
    stack = given if given.ndim == 3 else given[None]
    if stack.shape[0] not in (1, members):
        raise ValueError(f"covariance must be (D, D) or one for each of {members} members, got shape {given.shape}")
    values, vectors = np.linalg.eigh(np.stack([checked_covariance(one, "covariance", size=size) for one in stack]))
    return (
        np.broadcast_to(values[:, ::-1], (members, size)),
        np.broadcast_to(vectors[:, :, ::-1], (members, size, size)),
    )


def turn(value: Matrix, bases: Matrix, letters: str) -> Matrix:
    """Each axis of size D times the member's basis: coordinates in the columns of ``bases``."""
    for axis, letter in enumerate(letters, start=1):
        if letter == "d":
            last = np.moveaxis(value, axis, -1)
            turned = last.reshape(len(bases), -1, bases.shape[1]) @ bases
            value = np.moveaxis(turned.reshape(last.shape), -1, axis)
    return value
