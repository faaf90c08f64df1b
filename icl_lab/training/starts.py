"""Where a training starts: parameters that are given, of one network or of every member."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.training.fitting import Fit

Tree = Any


def parameters(start: Any) -> Tree:
    """The parameters of what is given to start from: those of a ``Fit``, of what has one (``Trained``), or itself."""
    fitted = getattr(start, "fit", start)
    return fitted.params if isinstance(fitted, Fit) else start


def from_parameters(planned: Any, start: Any) -> Any:
    """The ``Training`` from given parameters in place of ``init``; everything else of it is as it was.

    Args:
      planned: the training.
      start: ``Trained``, ``Fit`` or parameters: of one network, from which all members start, or with a leading axis of
        members, each for its own.

    Raises:
      ValueError: naming the first place that parameters lack, or have another shape at.
    """
    like = jax.eval_shape(jax.vmap(planned.init), planned.keys, planned.settings)
    if not jax.tree.leaves(like):
        raise ValueError("start: this network has no parameters")
    params, settings = _of_members(parameters(start), like), planned.settings

    def inside(function: Any, place: int) -> Any:
        """Unpacks the setting from the pair (setting, start) at argument ``place``."""
        return function and (lambda *given: function(*given[:place], given[place][0], *given[place + 1 :]))

    def both(schedule: Any) -> Any:
        return schedule and (lambda pair, step: (schedule(pair[0], step), pair[1]))

    return dataclasses.replace(
        planned,
        init=lambda _, pair: pair[1],
        loss=inside(planned.loss, 2),
        measure=inside(planned.measure, 2),
        optimizer=planned.optimizer if hasattr(planned.optimizer, "update") else inside(planned.optimizer, 0),
        settings=(settings, params),
        schedule=both(planned.schedule),
        measure_schedule=both(planned.measure_schedule),
        sampler=inside(planned.sampler, 0),
    )


def _of_members(params: Tree, like: Tree) -> Tree:
    """(M, ...) parameters with the structure of ``like``, of one network or of all."""
    named = {_place(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    wanted = {_place(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(like)}
    if jax.tree_util.all_leaves([params]) and "" not in wanted:
        given = params if isinstance(params, int | float | str) else type(params).__name__
        raise ValueError(f"start must be parameters of this network, or what trained it, got {given!r}")
    if different := sorted(named.keys() ^ wanted.keys()):
        problem = "which this network has not" if different[0] in named else "which is missing"
        raise ValueError(f"start must be parameters of this network, or what trained it; {different[0]}, {problem}")
    one = all(np.shape(leaf) == wanted[place].shape[1:] for place, leaf in named.items())
    for place, leaf in named.items():
        shape = wanted[place].shape
        if not one and np.shape(leaf) != shape and np.shape(leaf) != (1, *shape[1:]):
            raise ValueError(
                f"start: {place} is {np.shape(leaf)}; allowed is {shape[1:]}, for all members, or {shape}, one each"
            )
    leaves = [jnp.asarray(named[place], leaf.dtype) for place, leaf in wanted.items()]
    full = [jnp.broadcast_to(leaf, wanted[place].shape) for leaf, place in zip(leaves, wanted)]
    return jax.tree.unflatten(jax.tree.structure(like), full)


def _place(path: Any) -> str:
    return jax.tree_util.keystr(path)
