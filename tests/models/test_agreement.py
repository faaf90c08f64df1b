"""An attention of one's own whose plain and fast form are not one function is refused on first use, by name."""

import contextlib
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_lab
from icl_lab.fast import batch_learner, induction_logits
from icl_lab.models import InductionNetwork, LinearSelfAttention, Transformer
from icl_lab.models.attention import ATTENTIONS, Attention, delta_attention, linear_pattern
from icl_lab.prompts import Prompt, linear_regression
from icl_lab.prompts.layouts import joint_layout, separate_layout
from icl_lab.training.model import model_of

SOFTMAX = ATTENTIONS["softmax"]
MEAN = Attention(lambda q, k: linear_pattern(q, k) / k.shape[0])
GATED = delta_attention(gates=0.9, momentum=0.2)
KINDS = {
    "mean over tasks": MEAN._replace(of_scores=lambda s: s / s.shape[-1]),
    "mean over blocks": MEAN._replace(of_scores=lambda s: s / s.shape[0]),
    "unscaled": SOFTMAX._replace(of_scores=lambda s: jax.nn.softmax(s, axis=2), scaled=False),
    "not its scores": Attention(lambda q, k: jnp.tanh(linear_pattern(q, k)), jnp.tanh, gram=True),
    "softmax over keys": SOFTMAX._replace(of_scores=lambda s: jax.nn.softmax(s, axis=2)),
    "not its Gram matrix": GATED._replace(of_grams=ATTENTIONS["delta"].of_grams),
    "gates over keys": GATED,
    "mean over keys": MEAN._replace(of_scores=lambda s: s / s.shape[2]),
}
LAYOUTS = {"joint_layout": joint_layout(), "separate_layout": separate_layout(4)}
PROMPT = Prompt(x=np.zeros((4, 3), np.float32), y=np.zeros((4, 1), np.float32), x_query=np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("kind", "layout"), [*((kind, "joint_layout") for kind in KINDS), ("mean over tasks", "separate_layout")]
)
def test_forms_that_disagree_are_refused_with_attention_layout_and_difference(kind, layout, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, kind, KINDS[kind])
    network = Transformer(layers=2, attention=("linear", kind) if kind == "unscaled" else kind)
    if kind.endswith("keys"):
        model_of(network, PROMPT, LAYOUTS[layout])
        return
    for _ in range(2):  # refused again, not only the first time
        with pytest.raises(ValueError, match=rf"'{kind}'.* disagree \({layout}.* differ by \d"):
            model_of(network, PROMPT, LAYOUTS[layout])


def test_they_are_refused_inside_a_program_and_before_training(monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "mean over tasks", KINDS["mean over tasks"])
    network = LinearSelfAttention(layers=1, attention="mean over tasks")
    params = network.init(jax.random.key(0), jnp.zeros((5, 4)))
    many = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), PROMPT)
    for use in (
        lambda: jax.jit(jax.grad(lambda params: batch_learner(network, params)(many).sum()))(params),
        lambda: icl_lab.train(network, linear_regression(context_length=4, input_size=3), steps=1),
    ):
        with pytest.raises(ValueError, match=r"attention 'mean over tasks'"):
            use()


def test_a_layout_and_a_network_of_ones_own_are_compared_too():
    joint = joint_layout()
    doubled = joint._replace(encode_tasks=lambda prompt: 2 * joint.encode_tasks(prompt))
    with pytest.raises(ValueError, match=r"attention 'linear' in LinearSelfAttention: .* disagree"):
        model_of(LinearSelfAttention(), PROMPT, doubled)

    class Doubled(LinearSelfAttention):
        def __call__(self, tokens, intervention=None, step=0):
            return super().__call__(2 * tokens, intervention, step)

    with pytest.raises(ValueError, match=r"in Doubled: .* disagree"):
        model_of(Doubled(), PROMPT)

    class Induction(InductionNetwork):
        def __call__(self, tokens, intervention=None, step=0):
            return super().__call__(tokens[::-1], intervention, step)

    network = Induction(labels=3, slots=9, hidden=32, classifier_layers=1)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), dataclasses.replace(PROMPT, y=PROMPT.x))
    params = network.init(jax.random.key(0), jnp.zeros((9, 12)))
    with pytest.raises(ValueError, match=r"Induction: .* disagree \(item_label_layout"):
        induction_logits(network, params, many)


def test_the_example_of_the_documentation_is_one_function(monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    monkeypatch.setattr("icl_lab.models.attention.ATTENTIONS", before := dict(ATTENTIONS))
    exec(page.split("```python")[1].split("```")[0], {})
    for wrong in (False, True):
        kind = before["base two"]
        if wrong:
            kind = kind._replace(of_scores=lambda scores, right=kind.of_scores: right(scores.mT).mT)
        monkeypatch.setitem(ATTENTIONS, "base two", kind)
        with pytest.raises(ValueError, match="disagree") if wrong else contextlib.nullcontext():
            model_of(Transformer(attention="base two"), PROMPT)


def test_networks_of_this_library_are_not_asked(monkeypatch):
    def asked(*_):
        raise AssertionError

    monkeypatch.setattr("icl_lab.fast.batched.check_forms", asked)
    for layout in (joint_layout(), joint_layout(jnp.ones((3, 1))), joint_layout(sign=1), separate_layout(4)):
        model_of(Transformer(layers=2, attention=("linear", "softmax")), PROMPT, layout)
