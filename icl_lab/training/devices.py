"""Members of an ensemble over devices: each device has its share, and they never wait for each other inside a step.

The devices may be those of several processes (``icl_lab.training.processes``). All hold the same arrays outside a mesh.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from icl_lab.training import processes

Tree = Any
F = TypeVar("F", bound=Callable)
MEMBERS = "members"


def member_mesh() -> Mesh | None:
    """A mesh with one axis, ``members``, over the devices of all processes; None where there is one."""
    devices = jax.devices()
    if len(devices) == 1:
        return None
    return jax.make_mesh((len(devices),), (MEMBERS,), axis_types=(AxisType.Auto,), devices=devices)


def share(members: int, mesh: Mesh | None) -> int:
    """How many members a device has, those included that only fill up."""
    return members if mesh is None else -(-members // mesh.size)


def placed(tree: Tree, members: int, mesh: Mesh | None) -> Tree:
    """A tree (M, ...) on the devices: filled up with copies of the last member, and divided evenly.

    The tree is the same in all processes of the mesh, each of which provides the members of its own devices.
    """
    if mesh is None:
        return tree
    missing = mesh.size * share(members, mesh) - members

    def fill(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)]) if missing else leaf

    filled, divided = jax.tree.map(fill, tree), NamedSharding(mesh, P(MEMBERS))
    if not mesh.is_multi_process:
        return jax.device_put(filled, divided)
    return jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, divided, leaf.__getitem__), filled)


def gathered(tree: Tree, members: int, mesh: Mesh | None) -> Tree:
    """The inverse of ``placed``, on the host of every process of the mesh; all must call it."""
    if mesh is None:
        return tree
    if not mesh.is_multi_process:
        return jax.tree.map(lambda leaf: leaf[:members], jax.device_get(tree))
    return jax.tree.map(lambda leaf: processes.whole(leaf)[:members], tree)  # one at a time: a device holds it whole


def on_each_device(function: F, mesh: Mesh | None) -> F:
    """A function over a leading member axis, of which each device computes its own members; nothing is exchanged."""
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=P(MEMBERS), out_specs=P(MEMBERS), check_vma=False)
