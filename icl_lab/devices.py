"""Members of an ensemble over devices: each device has its share, and they never wait for each other inside a step."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Tree = Any
F = TypeVar("F", bound=Callable)
MEMBERS = "members"


def member_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """A mesh with one axis, ``members``, over these devices (None: all of this process); None where there is only one.

    Raises:
      ValueError: for no device.
    """
    chosen = jax.local_devices() if devices is None else list(devices)
    if not chosen:
        raise ValueError("devices must name one at least")
    if len(chosen) == 1:
        return None
    return jax.make_mesh((len(chosen),), (MEMBERS,), axis_types=(AxisType.Auto,), devices=chosen)


def share(members: int, mesh: Mesh | None) -> int:
    """How many members a device has, those included that only fill up."""
    return members if mesh is None else -(-members // mesh.size)


def placed(tree: Tree, members: int, mesh: Mesh | None) -> Tree:
    """A tree with a leading member axis on the devices: filled up with copies of the last member, and divided evenly.

    Args:
      tree: arrays (M, ...), of the host or a device.
      members: M.
      mesh: of ``member_mesh``; None leaves the tree as it is.
    """
    if mesh is None:
        return tree
    missing = mesh.size * share(members, mesh) - members

    def fill(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)]) if missing else leaf

    return jax.device_put(jax.tree.map(fill, tree), NamedSharding(mesh, P(MEMBERS)))


def gathered(tree: Tree, members: int, mesh: Mesh | None) -> Tree:
    """The inverse of ``placed``: the members themselves on the host, without those that fill up."""
    return tree if mesh is None else jax.tree.map(lambda leaf: leaf[:members], jax.device_get(tree))


def on_each_device(function: F, mesh: Mesh | None) -> F:
    """A function over a leading member axis, of which each device computes its own members; nothing is exchanged.

    A loop over members inside the function is a loop of each device over its own.
    """
    if mesh is None:
        return function
    divided = jax.shard_map(function, mesh=mesh, in_specs=P(MEMBERS), out_specs=P(MEMBERS), check_vma=False)
    return divided
