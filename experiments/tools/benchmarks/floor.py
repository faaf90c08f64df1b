"""The floor of a training step: the operations and random numbers it must make, each at its best measured rate."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from experiments.tools.benchmarks.programs import Network
from experiments.tools.benchmarks.timing import Config, Row, Timing, row
from icl_lab.fast.tasks_last import contract
from icl_lab.prompts.draws import QUANTILES, centred_uniforms, threefry

PRODUCT, SMALL = "matrix product", "products of two matrices of each task"
DRAWS, AT_ONCE, NORMALS = 20, 8, "normals from uniforms"
BLOCKS = (8, 16, 32, 64, 128)
"""Tasks in a block of the unrolled form."""


def operations(layers: int, looped: bool, clip: float, context_length: int, input_size: int) -> int:
    """Floating-point operations that the training step makes for one task, in the leanest form known to us.

    With N context tokens of width E = D + 1, one head, the products A = W_q W_k^T and B = W_v W_p folded (shared by the
    batch, not counted) and C the context:

    - labels: 2 (N + 1) D;
    - last layer, of which one number is read: q A, C b, C^T (C b) forward; the same backward without the gradient of
      the query, and the outer product that is A's gradient: 8 N E + 4 E^2;
    - each layer before it: the symmetric Gram matrix G = C^T C, N E (E + 1), then G B, A (G B) and e (A G B), and the
      gradients of their factors, in E x E products of 2 E^3 and token products of 2 (N + 1) E^2; the gradient of the
      first layer's tokens is not needed;
    - two unclipped layers: the Gram matrix once and 25 products of an E x E matrix with a vector, 2 E^2 each: 4 by the
      Gram matrix and 6 by shared weights forward, 4 and 6 + 5 backward.

    Elementwise operations (residual, clip, Adam) are left out.
    """
    n, e = context_length, input_size + 1
    labels, gram = 2 * (n + 1) * input_size, n * e * (e + 1)
    last = 8 * n * e + 4 * e**2
    if layers == 1:
        return labels + last
    if layers == 2 and not clip:
        return labels + gram + 25 * 2 * e**2
    cube, tokens = 2 * e**3, 2 * (n + 1) * e**2
    first = (gram + 2 * cube + tokens) + (tokens + 3 * cube)  # d(A G B); dA, dB and what dB needs
    later = first + cube + tokens + 2 * n * e**2  # dG; through the tokens' own use and through G
    into_last = 2 * e**2 + 4 * n * e  # the gradient of the last layer's tokens: outer products
    return labels + first + (layers - 2) * later + last + into_last


def sums_over_tasks(layers: int, input_size: int) -> int:
    """Of these ``operations`` those of the gradients of A and B: sums over tasks, long products of a library."""
    return 4 * (layers - 1) * (input_size + 1) ** 3


def large_product() -> dict[str, tuple[Callable[[], Any], int]]:
    """A large matrix product, whose rate no step can pass."""
    square = jnp.ones((_size(), _size()))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision=lax.Precision.HIGHEST))
    return {PRODUCT: (lambda: product(square), 1)}


def _size() -> int:
    return 1024 if jax.default_backend() == "cpu" else 8192


def of_counted(timing: Timing, gflop: float, timings: dict[str, Timing]) -> dict[str, float | str]:
    """Columns of a step of so many operations, against the time that the large product would take for them."""
    peak = peak_gflops(timings)
    lowest = 1e3 * gflop / peak
    return {"GFLOP/s": 1e3 * gflop / timing.ms, "floor ms": lowest, "over floor": timing.ms / lowest}


def contenders(config: Config, network: Network) -> dict[str, tuple[Callable[[], Any], int]]:
    """The random numbers of one step by several generators, normals from uniforms, and a large matrix product."""
    n, d = network[1].context_length, network[1].input_size
    shape = (-(-config.batch // 64), 2 * -(-(n + 2) // 2), d, 64)
    flat = shape[0] * shape[1] * shape[2] * shape[3]
    generators = {
        "both words of Threefry, unrolled": lambda k: _pairs(k, flat // 2),
        "centred_uniforms": lambda k: centred_uniforms(k, shape),
        "jax.random.uniform": lambda k: jax.random.uniform(k, (flat,)),
        "jax.random.bits, rbg": lambda k: jax.random.bits(_as_rbg(k), (flat,)),
    }
    uniforms = jax.random.uniform(jax.random.key(0), (shape[0], 1, d, 64)) - 0.5
    normals = jax.jit(lambda u: lax.fori_loop(0, DRAWS, lambda i, v: QUANTILES["normal"](0.3 * v), u))
    found: dict[str, tuple[Callable[[], Any], int]] = {
        f"{flat} uniforms, {name}": (_repeated(draw), DRAWS) for name, draw in generators.items()
    }
    found[NORMALS] = (lambda: normals(uniforms), DRAWS)
    return found | large_product() | small_products(config.batch, d + 1)


def small_products(batch: int, width: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Products of two matrices of each task, of this width and padded to a multiple of four, by every form known to us.

    Unrolled with the task as the last axis, in blocks, in the three orientations that a step has; and as a library's
    batched product. One after the other in a compiled loop.
    """
    found: dict[str, tuple[Callable[[], Any], int]] = {}

    def add(name: str, product: Callable[[Array, Array], Array], shape: tuple[int, ...]) -> None:
        one = jnp.full(shape, 1 / width)

        def turn(a: Array, b: Array) -> Array:  # several, since a loop copies what it carries
            return functools.reduce(lambda x, _: product(x, b), range(AT_ONCE), a)

        run = jax.jit(lambda a, b: lax.fori_loop(0, DRAWS, lambda _, x: turn(x, b), a))
        found[f"{SMALL}, {name}"] = (lambda: run(one, one), AT_ONCE * DRAWS)

    for e in (width, -(-width // 4) * 4):
        for block in (size for size in BLOCKS if batch % size == 0):
            for axes in ((2, 1), (1, 1), (2, 2)):
                unrolled = lambda a, b, axes=axes: contract(a, b, axes)  # noqa: E731
                add(f"{e} wide, unrolled, blocks of {block}, axes {axes}", unrolled, (batch // block, e, e, block))
        add(f"{e} wide, library", lambda a, b: jnp.einsum("tij,tjk->tik", a, b), (batch, e, e))
    return found


def _pairs(key: Array, count: int) -> Array:
    """Two uniforms from each evaluation, as one complex number."""
    counts = lax.iota(jnp.uint32, count)
    words = threefry(jax.random.key_data(key).ravel(), jnp.zeros_like(counts), counts)
    first, second = (lax.bitcast_convert_type((w >> 9) | jnp.uint32(0x3F800000), jnp.float32) for w in words)
    return lax.complex(first - 1.5, second - 1.5)


def _as_rbg(key: Array) -> Array:
    return jax.random.wrap_key_data(jnp.tile(jax.random.key_data(key), 2), impl="rbg")


def _repeated(draw: Callable[[Array], Array]) -> Callable[[], Any]:
    """Draws in a compiled loop, as in training."""
    shape = jax.eval_shape(draw, jax.random.key(0))

    @jax.jit
    def run(key: Array) -> Array:
        zeros = jnp.zeros(shape.shape, shape.dtype)
        return lax.fori_loop(0, DRAWS, lambda i, _: draw(jax.random.fold_in(key, i)), zeros)

    return lambda: run(jax.random.key(0))


def peak_gflops(timings: dict[str, Timing]) -> float:
    """GFLOP/s of the matrix product."""
    return 2e-6 * _size() ** 3 / timings[PRODUCT].ms


def small_gflops(timings: dict[str, Timing], batch: int, width: int) -> float:
    """GFLOP/s of the fastest form of ``small_products``; what padding adds does not count."""
    return 2e-6 * batch * width**3 / min(t.ms for name, t in timings.items() if name.startswith(SMALL))


def random_ms(timings: dict[str, Timing]) -> float:
    """Milliseconds of a step's random numbers: the fastest generator, then the normals."""
    return min(t.ms for name, t in timings.items() if "uniforms, " in name) + timings[NORMALS].ms


def rows(timings: dict[str, Timing]) -> list[Row]:
    """The measured rates."""
    return [
        row(name, t, None, **({"GFLOP/s": peak_gflops(timings)} if name == PRODUCT else {}))
        for name, t in timings.items()
    ]
