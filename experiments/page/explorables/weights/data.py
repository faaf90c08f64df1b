"""What the page holds of the check: a gradient and steps of Adam by JAX, and the exact loss of any layer."""

from pathlib import Path
from typing import Any

import numpy as np

from icl_lab.lab.records import Record, RecordError, load
from icl_lab.pages import packed

FOLDER = Path(__file__).with_name("record")
TOLERANCE = 1e-6  # of a gradient's norm, and of weights of size 1: JAX calculates in float32
NAMES = ("w_q", "w_k", "w_v", "w_p")
CLIP, B1, EPS = 1e-3, 0.9, 1e-8
KURTOSIS = 1.8  # E[x^4] / E[x^2]^2 of uniform inputs


def record(folder: Path = FOLDER) -> Record:
    """The committed record, whose gradient and steps of Adam float64 gives again.

    Raises:
      RecordError: if it does not, to ``TOLERANCE``.
    """
    record = load(folder)
    arrays = {name: array.astype(float) for name, array in record.arrays.items()}
    params, means = arrays["start"], np.zeros((2, *arrays["start"].shape))
    first = gradient(params, arrays, 0)
    off = [abs(first - arrays["slope"]).max() / np.linalg.norm(arrays["slope"])]
    for step in range(len(arrays["x"])):
        slope = gradient(params, arrays, step)
        slope *= min(1, CLIP / np.linalg.norm(slope))
        rates = np.array([B1, record.config["adam_b2"]])
        means += (1 - rates)[:, None, None, None] * (np.stack([slope, slope**2]) - means)
        mean, square = means / (1 - rates ** (step + 1))[:, None, None, None]
        params = params - record.config["learning_rate"] * mean / (np.sqrt(square) + EPS)
        off.append(abs(params - arrays["after"][step]).max())
    if not (worst := max(off)) <= TOLERANCE:
        raise RecordError(f"{folder}: its steps are not those of Adam, by {worst:.1g}; allowed is {TOLERANCE:g}")
    return record


def gradient(params: np.ndarray, arrays: dict[str, np.ndarray], step: int) -> np.ndarray:
    """(4, 3, 3) gradient of half the mean squared error on the tasks of a step."""
    x, y, query, target = (arrays[name][step] for name in ("x", "y", "query", "target"))
    tokens = np.concatenate([x, y[..., None]], axis=-1)
    query_tokens = np.pad(query, [(0, 0), (0, 1)])
    w_q, w_k, w_v, w_p = params
    a, b = w_q @ w_k.T, w_v @ w_p
    sums = np.einsum("tni,tnj->tij", tokens, tokens)
    error = (-np.einsum("ti,ij,tjk,k->t", query_tokens, a, sums, b[:, 2]) - target) / len(target)
    of_a = -np.einsum("t,ti,tjk,k->ij", error, query_tokens, sums, b[:, 2])
    of_b = np.zeros((3, 3))
    of_b[:, 2] = -np.einsum("t,ti,ij,tjk->k", error, query_tokens, a, sums)
    return np.stack([of_a @ w_k, of_a.T @ w_q, of_b @ w_p.T, w_v.T @ of_b])


def population_loss(a: np.ndarray, b: np.ndarray, context_length: int, variance: float = 1 / 3) -> float:
    """Half the mean squared error of a layer over all prompts with two independent uniform inputs and w ~ N(0, I).

    With A = [P p; . .] on the query, b = (q, beta) the last column of B and S = sum_i x_i x_i^T, the layer answers with
    the weights -(K S w + P S q + beta p w^T S w), K = beta P + p q^T. Terms odd and even in w do not mix, and the
    moments of S need no more of x than its variance v and kurtosis k (this lab; for Gaussian inputs
    ``icl_lab.theory.linear_attention.blocks``):

        E[S_ij S_kl] = v^2 (N^2 d_ij d_kl + N (d_ik d_jl + d_il d_jk + (k - 3) d_ijkl)).

    Args:
      a: (3, 3).
      b: (3, 3).
      context_length: N.
      variance: v.
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    big, small, q, beta = a[:2, :2], a[:2, 2], b[:2, 2], b[2, 2]
    n, d, eye = context_length, 2, np.eye(2)
    moments = n**2 * np.einsum("ij,kl->ijkl", eye, eye) + n * (
        np.einsum("ik,jl->ijkl", eye, eye) + np.einsum("il,jk->ijkl", eye, eye)
        + (KURTOSIS - 3) * np.einsum("ij,ik,il->ijkl", eye, eye, eye)
    )  # fmt: skip
    moments *= variance**2
    k = beta * big + np.outer(small, q)
    odd = d + 2 * n * variance * np.trace(k) + np.einsum("ai,ijkl,jk,al->", k, moments, eye, k)
    squares = np.einsum("iikl,kl->", moments, eye) + 2 * np.einsum("ijkl,ik,jl->", moments, eye, eye)
    even = np.einsum("ai,ijkl,j,ak,l->", big, moments, q, big, q)
    even += 2 * beta * np.einsum("ai,ijkk,j,a->", big, moments, q, small) + beta**2 * small @ small * squares
    return float(variance / 2 * (odd + even))


def data(found: Record) -> dict[str, Any]:
    """What ``view.js`` reads, as JSON."""
    return {
        "tolerance": TOLERANCE, "rate": found.config["learning_rate"], "n": found.config["context_length"],
        "check": {name: packed(array) for name, array in found.arrays.items()},
    }  # fmt: skip
