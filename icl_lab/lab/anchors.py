"""Anchors: the arrays of a smoke run that tell whether the code still computes what it did when a record was made.

docs/dev/anchors.md says what an anchor notices and what it cannot.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.training import effort
from icl_lab.training.fitting import Tree

XLA_FLAGS = effort.known("--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
"""Options under which the tests compile and anchors are made (with ``jax_disable_most_optimizations``).

The suite is mostly compilation, and the newer emitters of loops take twice as long to compile them.
"""

NEARBY, ELSEWHERE = 1e-7, 0.1
"""Relative changes of the initial parameters: one that rounding makes too, and one that no result ignores."""
MARGIN, FLOOR, LARGEST_SPREAD = 10.0, 1e-5, 0.01
"""Tolerance in spreads, least tolerance and largest spread, both relative to the largest absolute value."""
ROUNDING = 1e-6
"""An array without a larger value holds errors of rounding: this is its least tolerance."""
WIDER, OF_MINIMA = 3.0, 1e-3
"""Tolerance at another vector width: in tolerances at the same one; of minima, relative to the largest absolute value.

docs/dev/anchors.md says what was measured.
"""

Arrays = Mapping[str, np.ndarray]
Limits = Mapping[str, float | str]
Init = Callable[[Array, Tree], Tree]
"""``(key, setting) -> params``, as ``fit`` takes it."""


def set_flags() -> None:
    """This process compiles as anchors are made, and by what ``XLA_FLAGS`` said before; to be called before JAX starts.

    The variable stays unset where both are empty.
    """
    given = os.environ.get("XLA_FLAGS", "").split()
    if flags := [*(flag for flag in XLA_FLAGS.split() if flag not in given), *given]:
        os.environ["XLA_FLAGS"] = " ".join(flags)


def perturbed(init: Init, number: int, size: float = NEARBY) -> Init:
    """An ``init`` every real entry p of whose parameters is changed to ``p + size * sign * p``, with random signs.

    In float32 and with size 1e-7 every entry moves by one or two units in the last place; a zero stays zero. Another
    ``number`` gives other signs.
    """

    def start(key: Array, setting: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(init(key, setting))
        # init splits the key; no other draw folds in so large a number
        keys = jax.random.split(jax.random.fold_in(key, 2**31 + number), max(1, len(leaves)))
        return jax.tree.unflatten(structure, [_moved(k, jnp.asarray(leaf), size) for k, leaf in zip(keys, leaves)])

    return start


def limits(kept: Arrays, nearby: Sequence[Arrays], elsewhere: Arrays) -> dict[str, float | str]:
    """How each array of a smoke run may differ later: its tolerance, or why it is compared by dtype and shape alone.

    The tolerance is ten times the largest absolute difference among the runs nearby, at least 1e-5 of the largest
    absolute value. By dtype and shape alone are compared: what is not real; what moves by more than 1 % of its largest
    value, or whose NaN or infinite entries move; and what jumps (shares, ranks, what an argmin picks): all its values
    are multiples of one fraction, and it depends on the initial parameters.

    Args:
      kept: arrays of the run that is kept.
      nearby: those of runs whose initial parameters differ by about the last bit.
      elsewhere: those of a run with clearly other initial parameters.

    Raises:
      ValueError: if the runs disagree in names, dtypes or shapes of arrays.
    """
    tolerances: dict[str, float | str] = {}
    for other in (*nearby, elsewhere):
        if messages := differences(kept, dict.fromkeys(kept, ""), other):
            raise ValueError(f"smoke runs of the same code disagree: {'; '.join(messages)}")
    for name, value in kept.items():
        near, largest = [run[name] for run in nearby], _largest(value)
        spread = max(_difference(value, other) for other in near)
        if not _is_real(value):
            tolerances[name] = "no real numbers"
        elif not all(_same_gaps(value, other) for other in near):
            tolerances[name] = "NaN or infinite entries move with the last bit of the initial parameters"
        elif largest <= ROUNDING:
            tolerances[name] = max(MARGIN * spread, ROUNDING)
        elif spread > LARGEST_SPREAD * largest:
            tolerances[name] = f"moves by {spread / largest:.1%} of its largest value with rounding"
        elif _are_shares(value) and not np.array_equal(value, elsewhere[name], equal_nan=True):
            tolerances[name] = "shares, ranks or picked values"
        else:
            tolerances[name] = max(MARGIN * spread, FLOOR * largest)
    return tolerances


def at_another_width(limits: Limits, kept: Arrays, minimised: bool = False) -> dict[str, float | str]:
    """The tolerances where another vector width rounds otherwise than the one at which a run was kept.

    Other code for sums and elementary functions moves an array about as the last bit of the initial parameters does, so
    that three tolerances leave room. Two things do not depend on initial parameters. A small difference of numbers of
    order one holds their rounding, so that no tolerance is below 1e-6. And the minimiser of a float32 loss is known to
    the root of its precision only, 3.5e-4, because a minimum is flat: what rests on one (``minimised``) has three times
    that, 1e-3 of the largest absolute value.
    """
    least = {name: max(ROUNDING, OF_MINIMA * _largest(value) * minimised) for name, value in kept.items()}
    return {name: max(WIDER * a, least[name]) if isinstance(a, float) else a for name, a in limits.items()}


def differences(kept: Arrays, limits: Limits, now: Arrays) -> list[str]:
    """What a smoke run says otherwise than the one that was kept, a sentence for each array; none if nothing."""
    changes = [f"array {name} is gone" for name in sorted(set(kept) - set(now))]
    changes += [f"array {name} is new" for name in sorted(set(now) - set(kept))]
    for name in sorted(set(kept) & set(now)):
        anchor, value, limit = kept[name], now[name], limits[name]
        if (anchor.dtype, anchor.shape) != (value.dtype, value.shape):
            changes.append(f"array {name} is {value.dtype} {value.shape}, the anchor has {anchor.dtype} {anchor.shape}")
        elif isinstance(limit, str):
            continue
        elif not _same_gaps(anchor, value):
            changes.append(f"array {name} has NaN or infinite entries elsewhere")
        elif (difference := _difference(anchor, value)) > limit:
            changes.append(f"array {name} differs by {difference:.2g} (tolerance {limit:.2g})")
    return changes


def _moved(key: Array, leaf: Array, size: float) -> Any:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf + size * jax.random.rademacher(key, leaf.shape, leaf.dtype) * leaf


def _are_shares(value: np.ndarray, largest: int = 10_000) -> bool:
    """Whether all values are multiples of 1/n for an n for which chance would not make them so."""
    different = np.unique(value[np.isfinite(value)])[:200].astype(float)
    n = np.arange(1, largest + 1)
    width = 4 * float(jnp.finfo(value.dtype).eps) * n * np.abs(different).max()  # of rounding
    off = np.max([np.abs(v * n - np.round(v * n)) for v in different], axis=0)
    by_chance = n * np.minimum(2 * width, 1) ** len(different)
    return bool(np.any((off <= width) & (by_chance < 1e-3)))


def _same_gaps(a: np.ndarray, b: np.ndarray) -> bool:
    mine, other = (np.where(np.isfinite(array), 0.0, array) for array in (a, b))
    return np.array_equal(mine, other, equal_nan=True)


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    if not _is_real(a):
        return 0.0
    finite = np.isfinite(a)
    return _largest(b[finite].astype(float) - a[finite])


def _largest(value: np.ndarray) -> float:
    return float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0)) if _is_real(value) else 0.0


def _is_real(value: np.ndarray) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating)  # bfloat16, too, which NumPy does not call so
