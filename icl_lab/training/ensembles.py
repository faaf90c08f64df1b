"""An ensemble as compiled programs: all members vectorised together, or group after group inside one program."""

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from icl_lab.training import memory
from icl_lab.training.devices import MEMBERS, gathered, on_each_device, placed, share
from icl_lab.training.memory import GIB

Tree = Any
log = logging.getLogger("icl_lab")


class Ensemble:
    """M members through three programs, compiled ahead.

    The state of all members is on the devices. Where vectorising all of them needs too much memory, groups of members
    take turns inside the same programs. A member has its own key and settings: its numbers do not depend on that but
    for rounding, and not at all where as many members are vectorised together.

    Attributes:
      members: M.
      mesh: the devices that share them; None for one device.
      memory: bytes that the program that needs most needs on each device.
      programs: ``begin``, ``advance`` and ``observe``, compiled.
    """

    def __init__(
        self,
        begin: Callable[[Array, Tree], Tree],
        advance: Callable[[Tree, Array, Tree], tuple[Tree, Array]],
        observe: Callable[[Tree, Array, Tree], dict[str, Array]],
        keys: Array,
        settings: Tree,
        *,
        members_at_once: int | None = None,
        mesh: Mesh | None = None,
        memory_limit: float | None = None,
    ):
        """Compiles the programs.

        Args:
          begin: ``(key, setting) -> state`` of one member.
          advance: ``(state, key, setting) -> (state, loss)``: a chunk of steps of one member.
          observe: ``(state, key, setting) -> {name: array}``: a measurement of one member.
          keys: (M,) typed keys, one a member.
          settings: pytree whose leading axis is the member, or None.
          members_at_once: how many members are vectorised together; measurements go one by one then. None: all.
          mesh: devices that share the members.
          memory_limit: bytes on each device; None for no limit. Fewer members are vectorised together where it
            is too low.

        Raises:
          DoesNotFitError: if the limit is too low for one member at a time.
        """
        self.members, self.mesh = keys.shape[0], mesh
        each = list(jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0))
        of_device, devices = share(self.members, mesh), 1 if mesh is None else mesh.size
        like = (each[0], settings)
        state = jax.eval_shape(jax.vmap(begin), *like)
        limit = float("inf") if memory_limit is None else memory_limit
        size_of_state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) // devices

        def fitting(
            what: str, function: Callable, arguments: Tree, now: int | None, beside: int = 0
        ) -> tuple[Any, int]:
            """The program, with as many members together as are asked for or fit, and what it needs."""
            together, whole = min(now or of_device, of_device), None
            while True:
                over = on_each_device(_over_members(of_device, now)(function), mesh)
                program = jax.jit(over).lower(*_shapes(arguments, of_device * devices, mesh)).compile()
                need = memory.needed(program, beside)
                if sum(need) <= limit:
                    break
                whole = whole or need
                now = together = memory.fewer(need, together, limit)
            if whole:
                log.info(
                    "%s: %d members need %.3g GiB of %.3g on each device; %d at a time",
                    what, self.members, sum(whole) / GIB, limit / GIB, min(together * devices, self.members),
                )  # fmt: skip
            return program, sum(need)

        begins = fitting("initialisation", begin, like, None)
        advances = fitting("training", advance, (state, *like), members_at_once)
        one_by_one = None if members_at_once is None else 1
        observes = fitting("measuring", observe, (state, *like), one_by_one, size_of_state)  # the state is still there
        found = {"begin": begins, "advance": advances, "observe": observes}
        self.programs = {name: program for name, (program, _) in found.items()}
        self.memory = max(need for _, need in found.values())
        self._keys = placed(each, self.members, mesh)

    def begin(self, settings: Tree) -> Tree:
        """The state of all members before the first step."""
        return self.programs["begin"](self._keys[0], self.placed(settings))

    def advance(self, state: Tree, settings: Tree) -> tuple[Tree, Array]:
        """The state after a chunk of steps, and what was returned beside it."""
        return self.programs["advance"](state, self._keys[1], self.placed(settings))

    def observe(self, state: Tree, settings: Tree) -> Tree:
        """What is measured of this state."""
        return self.programs["observe"](state, self._keys[2], self.placed(settings))

    def placed(self, tree: Tree) -> Tree:
        """A tree (M, ...) where the programs want it."""
        return placed(tree, self.members, self.mesh)

    def gathered(self, tree: Tree) -> Tree:
        """The inverse: the members themselves, without those that fill up."""
        return gathered(tree, self.members, self.mesh)


def _shapes(tree: Tree, members: int, mesh: Mesh | None) -> Tree:
    """Arrays or shapes (M, ...) as shapes of so many members, on the devices where they will be."""

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        committed = isinstance(leaf, jax.Array) and leaf.committed
        where = NamedSharding(mesh, P(MEMBERS)) if mesh is not None else leaf.sharding if committed else None
        return jax.ShapeDtypeStruct((members, *leaf.shape[1:]), leaf.dtype, sharding=where)

    return jax.tree.map(shape, tree)


def _over_members(members: int, members_at_once: int | None) -> Callable:
    """vmap over the leading axis of all arguments, or a loop over groups of members inside the program."""
    if members_at_once is None:
        return jax.vmap
    groups = -(-members // members_at_once)
    size = -(-members // groups)  # even groups
    if size == 1:  # a vmap over one member costs a third of the speed
        return lambda f: lambda *args: jax.lax.map(lambda xs: f(*xs), args)
    return lambda f: lambda *args: jax.lax.map(lambda xs: f(*xs), args, batch_size=size)
