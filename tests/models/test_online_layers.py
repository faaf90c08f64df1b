"""Layers that learn online: pattern = recurrence = the solver of the same name, in float64 to 1e-12."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.models import Transformer, delta_rule, linear_attention, mesa_layer
from icl_lab.models.attention import delta_attention, mesa_attention
from icl_lab.models.online import delta_pattern, memory, mesa_pattern
from icl_lab.prompts import Prompt
from icl_lab.solvers import leaky_lms, lms, recursive_least_squares, ridge

N, D, V = 7, 3, 2
RNG = np.random.default_rng(3)
Q, K, VALUES = RNG.normal(size=(N, D)), 0.6 * RNG.normal(size=(N, D)), RNG.normal(size=(N, V))
RATES, GATES = RNG.uniform(0.2, 1.0, N), RNG.uniform(0.5, 1.0, N)
SEEN = (1, 4, N)
ENDS = np.array(SEEN) - 1
PROMPT = Prompt(K, VALUES, Q[-1])


def near(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max()))


def solved(solver, prompt=PROMPT):
    with jax.enable_x64(True):
        return np.asarray(solver(jax.tree.map(jnp.asarray, prompt)))


def patterned(pattern, **options):
    """(3, V) what queries read by a pattern on the examples up to their own: the first, the middle and the last."""
    with jax.enable_x64(True):
        cut = lambda values, t: values[:t] if np.ndim(values) else values  # noqa: E731

        def read(t):
            now = {name: cut(value, t) for name, value in options.items()}
            return pattern(jnp.asarray(Q[t - 1 : t]), jnp.asarray(K[:t]), **now)[0] @ VALUES[:t]

        return np.stack([read(t) for t in SEEN])


OPTIONS = {
    "DeltaNet": {},
    "rates": {"rates": RATES},
    "gated": {"rates": RATES, "gates": GATES},
    "momentum": {"rates": 0.3, "momentum": 0.7},
    "all": {"rates": RATES, "gates": GATES, "momentum": -0.4},
    "forgets all": {"gates": 0.0},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_pattern_of_the_delta_rule_is_its_recurrence(name):
    near(patterned(delta_pattern, **OPTIONS[name]), delta_rule(Q, K, VALUES, **OPTIONS[name])[0][ENDS])


@pytest.mark.parametrize("options", [{}, {"rates": RATES}, {"rates": RATES, "gates": GATES}, {"gates": 0.9}], ids=str)
def test_the_pattern_of_mesa_is_its_recurrence_and_weighted_ridge(options):
    found = mesa_layer(Q, K, VALUES, strength=0.5, **options)[0]
    near(patterned(mesa_pattern, strength=0.5, **options), found[ENDS])
    gates = np.broadcast_to(options.get("gates", 1.0), (N,))
    weights = np.broadcast_to(options.get("rates", 1.0), (N,)) * [np.prod(gates[t + 1 :]) for t in range(N)]
    w = np.linalg.solve(K.T @ (weights[:, None] * K) + 0.5 * np.eye(D), K.T @ (weights[:, None] * VALUES))
    near(found[-1], Q[-1] @ w)


def test_what_each_is_without_its_extras():
    with jax.enable_x64(True):
        seen, kept = memory(4, jnp.asarray([0.5, 0.2, 1.0, 0.3]))
        near(kept, [0.2 * 0.3, 0.3, 0.3, 1.0])  # the product of the gates after each example
        near(seen[3], [0.2 * 0.3, 0.3, 0.3, 0])
        near(memory(3, momentum=0.5)[1], [1.75, 1.5, 1.0])
    near(delta_rule(Q, K, VALUES, rates=RATES, gates=1.0)[0], delta_rule(Q, K, VALUES, rates=RATES)[0])
    gated = delta_rule(Q, K, VALUES, rates=RATES, gates=GATES)[0]
    near(delta_rule(Q, K, VALUES, rates=RATES, gates=GATES, momentum=0.0)[0], gated)
    near(linear_attention(Q, K, VALUES)[0], np.tril(Q @ K.T) @ VALUES)
    small = 1e-7  # DeltaNet sees nothing of earlier writes at vanishing keys
    near(delta_rule(Q, small * K, VALUES)[0] / small, linear_attention(Q, K, VALUES)[0], 1e-10)


def test_on_the_inputs_they_are_the_solvers():
    x, y, query = PROMPT.x, PROMPT.y, PROMPT.x_query
    queries = np.tile(query, (N, 1))
    at = lambda layer, keys, values=y, **options: layer(queries, keys, values, **options)[0][-1]  # noqa: E731
    near(at(delta_rule, x, rates=0.3), solved(lms(0.3)))
    near(at(delta_rule, x, rates=0.3, gates=0.8), solved(leaky_lms(0.3, 0.2)))
    root = 0.3**0.5  # W_k^T W_q = b I: the rate is in the keys
    near(delta_rule(root * queries, root * x, y)[0][-1], solved(lms(0.3)))
    sizes = np.linalg.norm(x, axis=1, keepdims=True)
    for rate in (0.6, 1.0):
        expected = solved(lms(rate, normalised=True))
        near(at(delta_rule, x / sizes, y / sizes, rates=rate), expected)
        with jax.enable_x64(True):
            near(delta_pattern(query[None], jnp.asarray(x), rates=rate, normalised=True)[0] @ y, expected)
    near(at(mesa_layer, x, strength=0.5), solved(ridge(0.5)))


def test_recursive_least_squares_forgets_its_strength_too():
    """RLS from P_0 = I / lambda is mesa with lambda g_N; with a constant lambda it is another algorithm."""
    queries, expected = np.tile(PROMPT.x_query, (N, 1)), solved(recursive_least_squares(0.5, 0.8))
    mesa = lambda strength: mesa_layer(queries, K, VALUES, strength=strength, gates=0.8)[0][-1]  # noqa: E731
    near(mesa(0.5 * 0.8**N), expected)
    assert np.abs(mesa(0.5) - expected).max() > 1e-3


KINDS = {
    "delta": lambda gate, momentum: delta_attention(rates=0.5, gates=gate, momentum=momentum),
    "normalised": lambda gate, momentum: delta_attention(rates=0.5, gates=gate, momentum=momentum, normalised=True),
    "mesa": lambda gate, momentum: mesa_attention(0.3, rates=np.linspace(0, 1, 4), gates=gate),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_is_its_tasks_with_learned_gates_and_momentum(name):
    """Both forms from traced numbers, a key of zero among the keys."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, queries = rng.normal(size=(3, 4, D)), rng.normal(size=(3, 2, D))
        x[0, 1] = 0

        @jax.jit
        def both(gate, momentum):
            kind = KINDS[name](gate, momentum)
            scores, gram = jnp.einsum("btd,bnd->tnb", queries, x), jnp.einsum("bnd,bmd->nmb", x, x)
            return kind.of_grams(scores[None], gram[None])[0], jax.vmap(kind.pattern)(jnp.asarray(queries), x)

        found, expected = both(jnp.linspace(0.2, 1, 4), 0.6)
        near(jnp.moveaxis(found, -1, 0), np.asarray(expected))
        near(np.asarray(expected[1]), KINDS[name](np.linspace(0.2, 1, 4), 0.6).pattern(queries[1], jnp.asarray(x[1])))


def test_a_causal_network_has_no_such_layers():
    """Its tokens see other prefixes, for which these patterns have no form."""
    network = Transformer(attention="delta", causal=True)
    with pytest.raises(ValueError, match="without of_scores sees all keys: no causal network"):
        jax.eval_shape(network.init, jax.random.key(0), jax.ShapeDtypeStruct((5, D + 1), jnp.float32))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: delta_pattern(Q, K, rates=np.ones(3)), r"rates must be one number or one an example \(7,\)"),
        (lambda: delta_pattern(Q, K, momentum=np.ones(7)), "momentum must be one number"),
        (lambda: mesa_pattern(Q, K, strength=0.0), "strength must be above 0"),
        (lambda: delta_rule(Q[:3], K, VALUES), "queries, keys and values must be"),
        (lambda: mesa_layer(Q, K, VALUES, strength=-1.0), "strength must be above 0"),
        (lambda: delta_rule(Q, K, VALUES, gates=np.ones(2)), "gates must be one number"),
    ],
)
def test_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        wrong()
