"""Signs and factors 1/N of the papers: each formula as its paper writes it, in NumPy, against the one module."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.constructions import gradient_descent_weights, linear_attention_blocks, linear_attention_weights
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import joint_layout

D = 3
approx = functools.partial(pytest.approx, rel=1e-10)
ZHANG = LinearSelfAttention(parametrisation="merged", query_as_key=True, averaged=True)
AHN = LinearSelfAttention(parametrisation="merged", averaged=True)


def columns(prompt):
    """The tokens of one prompt as columns (x_i; y_i), .., (x_q; 0): (D + 1, N + 1)."""
    context = np.vstack([prompt.x.T, prompt.y.T])
    return np.hstack([context, np.append(prompt.x_query, 0.0)[:, None]])


def zhang_frei_bartlett(w_pv, w_kq, prompt):
    """f(E) = E + W_PV E (E^T W_KQ E) / N, read at the last row and column (2023, section 3)."""
    e = columns(prompt)
    n = e.shape[1] - 1
    return (e + w_pv @ e @ (e.T @ w_kq @ e) / n)[-1, -1]


def ahn(p, q, prompt):
    """Z + P Z Mask (Z^T Q Z) / n, the mask without the query column; minus the last entry (2023, section 2)."""
    z = columns(prompt)
    n = z.shape[1] - 1
    mask = np.diag(np.append(np.ones(n), 0.0))
    return -(z + p @ z @ mask @ (z.T @ q @ z) / n)[-1, -1]


def von_oswald(w_q, w_k, w_v, p, prompt):
    """e_j + P V K^T q_j with keys and values of the context, no 1/N; minus the last entry (2022, eq. 2)."""
    e = columns(prompt)
    values, keys = w_v @ e[:, :-1], w_k @ e[:, :-1]
    query = w_q @ e[:, -1]
    return -(e[:, -1] + p @ values @ keys.T @ query)[-1]


def zhang_saxe(v, keys, queries, prompt):
    """sum_i v_i beta^T U_i x_q, U_i = sum_r k_ir q_ir^T, beta = (1/N) sum_n y_n x_n (Zhang et al. 2025)."""
    beta = (prompt.y[:, 0] @ prompt.x) / len(prompt.x)
    return sum(v[i] * beta @ keys[i].T @ queries[i] @ prompt.x_query for i in range(len(v)))


@pytest.fixture
def prompt():
    draw = np.random.default_rng(3)
    arrays: Any = (draw.normal(size=(5, D)), draw.normal(size=(5, 1)), draw.normal(size=D))
    return Prompt(*arrays)


@pytest.fixture
def square():
    """Square matrices of tokens' width, all different."""
    draw = np.random.default_rng(4)
    return lambda: draw.normal(size=(D + 1, D + 1))


def predicted(network, weights, prompt, sign):
    """By both forms of the module."""
    params = {"params": {name: jnp.asarray(w, float) for name, w in weights.items()}}
    (plain,) = learner(network, params, joint_layout(sign=sign))(prompt)
    prompts = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], prompt)
    ((batched,),) = batch_learner(network, params, joint_layout(sign=sign))(prompts)
    assert float(batched) == approx(float(plain), rel=1e-12)
    return float(plain)


def heads(*matrices):
    """(1, H, ., .) in the rows of the module from matrices that act on columns."""
    return np.stack([m.T for m in matrices])[None]


def blocks_of(w_pv, w_kq):
    return {"u11": w_kq[:D, :D], "u": w_pv[D, D], "u12": w_pv[D, :D], "u21": w_kq[D, :D]}


@pytest.mark.usefixtures("x64")
def test_zhang_frei_and_bartlett_in_columns_is_the_module_in_rows(prompt, square):
    w_pv, w_kq = square(), square()
    expected = zhang_frei_bartlett(w_pv, w_kq, prompt)
    assert expected == approx(predicted(ZHANG, {"w_kq": heads(w_kq), "w_pv": heads(w_pv)}, prompt, 1))
    # all other entries never matter
    built = linear_attention_weights(**blocks_of(w_pv, w_kq))["params"]
    assert expected == approx(predicted(ZHANG, built, prompt, 1))
    assert expected != approx(predicted(AHN, built, prompt, 1))


@pytest.mark.usefixtures("x64")
def test_ahn_is_the_module_without_the_query_among_the_keys_and_with_minus(prompt, square):
    p, q = square(), square()
    assert ahn(p, q, prompt) == approx(predicted(AHN, {"w_kq": heads(q), "w_pv": heads(p)}, prompt, -1))


