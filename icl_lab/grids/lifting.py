"""Functions that differ in constants alone become one function of these constants.

Two settings of an experiment give two programs. Where a setting is a number (a rate, a scale, the strength of noise),
the programs have the same operations and other constants; ``lift`` finds these and makes them an argument, so that
settings can be members of one compiled program. Where a setting changes shapes or operations there is nothing to lift.
What differs is read off the traced programs, so no setting has to be declared, and none can be overlooked.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

LARGEST = 256e6
"""Bytes of constants that may be lifted; more of them stay in programs of their own."""

_INLINED = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "remat2": "jaxpr"}
"""Calls, and where their programs stand. They are evaluated in place: nothing differentiates a lifted function."""

_LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}

Place = tuple
"""Where in a program a constant stands: numbers of equations, then which operand."""


class Traced(NamedTuple):
    """A function as a program.

    Attributes:
      program: its operations and constants.
      shape: the tree of what it returns, as shapes and types.
    """

    program: ClosedJaxpr
    shape: Any


def trace(function: Callable, *examples: Any) -> Traced:
    """The program of a function of arguments like these (arrays, or shapes and types)."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    return Traced(program, shape)


class Lifted(NamedTuple):
    """C functions as one, ``lifted(c, *arguments)``.

    Attributes:
      program: of the first of them.
      shape: the tree of what it returns.
      constants: (C, ...) by place, what they differ in.
    """

    program: ClosedJaxpr
    shape: Any
    constants: dict[Place, Any]

    def __call__(self, which: Array, *arguments: Any) -> Any:
        """What function ``which`` () returns. It cannot be differentiated; lift the derivative instead."""
        values = {place: jnp.asarray(stack)[which] for place, stack in self.constants.items()}
        out = _evaluate(self.program.jaxpr, self.program.consts, jax.tree.leaves(arguments), (), values)
        return jax.tree.unflatten(jax.tree.structure(self.shape), out)


def lift(traced: Sequence[Traced]) -> Lifted | None:
    """One function of C that differ in constants alone; None where they differ in more, or in too many bytes."""
    first = traced[0]
    found: dict[Place, Any] = {}
    trees = {jax.tree.structure(t.shape) for t in traced}
    if len(trees) > 1 or not _alike([t.program for t in traced], (), found):
        return None
    if sum(stack.size * stack.dtype.itemsize for stack in found.values()) > LARGEST:
        return None
    return Lifted(first.program, first.shape, found)


def _alike(programs: Sequence[ClosedJaxpr], place: Place, found: dict[Place, Any]) -> bool:
    """Whether programs differ in constants alone, which are put into ``found``."""
    jaxprs = [program.jaxpr for program in programs]
    names: list[dict] = [{} for _ in jaxprs]

    def bind(*variables: Any) -> bool:
        for known, variable in zip(names, variables):
            known[variable] = len(known)
        return len({(v.aval.shape, v.aval.dtype) for v in variables}) == 1

    def same(position: Place, *operands: Any) -> bool:
        if all(isinstance(x, Literal) for x in operands):
            return _keep(position, [x.val for x in operands], [x.aval for x in operands], found)
        if any(isinstance(x, Literal) for x in operands):
            return False
        return len({known[x] for known, x in zip(names, operands)}) == 1

    def each(part: str) -> Any:
        lists = [getattr(jaxpr, part) for jaxpr in jaxprs]
        return zip(*lists) if len({len(x) for x in lists}) == 1 else None

    for part in ("constvars", "invars"):
        pairs = each(part)
        if pairs is None or [False for variables in pairs if not bind(*variables)]:
            return False
    for k, values in enumerate(zip(*(program.consts for program in programs))):
        if not _keep((*place, "constant", k), values, [jax.typeof(v) for v in values], found):
            return False
    equations = each("eqns")
    if equations is None:
        return False
    for i, eqns in enumerate(equations):
        if len({(e.primitive, len(e.invars), len(e.outvars)) for e in eqns}) > 1:
            return False
        if not all(same((*place, i, k), *operands) for k, operands in enumerate(zip(*(e.invars for e in eqns)))):
            return False
        if not _same_parameters(eqns, (*place, i), found):
            return False
        for variables in zip(*(e.outvars for e in eqns)):
            bind(*variables)
    outputs = each("outvars")
    return outputs is not None and all(same((*place, "out", k), *x) for k, x in enumerate(outputs))


def _keep(place: Place, values: Sequence, avals: Sequence, found: dict[Place, Any]) -> bool:
    """Whether constants have one shape and type; where their values differ they are kept."""
    if len({(aval.shape, aval.dtype) for aval in avals}) > 1:
        return False
    if jax.dtypes.issubdtype(avals[0].dtype, jax.dtypes.prng_key):
        bits = [np.asarray(jax.random.key_data(value)) for value in values]
        if any(not np.array_equal(b, bits[0]) for b in bits):
            found[place] = jnp.stack(list(values))
    elif any(value is not values[0] for value in values):
        arrays = [np.asarray(value, avals[0].dtype) for value in values]
        if any(array.tobytes() != arrays[0].tobytes() for array in arrays):  # tells 0 from -0, and NaN is NaN
            found[place] = np.stack(arrays)
    return True


