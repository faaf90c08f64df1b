"""Stage A: which symmetries a learner has, graded; and its filter, measured (the fingerprint)."""

import jax
import numpy as np

from icl_lab.identify.asking import Ask
from icl_lab.identify.probes import Battery, Units, haar, inputs_with

EXACT, APPROXIMATE = 1e-5, 0.15
ROUNDINGS = 2
"""Spacings of half precision by which answers may differ where a symmetry is exact."""

PARTS = (
    "odd_labels", "linear_labels", "linear_query", "permutation", "rotation", "example_rotation", "centred_rotation",
    "odd_linear", "one_step", "locality",
)  # fmt: skip


def grade(deviation: float, exact: float = EXACT) -> str:
    """``exact`` below 1e-5 (the architecture enforces it), ``approximate`` below .15 (training learned it), ``no``.

    Of answers in half precision, which cannot show less, another bound than 1e-5 is ``exact``.

    NaN is ``not measured``.
    """
    if np.isnan(deviation):
        return "not measured"
    return "exact" if deviation < exact else "approximate" if deviation < APPROXIMATE else "no"


def structure(ask: Ask, on: Battery, seed: int) -> dict[str, float]:
    """How far a learner (in units) is from each symmetry: |change| / |f| over training prompts, 0 where it has it.

    ``odd_labels`` is the part that stays as it is when all labels change sign. The change is that of the rest, the odd
    part; where this is below ``APPROXIMATE`` of the learner no other symmetry is measured (NaN). ``linear_labels`` is
    the largest of three: ``odd_labels``, and of the odd part 4 f(y / 4) - f(y), and f(y1 + y2) - f(y1) -
    f(y2) for labels of the same inputs, divided by sqrt(2): labels stay in the training range, beyond which couplings
    in the weights of deep networks grow. ``linear_query``, likewise, allows a constant.
    ``example_rotation``: the examples are mixed by a rotation of R^N, labels alike. ``centred_rotation``: by one that
    leaves their mean as it is; also, a constant is added to all labels (the mean of labels is taken off where that fits
    better), or a vector to all inputs of the context. ``odd_linear`` is ``linear_labels`` of the odd part alone.
    ``one_step``: the answer to a sum of context inputs, with the same labels and query, is the sum of the answers.
    """
    rng = np.random.default_rng([seed, 1])
    x, y = (np.repeat(part[::2], 2, 0) for part in (on.x, on.y))
    q = on.q[::2, :2].reshape(-1, on.q.shape[2])
    count, n, d = x.shape
    norm = np.sqrt((q**2).sum(1).mean() / d)
    w = rng.normal(size=(count, d)) * on.y.std() / max(float(np.sqrt((on.x**2).mean() * d)), 1e-300)
    other, more = np.einsum("cnd,cd->cn", x, w), norm * rng.normal(size=q.shape)
    order = np.stack([rng.permutation(n) for _ in range(count)])
    turn, mix = haar(rng, count, d), haar(rng, count, n)
    basis = np.linalg.qr(np.concatenate([np.ones((n, 1)), rng.normal(size=(n, n - 1))], 1))[0][:, 1:]
    inner = np.ones((n, n)) / n + basis @ haar(rng, count, n - 1) @ basis.T
    shift, shifted = rng.normal(size=(count, 1)), x + rng.normal(size=(count, 1, d))
    prompts = {
        "": (x, y, q), "less": (x, y / 4, q), "other": (x, other, q), "sum": (x, (y + other) / 2**0.5, q),
        "more": (x, y, more), "both": (x, y, (q + more) / 2**0.5), "none": (x, y, 0 * q),
        "permutation": (np.take_along_axis(x, order[..., None], 1), np.take_along_axis(y, order, 1), q),
        "rotation": (x @ turn, y, (q[:, None] @ turn)[:, 0]),
        "example_rotation": (mix @ x, (mix @ y[..., None])[..., 0], q),
        "inner": (inner @ x, (inner @ y[..., None])[..., 0], q), "labels": (x, y + shift, q), "inputs": (shifted, y, q),
        "moved": (np.roll(x, 1, 0), y, q), "one_step": (x + np.roll(x, 1, 0), y, q),
    }  # fmt: skip
    stacked = [np.concatenate([one[part] for one in prompts.values()]) for part in range(3)]
    plus, minus = (ask(stacked[0], sign * stacked[1], stacked[2]) for sign in (1, -1))
    odd = dict(zip(prompts, np.split((plus - minus) / 2, len(prompts))))
    f, size = odd[""], float(np.linalg.norm(plus[:count]))
    off = lambda difference, of=1.0: float(np.linalg.norm(difference) / max(of * size, 1e-300))  # noqa: E731
    total = float(np.linalg.norm(odd["sum"])) / max(size, 1e-300)
    means = {name: one[1].mean(1) for name, one in prompts.items()}
    centred = [
        max(off(odd[name] - f - taken * (means[name] - means[""])) for name in ("inner", "labels", "inputs"))
        for taken in (0, 1)
    ]
    even = off((plus + minus)[:count] / 2)
    if off(f) < APPROXIMATE:  # even a change of all of it would pass as a symmetry that holds approximately
        return {"odd_labels": even} | dict.fromkeys(PARTS[1:], float("nan"))
    linear = max(off(4 * odd["less"] - f), off(odd["sum"] - (f + odd["other"]) / 2**0.5, total))
    return {
        "odd_labels": even,
        "linear_labels": max(even, linear),
        "linear_query": off(
            odd["both"] - (f + odd["more"]) / 2**0.5 + (2**0.5 - 1) * odd["none"],
            float(np.linalg.norm(odd["both"])) / max(size, 1e-300),
        ),
        **{name: off(odd[name] - f) for name in ("permutation", "rotation", "example_rotation")},
        "centred_rotation": min(centred),
        "odd_linear": linear,
        "one_step": off(odd["one_step"] - f - odd["moved"]),
    }


