"""Population gradient flow of linear attention, theta' = -grad L, as an ODE: many initialisations at once, in float64.

The losses are half mean squared errors, so that one unit of time is that of Zhang, Frei & Bartlett 2023 and of Zhang,
Singh, Latham & Saxe 2025 at tau = 1. Any covariance, any initialisation, every parametrisation of ``losses``.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from icl_lab import machine
from icl_lab.theory.arguments import Matrix, check_length
from icl_lab.theory.flows.losses import PARAMETRISATIONS, Law, eigenbases, parametrisation_of, turn

SOLVERS = ("implicit", "explicit")


class StableManifoldWarning(UserWarning):
    """An initialisation lies on the stable manifold of a saddle, by its form or by where its flow rests."""


class Flow(NamedTuple):
    """Paths of M initialisations at S times; the last time is the end.

    Attributes:
      times: (S,).
      path: each parameter, (M, S, ...), in the coordinates in which it was given.
      loss: (M, S) half mean squared error.
      gradient: (M, S) Euclidean norm of the gradient.
      curvature: (M, 2) smallest and largest eigenvalue of the Hessian at the end. A smallest eigenvalue of zero (to
        rounding) is a symmetry of the parametrisation; a negative one is a saddle or a point still moving.
      steps: (M,) steps the solver took.
    """

    times: NDArray[np.float64]
    path: dict[str, NDArray[np.float64]]
    loss: NDArray[np.float64]
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]
    steps: NDArray[np.int64]

    @property
    def end(self) -> dict[str, NDArray[np.float64]]:
        """The parameters at the last time, (M, ...)."""
        return {name: value[:, -1] for name, value in self.path.items()}

    @property
    def at_saddle(self) -> NDArray[np.bool_]:
        """(M,) whether the end is a saddle: a gradient below 1e-6, a Hessian that is not positive semidefinite."""
        return (self.gradient[:, -1] < 1e-6) & (self.curvature[:, 0] < -1e-6 * self.curvature[:, 1])


def gradient_flow(
    start: Mapping[str, ArrayLike],
    covariance: ArrayLike,
    context_length: ArrayLike,
    times: ArrayLike,
    *,
    solver: str = "implicit",
    rtol: float = 1e-6,
    atol: float = 1e-9,
    max_steps: int = 100_000,
) -> Flow:
    """Integrates theta' = -grad L from M initialisations, each with its own adaptive steps.

    The parametrisation follows from the names in ``start``, every array with a leading axis of M initialisations:

        u (M,), u11 (M, D, D)                                  merged, from u12 = u21 = 0, which the flow keeps
        u (M, H), u11 (M, H, D, D)                             H merged heads
        u (M,), u11 (M, D, D), u12 (M, D), u21 (M, D)          every block that matters
        value (M, H), key (M, H, R, D), query (M, H, R, D)     separate keys and queries of rank R

    The flow runs in the eigenbasis of Lam and is turned back (``losses``). ``implicit`` is Kvaerno's method of
    order 5 with a chord iteration: fastest where the flow is stiff, as with every block (stiffness 10^4 and more), for
    up to some 100 parameters; what a limit needs, since its steps grow without bound. ``explicit`` is Tsitouras'
    method of order 5: for more parameters or short times. Times between two steps are interpolated to third order.

    Args:
      start: the initialisations.
      covariance: (D, D) Lam, or (M, D, D) one for each member.
      context_length: N, or (M,) one for each member.
      times: (S,) increasing times above 0, or one time; the last is the horizon.
      solver: ``implicit`` or ``explicit``.
      rtol: relative tolerance of a step.
      atol: absolute tolerance of a step; keep it well below a small initialisation.
      max_steps: steps after which a flow is given up.

    Returns:
      A ``Flow``. A ``StableManifoldWarning`` names the members that rest at a saddle, and those whose start is known
      never to leave one: a separate head that is zero; u = s and U11 = -s I / sqrt(D) under an isotropic Lam.

    Raises:
      ValueError: naming the argument, for names or shapes that are no parametrisation, values that are not finite, a
        covariance that is not symmetric positive definite, N < 1, times that do not increase from above 0, an unknown
        solver, tolerances that are not positive.
      RuntimeError: naming members that did not reach the horizon in ``max_steps``, or whose steps failed.
    """
    arrays = {name: np.asarray(value, np.float64) for name, value in start.items()}
    kind, members, size = parametrisation_of(arrays)
    spectra, bases = eigenbases(covariance, members, size)
    lengths = np.broadcast_to(np.asarray(context_length, np.float64), (members,))
    check_length(lengths.min(), "context_length")
    output = _checked_times(times)
    if solver not in SOLVERS or not (rtol > 0 and atol > 0 and max_steps >= 1):
        raise ValueError(
            f"solver must be one of {SOLVERS}, rtol and atol positive, max_steps at least 1; "
            f"got {solver!r}, {rtol}, {atol}, {max_steps}"
        )
    turned = {name: turn(value, bases, kind.shapes[name]) for name, value in arrays.items()}
    with jax.enable_x64(True):
        program = _program(PARAMETRISATIONS.index(kind), solver, max_steps)
        starts = dict(zip(turned, padded(64, *turned.values()))), Law(*padded(64, spectra, lengths))
        results = _on_every_core(lambda first, last: program(starts, first, last, output, rtol, atol), members)
    path, loss, gradient, curvature, steps, reached = results
    if not reached.all():
        raise RuntimeError(
            f"members {np.flatnonzero(~reached).tolist()} did not reach the horizon {output[-1]:g} in {max_steps} "
            "steps: raise max_steps, or rtol and atol, or take another solver"
        )
    back = {name: turn(value, bases.swapaxes(1, 2), "s" + kind.shapes[name]) for name, value in path.items()}
    flow = Flow(output, back, loss, gradient, curvature, steps)
    stable = _on_stable_manifold(arrays, spectra)
    if stable.any() or flow.at_saddle.any():
        warnings.warn(
            f"members {np.flatnonzero(stable).tolist()} start on the stable manifold of a saddle, which at most "
            f"rounding lets them leave; members {np.flatnonzero(flow.at_saddle).tolist()} rest at a saddle at time "
            f"{output[-1]:g}, on its stable manifold unless the horizon is too short",
            StableManifoldWarning,
            stacklevel=2,
        )
    return flow


def _on_every_core(flows: Callable[[int, int], tuple], members: int) -> tuple:
    """The flows of all members; on a CPU in threads, each of which runs the same program on a range of members."""
    if jax.default_backend() != "cpu":
        return jax.tree.map(lambda value: value[:members], jax.device_get(flows(0, members)))
    flows(0, 0)  # compiles, once for all threads
    workers = machine.cores()
    edges = np.linspace(0, members, min(2 * workers, members) + 1).astype(int).tolist()

    def part(first: int, last: int) -> tuple:
        with jax.enable_x64(True):  # which holds for one thread
            return jax.tree.map(lambda value: value[first:last], jax.device_get(flows(first, last)))

    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(part, edges[:-1], edges[1:]))
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)


@functools.cache
def _program(kind: int, solver: str, max_steps: int):
    """The compiled flow of a range of members: one after the other on a CPU, where no member then waits for another's
    steps and one program serves any number of them; all together elsewhere.
    """
    import diffrax
    import optimistix

    loss = PARAMETRISATIONS[kind].loss
    slope = jax.grad(loss)

    def velocity(_, params: dict[str, Array], distribution: Law) -> dict[str, Array]:
        return jax.tree.map(jnp.negative, slope(params, distribution))

    def flow(start: tuple[dict[str, Array], Law], times: Array, rtol: Array, atol: Array) -> tuple:
        params, distribution = start
        method: diffrax.AbstractSolver = diffrax.Tsit5()
        if solver == "implicit":  # the solver's own chord, linearised once a step, fails every other step here
            method = diffrax.Kvaerno5(root_finder=diffrax.with_stepsize_controller_tols(optimistix.Chord)())
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(velocity), method, 0.0, times[-1], None, params, distribution,
            saveat=diffrax.SaveAt(ts=times), stepsize_controller=diffrax.PIDController(rtol, atol),
            max_steps=max_steps, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        path = solution.ys
        losses = jax.vmap(lambda p: loss(p, distribution))(path)
        gradients = jax.vmap(lambda p: _flat(slope(p, distribution)))(path)
        norms = jnp.sqrt(jnp.sum(gradients**2, axis=1))
        end = jax.tree.map(lambda a: a[-1], path)
        reached = solution.result == diffrax.RESULTS.successful
        return path, losses, norms, _curvature(end, distribution, slope), solution.stats["num_steps"], reached

    def members(
        starts: tuple[dict[str, Array], Law], first: Array, last: Array, times: Array, rtol: Array, atol: Array
    ) -> tuple:
        def one(start: tuple[dict[str, Array], Law]) -> tuple:
            return flow(start, times, rtol, atol)

        if jax.default_backend() != "cpu":
            return jax.vmap(one)(starts)
        capacity = starts[1].context_length.shape
        of_times = jnp.zeros(capacity + times.shape)
        path = jax.tree.map(lambda a: jnp.zeros(of_times.shape + a.shape[1:]), starts[0])
        ends = jnp.zeros((*capacity, 2)), jnp.zeros(capacity, int), jnp.zeros(capacity, bool)
        nothing = path, of_times, of_times, *ends

        def store(i: Array, results: tuple) -> tuple:
            new = one(jax.tree.map(lambda a: a[i], starts))
            return jax.tree.map(lambda into, value: into.at[i].set(value), results, new)

        return jax.lax.fori_loop(first, last, store, nothing)

    return jax.jit(members)


def padded(capacity: int, *values: Matrix) -> list[Array]:
    """Members up to ``capacity``, or as often four times that as needed: so many share one compiled program."""
    while capacity < len(values[0]):
        capacity *= 4
    missing = capacity - len(values[0])
    return [jnp.asarray(np.concatenate([value, np.repeat(value[-1:], missing, axis=0)])) for value in values]


def _curvature(params: dict[str, Array], distribution: Law, slope) -> Array:
    """(2,) smallest and largest eigenvalue of the Hessian; NaN where the flow failed."""
    flat, shaped = jax.flatten_util.ravel_pytree(params)
    hessian = jax.jacfwd(lambda f: _flat(slope(shaped(f), distribution)))(flat)
    return jnp.linalg.eigvalsh(hessian)[jnp.array([0, -1])]


def _flat(params: dict[str, Array]) -> Array:
    return jax.flatten_util.ravel_pytree(params)[0]


def _on_stable_manifold(arrays: Mapping[str, Matrix], spectra: Matrix) -> NDArray[np.bool_]:
    """(M,) whether a start is known never to leave a saddle, which the Hessian at the end need not show.

    A head of which two of value, key and query are zero stays as it is. And a start that is zero but for u = s and
    U11 = -s I / sqrt(D), in every head, falls into the origin, if the covariance is isotropic.
    """
    if "value" in arrays:
        dead = np.sum([~value.reshape(*arrays["value"].shape, -1).any(axis=2) for value in arrays.values()], axis=0)
        return (dead >= 2).any(axis=1)
    u, u11 = arrays["u"], arrays["u11"]
    size = u11.shape[-1]
    off = np.abs(u11 + u[..., None, None] * np.eye(size) / size**0.5).max(axis=(-1, -2))
    falls = (off <= 1e-9 * np.abs(u)).reshape(len(u), -1).all(axis=1)
    others = sum(np.abs(arrays[name]).max(axis=1) for name in ("u12", "u21") if name in arrays)
    isotropic = np.ptp(spectra, axis=1) <= 1e-9 * spectra[:, 0]
    return isotropic & falls & (others == np.zeros(len(u)))


def _checked_times(times: ArrayLike) -> NDArray[np.float64]:
    output = np.atleast_1d(np.asarray(times, np.float64))
    if output.ndim != 1 or not np.isfinite(output).all() or np.any(np.diff(output, prepend=0.0) <= 0):
        raise ValueError(f"times must be finite and increase from above 0, got {times!r}")
    return output
