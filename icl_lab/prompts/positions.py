"""Positional encodings: one row a token."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sinusoidal_positions(tokens: int, size: int) -> Floats:
    """sin(t w_i) in channel 2i and cos(t w_i) in channel 2i + 1, with w_i = 10000^(-2i / size).

    Vaswani et al. 2017, section 3.5; von Oswald et al. 2022, section 5. A shift by one token is a rotation of these
    channels, so a head can look for the next token. The fastest turns by one radian a token: whether t is even is no
    linear function of them, so a head that does it for x-tokens does it for y-tokens as well.

    Returns:
      (tokens, size) float64.

    Raises:
      ValueError: for a size that is odd or below 2.
    """
    if size < 2 or size % 2:
        raise ValueError(f"sinusoidal positions need an even position_size of at least 2, got {size}")
    angles = np.arange(tokens)[:, None] * 10_000.0 ** (-np.arange(0, size, 2) / size)[None]  # (tokens, size / 2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(tokens, size)


def one_hot_positions(tokens: int, size: int) -> Floats:
    """Unit vectors: token t has a one in channel t (von Oswald et al. 2022, Proposition 3).

    Returns:
      (tokens, size) float64; channels from ``tokens`` on are free.

    Raises:
      ValueError: for fewer channels than tokens.
    """
    if size < tokens:
        raise ValueError(f"one-hot positions of {tokens} tokens need a position_size of at least {tokens}, got {size}")
    return np.eye(tokens, size)


POSITIONS: dict[str, Callable[[int, int], Floats]] = {
    "sinusoidal": sinusoidal_positions,
    "one_hot": one_hot_positions,
}
