"""Optimizers of optax as training takes them, and what is refused of them before anything compiles."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from optax.contrib import ScheduleFreeState, schedule_free_eval_params

from icl_lab.prompts.naming import raised
from icl_lab.prompts.tracing import check_number
from icl_lab.training import effort, noise, programs

Tree = Any
Optimizer: TypeAlias = optax.GradientTransformation | Callable[[Tree], optax.GradientTransformation]
ASCENDS = 0.5
"""Cosine of a first update with the gradient. Optimizers of optax have at most 0, parts of them that lack a negative
learning rate about 1."""

VALUELESS = (
    jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError,
)  # fmt: skip
UNIT_SCHEDULE = (
    "a setting differs between members, so allowed is a schedule for a peak of 1, times the member's rate: schedule = "
    "optax.warmup_cosine_decay_schedule(0.0, 1.0, 100, 1000) and lambda rate: optax.adam(lambda step: rate * "
    "schedule(step))"
)
"""What works where a schedule of optax compares a setting with a number."""


def check_kind(optimizer: Optimizer, settings: Tree) -> None:
    """Raises ValueError for what is neither a transformation nor, where there are settings, a function of one."""
    if not _transforms(optimizer) and (not callable(optimizer) or settings is None):
        got = (
            f"the function {getattr(optimizer, '__name__', optimizer)} and no settings"
            if callable(optimizer)
            else repr(optimizer)
        )
        raise ValueError(
            "optimizer must be an optax transformation (optax.adam(1e-3)), or with settings a function "
            f"setting -> transformation; got {got}"
        )


def check_rate(rate: Any, settings: Any) -> None:
    """Raises ValueError for a learning rate that is neither a number above 0 nor a schedule.

    Beside settings a function of a step is known by the name of its argument, as schedules of optax have it.
    """
    if _transforms(rate):
        raise ValueError("learning_rate must be a number or a schedule, got a transformation of optax: give optimizer=")
    if not callable(rate):
        if isinstance(rate, bool):
            raise ValueError(f"learning_rate must be a number above 0, got {rate}")
        check_number("learning_rate", rate, above=0, scalar=True)
        return
    needed = tuple(name for name, one in _parameters(rate) if one.default is one.empty)
    if settings is not None and needed not in (("step",), ("count",)):
        raise ValueError(
            f"learning_rate: a function of ({', '.join(needed)}) beside settings; allowed is a schedule whose one "
            "argument is named step or count; a rate for each member is settings=rates, optimizer=lambda rate: "
            "optax.adam(rate)"
        )
    output: Any = None

    def at(step: Array) -> tuple:
        nonlocal output
        output = rate(step)
        return ()

    try:
        jax.eval_shape(at, jax.ShapeDtypeStruct((), jnp.int32))
    except Exception as error:  # whatever a foreign function raises
        usual = "a number, or a function of the step in jax.numpy"
        raise ValueError(f"learning_rate must be {usual}; it {raised(error)}") from error
    if not isinstance(output, int | float | np.generic | np.ndarray | Array) or np.shape(output):
        got = f"an array {output.shape}" if hasattr(output, "shape") else type(output).__name__
        raise ValueError(f"learning_rate must give one number for a step, got {got}")


def _parameters(function: Any) -> list[tuple[str, inspect.Parameter]]:
    """The arguments of a function by name; none where they are not known."""
    try:
        return list(inspect.signature(function).parameters.items())
    except (TypeError, ValueError):
        return []


def of_setting(optimizer: Optimizer) -> Callable[[Tree], optax.GradientTransformationExtraArgs]:
    """The optimizer as ``setting -> transformation``, which takes ``value``, ``grad`` and ``value_fn``.

    Raises:
      ValueError: when it is called, for a function that returns something else than a transformation.
    """

    def of(setting: Tree) -> optax.GradientTransformationExtraArgs:
        transformation: Any = optimizer(setting) if callable(optimizer) else optimizer
        if not _transforms(transformation):
            raise ValueError(f"optimizer must give an optax transformation for a setting, got {transformation!r}")
        return optax.with_extra_args_support(transformation)

    return of


def updated(
    transformation: optax.GradientTransformationExtraArgs,
    gradient: Tree, state: Tree, params: Tree, value: Array, value_fn: Callable[[Tree], Array],
) -> tuple[Tree, Tree]:  # fmt: skip
    """Updates and the next state; line searches and the like get the loss of the same tasks."""
    extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    return transformation.update(gradient, state, params, **extra)


def evaluated(state: Tree, params: Tree) -> Tree:
    """Parameters as they are measured: the average of a schedule-free optimizer, where there is one (optax.contrib).

    Raises:
      ValueError: for several of them, or one of a part of the parameters.
    """
    free = [part for part in jax.tree.leaves(state, is_leaf=_is_free) if _is_free(part)]
    if not free:
        return params
    trees: list[Any] = [jax.tree.structure(tree) for tree in (free[0].z, params)]
    if len(free) > 1 or trees[0] != trees[1]:
        raise ValueError("optimizer: schedule_free has evaluation weights only where it has all parameters")
    return schedule_free_eval_params(free[0], params)


def check_optimizer(optimizer: Optimizer, init: Callable[[Array, Tree], Tree], keys: Array, settings: Tree) -> None:
    """Refuses an optimizer that cannot train what ``init`` makes; the arguments are those of ``fit``.

    Raises:
      ValueError: naming the function of optax that cannot be used, or the parameters that a transformation moves up the
        gradient (a ``setting -> transformation`` is not asked for that); for one that draws the same random numbers for
        all members, as its state has no key.
    """
    check_kind(optimizer, settings)
    of, searched = of_setting(optimizer), []
    key, setting = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (keys, settings))
    like = jax.eval_shape(init, key, setting)
    blamed = optimizer if _transforms(optimizer) else None

    def loss(point: Tree) -> Array:  # its gradient at zero is -1 everywhere
        searched.append(True)
        return sum((0.5 * jnp.sum(jnp.abs(leaf - 1) ** 2) for leaf in jax.tree.leaves(point)), jnp.float32(0))

    def begun(setting: Tree) -> Tree:
        nonlocal blamed
        blamed = of(setting)
        return blamed.init(start())

    def start() -> Tree:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

    def first(setting: Tree, state: Tree) -> tuple[Tree, Tree]:
        zeros = start()
        slope = jax.tree.map(lambda leaf: leaf - 1, zeros)
        update, state = updated(of(setting), slope, state, zeros, jnp.float32(1), loss)
        return update, evaluated(state, zeros)

    try:
        beginning, state = jax.make_jaxpr(begun, return_shape=True)(setting)
        update = jax.make_jaxpr(first)(setting, state)
    except VALUELESS as error:
        raise ValueError(
            f"optimizer: {_blamed(error, blamed)} needs the value of a number that has none while a program is made "
            f"(it {raised(error)}); {UNIT_SCHEDULE if jax.tree.leaves(setting) else 'allowed is jnp.where(...)'}"
        ) from error
    except Exception as error:  # whatever optax raises
        if isinstance(error, ValueError) and str(error).startswith("optimizer"):
            raise
        raise ValueError(
            f"optimizer: {_blamed(error, blamed)} cannot be used here, where an update gets the gradient, params, "
            f"value, grad and value_fn; it {raised(error)}"
        ) from error
    of_members = [True] * len(jax.tree.leaves(setting))
    keys_of_state = list(map(noise.is_key, jax.tree.leaves(state)))
    again = jax.make_jaxpr(lambda *given: first(*given)) if update.consts else None  # another function: traced anew
    frozen = again is not None and noise.differ(update.consts, again(setting, state).consts)  # as numpy's are
    if frozen or noise.same_for_all(beginning, of_members) or noise.same_for_all(update, of_members + keys_of_state):
        raise ValueError(
            "optimizer draws the same random numbers for all members, which are then not "
            "independent; allowed is one whose state holds the key that it draws by, a typed one (jax.random.key(0)), "
            "as that of optax.add_noise: the key of each member enters there"
        )
    if not _transforms(optimizer) or searched:  # a line search looks where it goes, and takes long to compile
        return
    alone = jax.jit(lambda: first(None, begun(None))[0])
    moved = jax.device_get(programs.compiled(alone.trace(), effort.of("little"))())
    wide = jax.tree.map(lambda leaf: leaf.astype(complex), moved)  # squares of large updates overflow float32
    up = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(wide)
        if -leaf.real.sum() > ASCENDS * np.linalg.norm(leaf) * leaf.size**0.5
    ]
    if up:
        raise ValueError(
            f"optimizer moves parameters up the gradient, {', '.join(up[:4])}{', ...' * (len(up) > 4)}: allowed is one "
            "that has a negative learning rate at its end (optax.scale(-1e-3)), or optax.set_to_zero(), for each"
        )


def _transforms(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "init") and hasattr(value, "update")


def _is_free(part: Any) -> bool:
    return isinstance(part, ScheduleFreeState)


def _blamed(error: Exception, transformation: Any) -> str:
    """The function of optax that raised an error, or whose update was called."""
    name, frame = "the function", error.__traceback__
    if transformation is not None:
        name = transformation.update.__qualname__
    while frame is not None:
        if "optax" in frame.tb_frame.f_code.co_filename:
            name = frame.tb_frame.f_code.co_qualname
        frame = frame.tb_next
    return name.split(".")[0]
