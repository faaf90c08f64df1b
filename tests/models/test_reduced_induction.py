import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import values_and_slopes

from icl_lab.models import ReducedInduction, learner, reduced_logits, traced
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import content_layout
from icl_lab.theory import mean_field_loss

N, D, L = 3, 5, 4
NETWORK = ReducedInduction(labels=L, hidden=8)
SCALARS = {"beta_1": 1.5, "alpha": 3.0, "beta_2": -0.7}


def _prompts(batch=6):
    draw = np.random.default_rng(0).normal
    return Prompt(*(jnp.asarray(draw(size=(batch, *shape))) for shape in ((N, D), (N, D), (D,))))


def _initial(network, *shape):
    return dict(jax.jit(network.init)(jax.random.key(1), jnp.zeros(shape))["params"])


def _first(prompts):
    return jax.tree.map(lambda leaf: leaf[0], prompts)


def _params(network=NETWORK, **scalars):
    params = _initial(network, 2 * N + 1, D)
    names = [name for name in SCALARS if name in params]
    return {"params": params | {name: jnp.asarray({**SCALARS, **scalars}[name], float) for name in names}}


@pytest.mark.parametrize("three", [True, False])
def test_fast_form_is_the_module_in_value_and_gradient(x64, three):
    network, prompts = NETWORK.clone(target_label_attention=three), _prompts()
    params = _params(network)
    assert ("beta_2" in params["params"]) == three
    plain = lambda p: jax.vmap(learner(network, p, content_layout()))(prompts)  # noqa: E731
    fast = lambda p: reduced_logits(network, p, prompts)  # noqa: E731
    (expected, slopes), (found, own) = (values_and_slopes(form, params) for form in (plain, fast))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    for name, slope in slopes["params"].items():
        np.testing.assert_allclose(own["params"][name], slope, atol=1e-11 * np.abs(slope).max(), err_msg=name)


def test_layers_are_those_of_the_paper(x64):
    prompt, params = _first(_prompts()), _params()
    c = np.asarray(content_layout().encode(prompt))
    b, a, b_2 = SCALARS.values()
    buffers = []
    for i in range(len(c)):
        odds = np.array([np.exp(b * (j == i - 1)) for j in range(i + 1)])
        buffers.append(odds @ c[: i + 1] / odds.sum())
    odds = np.exp([a * c[-1] @ buffer + b_2 * ((len(c) - 1 - j) % 2) for j, buffer in enumerate(buffers)])
    w = odds @ c / odds.sum()
    logits, trace = jax.jit(traced(NETWORK, params, content_layout()))(prompt)
    np.testing.assert_allclose(trace.residual[0], np.concatenate([c, 0 * c], axis=1))
    np.testing.assert_allclose(trace.residual[1], np.concatenate([c, np.array(buffers)], axis=1), rtol=1e-11)
    np.testing.assert_allclose(trace.residual[2, -1], np.concatenate([c[-1], w]), rtol=1e-11)
    np.testing.assert_allclose(trace.attention[1, 0, -1], odds / odds.sum(), rtol=1e-11)
    hidden = np.concatenate([c[-1], w])
    for layer in range(3):
        hidden = np.maximum(hidden @ params["params"][f"mlp_{layer}"] + params["params"]["mlp_bias"][layer], 0)
    np.testing.assert_allclose(logits, hidden @ params["params"]["read_out"], rtol=1e-11)


def test_its_mean_field_loss_is_the_theory(x64):
    """Orthonormal contents and a linear read-out xi of the labels, in place of the classifier."""
    n, labels, xi = 2, 5, 4.0
    basis, losses = jnp.eye(n + labels), []
    network = ReducedInduction(labels=labels, hidden=4, target_label_attention=False)
    params = _initial(network, 2 * n + 1, n + labels)
    params |= {"beta_1": jnp.array(1.5), "alpha": jnp.array(3.0)}
    run = jax.jit(traced(network, {"params": params}, content_layout()))
    for matched in range(n):
        x = basis[labels:]
        _, trace = run(Prompt(x, basis[1 : n + 1], x[matched]))
        logits = xi * trace.residual[2, -1, n + labels :][:labels]
        losses.append(-jax.nn.log_softmax(logits)[1 + matched])
    expected = mean_field_loss(1.5, 3.0, xi, context_length=n, labels=labels)
    np.testing.assert_allclose(np.mean(losses), expected, rtol=1e-12)


def test_scalars_start_where_told():
    params = jax.jit(NETWORK.clone(start=0.25).init)(jax.random.key(0), jnp.zeros((7, D)))["params"]
    assert [float(params[name]) for name in SCALARS] == [0.25] * 3
    assert params["mlp_0"].shape == (2 * D, 8)


def test_tokens_without_a_target_are_refused():
    with pytest.raises(ValueError, match="odd number"):
        NETWORK.init(jax.random.key(0), jnp.zeros((6, D)))
