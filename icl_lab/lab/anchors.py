"""Anchors: the arrays of a smoke run that tell whether the code still computes what it did when a record was made.

An anchor is made from several smoke runs. One is kept; four differ from it by a relative change of 1e-7 of the initial
parameters, about the last bit of float32, and one by other options of the compiler, so that each array shows how far
rounding alone can move it. A last run starts from parameters that are changed by a tenth, and shows which arrays depend
on them at all. docs/anchors.md says what an anchor notices and what it cannot.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import Array

from icl_lab.training.members import Tree

XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""Options under which the tests compile and anchors are made (with ``jax_disable_most_optimizations``).

The suite is mostly compilation, and the newer emitters of loops take twice as long to compile them.
"""
if jaxlib.__version__ != "0.10.2":  # a release that does not know a flag ends the process
    XLA_FLAGS = ""

NEARBY, ELSEWHERE = 1e-7, 0.1
"""Relative changes of the initial parameters: one that rounding makes too, and one that no result ignores."""
PERTURBED = 4
"""Runs with changed parameters. For a single number whose differences are normal, a further one exceeds ten times the
largest of four in about one case of 8,000 (3 (0.2 / sqrt(2 pi))^4); almost all arrays have many numbers."""
MARGIN, FLOOR, LARGEST_SPREAD = 10.0, 1e-5, 0.01
"""Tolerance in spreads, least tolerance and largest spread, both relative to the largest absolute value."""
ROUNDING = 1e-6
"""An array without a larger value holds errors of rounding: only that it stays about as small is asked."""
ENTRIES = 64
"""So many entries of an array are kept, evenly spaced, the first and the last among them."""

Arrays = Mapping[str, np.ndarray]
Init = Callable[[Array, Tree], Tree]
"""``(key, setting) -> params``, as ``fit`` takes it."""


class Anchor(NamedTuple):
    """What a smoke run is compared with.

    Attributes:
      values: entries that are kept of the arrays that are compared by value, (at most ``ENTRIES``,).
      by_value: ``dtype``, ``shape`` and ``tolerance`` of these arrays, the largest absolute difference allowed.
      by_shape: ``dtype``, ``shape`` and ``reason`` of the arrays that are compared by dtype and shape alone.
    """

    values: dict[str, np.ndarray]
    by_value: dict[str, dict[str, Any]]
    by_shape: dict[str, dict[str, Any]]


def perturbed(number: int, size: float = NEARBY) -> Callable[[Init], Init]:
    """Changes every real entry of the initial parameters by the relative amount ``size``, up or down at random.

    ``p + size * sign * p``: in float32 and with size 1e-7, which is 0.84 of the spacing of numbers at 1, every entry
    moves by one unit in the last place, or by two just below a power of two; a zero stays zero.

    Args:
      number: another number gives other signs.
      size: relative change.

    Returns:
      A function from the ``init`` of ``fit`` to one whose parameters are changed (``Session(starting=...)``).
    """

    def changed(init: Init) -> Init:
        def start(key: Array, setting: Tree) -> Tree:
            leaves, structure = jax.tree.flatten(init(key, setting))
            # init splits the key; no other draw folds in so large a number
            keys = jax.random.split(jax.random.fold_in(key, 2**31 + number), max(1, len(leaves)))
            return jax.tree.unflatten(structure, [_moved(k, leaf, size) for k, leaf in zip(keys, leaves)])

        return start

    return changed


def make(kept: Arrays, rounded: Sequence[Arrays], elsewhere: Arrays) -> Anchor:
    """An anchor from smoke runs.

    The tolerance of an array is ten times its largest absolute difference among the rounded runs, at least 1e-5 of its
    largest absolute value. By dtype and shape alone are compared: integers, booleans and everything else that is not
    real; real arrays that hold shares, ranks or picked values; arrays whose difference exceeds 1 % of the largest
    value, or whose NaN or infinite entries move. An array without a value above 1e-6 is compared with that tolerance.

    Args:
      kept: arrays of the run that is kept.
      rounded: those of runs that differ from it by rounding or by as little.
      elsewhere: those of a run from clearly other parameters.

    Raises:
      ValueError: if the runs disagree in names, dtypes or shapes of arrays.
    """
    anchor = Anchor({}, {}, {})
    for other in (*rounded, elsewhere):
        if said := _differing_kinds({name: _kind(array) for name, array in kept.items()}, other):
            raise ValueError(f"smoke runs of the same code disagree: {'; '.join(said)}")
    for name in sorted(kept):
        value = np.asarray(kept[name])
        others = [np.asarray(run[name]) for run in rounded]
        if reason := _why_by_shape(value, others, np.asarray(elsewhere[name])):
            anchor.by_shape[name] = _kind(value) | {"reason": reason}
        else:
            floor = ROUNDING if _largest(value) <= ROUNDING else FLOOR * _largest(value)
            anchor.values[name] = _thinned(value)
            anchor.by_value[name] = _kind(value) | {"tolerance": max(MARGIN * _spread(value, others), floor)}
    return anchor