def _same_parameters(eqns: Sequence, place: Place, found: dict[Place, Any]) -> bool:
    """Whether the parameters of one equation are the same in all programs, but for constants of inner programs."""
    name = eqns[0].primitive.name
    if name in _INLINED:  # what else stands there (names, rules of differentiation) plays no part in evaluation
        return _alike([_closed(e.params[_INLINED[name]]) for e in eqns], place, found)
    if len({tuple(e.params) for e in eqns}) > 1:
        return False
    for key in eqns[0].params:
        values = [e.params[key] for e in eqns]
        inner: dict[Place, Any] = found if key in _LOOPS.get(name, ()) else {}
        lists = [_programs(value) for value in values]
        if any(lists):
            if len({len(x) for x in lists}) > 1:
                return False
            if not all(_alike(group, (*place, key, j), inner) for j, group in enumerate(zip(*lists))):
                return False
            if inner is not found and inner:
                return False  # a constant inside of something that is not taken apart
        elif not all(_equal(value, values[0]) for value in values):
            return False
    return True


def _closed(program: Any) -> ClosedJaxpr:
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def _programs(value: Any) -> list[ClosedJaxpr]:
    values = value if isinstance(value, tuple | list) else (value,)
    return [_closed(v) for v in values if isinstance(v, ClosedJaxpr | Jaxpr)]


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | Array):
        return np.array_equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b) and not (isinstance(a, float) and math.copysign(1, a) != math.copysign(1, b))


def _evaluate(jaxpr: Jaxpr, constants: Sequence, arguments: Sequence, place: Place, lifted: dict[Place, Any]) -> list:
    """What a program returns, with the lifted constants in their places."""
    known: dict[Any, Any] = {}

    def read(position: Place, operand: Any) -> Any:
        if isinstance(operand, Literal):
            return lifted.get(position, operand.val)
        return known[operand]

    known |= {v: lifted.get((*place, "constant", k), c) for k, (v, c) in enumerate(zip(jaxpr.constvars, constants))}
    known |= dict(zip(jaxpr.invars, arguments))
    for i, eqn in enumerate(jaxpr.eqns):
        here = (*place, i)
        values = [read((*here, k), operand) for k, operand in enumerate(eqn.invars)]
        known |= dict(zip(eqn.outvars, _apply(eqn, values, here, lifted)))
    return [read((*place, "out", k), operand) for k, operand in enumerate(jaxpr.outvars)]


def _apply(eqn: Any, values: list, place: Place, lifted: dict[Place, Any]) -> Sequence:
    name, params = eqn.primitive.name, eqn.params

    def run(program: ClosedJaxpr, at: Place, *arguments: Any) -> list:
        return _evaluate(program.jaxpr, program.consts, arguments, at, lifted)

    if name in _INLINED:
        return run(_closed(params[_INLINED[name]]), place, *values)
    if any(at[: len(place)] == place and len(at) > len(place) + 1 for at in lifted):
        return _loop(name, params, values, lambda key, j, *x: run(_programs(params[key])[j], (*place, key, j), *x))
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return out if eqn.primitive.multiple_results else [out]


def _loop(name: str, params: dict, values: list, run: Callable) -> Sequence:
    """A loop or choice in whose programs constants were lifted: ``run(parameter, which program, *arguments)``."""
    if name == "scan":
        fixed, carried = params["num_consts"], params["num_carry"]

        def body(carry: Any, x: Any) -> tuple:
            out = run("jaxpr", 0, *values[:fixed], *carry, *x)
            return tuple(out[:carried]), tuple(out[carried:])

        start, xs = tuple(values[fixed : fixed + carried]), tuple(values[fixed + carried :])
        options = {key: params[key] for key in ("length", "reverse", "unroll")}
        rows: tuple
        carry, rows = jax.lax.scan(body, start, xs, **options)
        return [*carry, *rows]
    if name == "while":
        tested, moved = params["cond_nconsts"], params["body_nconsts"]
        of_test, of_body, start = values[:tested], values[tested : tested + moved], tuple(values[tested + moved :])
        return jax.lax.while_loop(
            lambda state: run("cond_jaxpr", 0, *of_test, *state)[0],
            lambda state: tuple(run("body_jaxpr", 0, *of_body, *state)),
            start,
        )
    which, *operands = values
    branches = [lambda *x, j=j: tuple(run("branches", j, *x)) for j in range(len(params["branches"]))]
    return jax.lax.switch(which, branches, *operands)
