import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import aligner, distance, for_each, gap, merged, predict, predictor, prompts, random_weights

from icl_lab.compare.symmetries import reachable

stacks = st.sampled_from([(1, True), (1, False), (2, False), (2, True), (3, False), (3, True)])
sizes = st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 2)])
seeds = st.integers(0, 2**31)


@settings(max_examples=6)
@given(stack=stacks, size=sizes, heads=st.integers(1, 3), seed=seeds)
def test_symmetries_leave_prediction_and_distance_alone(stack, size, heads, seed):
    (layers, looped), (d, o), rng = stack, size, np.random.default_rng(seed)
    width, sets = d + o, 1 if looped else layers
    with jax.enable_x64(True):
        a, b = random_weights(rng, sets, heads, width)
        mix = np.linalg.qr(rng.normal(size=(sets, heads, heads)))[0] * rng.uniform(0.5, 2, size=(sets, heads, 1))
        new_a = np.einsum("sgh,shij->sgij", mix, a)
        new_b = np.einsum("shg,shij->sgij", np.linalg.inv(mix), b)
        u, p, q, v = rng.normal(size=(4, sets, 1, width)) * 0.5
        outer = lambda left, right: left[..., :, None] * right[..., None, :]  # noqa: E731
        new_a = np.concatenate([new_a, outer(u, p), -outer(u, q)], axis=1)  # antisymmetric in (j, k): two more heads
        new_b = np.concatenate([new_b, outer(q, v), outer(p, v)], axis=1)
        rows, columns = reachable(layers=layers, looped=looped, input_size=d, width=width)
        new_a = np.where(rows[:, None, :, None], new_a, rng.normal(size=new_a.shape))
        new_b = np.where(columns[:, None, None, :], new_b, rng.normal(size=new_b.shape))
        old, new = merged(a, b), merged(new_a, new_b)
        assert gap(old, new, prompts(rng, d, o), layers, looped) < 1e-10
        apart = distance(new, old, layers=layers, looped=looped, input_size=d)
        assert apart.shape == (sets,)
        assert apart.max() < 1e-13


def perturbations(shape):
    """One perturbation for each entry of an array of this shape: (size, *shape)."""
    return jnp.eye(np.prod(shape)).reshape(-1, *shape) / 2


@settings(max_examples=6)
@given(stack=stacks, size=st.sampled_from([(1, 1), (2, 1), (1, 2)]), seed=seeds)
def test_an_entry_of_t_moves_the_distance_if_and_only_if_it_moves_the_prediction(stack, size, seed):
    """All entries (s, i, j, k, m), each added as a head e_i e_j^T, e_k e_m^T of weight set s."""
    (layers, looped), (d, o), rng = stack, size, np.random.default_rng(seed)
    width, sets = d + o, 1 if looped else layers
    with jax.enable_x64(True):
        a, b = random_weights(rng, sets, 1, width)
        where = np.stack(np.unravel_index(np.arange(sets * width**4), (sets, *[width] * 4)), axis=1)
        entry = perturbations((width, width)).reshape(width, width, width, width)
        extra_a, extra_b = np.zeros((2, len(where), sets, 1, width, width))
        for index, (s, i, j, k, m) in enumerate(where):
            extra_a[index, s, 0], extra_b[index, s, 0] = entry[i, j], entry[k, m]
        grow = lambda w, extra: np.concatenate([np.broadcast_to(w, extra.shape), extra], axis=2)  # noqa: E731
        moved, apart = change_for_each(merged(a, b), merged(grow(a, extra_a), grow(b, extra_b)), stack, d, o, rng)
        rows, columns = reachable(layers=layers, looped=looped, input_size=d, width=width)
    s, i, _, _, m = where.T
    reached = rows[s, i] & columns[s, m]
    np.testing.assert_array_equal(moved > 1e-8, reached)
    np.testing.assert_array_equal(apart > 1e-3, reached[:, None] & (np.arange(sets)[None] == s[:, None]))
    assert max(moved[~reached].max(initial=0), apart[apart <= 1e-3].max(initial=0)) < 1e-13


