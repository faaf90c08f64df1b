"""Training is one function: ``fit``, a scan in time, vmapped over members."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import Array
from jax.sharding import Mesh

from icl_lab import notebook
from icl_lab.prompts.naming import sizes
from icl_lab.prompts.tracing import whole
from icl_lab.training import finite, noise, shown
from icl_lab.training.ensembles import Ensemble
from icl_lab.training.optimizers import Optimizer, check_optimizer, evaluated, of_setting, updated
from icl_lab.training.until import asked, never
from icl_lab.training.until import check as check_until

Tree = Any
Metrics = dict[str, Array]


class Fit(NamedTuple):
    """The outcome of ``fit``."""

    params: Tree  # final parameters, leading member axis; of a schedule-free optimizer those that it evaluates at
    steps: np.ndarray  # (R,) step numbers of the R measurements, the first is 0
    metrics: dict[str, np.ndarray]  # (M, R, ...) measurements by name, on the host
    diverged_at: np.ndarray  # (M,) step at which a member was stopped, -1 where it was not
    memory: int = 0  # bytes that the compiled programs need on each device; 0 where nothing was left to train
    resumed: int = 0  # steps that an earlier process had taken

    def __repr__(self) -> str:
        return f"Fit({shown.parts(self)})"

    def _repr_html_(self) -> str:
        return notebook.text(repr(self)) + notebook.table(shown.last(self))


class Resume(Protocol):
    """Where ``fit`` leaves its state between chunks, and finds it again (``icl_lab.lab.checkpoints``)."""

    def load(self, like: Callable[[], Tree]) -> Tree | None:
        """The saved tree with the structure of ``like()``, or None where there is none."""

    def save(self, tree: Callable[[], Tree], finished: bool) -> None:
        """May save ``tree()`` (always when finished)."""


def fit(
    init: Callable[[Array, Tree], Tree],
    loss: Callable[[Tree, Array, Tree], Array],
    optimizer: Optimizer,
    keys: Array,
    settings: Tree = None,
    *,
    steps: int,
    measure: Callable[[Tree, Array, Tree], Metrics] | None = None,
    measure_every: int | None = None,
    members_at_once: int | None = None,
    schedule: Callable[[Tree, Array], Tree] | None = None,
    measure_schedule: Callable[[Tree, Array], Tree] | None = None,
    until: Callable[[dict[str, np.ndarray]], bool] = never,
    resume: Resume | None = None,
    progress: Callable[[int, int], None] | None = None,
    watch: Callable[[int, dict[str, np.ndarray]], None] | None = None,
    mesh: Mesh | None = None,
    memory_limit: float | None = None,
    warn: bool = True,
    functions: "Member | None" = None,
) -> Fit:
    """Trains M members in one compiled program and measures each every ``measure_every`` steps.

    One member sees: ``init_key, data_key, eval_key = split(key, 3)``; step t uses ``fold_in(data_key, t)``, so any step
    can be replayed and resuming changes nothing; ``eval_key`` is the same at every measurement and apart from training.
    A member whose loss or gradient is not finite keeps its last good parameters and is reported in ``diverged_at``; the
    others go on.

    Args:
      init: ``(key, setting) -> params``.
      loss: ``(params, key, setting) -> ()``; draws its own data from the key.
      optimizer: an optax transformation, or ``setting -> transformation`` (a learning rate for each member). It gets
        ``value``, ``grad`` and ``value_fn`` of the step's own loss. Schedule-free ones are measured, and end, at their
        evaluation weights. Noise (``optax.add_noise``) is drawn by the optimizer's key and the member's.
      keys: (M,) typed PRNG keys, one a member.
      settings: pytree whose leading axis is the member; a grid is just more members. None for no settings.
      steps: largest number of training steps.
      measure: ``(params, key, setting) -> {name: array}``. Beside its names the metrics hold ``train_loss``, the mean
        loss of the steps since the measurement before (NaN at step 0).
      measure_every: steps between measurements (also the length of a compiled chunk); None means ``steps``. Where it
        does not divide ``steps``, the last measurement comes earlier, after a shorter chunk, compiled by itself.
      members_at_once: how many members are vectorised together; the others wait their turn inside the same program,
        and measurements go one by one. On a CPU large batches run fastest one by one (caches). None means all, in both.
      schedule: ``(setting, step) -> setting`` that the loss of this step sees, for what changes during training: a
        curriculum, an intervention. ``init``, ``optimizer`` and ``measure`` see the setting as it is.
      measure_schedule: the same for ``measure``, with the steps taken so far; None: it sees the setting as it is.
      until: ``what was measured (M, ...) -> whether training ends here``, for all members, before ``steps`` are over.
        One that reads nothing but measurements and numbers is first asked with ones in their place.
      resume: where to leave and find the state between chunks; None keeps nothing. A shorter last chunk is not left:
        whoever takes more steps later begins in front of it, and measures where an undivided training does.
      progress: ``progress(steps done, steps)``, called at chunk boundaries.
      watch: ``watch(steps done, what was measured then (M, ...))``, called there too.
      mesh: devices that share the members (``training.ensembles.member_mesh``); None: one device has all.
      memory_limit: bytes that the compiled programs may need on each device. Where all members need more, fewer are
        vectorised together. None: no limit.
      warn: False leaves it to the caller to say which members diverged.
      functions: ``member`` of the same arguments, where the caller has traced it already; None makes it here.

    Warns:
      RuntimeWarning: naming the members whose loss or gradient was not finite.

    Raises:
      ValueError: if ``steps`` or ``measure_every`` is below 1, keys and settings disagree, JAX is told to compile
        nothing or to overlook NaN, ``until`` asks for what is not measured, or the optimizer is no optimizer, cannot be
        used here, or moves parameters up the gradient.
      DoesNotFitError: if one member at a time, with the state of all, needs more than ``memory_limit``.
    """
    steps = whole("steps", steps)
    measure_every = steps if measure_every is None else whole("measure_every", measure_every)
    _check(keys, settings, members_at_once)
    settings = jax.device_put(settings)  # jnp.asarray compiles a program for every shape
    check_optimizer(optimizer, init, keys, settings)
    one = functions or member(init, loss, optimizer, measure, schedule, measure_schedule)
    of_all = functools.partial(jax.eval_shape, jax.vmap(one.begin), keys, settings)
    check_until(until, lambda: _measured_like(one, of_all(), keys, settings))
    ends = asked(until)
    saved = None if resume is None else resume.load(lambda: {"state": of_all()})
    rows: list[dict[str, np.ndarray]] = []  # what was measured, (M, ...) by name
    resumed = memory = 0
    if saved is not None:
        taken = len(saved["metrics"]["train_loss"][0])
        rows = [{name: values[:, r] for name, values in saved["metrics"].items()} for r in range(taken)]
        resumed = measure_every * (taken - 1)

    def advanced(done: int) -> None:
        if progress is not None:
            progress(done, steps)
        if watch is not None:
            watch(done, rows[-1])

    def fitted(state: TrainState) -> Fit:
        at, stopped = measure_every * np.arange(len(rows)), np.asarray(state.diverged_at)
        at[-1] = np.asarray(state.step)[0]  # after a shorter chunk fewer
        params = jax.device_put(jax.vmap(evaluated)(state.opt_state, state.params))
        if warn and (stopped >= 0).any():
            message = f"{(stopped >= 0).sum()} of {stopped.size} members diverged and were stopped"
            named = ", ".join(map(str, np.flatnonzero(stopped >= 0)))
            warnings.warn(f"{message}: {named} (diverged_at has the steps)", RuntimeWarning, 3)
        return Fit(params, at, _stack(rows), stopped, memory, resumed)

    ended = resumed < steps and any(ends(row) for row in rows)  # of before too: the function may keep a state
    if saved is not None and (resumed >= steps or ended):  # finished: nothing is compiled
        advanced(steps)
        return fitted(saved["state"])

    def of_length(chunk: int) -> Ensemble:
        return Ensemble(
            one.begin, one.chunk(chunk), one.observe, keys, settings,
            members_at_once=members_at_once, mesh=mesh, memory_limit=memory_limit,
        )  # fmt: skip

    ensemble = of_length(length := min(measure_every, steps - resumed))

    def measured(train_loss: Any) -> dict[str, np.ndarray]:
        metrics = {"train_loss": train_loss} | ensemble.gathered(ensemble.observe(state))
        return {name: np.asarray(value) for name, value in metrics.items()}

    def snapshot() -> Tree:
        return {"state": ensemble.gathered(state), "metrics": _stack(rows)}

    state = ensemble.begin() if saved is None else ensemble.placed(saved["state"])
    if not rows:
        rows.append(measured(np.full(len(keys), np.nan)))
        ended = ends(rows[-1])
        if resume is not None:
            resume.save(snapshot, finished=measure_every > steps)
    done, memory = (len(rows) - 1) * measure_every, ensemble.memory
    advanced(done)
    while done < steps and not ended:
        if steps - done < length:  # the rest
            length = steps - done
            ensemble = of_length(length)
            memory = max(memory, ensemble.memory)
        state, train_loss = ensemble.advance(state)
        done += length
        rows.append(measured(ensemble.gathered(train_loss)))
        ended = done < steps and ends(rows[-1])
        if resume is not None and done % measure_every == 0:
            resume.save(snapshot, finished=done + measure_every > steps or ended)
        advanced(done)
    return fitted(ensemble.gathered(state))


def check_keys(keys: Any) -> None:
    """ValueError for what is no (M,) typed PRNG keys."""
    if not isinstance(keys, jax.Array) or not noise.is_key(keys) or keys.ndim != 1 or keys.shape[0] < 1:
        got = f"{sizes(keys)} of {keys.dtype}" if isinstance(keys, jax.Array) else sizes(keys)
        usual = "allowed is jax.random.split(jax.random.key(0), M)"
        raise ValueError(f"keys must be (M,) typed PRNG keys with M >= 1, got {got}; {usual}")


def _check(keys: Array, settings: Tree, members_at_once: int | None) -> None:
    config: Any = jax.config  # whose names no type checker knows
    if config.jax_disable_jit:
        raise ValueError("JAX_DISABLE_JIT (jax.disable_jit) is on: a training is one compiled program; allowed is off")
    finite.check()
    check_keys(keys)
    if members_at_once is not None and members_at_once < 1:
        raise ValueError(f"members_at_once must be at least 1, got {members_at_once}")
    for leaf in jax.tree.leaves(settings):
        if np.shape(leaf)[:1] != keys.shape:
            raise ValueError(f"settings must have leading axis M = {keys.shape[0]}, got shape {np.shape(leaf)}")


def _measured_like(one: "Member", state: Tree, keys: Array, settings: Tree) -> Metrics:
    """Shapes and types of what is measured of all members, by name."""
    like = jax.eval_shape(jax.vmap(one.observe), state, keys, settings)
    return {"train_loss": jax.ShapeDtypeStruct(keys.shape, jnp.float32)} | like


def _stack(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Rows of (M, ...) measurements -> (M, R, ...) arrays by name."""
    return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}


