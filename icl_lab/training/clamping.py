"""Training under an intervention: pin an attention pattern, keep a share of it, zero a head, freeze parameters."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.inspection import Intervention, held
from icl_lab.prompts.prompt import Prompt, Sample, Sampler, check_sampler
from icl_lab.prompts.tracing import is_traced
from icl_lab.training.fitting import Fit, Metrics, Tree
from icl_lab.training.optimizers import Optimizer, check_kind, of_setting
from icl_lab.training.plans import Training

FOREVER = 2**31 - 1


def pinned_attention(
    pattern: Array,
    layer: int,
    *,
    layers: int,
    rows: Array | None = None,
    start: ArrayLike = 0,
    stop: ArrayLike = FOREVER,
) -> Intervention:
    """The attention of one layer is this pattern, whatever its parameters, which get no gradient through it.

    Args:
      pattern: (H, T, N), or (1, T, N) for all heads alike.
      layer: which of the L layers, counted from 0.
      layers: L.
      rows: (T,) True for the tokens whose attention is pinned; None means all.
      start: first training step at which it acts.
      stop: first training step at which it no longer acts.

    Raises:
      ValueError: for a layer that there is not, or a pattern of another rank.
    """
    if pattern.ndim != 3:
        raise ValueError(f"pattern must be (H, T, N), got shape {pattern.shape}")
    at_layer = _at(layer, layers)
    pinned = jnp.ones(pattern.shape[1], bool) if rows is None else rows
    values = jnp.where(at_layer, pattern[None], 0)  # (L, H, T, N)
    return Intervention({"attention": values}, {"attention": at_layer & pinned[None, None, :, None]}, start, stop)


def kept_share(
    share: ArrayLike, group: Array, layer: int, *, layers: int, start: ArrayLike = 0, stop: ArrayLike = FOREVER
) -> Intervention:
    """A group of tokens gets this share of a softmax layer's attention; the pattern within it and outside is free.

    A network with a layer of linear attention, whose rows do not sum to one, refuses it.

    Args:
      share: in [0, 1].
      group: (T, N) True for the tokens that share it; rows without one stay as they are.
      layer: which of the L layers, counted from 0.
      layers: L.
      start: first training step at which it acts.
      stop: first training step at which it no longer acts.

    Raises:
      ValueError: for a layer that there is not, a group of another rank, or a share outside [0, 1] that is not traced.
    """
    if not is_traced(share) and not ((np.asarray(share) >= 0) & (np.asarray(share) <= 1)).all():
        raise ValueError(f"share must be in [0, 1], got {share}")
    if group.ndim != 2:
        raise ValueError(f"group must be (T, N), got shape {group.shape}")
    share = jnp.broadcast_to(jnp.asarray(share, float), (layers, 1, 1, 1))
    return Intervention(start=start, stop=stop, share=share, group=_at(layer, layers) & group[None, None])


def zeroed_head(
    layer: int, head: int, *, layers: int, heads: int, start: ArrayLike = 0, stop: ArrayLike = FOREVER
) -> Intervention:
    """One head adds nothing to the residual stream; its parameters get no gradient.

    Raises:
      ValueError: for a layer or a head that there is not.
    """
    if not 0 <= head < heads:
        raise ValueError(f"head must be one of 0 .. {heads - 1}, got {head}")
    mask = _at(layer, layers) & (jnp.arange(heads) == head)[None, :, None, None]
    return Intervention({"head_output": jnp.zeros(mask.shape)}, {"head_output": mask}, start, stop)


def frozen(names: Iterable[str] | dict[str, Array], *, start: ArrayLike = 0, stop: ArrayLike = FOREVER) -> Intervention:
    """These parameters do not move, by their gradients or by weight decay; the optimizer sees gradients of zero.

    Args:
      names: of parameters, paths in ``params["params"]`` joined by "/"; or by name True for the entries that do not
        move, broadcastable to the parameter.
      start: first training step at which it acts.
      stop: first training step at which it no longer acts.
    """
    masks = names if isinstance(names, dict) else {name: jnp.array(True) for name in names}
    return Intervention(frozen=masks, start=start, stop=stop)


def combined(*interventions: Intervention) -> Intervention:
    """All of them, each at its own steps; a later one acts on what an earlier one left."""
    return Intervention(also=interventions)


def by_member(interventions: Iterable[Intervention]) -> Intervention:
    """M interventions of the same kinds as one with a leading member axis; one that never acts has start = stop.

    Raises:
      ValueError: if they are not of the same kinds.
    """
    listed = list(interventions)
    if len({jax.tree.structure(one) for one in listed}) != 1:
        raise ValueError("interventions must be of the same kinds, in the same order; one that never acts: start=stop")
    # stacked by numpy, which compiles nothing
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves])), *listed)


Run = Callable[[Tree, Prompt, Intervention | None, ArrayLike], tuple[Array, Any]]
"""``(params, one prompt, intervention, step) -> (prediction, what else it computed)``."""


def clamped(
    init: Callable[[Array, Tree], Tree],
    run: Run,
    objective: Callable[[Array, Sample], Array],
    law: Callable[[Tree], Sampler],
    optimizer: Optimizer,
    keys: Array,
    intervention: Intervention | None,
    settings: Tree = None,
    *,
    batch: int,
    batched: bool = False,
    measure: Callable[[Tree, Array, Tree, Intervention | None, Array], Metrics] | None = None,
    **options: Any,
) -> Training:
    """A training under an intervention: M members in one compiled program, each clamped in its own way and time.

    From step ``start`` to ``stop`` (of the member's own intervention) what the network computes is replaced, what is
    frozen stays, and everything else learns under that; before and after it is plain training. A control has start =
    stop, the same key, and so the same start and the same tasks: differences between members are caused by the clamp.

    Args:
      init: ``(key, setting) -> params``.
      run: the network with its inside open, ``models.traced`` of it: ``(params, prompt, intervention, step)``.
      objective: ``(prediction, sample) -> ()`` loss of one task.
      law: ``setting -> sampler`` of the tasks.
      optimizer: an optax transformation, or ``setting -> transformation``. What is frozen gives it gradients of zero,
        so momentum gathers nothing, and its updates are dropped.
      keys: (M,) typed PRNG keys, one a member.
      intervention: with a leading member axis (``by_member``); None trains as ``fit`` does.
      settings: pytree whose leading axis is the member, for ``init``, ``law`` and ``optimizer``.
      batch: fresh tasks in a training step.
      batched: ``run`` takes the B prompts of a step at once, and ``objective`` B predictions and samples.
      measure: ``(params, key, setting, intervention, step) -> {name: array}``; ``run`` with these two sees what the
        clamped network computes at that step, without them what it would compute if it were free.
      options: of ``Training``: ``steps``, ``measure_every``, ``members_at_once``, ``learner``, ``sampler``, ``kept``.

    Returns:
      The training; nothing is trained yet.

    Raises:
      ValueError: for a batch below 1, a frozen name that no parameter has, or a sampler that ignores its key or the
        batch.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    members = {"setting": settings, "intervention": intervention, "step": jnp.zeros(keys.shape, jnp.int32)}
    check_kind(optimizer, settings)
    inner = of_setting(optimizer)
    of_first = lambda settings: law(jax.tree.map(lambda leaf: leaf[0], settings))  # noqa: E731
    jax.eval_shape(lambda settings: check_sampler("law", of_first(settings), batch), settings)

    def loss(params: Tree, key: Array, now: Tree) -> Array:
        def losses(samples: Sample) -> Array:
            return objective(run(params, samples.prompt, now["intervention"], now["step"])[0], samples)

        samples = law(now["setting"])(key, batch)
        return (losses if batched else jax.vmap(losses))(samples).mean()

    def observe(params: Tree, key: Array, now: Tree) -> Metrics:
        return measure(params, key, now["setting"], now["intervention"], now["step"]) if measure is not None else {}

    return Training(
        lambda key, now: init(key, now["setting"]),
        loss,
        lambda now: _holding(inner(now["setting"]), now["intervention"]),
        keys,
        members,
        measure=observe,
        schedule=_at_step,
        measure_schedule=_at_step,
        **options,
    )


def fit_clamped(*args: Any, **options: Any) -> Fit:
    """``fit`` under an intervention: carries out what ``clamped`` plans, whose arguments these are.

    Args:
      args: as ``clamped``.
      options: as ``clamped``, and of ``fit``: ``resume``, ``progress``, ``mesh``, ``memory_limit``, ``warn``.

    Raises:
      ValueError: as ``clamped`` or ``fit``.
    """
    names = ("resume", "progress", "mesh", "memory_limit", "warn")
    fit_options = {name: options.pop(name) for name in names if name in options}
    return clamped(*args, **options).carried_out(**fit_options)


def _at_step(now: Tree, step: Array) -> Tree:
    return now | {"step": step}


def _holding(
    transformation: optax.GradientTransformationExtraArgs, intervention: Intervention | None
) -> optax.GradientTransformation:
    """A transformation that does not move what is frozen; its state counts the steps."""
    if intervention is None:
        return transformation

    def init(params: Tree) -> Tree:
        return {"inner": transformation.init(params), "step": jnp.int32(0)}

    def update(gradient: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        step = state["step"]
        free = held(gradient, intervention, step)
        updates, inner = transformation.update(free, state["inner"], params, **extra | {"grad": free})
        return held(updates, intervention, step), {"inner": inner, "step": step + 1}

    return optax.GradientTransformationExtraArgs(init, update)


def _at(layer: int, layers: int) -> Array:
    """(L, 1, 1, 1) True at the layer."""
    if not 0 <= layer < layers:
        raise ValueError(f"layer must be one of 0 .. {layers - 1}, got {layer}")
    return (jnp.arange(layers) == layer)[:, None, None, None]
