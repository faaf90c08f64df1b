"""Arithmetic operations of a function, counted in its program."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

_REDUCTIONS = ("reduce_", "arg", "cum", "sort")
_MOVES = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice",
    "gather", "iota", "optimization_barrier", "pad", "random_unwrap", "random_wrap", "reshape", "rev", "slice", "split",
    "squeeze", "stop_gradient", "transpose",
}  # fmt: skip


def operations(function: Callable, *examples: Any) -> float:
    """Operations of one call with arguments like these (arrays, or shapes and types).

    A product of matrices counts a multiplication and an addition for each pair that meets; anything elementwise, be it
    a sum, a logarithm or one number of the random generator, counts one for each element; what moves numbers counts
    nothing. A loop counts as often as it runs, one that ends by a condition once, and of a choice the larger branch.
    Compilers save some of these and add others: this is what is asked for, not what is done.
    """
    return _of(jax.make_jaxpr(function)(*examples).jaxpr)


def _of(program: Jaxpr) -> float:
    return sum(_of_equation(equation) for equation in program.eqns)


def _of_equation(equation: Any) -> float:
    name, parameters = equation.primitive.name, equation.params
    inner = [_of(one) for value in parameters.values() for one in _programs(value)]
    if name == "scan":
        return parameters["length"] * sum(inner)
    if name == "cond":
        return max(inner)
    if inner:  # calls, of which those with a derivative of their own hold one program here
        return sum(inner)
    elements = sum(math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars)
    if name == "dot_general":
        contracted = parameters["dimension_numbers"][0][0]
        return 2 * elements * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name.startswith(_REDUCTIONS):
        return math.prod(equation.invars[0].aval.shape)
    return 0 if name in _MOVES else elements


def _programs(value: Any) -> list[Jaxpr]:
    """The programs that a parameter of an equation holds."""
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    if isinstance(value, Jaxpr):
        return [value]
    return [one for item in value for one in _programs(item)] if isinstance(value, tuple | list) else []