def check(init: Callable, optimizer: Optimizer, keys: Array, settings: Tree, members_at_once: int | None) -> None:
    """Raises ValueError for what ``fit`` refuses before it traces a step; the arguments are those of ``fit``."""
    _check(keys, settings, members_at_once)
    check_optimizer(optimizer, init, keys, settings)


@struct.dataclass
class TrainState:
    """What the next step needs. Inside ``fit`` every leaf has a leading member axis."""

    params: Tree
    opt_state: Tree
    step: Array  # steps taken (int32)
    diverged_at: Array  # step at which the loss or a gradient was not finite and the member was stopped, or -1


class Member(NamedTuple):
    """Training of one member, as functions to be compiled."""

    begin: Callable[[Array, Tree], TrainState]  # (key, setting) -> state
    step: Callable[[TrainState, Array, Tree], tuple[TrainState, Array]]  # (state, key, setting) -> (state, loss)
    observe: Callable[[TrainState, Array, Tree], Metrics]  # (state, key, setting) -> {name: array}

    def chunk(self, steps: int) -> Callable[[TrainState, Array, Tree], tuple[TrainState, Array]]:
        """Some steps, ``(state, key, setting) -> (state, mean loss)``."""

        def advance(state: TrainState, key: Array, setting: Tree) -> tuple[TrainState, Array]:
            state, losses = jax.lax.scan(lambda s, _: self.step(s, key, setting), state, length=steps)
            return state, losses.mean()

        return advance


