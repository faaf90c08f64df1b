"""What a program computes, as a digest of every output, wherever values are hidden, and whatever they are called.

The digest says how the output comes from the inputs: operations, their parameters, constants by their bytes, and inner
programs, at every depth. Names of functions, addresses, the order of independent operations and devices do not count.
"""

import enum
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from icl_lab.lab.provenance import digest, digest_of_array

Tree = Any
IGNORED = {"name", "inline", "keep_unused", "donated_invars", "prevent_cse", "policy", "ctx_mesh"}
IGNORED |= {"sharding", "out_sharding", "in_shardings", "out_shardings", "in_layouts", "out_layouts"}
IGNORED |= {"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"}
"""Parameters that decide no value; what a rule of differentiation computes stands where it was used, in a gradient."""
REPORTS = {"debug_callback", "debug_print"}
"""Operations that call Python and compute nothing."""
PLAIN = bool | int | float | complex | str | bytes | slice | np.dtype | enum.Enum | jax.core.AbstractValue


def program(function: Any, *like: Tree) -> tuple[Tree, list[str]]:
    """The outputs of a function of ``jax.jit``, each as its digest; and operations in it that cannot be compared.

    Those call Python for a value, or have a rule of ``vmap`` of their own. The precision of matrix products that JAX is
    told by default has no part. ``like`` are the arguments, as shapes.
    """
    with jax.default_matmul_precision(None):
        traced = function.trace(*like)
    inputs = [f"{place} {leaf.dtype}{leaf.shape}" for place, leaf in named(like)]
    reader = _Reader()
    outputs, _ = reader.outputs(traced.jaxpr.jaxpr, traced.jaxpr.consts, inputs)
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), outputs), reader.foreign


def named(tree: Tree) -> list[tuple[str, Any]]:
    """Leaves with their places."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


class _Reader:
    """Reads one program, which stays alive meanwhile."""

    def __init__(self) -> None:
        self.foreign: list[str] = []  # operations that cannot be compared
        self._reports: set[Any] = set()  # effects of what computes nothing
        self._inner: dict[int, str] = {}  # digests of inner programs, by identity

    def outputs(self, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[str]) -> tuple[list[str], str]:
        """A digest of every output, and of all that was done to references (mutable arrays)."""
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(digest_of_array, constants), *inputs]))
        done = ""

        def read(atom: Any) -> Any:  # of a variable or a literal
            return digest_of_array(np.asarray(atom.val, atom.aval.dtype)) if hasattr(atom, "val") else values[atom]

        for equation in jaxpr.eqns:
            name, params = equation.primitive.name, self._params(equation.params)
            if name in REPORTS or (params is None and not equation.outvars):
                self._reports |= equation.effects
                continue
            if params is None:
                self.foreign.append(name)
            changes = bool(equation.effects - self._reports)
            inside = equation.ctx.threefry_partitionable, done if changes else None
            result = digest([name, params, [read(atom) for atom in equation.invars], inside])
            done = result if changes else done
            values |= {variable: f"{result} {i}" for i, variable in enumerate(equation.outvars)}
        return [read(atom) for atom in jaxpr.outvars], done

    def _params(self, params: dict[str, Any]) -> list[tuple[str, Any]] | None:
        """Parameters of an operation, in words; None where one has none, as a Python function."""
        counted = {
            name: str(value) if name == "impl" else value for name, value in params.items() if name not in IGNORED
        }
        words = [(place, self._words(value)) for place, value in named(counted)]
        return None if None in [word for _, word in words] else words

    def _words(self, value: Any) -> str | None:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            if id(value) not in self._inner:
                jaxpr, constants = (value.jaxpr, value.consts) if isinstance(value, ClosedJaxpr) else (value, ())
                inputs = [f"{i} {variable.aval}" for i, variable in enumerate(jaxpr.invars)]
                self._inner[id(value)] = digest(self.outputs(jaxpr, constants, inputs))
            return self._inner[id(value)]
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return digest_of_array(value)
        if isinstance(value, type):
            return value.__name__
        return repr(value) if isinstance(value, PLAIN) else None
