"""States of Garg et al.'s code, written here by hand, against their forward pass in NumPy and against ``GPT``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from garg_state import gpt2, state

from icl_lab.models import GPT, load_garg, prefix_predictions
from icl_lab.prompts import Prompt

L, H, E, D, N, P = 2, 4, 16, 3, 5, 12
OURS = GPT(L, H, E, P)


def weights():
    """Weights of a ``GPT`` so large that every one matters."""
    draw = np.random.default_rng(0).normal
    shapes = jax.eval_shape(OURS.init, jax.random.key(0), jnp.zeros((2, D)))["params"]
    return {name: (0.3 * draw(size=leaf.shape)).astype(np.float32) for name, leaf in shapes.items()}


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "state.npz", **state(weights()))
    return tmp_path / "state.npz"


def predictions(w, x, y):
    """``TransformerModel.forward`` for one prompt (T, D), (T,): a prediction at every input, in float64."""
    w = {name.removeprefix("_backbone."): np.asarray(value, float) for name, value in w.items()}
    tokens = np.zeros((2 * len(x), D))
    tokens[::2], tokens[1::2, 0] = x, y
    z = tokens @ w["_read_in.weight"].T + w["_read_in.bias"] + w["wpe.weight"][: len(tokens)]
    return (gpt2(w, z, H) @ w["_read_out.weight"].T + w["_read_out.bias"])[::2]


def test_the_network_computes_what_their_code_computes_with_the_weights_moved_over(path):
    network, params = load_garg(path, heads=H)
    assert network == OURS
    own = weights()
    assert set(params["params"]) == set(own)
    jax.tree.map(np.testing.assert_array_equal, params["params"], own)
    x, y = np.random.default_rng(1).normal(size=(N + 1, D)), np.random.default_rng(2).normal(size=N + 1)
    prompt = Prompt(*(jnp.asarray(part[None], jnp.float32) for part in (x[:N], y[:N, None], x[N])))
    found = prefix_predictions(network, params, prompt)[0]
    np.testing.assert_allclose(found, predictions(state(own), x, y), rtol=1e-4, atol=1e-5)


def test_a_compiled_and_parallel_model_has_longer_names(tmp_path, path):
    np.savez(tmp_path / "longer.npz", **state(weights(), "module._orig_mod."))
    jax.tree.map(np.testing.assert_array_equal, load_garg(tmp_path / "longer.npz", H)[1], load_garg(path, H)[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"_read_in.weight": None}, "_read_in.weight must be among the tensors"),
        ({"_backbone.h.1.mlp.c_fc.bias": None}, "missing: h.1.mlp.c_fc.bias"),
        ({"_backbone.h.0.mlp.c_fc.weight": np.zeros((4 * E, E))}, "it is transposed"),
        ({"_read_out.weight": np.zeros((2, E))}, r"_read_out.weight must be of shape \(1, 16\), got \(2, 16\)"),
        ({"_read_in.weight": np.zeros(E)}, "_read_in.weight must be of shape"),
        ({"other": np.zeros(1)}, "not GPT-2's: other"),
        ({"_read_in.bias": np.array([{}])}, "damaged, or no npz of numbers"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_what_is_not_of_this_layout_is_refused_naming_it(tmp_path, change, said):
    tensors = {name: value for name, value in (state(weights()) | change).items() if value is not None}
    np.savez(tmp_path / "state.npz", **tensors)
    with pytest.raises(ValueError, match=said):
        load_garg(tmp_path / "state.npz", H)


def test_pickles_heads_and_files_that_are_none_are_refused(tmp_path, path):
    (tmp_path / "state.pt").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"pickle of PyTorch .*\n(.*\n){2}.*numpy.savez"):
        load_garg(tmp_path / "state.pt")
    (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:2000])
    for name, said in (("cut", "damaged, or no npz"), ("nowhere", "no such file")):
        with pytest.raises(ValueError, match=said):
            load_garg(tmp_path / f"{name}.npz")
    for heads, said in ((None, "heads must be given"), (3, "heads must divide")):
        with pytest.raises(ValueError, match=said):
            load_garg(path, heads)
