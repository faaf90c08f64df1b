"""An ensemble as compiled programs: all members vectorised together, or group after group inside one program.

Each device has its share of the members, and devices never wait for each other inside a step. They may be those of
several processes (``icl_lab.training.processes``). All hold the same arrays outside a mesh.
"""

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from icl_lab.training import effort, memory, processes, programs
from icl_lab.training.memory import GIB

Tree = Any
MEMBERS = "members"
log = logging.getLogger("icl_lab")


class _Wanted(NamedTuple):
    """A program to be compiled: of what, over how many members together (None: all), how, and bytes kept beside it."""

    what: str
    function: Callable
    arguments: Tree
    together: int | None
    options: dict[str, Any]
    beside: int = 0


class Ensemble:
    """M members through three programs, compiled ahead: ``begin``, ``advance`` by a chunk of steps, ``observe``.

    The state of all members is on the devices of ``mesh`` (None: one). Where vectorising all of them needs too much
    memory, groups of members take turns inside the same programs; the numbers of a member do not depend on that but for
    rounding, and not at all where as many members are vectorised together. ``memory`` is how many bytes the program
    that needs most needs on each device.
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
        """Compiles the programs; the functions are those of one member (``fitting.Member``), the rest as in ``fit``.

        Raises:
          DoesNotFitError: if the limit is too low for one member at a time.
        """
        self.members, self.mesh = keys.shape[0], without_idle(mesh, keys.shape[0])
        mesh, given = self.mesh, 1 if mesh is None else mesh.size
        streams = list(_streams(keys))
        devices = 1 if mesh is None else mesh.size
        of_device = -(-self.members // devices)
        self._filled = of_device * devices  # with members that only fill up
        like = (streams[0], settings)
        limit = float("inf") if memory_limit is None else memory_limit
        if jax.default_backend() == "cpu":  # whose devices share one memory
            limit *= given / devices

        def traced(function: Callable, arguments: Tree, together: int | None) -> Any:
            over = _over_members(of_device, together)(function)
            if mesh is not None:  # each device computes its own members; nothing is exchanged
                over = jax.shard_map(over, mesh=mesh, in_specs=P(MEMBERS), out_specs=P(MEMBERS), check_vma=False)
            over.__name__ = function.__name__
            return jax.jit(over).trace(*_shapes(arguments, self._filled, mesh))

        def where(arguments: Tree) -> tuple:
            shapes = jax.tree.leaves(_shapes(arguments, self._filled, mesh))
            shared = () if mesh is None else tuple(device.id for device in mesh.devices.flat)
            return shared, tuple(str(shape.sharding) for shape in shapes)

        def shrunk_to_fit(program: Any, one: _Wanted) -> tuple[Any, int]:
            """The program, with as many members together as are asked for or fit, and what it needs."""
            together = min(one.together or of_device, of_device)
            first = need = memory.needed(program, one.beside)
            while sum(need) > limit:
                together = memory.fewer(need, together, limit)
                smaller = traced(one.function, one.arguments, together)
                program = programs.compiled(smaller, one.options, where(one.arguments))
                need = memory.needed(program, one.beside)
            if first != need:
                log.info(
                    "%s: %d members need %.3g GiB of %.3g on each device; %d at a time",
                    one.what, self.members, sum(first) / GIB, limit / GIB, min(together * devices, self.members),
                )  # fmt: skip
            return program, sum(need)

        beginning = traced(begin, like, None)  # which also says what the state is
        state = beginning.out_info
        size_of_state = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) // devices
        one_by_one, all_of = None if members_at_once is None else 1, (state, *like)
        # initial parameters are made once; the state is still there when it is measured
        wanted = (
            _Wanted("initialisation", begin, like, None, effort.of("little")),
            _Wanted("training", advance, all_of, members_at_once, effort.of("full")),
            _Wanted("measuring", observe, all_of, one_by_one, effort.of("some"), beside=size_of_state),
        )
        with ThreadPoolExecutor(len(wanted)) as pool:  # XLA compiles one while the next is traced
            compiled = [pool.submit(programs.compiled, beginning, wanted[0].options, where(like))]
            for one in wanted[1:]:
                program = traced(one.function, one.arguments, one.together)
                compiled.append(pool.submit(programs.compiled, program, one.options, where(one.arguments)))
        executables, needs = zip(*(shrunk_to_fit(made.result(), one) for made, one in zip(compiled, wanted)))
        self.programs, self.memory = dict(zip(("begin", "advance", "observe"), executables)), max(needs)
        self._keys, self._settings = self.placed(streams), self.placed(settings)

    def begin(self) -> Tree:
        """The state of all members before the first step."""
        return self.programs["begin"](self._keys[0], self._settings)

    def advance(self, state: Tree) -> tuple[Tree, Array]:
        """The state after a chunk of steps, and what was returned beside it."""
        return self.programs["advance"](state, self._keys[1], self._settings)

    def observe(self, state: Tree) -> Tree:
        """What is measured of this state."""
        return self.programs["observe"](state, self._keys[2], self._settings)

    def placed(self, tree: Tree) -> Tree:
        """A tree (M, ...) on the devices: filled up with copies of the last member, and divided evenly.

        The tree is the same in all processes of the mesh, each of which provides the members of its own devices.
        """
        if self.mesh is None:
            return tree
        missing, divided = self._filled - self.members, NamedSharding(self.mesh, P(MEMBERS))

        def fill(leaf: Any) -> Any:
            leaf = jnp.asarray(leaf)
            return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)]) if missing else leaf

        filled = jax.tree.map(fill, tree)
        if not self.mesh.is_multi_process:
            return jax.device_put(filled, divided)
        return jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, divided, leaf.__getitem__), filled)

    def gathered(self, tree: Tree) -> Tree:
        """The inverse of ``placed``, on the host of every process of the mesh; all must call it."""
        if self.mesh is None:
            return tree
        if not self.mesh.is_multi_process:
            return jax.tree.map(lambda leaf: leaf[: self.members], jax.device_get(tree))
        # one at a time: a device holds it whole
        return jax.tree.map(lambda leaf: processes.whole(leaf)[: self.members], tree)


@jax.jit
def _streams(keys: Array) -> tuple[Array, ...]:
    """Keys (M,) -> those of initial parameters, of steps and of measurements."""
    return tuple(jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0))


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


def without_idle(mesh: Mesh | None, members: int) -> Mesh | None:
    """The mesh without devices that would only compute copies; None where the first device has all members.

    Of several processes each needs its own devices, so none is left out.
    """
    if mesh is None or mesh.is_multi_process:
        return mesh
    of_device = -(-members // mesh.size)
    devices = -(-members // of_device)
    if devices == 1 and mesh.devices.flat[0] == jax.devices()[0]:
        return None
    return Mesh(mesh.devices.flat[:devices], mesh.axis_names, axis_types=mesh.axis_types)


def member_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """A mesh with one axis, ``members``, over some devices, or those of all processes; None where there is one."""
    devices = jax.devices() if devices is None else list(devices)
    if len(devices) == 1 and devices[0] == jax.devices()[0]:
        return None
    return jax.make_mesh((len(devices),), (MEMBERS,), axis_types=(AxisType.Auto,), devices=devices)