def change_for_each(old, new, stack, d, o, rng, attention="linear"):
    """Relative change of the prediction (P,) and distance (P, S) for P changed parameters."""
    layers, looped = stack
    batch = prompts(rng, d, o)
    heads = new["params"]["w_kq"].shape[2]
    run = predictor(layers, looped, heads, "merged", attention)
    after = np.asarray(for_each(run)(new, batch))
    before = predict(old, batch, layers, looped, attention)
    align = aligner(layers=layers, looped=looped, input_size=d, attention=attention)
    return np.abs(after - before[None]).max((1, 2)) / np.abs(before).max(), np.asarray(for_each(align)(new, old))


@pytest.mark.parametrize(("layers", "looped", "d", "o"), [(1, True, 2, 1), (2, False, 1, 2), (2, True, 2, 1)])
def test_the_mask_leaves_as_many_entries_as_the_prediction_can_tell_apart(x64, layers, looped, d, o):
    """Rank of d prediction / d T at a generic point = number of unmasked entries of T symmetrised over (j, k)."""
    width, sets, rng = d + o, 1 if looped else layers, np.random.default_rng(0)
    batch = prompts(rng, d, o, batch=200)

    def prediction(t, prompt):
        tokens = jnp.concatenate([prompt.x, prompt.y], axis=1)
        query = jnp.concatenate([prompt.x_query, jnp.zeros(o)])
        for layer in range(layers):
            step = jnp.einsum("ijkm,nj,nk->im", t[0 if looped else layer], tokens, tokens)
            tokens, query = tokens + tokens @ step, query + query @ step
        return query[d:]

    t = jnp.asarray(rng.normal(size=(sets, *[width] * 4)) * 0.1)
    jacobian = jax.jit(jax.vmap(jax.jacrev(prediction), (None, 0)))(t, batch).reshape(200 * o, -1)
    singular = np.linalg.svd(jacobian, compute_uv=False)
    rows, columns = reachable(layers=layers, looped=looped, input_size=d, width=width)
    free = int((rows.sum(1) * columns.sum(1)).sum()) * width * (width + 1) // 2
    assert (singular > 1e-10 * singular[0]).sum() == free


@settings(max_examples=5)
@given(layers=st.integers(1, 2), heads=st.integers(1, 3), seed=seeds)
def test_softmax_symmetries(layers, heads, seed):
    d, o, rng = 2, 1, np.random.default_rng(seed)
    width, c = d + o, np.array([1.0, 0, 0])
    with jax.enable_x64(True):
        a, b = random_weights(rng, layers, heads, width)
        b[..., 0] = 0  # the constant channel stays constant
        batch = prompts(rng, d, o)
        batch = batch.replace(x=batch.x.at[..., 0].set(1.0))
        order = rng.permutation(heads)
        permuted = merged(a[:, order], b[:, order])
        shifts = rng.normal(size=(layers, heads, width))
        shifts = (shifts - shifts.mean(1, keepdims=True)) * (np.arange(width) > 0)
        shifted = merged(
            a[:, order] + rng.normal(size=(layers, heads, width, 1)) * c, b[:, order] + c[:, None] * shifts[:, :, None]
        )
        old, stack = merged(a, b), (layers, False)
        options = {"layers": layers, "looped": False, "input_size": d, "attention": "softmax"}
        assert gap(old, permuted, batch, *stack, "softmax") < 1e-12
        assert gap(old, shifted, batch, *stack, "softmax") < 1e-12
        assert distance(permuted, old, **options).max() < 1e-14
        assert distance(shifted, old, **options, constant_direction=(2.0, 0.0, 0.0)).max() < 1e-14
        assert distance(shifted, old, **options).min() > 1e-2


@settings(max_examples=4)
@given(stack=st.sampled_from([(1, True), (2, False), (2, True)]), seed=seeds)
def test_a_softmax_weight_moves_the_distance_if_and_only_if_it_moves_the_prediction(stack, seed):
    (layers, looped), d, o, rng = stack, 2, 1, np.random.default_rng(seed)
    with jax.enable_x64(True):
        weights = random_weights(rng, 1 if looped else layers, 2, d + o)
        changed = weights + np.asarray(perturbations(weights.shape))  # (P, 2, S, H, E, E)
        new = merged(changed[:, 0], changed[:, 1])
        moved, apart = change_for_each(merged(*weights), new, stack, d, o, rng, "softmax")
    seen = moved > 1e-8
    np.testing.assert_array_equal(seen, apart.max(1) > 1e-3)
    assert max(moved[~seen].max(initial=0), apart[~seen].max(initial=0)) < 1e-13
