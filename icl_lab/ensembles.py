"""An ensemble as compiled programs: all members in one, or part after part where they do not fit into memory."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from icl_lab import memory
from icl_lab.devices import MEMBERS, gathered, on_each_device, placed, share
from icl_lab.memory import GIB, Memory

Tree = Any
log = logging.getLogger("icl_lab")


class Ensemble:
    """M members through three programs, compiled ahead for the members that are on the devices in one go.

    The state of all is on the devices where it fits. Where it does not, it is on the host as numpy arrays, and the
    members go through the same programs in parts, the last filled up with copies of its last member. A member has its
    own key and settings: its numbers do not depend on that but for rounding, and not at all where as many members are
    vectorised together.

    Attributes:
      members: M.
      mesh: the devices that share them; None for one device.
      at_once: members that are vectorised together in training, on all devices.
      parts: in how many parts the members go through the programs.
      memory: what the program that needs most needs on each device.
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
          memory_limit: bytes on each device; None for no limit.

        Raises:
          FlagError: if not even one member fits into the limit.
        """
        self.members, self.mesh = keys.shape[0], mesh
        self._keys = list(jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0))
        of_device, devices = share(self.members, mesh), 1 if mesh is None else mesh.size
        together = min(members_at_once or of_device, of_device)
        like = (self._keys[0], settings)
        state = jax.eval_shape(jax.vmap(begin), *like)
        of_member = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) // self.members

        @functools.cache
        def compiled(function: Callable, size: int, now: int | None) -> Any:
            over = on_each_device(_over_members(size, now)(function), mesh)
            arguments = like if function is begin else (state, *like)
            return jax.jit(over).lower(*_shapes(arguments, size * devices, mesh)).compile()

        def programs(size: int, now: int) -> dict[str, Any]:
            """Members start together and are measured one by one, or together with those they train with."""
            less = now < together
            training = None if members_at_once is None and not less else now
            return {
                "begin": compiled(begin, size, now if less else None),
                "advance": compiled(advance, size, training),
                "observe": compiled(observe, size, None if training is None else 1),
            }

        def needed(size: int, now: int) -> Memory:
            beside = {"observe": size * of_member}  # what an observation leaves aside is still there
            found = [memory.needed(one, beside.get(name, 0)) for name, one in programs(size, now).items()]
            return max(found, key=lambda one: one.total)

        limit = float("inf") if memory_limit is None else memory_limit
        size, now, self.memory, whole = memory.divided(needed, of_device, together, limit)
        self.programs = programs(size, now)
        self._size, self.at_once = size * devices, min(now * devices, self.members)
        self.parts = -(-self.members // self._size)
        if (size, now) != (of_device, together):
            log.info(
                "training: %d members need %.3g GiB of %.3g on each device; %d at a time",
                self.members, whole.total / GIB, limit / GIB, self.at_once,
            )  # fmt: skip
        if self.parts == 1:
            self._keys = placed(self._keys, self.members, mesh)

    def begin(self, settings: Tree) -> Tree:
        """The state of all members before the first step."""
        return self._each(self.programs["begin"], self._keys[0], self.placed(settings))

    def advance(self, state: Tree, settings: Tree) -> tuple[Tree, Array]:
        """The state after a chunk of steps, and what was returned beside it."""
        return self._each(self.programs["advance"], state, self._keys[1], self.placed(settings))

    def observe(self, state: Tree, settings: Tree) -> Tree:
        """What is measured of this state."""
        return self._each(self.programs["observe"], state, self._keys[2], self.placed(settings))

    def placed(self, tree: Tree) -> Tree:
        """A tree (M, ...) where the programs want it."""
        return placed(tree, self.members, self.mesh) if self.parts == 1 else tree

    def gathered(self, tree: Tree) -> Tree:
        """The inverse: the members themselves, without those that fill up."""
        return gathered(tree, self.members, self.mesh) if self.parts == 1 else tree

    def _each(self, program: Callable, *trees: Tree) -> Tree:
        if self.parts == 1:
            return program(*trees)
        found = []
        for first in range(0, self.members, self._size):
            rows = np.minimum(np.arange(first, first + self._size), self.members - 1)
            part = placed(jax.tree.map(lambda leaf: leaf[rows], trees), self._size, self.mesh)  # noqa: B023
            done = gathered(program(*part), self._size, self.mesh)
            count = min(self._size, self.members - first)
            found.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:count], done))  # noqa: B023
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


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
