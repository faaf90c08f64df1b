import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import values_and_slopes

from icl_lab.fast import induction_logits
from icl_lab.models import InductionNetwork, learner
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import item_label_layout

N, D, P, L = 3, 5, 9, 4
NETWORK = InductionNetwork(labels=L, slots=P, hidden=8)


def _prompts(batch=6, offsets="in"):
    draw = np.random.default_rng(0)
    x, y, query = (jnp.asarray(D**-0.5 * draw.normal(size=(batch, *shape))) for shape in ((N, D), (N, D), (D,)))
    lowest, end = {"in": (0, P - 2 * N), "beyond": (-2 * N, P), None: (0, 1)}[offsets]
    return Prompt(x, y, query, jnp.asarray(draw.integers(lowest, end, batch), jnp.int32) if offsets else None)


def _first(prompts):
    return jax.tree.map(lambda leaf: leaf[0], prompts)


def _params(network=NETWORK, scale=1.0):
    tokens = item_label_layout(network.slots).encode(_first(_prompts()))
    params = jax.jit(lambda key: dict(network.init(key, tokens)))(jax.random.key(1))
    return jax.tree.map(lambda leaf: scale * leaf, params)


@pytest.mark.parametrize(("offsets", "backend"), [("in", "cpu"), ("beyond", "cpu"), (None, "cpu"), ("in", "gpu")])
def test_fast_form_is_the_network_in_value_and_gradient(x64, monkeypatch, offsets, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)  # by which the form is chosen
    prompts, params = _prompts(offsets=offsets), _params(scale=2.0)  # sharp attention
    plain = lambda p: jax.vmap(learner(NETWORK, p, item_label_layout(P)))(prompts)  # noqa: E731
    fast = lambda p: induction_logits(NETWORK, p, prompts)  # noqa: E731
    (expected, slopes), (found, own) = (values_and_slopes(form, params) for form in (plain, fast))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    for name, slope in slopes["params"].items():
        np.testing.assert_allclose(own["params"][name], slope, atol=1e-11 * np.abs(slope).max(), err_msg=name)


def test_no_gradient_flows_to_tokens():
    prompts, params = _prompts(), _params()
    slopes = jax.grad(lambda p: induction_logits(NETWORK, params, p).sum(), allow_int=True)(prompts)
    for slope in (slopes.x, slopes.y, slopes.x_query):
        assert not np.any(slope)


def test_layers_are_those_of_the_paper(x64):
    prompt, params = _first(_prompts()), _params()["params"]
    z = np.asarray(item_label_layout(P).encode(prompt))
    for w_q, w_k, w_v in zip(*(np.asarray(params[name]) for name in ("w_q", "w_k", "w_v"))):
        update = np.zeros_like(z)
        for i in range(len(z)):
            odds = np.exp([(w_k.T @ z[j]) @ (w_q.T @ z[i]) for j in range(i + 1)])
            update[i] = w_v.T @ sum(p * z[j] for j, p in enumerate(odds / odds.sum()))
        z = z + update
    hidden = z[-1]
    for layer in range(3):
        hidden = np.maximum(hidden @ params[f"mlp_{layer}"] + params["mlp_bias"][layer], 0)
    logits = learner(NETWORK, {"params": params}, item_label_layout(P))(prompt)
    np.testing.assert_allclose(logits, hidden @ params["read_out"], rtol=1e-11)


def test_published_size_and_start():
    network = InductionNetwork(labels=32, slots=65)
    start = jax.jit(lambda key: network.init(key, jnp.zeros((2, 128)))["params"])
    params = start(jax.random.key(2))
    assert sum(leaf.size for leaf in params.values()) == 151_555  # section 2
    spreads = {"w_q": 63, "w_k": 63, "w_v": 63, "mlp_0": 64, "mlp_1": 64, "mlp_2": 64, "read_out": 128}
    for name, inverse_variance in spreads.items():  # 4096 entries or more: standard error of the variance .022
        assert np.var(params[name]) * inverse_variance == pytest.approx(1, abs=0.12), name
    many = jax.jit(jax.vmap(lambda key: start(key)["mlp_bias"]))  # and nothing else is drawn
    bias = np.asarray(many(jax.random.split(jax.random.key(0), 100)))  # standard error .08
    assert bias.var() * 128 == pytest.approx(1, abs=0.33)


@pytest.mark.parametrize(
    ("changes", "width", "named"),
    [
        ({"labels": 0}, 14, "labels"),
        ({"hidden": 0}, 14, "hidden"),
        ({"layers": 0}, 14, "layers"),
        ({"classifier_layers": 0}, 14, "classifier_layers"),
        ({}, P, "slots"),
    ],
)
def test_what_is_no_network_is_refused(changes, width, named):
    with pytest.raises(ValueError, match=named):
        NETWORK.clone(**changes).init(jax.random.key(0), jnp.zeros((7, width)))


def test_fast_form_refuses_what_it_does_not_compute():
    with pytest.raises(ValueError, match="layers=3"):
        induction_logits(NETWORK.clone(layers=3), {}, _prompts())
    with pytest.raises(ValueError, match="slots"):
        induction_logits(NETWORK.clone(slots=2 * N), {"params": {}}, _prompts(offsets=None))
