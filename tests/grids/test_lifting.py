import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.grids.lifting import lift, trace
from icl_lab.grids.lockstep import in_lockstep

EXAMPLES = (jnp.linspace(-1, 1, 3), jax.random.key(3))


def function(a=0.3, b=0.9, table=1.0, power=2, seed=0, width=3):
    rows, fixed = np.full(width, table, np.float32), jax.random.key(seed)

    def f(x, key):
        y = jnp.where(x > a, b * x, jnp.clip(x, -2.0, 2.0)) + a * jax.random.normal(key, (3,)) + rows
        y += jax.random.normal(fixed, (3,))
        y, _ = jax.lax.scan(lambda c, x: (c * b + a * x, None), y, jnp.arange(3.0))
        y = jax.lax.while_loop(lambda s: jnp.abs(s).sum() < 10 * b, lambda s: s + a, y)
        y = jax.lax.cond(y[0] > a, lambda z: z * a, lambda z: z * b, y)
        return {"y": jax.nn.relu(jax.checkpoint(lambda z: z * a)(y)) ** power, "constant": jnp.float32(a)}

    return f


def test_constants_everywhere_become_an_argument():
    functions = [function(), function(0.2), function(0.2, 0.5), function(table=2.0), function(seed=1)]
    lifted = lift([trace(f, *EXAMPLES) for f in functions])
    found = jax.jit(jax.vmap(lambda which: lifted(which, *EXAMPLES)))(jnp.arange(5))
    alone = [f(*EXAMPLES) for f in functions]
    for name in ("y", "constant"):
        np.testing.assert_allclose(found[name], np.stack([one[name] for one in alone]), rtol=1e-5)


def test_the_same_function_has_nothing_to_lift():
    lifted = lift([trace(function(), *EXAMPLES)] * 2)
    assert lifted.constants == {}
    np.testing.assert_allclose(lifted(0, *EXAMPLES)["y"], function()(*EXAMPLES)["y"], rtol=1e-6)


@pytest.mark.parametrize(
    "other",
    [
        function(power=3),
        lambda x, key: function()(x, key)["y"],
        lambda x, key: function()(x + x, key),
        lambda x, key: function()(x[::-1], key),
        lambda x, key: function()(x, key) | {"constant": jnp.float32(0.3) + 0},
        lambda x, key: function()(x, key) | {"constant": jnp.int32(0)},
    ],
)
def test_functions_that_differ_in_more_are_not_one(other):
    assert lift([trace(function(), *EXAMPLES), trace(other, *EXAMPLES)]) is None


def test_constants_are_told_apart_by_their_bits():
    functions = [lambda x, c=c: x * c + jnp.array([c, jnp.nan]) for c in (0.0, -0.0, float("nan"), float("nan"))]
    lifted = lift([trace(f, 1.0) for f in functions])
    for i, f in enumerate(functions):
        np.testing.assert_array_equal(
            np.asarray(lifted(i, 1.0)).view(np.uint32) >> 31, np.asarray(f(1.0)).view(np.uint32) >> 31
        )
    assert lift([trace(functions[2], 1.0), trace(functions[3], 1.0)]).constants == {}


def test_a_constant_inside_of_what_is_not_taken_apart_is_not_lifted():
    def folded(a):
        return lambda x: jax.lax.reduce(x, jnp.float32(1), lambda y, z: y * z * a, (0,))

    one, other = (trace(folded(a), jnp.ones(3)) for a in (2.0, 3.0))
    assert lift([one, other]) is None
    assert lift([one, one]) is not None


def test_operands_that_change_places_are_seen():
    assert lift([trace(lambda x, y: x - y, 1.0, 2.0), trace(lambda x, y: y - x, 1.0, 2.0)]) is None


def test_lockstep_answers_all_that_ask_at_once():
    served = []

    def ask_twice(i):
        return lambda ask: (ask(i), ask(10 * i)) if i else ask("once")

    def serve(waiting):
        served.append(waiting)
        return [f"answer {request}" for _, request in waiting]

    assert in_lockstep([ask_twice(i) for i in range(3)], serve) == [
        "answer once",
        ("answer 1", "answer 10"),
        ("answer 2", "answer 20"),
    ]
    assert served == [[(0, "once"), (1, 1), (2, 2)], [(1, 10), (2, 20)]]


def test_lockstep_ends_a_function_that_is_at_work_when_a_signal_comes():
    ended = []

    def busy(ask):
        signal.raise_signal(signal.SIGINT)
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        in_lockstep([busy, lambda ask: ask(1)], lambda waiting: [])
    assert ended == [True]


def test_lockstep_passes_on_what_is_raised_and_leaves_nothing_behind():
    ended = []

    def patient(ask):
        try:
            ask(1)
        finally:
            ended.append("patient")

    def failing(ask):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        in_lockstep([patient, failing, patient], lambda waiting: [])
    assert ended == ["patient"]  # the third had not begun

    def refuse(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_lockstep([patient, patient], refuse)
    assert ended == ["patient"] * 3