def member(
    init: Callable[[Array, Tree], Tree],
    loss: Callable[[Tree, Array, Tree], Array],
    optimizer: Optimizer,
    measure: Callable[[Tree, Array, Tree], Metrics] | None = None,
    schedule: Callable[[Tree, Array], Tree] | None = None,
    measure_schedule: Callable[[Tree, Array], Tree] | None = None,
) -> Member:
    """What ``fit`` does with one member; the arguments are those of ``fit``."""
    transformation = of_setting(optimizer)

    def begin(key: Array, setting: Tree) -> TrainState:
        params = init(key, setting)
        opt_state = noise.of_member(transformation(setting).init(params), key)
        return TrainState(params, opt_state, jnp.int32(0), jnp.int32(-1))

    def step(state: TrainState, key: Array, setting: Tree) -> tuple[TrainState, Array]:
        now = setting if schedule is None else schedule(setting, state.step)
        value, gradient = jax.value_and_grad(loss)(state.params, jax.random.fold_in(key, state.step), now)
        again = lambda params: loss(params, jax.random.fold_in(key, state.step), now)  # noqa: E731
        of_member = transformation(setting)
        updates, opt_state = updated(of_member, gradient, state.opt_state, state.params, value, again)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(gradient))
        good = finite & (state.diverged_at < 0)
        keep = lambda new, old: jnp.where(good, new, old)  # noqa: E731
        params = jax.tree.map(keep, optax.apply_updates(state.params, updates), state.params)
        opt_state = jax.tree.map(keep, opt_state, state.opt_state)
        diverged_at = jnp.where((state.diverged_at < 0) & ~finite, state.step, state.diverged_at)
        return TrainState(params, opt_state, state.step + 1, diverged_at), value

    def observe(state: TrainState, key: Array, setting: Tree) -> Metrics:
        now = setting if measure_schedule is None else measure_schedule(setting, state.step)
        return {} if measure is None else measure(evaluated(state.opt_state, state.params), key, now)

    return Member(begin, step, observe)