def differences(anchor: Anchor, arrays: Arrays) -> list[str]:
    """What a smoke run says otherwise than the anchor, a sentence for each array; none if nothing."""
    listed = anchor.by_value | anchor.by_shape
    kinds = {name: {"dtype": kind["dtype"], "shape": kind["shape"]} for name, kind in listed.items()}
    said = _differing_kinds(kinds, arrays)
    for name, kind in anchor.by_value.items():
        if name not in arrays or _kind(arrays[name]) != kinds[name]:
            continue
        value, now, tolerance = anchor.values[name], _thinned(np.asarray(arrays[name])), kind["tolerance"]
        if not _same_gaps(value, now):
            said.append(f"array {name} has NaN or infinite entries elsewhere")
        elif (difference := _spread(value, [now])) > tolerance:
            said.append(f"array {name} differs by {difference:.2g} (tolerance {tolerance:.2g})")
    return said


def _moved(key: Array, leaf: Any, size: float) -> Any:
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf + size * jax.random.rademacher(key, leaf.shape, leaf.dtype) * leaf


def _thinned(value: np.ndarray) -> np.ndarray:
    return value.ravel()[np.linspace(0, value.size - 1, min(value.size, ENTRIES)).round().astype(int)]


def _kind(array: Any) -> dict[str, Any]:
    array = np.asarray(array)
    return {"dtype": str(array.dtype), "shape": list(array.shape)}


def _differing_kinds(kinds: Mapping[str, dict[str, Any]], arrays: Arrays) -> list[str]:
    said = [f"array {name} is gone" for name in sorted(set(kinds) - set(arrays))]
    said += [f"array {name} is new" for name in sorted(set(arrays) - set(kinds))]
    for name in sorted(set(kinds) & set(arrays)):
        if (now := _kind(arrays[name])) != kinds[name]:
            before = kinds[name]
            shapes = (f"{kind['dtype']} of shape {tuple(kind['shape'])}" for kind in (now, before))
            said.append(f"array {name} is {', the anchor has '.join(shapes)}")
    return said


def _why_by_shape(value: np.ndarray, rounded: Sequence[np.ndarray], elsewhere: np.ndarray) -> str:
    """Why an array is compared by shape alone; empty where its values are compared."""
    if value.dtype.kind != "f":
        return {"i": "integers", "u": "integers", "b": "booleans"}.get(value.dtype.kind, "not real numbers")
    if not all(_same_gaps(value, other) for other in rounded):
        return "NaN or infinite entries move with the last bit of the initial parameters"
    if _largest(value) <= ROUNDING:
        return ""
    if (spread := _spread(value, rounded)) > LARGEST_SPREAD * _largest(value):
        return f"moves by {spread / _largest(value):.1%} of its largest value with rounding"
    depends = not np.array_equal(value, elsewhere, equal_nan=True)
    if depends and (n := _denominator(value)):
        return f"shares, ranks or picked values: all are multiples of 1/{n}"
    return ""


def _denominator(value: np.ndarray, largest: int = 10_000) -> int:
    """The least n for which all values are multiples of 1/n where chance would not make them so, 0 if there is none.

    Rounded values lie within t = 4 eps n max|value| of a multiple; k different ones do so by chance for some number up
    to n with a probability of about n (2 t)^k, which must be below 1e-3.
    """
    different = np.unique(value[np.isfinite(value)])
    if not different.size:
        return 0
    different = different[np.linspace(0, different.size - 1, min(different.size, 200)).astype(int)].astype(float)
    width = 4 * float(np.finfo(value.dtype).eps) * max(np.abs(different).max(), np.finfo(value.dtype).tiny)
    for n in range(1, largest + 1):
        if n * min(1.0, 2 * n * width) ** different.size >= 1e-3:
            return 0
        if np.all(np.abs(different * n - np.round(different * n)) <= n * width):
            return n
    return 0


def _same_gaps(a: np.ndarray, b: np.ndarray) -> bool:
    mine, other = (np.where(np.isfinite(array), 0.0, array) for array in (a, b))
    return np.array_equal(mine, other, equal_nan=True)


def _spread(value: np.ndarray, others: Sequence[np.ndarray]) -> float:
    """The largest absolute difference of finite entries."""
    finite = np.isfinite(value)
    return max((_largest(other[finite].astype(float) - value[finite]) for other in others), default=0.0)


def _largest(value: np.ndarray) -> float:
    return float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0))
