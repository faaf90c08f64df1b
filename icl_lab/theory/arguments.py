"""What the closed forms of linear attention accept: covariances, matrices, prompt lengths and noise, checked."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


def checked_covariance(value: ArrayLike, name: str, *, semidefinite: bool = False, size: int | None = None) -> Matrix:
    """(D, D) float64 symmetric matrix, positive definite unless ``semidefinite``.

    Raises:
      ValueError: naming the argument, for what is not a finite symmetric matrix (relative tolerance 1e-5, the rounding
        of float32), is not positive, or has not ``size`` rows.
    """
    matrix = np.asarray(value, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be a square matrix (D, D), got shape {matrix.shape}")
    if size is not None and matrix.shape[0] != size:
        raise ValueError(f"{name} must be ({size}, {size}), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite")
    scale = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-5 * scale:
        raise ValueError(f"{name} must be symmetric")
    matrix = (matrix + matrix.T) / 2
    least = np.linalg.eigvalsh(matrix)[0]
    if semidefinite and least < -1e-6 * scale:
        raise ValueError(f"{name} must be positive semidefinite, its smallest eigenvalue is {least:g}")
    if not semidefinite and least <= 1e-12 * scale:
        raise ValueError(f"{name} must be positive definite, its smallest eigenvalue is {least:g}")
    return matrix


def checked_matrix(value: ArrayLike, name: str, size: int) -> Matrix:
    """(D, D) float64 finite matrix; ValueError naming the argument otherwise."""
    matrix = np.asarray(value, np.float64)
    if matrix.shape != (size, size) or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be a finite ({size}, {size}) matrix, got shape {matrix.shape}")
    return matrix


def checked_stack(value: ArrayLike, name: str, size: int | None = None) -> Matrix:
    """(..., D, D) float64 finite matrices; ValueError naming the argument otherwise."""
    stack = np.asarray(value, np.float64)
    square = stack.ndim >= 2 and stack.shape[-1] == stack.shape[-2] and size in (None, stack.shape[-1])
    if not square or not np.isfinite(stack).all():
        d = "D" if size is None else size
        raise ValueError(f"{name} must be finite and have shape (..., {d}, {d}), got {stack.shape}")
    return stack


def checked_vector(value: ArrayLike, name: str, size: int) -> Matrix:
    """(D,) float64 finite vector; ValueError naming the argument otherwise."""
    vector = np.asarray(value, np.float64)
    if vector.shape != (size,) or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be a finite ({size},) vector, got shape {vector.shape}")
    return vector


def check_length(value: float, name: str, *, infinite: bool = False) -> None:
    """ValueError naming the argument unless it is a number of examples >= 1 (infinity where a limit is meant)."""
    if not value >= 1 or (math.isinf(value) and not infinite):
        raise ValueError(f"{name} must be at least 1{' (or infinity)' if infinite else ''}, got {value}")


def check_noise(value: float) -> None:
    """ValueError naming ``label_noise`` unless it is a standard deviation >= 0."""
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"label_noise is a standard deviation: allowed is a finite number >= 0, got {value}")
