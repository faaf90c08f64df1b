"""Trainings of several settings as one: their members side by side in one program, where the programs are alike."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from icl_lab.grids.lifting import Lifted, Traced, lift, trace
from icl_lab.training import Fit, fit

Tree = Any
_UNTRACED = ("steps", "measure_every", "members_at_once")
_NAMES = tuple(inspect.signature(fit).parameters)


@dataclasses.dataclass(frozen=True)
class Request:
    """A call of ``fit`` that waits to be made.

    Attributes:
      stage: its name.
      arguments: of ``fit``, by name.
    """

    stage: str
    arguments: dict[str, Any]

    @classmethod
    def of(cls, stage: str, args: Sequence, options: dict) -> "Request":
        """The request of ``fit(*args, **options)``."""
        return cls(stage, {"settings": None, **dict(zip(_NAMES, args)), **options})

    @property
    def members(self) -> int:
        """How many members it trains."""
        return self.arguments["keys"].shape[0]


class Merged(NamedTuple):
    """Requests that are one training.

    Attributes:
      which: their places among the requests that were given.
      arguments: of the ``fit`` that trains all their members, one request after the other.
    """

    which: list[int]
    arguments: dict[str, Any]


def merge(requests: Sequence[Request]) -> list[Merged]:
    """As few trainings as there can be: requests whose functions differ in constants alone are one program.

    Each member keeps its key and its settings, so it is trained as it would be alone, but for rounding.
    """
    programs = [_programs(request) for request in requests]
    groups: list[list[int]] = []
    for i, candidate in enumerate(programs):
        for group in groups:
            if _one_program([programs[group[0]], candidate]) is not None:
                group.append(i)
                break
        else:
            groups.append([i])
    return [merged for group in groups for merged in _merged(requests, programs, group)]


def _merged(requests: Sequence[Request], programs: "Sequence[_Programs]", group: list[int]) -> list[Merged]:
    """One training of a group, or several where its constants together are too large to be lifted."""
    if len(group) == 1:
        return [Merged(group, requests[group[0]].arguments)]
    lifted = _one_program([programs[i] for i in group])
    if lifted is None:
        half = len(group) // 2
        return _merged(requests, programs, group[:half]) + _merged(requests, programs, group[half:])
    return [Merged(group, _arguments([requests[i] for i in group], lifted))]


def _arguments(requests: Sequence[Request], lifted: dict[str, Lifted]) -> dict[str, Any]:
    """The arguments of ``fit`` for all members of requests whose functions are these."""
    first, bounds = requests[0].arguments, np.cumsum([0, *(r.members for r in requests)])
    which = np.repeat(np.arange(len(requests), dtype=np.int32), [r.members for r in requests])
    both, measure = lifted["loss"], lifted.get("measure")
    return {
        **{name: first[name] for name in _UNTRACED if name in first},
        "init": lambda key, s: lifted["init"](s["which"], key, s["own"]),
        "loss": lambda params, key, s: _with_gradient(both, params, s["which"], key, s["own"], s["step"]),
        "optimizer": lambda s: optax.GradientTransformation(
            lambda params: lifted["begin"](s["which"], params, s["own"]),
            lambda updates, state, params=None: lifted["update"](s["which"], updates, state, params, s["own"]),
        ),
        "keys": jnp.concatenate([r.arguments["keys"] for r in requests]),
        "settings": {"own": _joined([r.arguments["settings"] for r in requests]), "which": jnp.asarray(which)},
        "schedule": lambda s, step: s | {"step": step},
        "measure_schedule": lambda s, step: s | {"step": step},
        "measure": None
        if measure is None
        else lambda params, key, s: measure(s["which"], params, key, s["own"], s["step"]),
        "adapt": _adapt(requests, bounds) if any(r.arguments.get("adapt") for r in requests) else None,
    }


def split(fitted: Fit, requests: Sequence[Request]) -> list[Fit]:
    """What each request asked for, from the ``Fit`` of all their members."""
    bounds = np.cumsum([0, *(r.members for r in requests)])
    return [
        Fit(
            jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], fitted.params),
            fitted.steps,
            {name: values[a:b] for name, values in fitted.metrics.items()},
            fitted.diverged_at[a:b],
        )
        for a, b in itertools.pairwise(bounds)
    ]


class _Programs(NamedTuple):
    """A request as programs, and what else must agree.

    Attributes:
      traced: its functions.
      shapes: of its settings and keys.
      plain: what is not a function.
    """

    traced: dict[str, Traced]
    shapes: tuple
    plain: dict[str, Any]


def _programs(request: Request) -> _Programs:
    """The functions of a request as programs of shapes."""
    a = request.arguments
    key = jax.ShapeDtypeStruct((), a["keys"].dtype)
    setting = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], jnp.asarray(leaf).dtype), a["settings"])
    step = jax.ShapeDtypeStruct((), jnp.int32)
    loss, measure, optimizer = a["loss"], a.get("measure"), a["optimizer"]
    schedule, measure_schedule = (a.get(name) or (lambda s, _: s) for name in ("schedule", "measure_schedule"))
    made = optimizer if callable(optimizer) else lambda _: optimizer
    traced: dict[str, Traced] = {"init": trace(a["init"], key, setting)}
    params = traced["init"].shape
    traced["loss"] = trace(
        lambda params, key, s, step: jax.value_and_grad(loss)(params, key, schedule(s, step)),
        params, key, setting, step,
    )  # fmt: skip
    traced["begin"] = trace(lambda params, s: made(s).init(params), params, setting)
    traced["update"] = trace(
        lambda updates, state, params, s: made(s).update(updates, state, params),
        traced["loss"].shape[1], traced["begin"].shape, params, setting,
    )  # fmt: skip
    if measure is not None:
        traced["measure"] = trace(
            lambda params, key, s, step: measure(params, key, measure_schedule(s, step)), params, key, setting, step
        )
    shapes = (jax.tree.structure(setting), jax.tree.leaves(setting), key.dtype)
    return _Programs(traced, shapes, {name: a.get(name) for name in _UNTRACED})


def _one_program(programs: Sequence[_Programs]) -> dict[str, Lifted] | None:
    """The functions of several requests as one each; None where there is no such function."""
    first = programs[0]
    if any(p.shapes != first.shapes or p.plain != first.plain for p in programs):
        return None
    if any(p.traced.keys() != first.traced.keys() for p in programs):
        return None
    found = {}
    for name in first.traced:
        lifted = lift([p.traced[name] for p in programs])
        if lifted is None:
            return None
        found[name] = lifted
    return found


def _with_gradient(both: Lifted, params: Tree, *arguments: Any) -> Array:
    """A value whose gradient with respect to ``params`` is known: ``both(which, params, ...) -> (value, gradient)``.

    The gradient is that of the request's own program, so rules of differentiation that it has of its own are kept.
    """
    which, *rest = arguments

    @jax.custom_vjp
    def value(params: Tree) -> Array:
        return both(which, params, *rest)[0]

    value.defvjp(
        lambda params: both(which, params, *rest),
        lambda gradient, weight: (jax.tree.map(lambda leaf: weight * leaf, gradient),),
    )
    return value(params)


def _joined(trees: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.concatenate([jnp.asarray(leaf) for leaf in leaves]), *trees)


def _adapt(requests: Sequence[Request], bounds: np.ndarray) -> Callable:
    """Every request's own ``adapt`` on its own members."""

    def adapt(settings: Tree, step: int, row: dict[str, np.ndarray]) -> Tree:
        parts = []
        for request, (a, b) in zip(requests, itertools.pairwise(bounds)):
            mine = jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], settings["own"])
            change = request.arguments.get("adapt")
            parts.append(change(mine, step, {name: v[a:b] for name, v in row.items()}) if change else mine)
        return settings | {"own": _joined(parts)}

    return adapt
