"""The one door into a network: what it computed on the way (Trace), and what to put there instead (Intervention)."""

from dataclasses import field

import jax
from flax import struct
from jax import Array
from jax import numpy as jnp
from jax.typing import ArrayLike


@struct.dataclass
class Trace:
    """What a network computed on the way to one prediction. L layers, H heads, T tokens, N keys (T with the query as
    a key), E token width.

    Attributes:
      attention: (L, H, T, N) attention patterns.
      head_output: (L, H, T, E) what each head adds to the residual stream, before damping and masking.
      residual: (L + 1, T, E) residual stream: the input tokens, then the tokens after each block.
    """

    attention: Array
    head_output: Array
    residual: Array


@struct.dataclass
class Intervention:
    """Array data that clamps a network while it runs or learns; it vmaps, and lives inside a compiled loop.

    Entries of a trace may be replaced, attention to a group of tokens kept at a share, parameters frozen. Arrays of a
    trace field have its rank, and its shape or 1 where they are the same along an axis. ``training.clamping`` builds
    the usual ones, and trains under them.

    Attributes:
      replace: by name of a ``Trace`` field, the values to put in.
      mask: by the same names, True where the value is replaced; it has an entry for every layer.
      share: (L, H, T, 1) what a group of tokens gets of the attention of each token, in [0, 1].
      group: (L, H, T, N) True for the group; rows without one stay. The pattern's shape within the group is free, and
        outside: both are scaled, so rows must be positive and sum to one (a stack with linear attention refuses it).
      frozen: by name of a parameter (its path in ``params["params"]``, parts joined by "/"), True where it does not
        move in training, broadcastable to it.
      start: first training step at which it acts.
      stop: first training step at which it no longer acts.
      also: other interventions, each with its own steps; a later one acts on what an earlier one left.
    """

    replace: dict[str, Array] = field(default_factory=dict)
    mask: dict[str, Array] = field(default_factory=dict)
    start: ArrayLike = 0
    stop: ArrayLike = 2**31 - 1
    share: Array | None = None
    group: Array | None = None
    frozen: dict[str, Array] = field(default_factory=dict)
    also: tuple["Intervention", ...] = ()


def check_intervention(intervention: Intervention | None, layers: int) -> None:
    """Checks that an intervention, and those that it carries in ``also``, fit a network of so many layers.

    Raises:
      ValueError: for a name that no field of a trace has, a value without its mask, a share without its group, or a
        mask or group of another number of layers.
    """
    if intervention is None:
        return
    lengths = {"attention": layers, "head_output": layers, "residual": layers + 1}
    if intervention.replace.keys() != intervention.mask.keys() or not intervention.mask.keys() <= lengths.keys():
        named = f"replace has {sorted(intervention.replace)}, mask has {sorted(intervention.mask)}"
        raise ValueError(f"replace and mask must have the same names, of {', '.join(lengths)}; {named}")
    if (intervention.share is None) != (intervention.group is None):
        raise ValueError("a share of attention needs the group that gets it, and a group its share")
    group = {} if intervention.group is None else {"group": intervention.group}
    for name, mask in (intervention.mask | group).items():
        if len(mask) != lengths.get(name, layers):
            allowed = f"of a network of {layers} layers it has {lengths.get(name, layers)} entries"
            raise ValueError(f"the intervention is of another number of layers: {name} has {len(mask)}, {allowed}")
    for other in intervention.also:
        check_intervention(other, layers)


def acts(intervention: Intervention, step: ArrayLike) -> Array:
    """Whether it acts at this step (those that it carries in ``also`` have their own steps)."""
    return (jnp.asarray(step) >= intervention.start) & (jnp.asarray(step) < intervention.stop)


def keeps_share(intervention: Intervention | None) -> bool:
    """Whether it, or one that it carries in ``also``, keeps attention to a group of tokens at a share, at any step."""
    if intervention is None:
        return False
    return intervention.share is not None or any(map(keeps_share, intervention.also))


def intervened(value: Array, name: str, layer: int, intervention: Intervention | None, step: ArrayLike) -> Array:
    """The value of trace field ``name`` at ``layer``, with the intervention applied where it acts at this step."""
    if intervention is None:
        return value
    active = acts(intervention, step)
    if name in intervention.replace:
        value = jnp.where(active & intervention.mask[name][layer], intervention.replace[name][layer], value)
    if name == "attention" and intervention.share is not None and intervention.group is not None:
        group = intervention.group[layer]
        active = active & group.any(-1, keepdims=True)
        value = jnp.where(active, _shared(value, group, intervention.share[layer]), value)
    for other in intervention.also:
        value = intervened(value, name, layer, other, step)
    return value


def _shared(pattern: Array, group: Array, share: Array) -> Array:
    """(H, T, N) pattern scaled so that each row gives its group this share, and the rest to the others."""
    inside, outside = (jnp.where(part, pattern, 0).sum(-1, keepdims=True) for part in (group, ~group))
    inside, outside = jnp.maximum(inside, 1e-12), jnp.maximum(outside, 1e-12)  # rows without a group divide too
    return pattern * jnp.where(group, share / inside, (1 - share) / outside)


def held(updates: dict, intervention: Intervention | None, step: ArrayLike) -> dict:
    """A tree like ``{"params": ...}`` (updates, gradients) with zeros for what is frozen at this step.

    Raises:
      ValueError: for a frozen name that no parameter has.
    """
    if intervention is None:
        return updates
    names = [parameter_name(path[1:]) for path, _ in jax.tree_util.tree_leaves_with_path(updates)]
    unknown = set(intervention.frozen) - set(names)
    if unknown:
        raise ValueError(f"frozen must name parameters, {sorted(names)}; got {sorted(unknown)}")
    active = acts(intervention, step)

    def hold(path: tuple, update: Array) -> Array:
        mask = intervention.frozen.get(parameter_name(path[1:]))
        return update if mask is None else jnp.where(active & mask, 0, update)

    updates = jax.tree_util.tree_map_with_path(hold, updates)
    for other in intervention.also:
        updates = held(updates, other, step)
    return updates


def parameter_name(path: tuple) -> str:
    """The name of a parameter, of its path in ``params["params"]``."""
    return "/".join(str(part.key) for part in path)
