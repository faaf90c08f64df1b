"""Gradient flow on the phenomenological loss of induction-head learning: its path, and when it falls off the cliff."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from icl_lab.theory.flows.gradient_flow import padded
from icl_lab.theory.nested_logits.loss import check_form, check_sizes, checked_logits, loss_of, room

Floats = NDArray[np.float64]
RTOL, ATOL, MAX_STEPS = 1e-8, 1e-11, 100_000


class NestedLogitFlow(NamedTuple):
    """Paths of M flows at S times.

    Attributes:
      times: (S,).
      path: (M, S, 3) beta_1, alpha, xi.
      loss: (M, S).
      gradient: (M, S, 3).
    """

    times: Floats
    path: Floats
    loss: Floats
    gradient: Floats


def nested_logit_flow(
    start: ArrayLike, times: ArrayLike, *, context_length: ArrayLike, labels: ArrayLike, form: str = "simplified"
) -> NestedLogitFlow:
    """Integrates (beta_1, alpha, xi)' = -grad loss from M starts (Reddy 2023, Fig. 7: the trajectory).

    Tsitouras' method of order 5, relative tolerance 1e-8, absolute 1e-11.

    Args:
      start: (M, 3), or (3,) one start.
      times: (S,) increasing times from 0 on.
      context_length: N, or (M,) one for each flow.
      labels: L, or (M,).
      form: ``simplified`` or ``mean_field`` (``nested_logits``).

    Raises:
      ValueError: naming the argument, for starts that are not finite or not (M, 3), times that do not increase from 0
        on, sizes that are refused by ``nested_logit_loss``, an unknown form.
      RuntimeError: for a flow that did not reach the last time in 100,000 steps.
    """
    starts, n, count = _checked(start, context_length, labels, form)
    output = np.atleast_1d(np.asarray(times, np.float64))
    if output.ndim != 1 or not np.isfinite(output).all() or output[0] < 0 or np.any(np.diff(output) <= 0):
        raise ValueError(f"times must be finite and increase from 0 on, got {times!r}")
    with jax.enable_x64(True):
        results = _paths(form, room(form, int(n.max())))(*padded(8, starts, n, count), output)
    path, loss, gradient, reached = (value[: len(n)] for value in jax.device_get(results))
    if not reached.all():
        raise RuntimeError(f"flows {np.flatnonzero(~reached).tolist()} did not reach time {output[-1]:g}")
    return NestedLogitFlow(output, path, loss, gradient)


def escape_time(
    start: ArrayLike,
    level: ArrayLike,
    *,
    context_length: ArrayLike,
    labels: ArrayLike,
    form: str = "simplified",
    horizon: float = 1e6,
) -> Floats:
    """(M,) first time at which the loss of the flow is at or below ``level``; infinite where that is after ``horizon``.

    Found by a root finder inside the step of the ODE solver, to about 1e-6 of the time.

    Args:
      start: (M, 3), or (3,) for one.
      level: loss, or (M,) one for each flow.
      context_length: N, or (M,).
      labels: L, or (M,).
      form: ``simplified`` or ``mean_field``.
      horizon: longest time, above 0.

    Raises:
      ValueError: as ``nested_logit_flow``, or for a level or horizon that is not positive.
      RuntimeError: for a flow that did neither in 100,000 steps.
    """
    levels = np.atleast_1d(np.asarray(level, np.float64))
    if levels.ndim != 1 or not (np.all(levels > 0) and np.isfinite(horizon) and horizon > 0):
        raise ValueError(f"level and horizon must be positive, got {level!r} and {horizon!r}")
    starts, n, count = _checked(start, context_length, labels, form, len(levels))
    with jax.enable_x64(True):
        arguments = padded(64, starts, n, count, np.broadcast_to(levels, n.shape))
        results = _events(form, room(form, int(n.max())))(*arguments, jnp.float64(horizon))
    time, escaped, failed = (value[: len(n)] for value in jax.device_get(results))
    if failed.any():
        raise RuntimeError(f"flows {np.flatnonzero(failed).tolist()} took more than {MAX_STEPS} steps")
    return np.where(escaped, time, np.inf)


def cliff_time(
    start: ArrayLike,
    *,
    context_length: ArrayLike,
    labels: ArrayLike,
    form: str = "simplified",
    horizon: float = 1e6,
) -> Floats:
    """(M,) time at which the loss has fallen to (log N)/2, half of what is left once some context label is answered.

    Arguments and errors as ``escape_time``, N at least 2.
    """
    n = np.asarray(context_length, np.float64)
    if not np.all(n >= 2):
        raise ValueError(f"context_length must be at least 2 for a cliff, got {context_length!r}")
    level = np.log(n) / 2
    return escape_time(start, level, context_length=context_length, labels=labels, form=form, horizon=horizon)


def _checked(
    start: ArrayLike, n: ArrayLike, labels: ArrayLike, form: str, levels: int = 1
) -> tuple[Floats, Floats, Floats]:
    """(M, 3) starts, (M,) N, (M,) L."""
    check_form(form)
    starts = np.atleast_2d(checked_logits(start, "start"))
    if starts.ndim != 2 or starts.shape[1] != 3:
        raise ValueError(f"start must be (M, 3): beta_1, alpha, xi; got shape {np.shape(start)}")
    sizes = [np.asarray(value, np.float64) for value in (n, labels)]
    members = np.broadcast_shapes((levels,), starts.shape[:1], *(size.shape for size in sizes))
    for pair in zip(*(np.broadcast_to(size, members) for size in sizes)):
        check_sizes(*pair)
    lengths, counts = (np.broadcast_to(size, members) for size in sizes)
    return np.broadcast_to(starts, (*members, 3)), lengths, counts


def _velocity(form: str, pairs: int):
    slope = jax.grad(loss_of(form, pairs))
    return lambda _, logits, sizes: -slope(logits, *sizes)


@functools.cache
def _paths(form: str, pairs: int):
    import diffrax

    loss, velocity = loss_of(form, pairs), _velocity(form, pairs)

    def one(start: Array, n: Array, labels: Array, times: Array) -> tuple:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(velocity), diffrax.Tsit5(), 0.0, times[-1], None, start, (n, labels),
            saveat=diffrax.SaveAt(ts=times), stepsize_controller=diffrax.PIDController(RTOL, ATOL),
            max_steps=MAX_STEPS, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        path = solution.ys
        losses = jax.vmap(lambda p: loss(p, n, labels))(path)
        gradients = jax.vmap(lambda p: -velocity(0.0, p, (n, labels)))(path)
        return path, losses, gradients, solution.result == diffrax.RESULTS.successful

    return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None)))


@functools.cache
def _events(form: str, pairs: int):
    import diffrax
    import optimistix

    loss, velocity = loss_of(form, pairs), _velocity(form, pairs)

    def one(start: Array, n: Array, labels: Array, level: Array, horizon: Array) -> tuple[Array, Array, Array]:
        def above(t: Array, y: Array, args: tuple[Array, Array], **_) -> Array:
            return loss(y, *args) - level

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(velocity), diffrax.Tsit5(), 0.0, horizon, None, start, (n, labels),
            saveat=diffrax.SaveAt(t1=True), stepsize_controller=diffrax.PIDController(RTOL, ATOL),
            event=diffrax.Event(above, optimistix.Newton(1e-10, 1e-10), direction=False),
            max_steps=MAX_STEPS, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        begun = loss(start, n, labels) <= level
        escaped = begun | (solution.result == diffrax.RESULTS.event_occurred)
        failed = ~escaped & (solution.result != diffrax.RESULTS.successful)
        return jnp.where(begun, 0.0, solution.ts[0]), escaped, failed

    return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, 0, None)))