@pytest.mark.usefixtures("x64")
def test_von_oswald_is_the_module_without_options(prompt, square):
    w_q, w_k, w_v, p = (square() for _ in range(4))
    weights = {"w_q": heads(w_q), "w_k": heads(w_k), "w_v": heads(w_v), "w_p": heads(p)}
    assert von_oswald(w_q, w_k, w_v, p, prompt) == approx(predicted(LinearSelfAttention(), weights, prompt, -1))


@pytest.mark.usefixtures("x64")
def test_zhang_and_saxe_are_heads_of_merged_or_of_low_rank_keys_and_queries(prompt):
    draw = np.random.default_rng(5)
    v, keys, queries = draw.normal(size=3), draw.normal(size=(3, 2, D)), draw.normal(size=(3, 2, D))  # H = 3, R = 2
    expected = zhang_saxe(v, keys, queries, prompt)
    wide = np.pad(np.stack([keys, queries]), [(0, 0)] * 3 + [(0, 1)]).swapaxes(2, 3)[:, None]  # (2, 1, H, E, R)
    w_pv = np.zeros((1, 3, D + 1, D + 1))
    w_pv[0, :, D, D] = v
    low_rank = LinearSelfAttention(parametrisation="key_query", heads=3, key_size=2, averaged=True)
    assert expected == approx(predicted(low_rank, {"w_k": wide[0], "w_q": wide[1], "w_pv": w_pv}, prompt, 1))
    merged = AHN.clone(heads=3)
    assert expected == approx(predicted(merged, {"w_kq": wide[1] @ wide[0].swapaxes(2, 3), "w_pv": w_pv}, prompt, 1))
    # with values of rank one as well: the parametrisation of von Oswald et al.
    w_v, w_p = np.zeros((1, 3, D + 1, 2)), np.zeros((1, 3, 2, D + 1))
    w_v[0, :, D, 0], w_p[0, :, 0, D] = v, 1.0
    separate = low_rank.clone(parametrisation="separate")
    assert expected == approx(predicted(separate, {"w_k": wide[0], "w_q": wide[1], "w_v": w_v, "w_p": w_p}, prompt, 1))
    shapes = jax.eval_shape(low_rank.init, jax.random.key(0), jnp.zeros((6, D + 1)))["params"]
    assert {name: w.shape for name, w in shapes.items()} == {
        "w_k": (1, 3, 4, 2),
        "w_q": (1, 3, 4, 2),
        "w_pv": w_pv.shape,
    }


@pytest.mark.usefixtures("x64")
def test_sums_are_divided_by_the_length_of_the_prompt_at_hand(prompt, square):
    w_pv, w_kq = square(), square()
    w_pv[D, :D] = 0
    weights = {"w_kq": heads(w_kq), "w_pv": heads(w_pv)}
    twice = prompt.replace(x=np.tile(prompt.x, (2, 1)), y=np.tile(prompt.y, (2, 1)))  # M = 2 N
    assert predicted(ZHANG, weights, twice, 1) == approx(predicted(ZHANG, weights, prompt, 1))


@pytest.mark.usefixtures("x64")
def test_blocks_are_read_back_with_members_in_front_and_built_weights_are_those_of_init(square):
    members = [linear_attention_weights(**blocks_of(square(), square())) for _ in range(2)]
    read = linear_attention_blocks(jax.tree.map(lambda *leaves: jnp.stack(leaves), *members))
    for i, one in enumerate(members):
        again = linear_attention_weights(**{name: value[i] for name, value in read.items()})
        assert jax.tree.all(jax.tree.map(np.array_equal, again, one))
    learned = ZHANG.init(jax.random.key(0), jnp.zeros((6, D + 1)))
    assert jax.tree.map(jnp.shape, learned) == jax.tree.map(jnp.shape, members[0])


def test_blocks_and_layouts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"u12 \(D,\) and u21 \(D,\), got"):
        linear_attention_weights(np.eye(3), 1.0, u12=np.ones(2))
    with pytest.raises(ValueError, match=r"u11 \(D, D\)"):
        linear_attention_weights(np.ones((3, 2)), 1.0)
    with pytest.raises(ValueError, match="one merged layer with one head"):
        linear_attention_blocks(dict(ZHANG.clone(heads=2).init(jax.random.key(0), jnp.zeros((3, 3)))))
    with pytest.raises(ValueError, match="one merged layer with one head"):
        linear_attention_blocks(gradient_descent_weights(1.0, context_length=3, input_size=2))
    with pytest.raises(ValueError, match="sign must be -1 or 1, got 0"):
        joint_layout(sign=0)
    with pytest.raises(ValueError, match="w0 needs sign=-1"):
        joint_layout(jnp.ones((2, 1)), sign=1)