def fingerprint(ask: Ask, units: Units, n: int, d: int, seed: int, points: int = 24, turns: int = 64) -> dict:
    """Stage B: the residual factor r(l) = 1 - l h(l), measured from half of the training range to four times its top.

    Inputs are sqrt(N) Q diag(sqrt l) V^T with Haar bases, one eigenvalue on the grid and the others drawn log-uniform
    from the training range; labels make b = s v_i, with s such that neither the labels nor the implied task are larger
    than in training, and the query is v_i at its training norm. The mean is over rotations of the odd part.

    Returns:
      ``grid`` (G,), ``r`` (G,), ``spread`` (G,) the standard deviation over rotations, all l in units; ``locality``:
      how far h(l) moves when the other eigenvalues are drawn anew, root mean square over the root mean square of h.
    """
    rng, rank = np.random.default_rng([seed, 2]), min(n, d)
    grid = np.geomspace(units.low / 2, 4 * units.high, points)
    left, right = haar(rng, turns, n)[:, :, :rank], haar(rng, turns, d)[:, :, :rank]
    others = np.exp(rng.uniform(np.log(units.low), np.log(units.high), (2, points, turns, rank)))
    others[..., 0] = grid[:, None]
    x = inputs_with(others, left[None, None], right[None, None])  # (2, G, R, N, D)
    s = np.minimum(np.sqrt(grid), units.task_norm * grid)[:, None, None]
    y = s * n**0.5 * left[:, :, 0] / np.sqrt(grid)[:, None, None]  # (G, R, N)
    q = units.query_norm * right[:, :, 0]
    shape = x.shape[:3]
    x, y, q = x.reshape(-1, n, d), np.broadcast_to(y, (*shape, n)).reshape(-1, n), np.broadcast_to(q, (*shape, d))
    f = (ask(x, y, q.reshape(-1, d)) - ask(x, -y, q.reshape(-1, d))) / 2
    h = f.reshape(shape) / (s[..., 0] * units.query_norm)
    r = 1 - grid[:, None] * h[0]
    inside = (grid >= units.low) & (grid <= units.high)
    moved = (h[1] - h[0]).mean(1)[inside] * grid[inside]
    locality = float(np.sqrt((moved**2).mean() / max(((grid[inside] * h[0].mean(1)[inside]) ** 2).mean(), 1e-300)))
    return {"grid": grid, "r": r.mean(1), "spread": r.std(1), "locality": locality}


def degree(ask: Ask, on: Battery) -> int | None:
    """Degree of r(l) where the learner is a polynomial of the eigenvalues, up to 13; None if it is none, or in float32.

    Context inputs are scaled by t with labels and query as they are: f / t is then a polynomial of t^2 of one degree
    less. Its Chebyshev coefficients are compared with the largest; 13 is three layers, and rounding hides more.
    """
    nodes = (1 + np.polynomial.chebyshev.chebpts1(28)) / 2 * 2.0  # of t^2
    t = np.sqrt(nodes)[:, None, None]
    x, y, q = (np.repeat(part, len(nodes), 0) for part in (on.x[:1], on.y[:1], on.q[:1, 0]))
    with jax.enable_x64(True):
        f = (ask(t * x, y, q) - ask(t * x, -y, q)) / 2 / t[:, 0, 0]
    coefficients = np.abs(np.polynomial.chebyshev.chebfit(nodes - 1, f, len(nodes) - 1))
    if not coefficients.max() > 0:
        return None
    above = np.flatnonzero(coefficients > 1e-10 * coefficients.max())
    return int(above[-1]) + 1 if above[-1] <= 12 else None
