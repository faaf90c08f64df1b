"""The check of programs for accelerators finds what it looks for; ``test_binaries`` asks it of every training."""

import re

import jax
import jax.numpy as jnp
import optax
import pytest
from accelerators import for_accelerators, lowered, unwanted
from jax.experimental.xla_metadata import set_xla_metadata

from icl_lab.prompts.unfused import unfused
from icl_lab.training.fitting import member

BARE = jax.jit(lambda w: w * w)


def hinted(w):
    with set_xla_metadata(inlineable="false"):
        return BARE(w)


@pytest.mark.parametrize(
    ("square", "found"),
    [
        (unfused(lambda w: w * w), set()),
        (hinted, {"inlineable"}),
        (lambda w: jax.lax.optimization_barrier(w) * w, {"optimization_barrier"}),
        (lambda w: (w.astype(jnp.float64) ** 2).astype(w.dtype), {"f64"}),
    ],
    ids=["unfused", "hint", "barrier", "float64"],
)
def test_what_is_meant_for_cpus_or_double_is_found(square, found):
    with jax.enable_x64("f64" in found):
        program = lowered(
            lambda key, _: jax.random.normal(key, (3,), jnp.float32),
            lambda w, key, _: jnp.sum(square(w)),
            optax.sgd(0.1),
            jax.random.split(jax.random.key(0), 2),
            measure=lambda w, key, _: {"w": w},
        )
    assert unwanted(program) == found


@pytest.mark.parametrize(("square", "found"), [(unfused(BARE), set()), (hinted, {"inlineable"})])
def test_the_loop_over_steps_is_lowered_as_a_step_is(square, found):
    """``lowered`` leaves it out."""
    one = member(lambda key, _: jax.random.normal(key, (3,)), lambda w, key, _: jnp.sum(square(w)), optax.sgd(0.1))
    keys = jax.random.split(jax.random.key(0), 2)
    state = jax.vmap(one.begin)(keys, None)
    assert unwanted(for_accelerators(jax.vmap(one.chunk(4)), state, keys, None)) == found


def test_on_a_cpu_the_hint_is_in_also_in_a_step():
    @unfused
    def product(w):
        return w * w

    one = member(lambda key, _: jnp.ones(3), lambda w, key, _: jnp.sum(product(w)), optax.sgd(0.1))
    given = jax.random.key(0), None
    for program in (jax.jit(product).lower(jnp.ones(3)), jax.jit(one.step).lower(one.begin(*given), *given)):
        assert re.search(r'call @product.*inlineable = "false"', program.as_text())


def test_on_a_cpu_what_an_unfused_function_calls_is_fused_into_it():
    program = jax.jit(unfused(lambda w: 2 * jnp.where(w > 0, w, -w))).lower(jnp.ones(3)).compile()
    assert program.as_text().count(" call(") == 1


def test_what_cannot_be_lowered_raises():
    with pytest.raises(NotImplementedError, match="schur"):
        lowered(
            lambda key, _: jnp.eye(3), lambda w, key, _: jnp.sum(jax.scipy.linalg.schur(w)[0]), optax.identity(),
            jax.random.split(jax.random.key(0), 2),
        )  # fmt: skip
