"""What a terminal and a notebook show: ``repr`` of at most 300 characters, tables, pictures, progress with the loss."""

import io
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_lab
from icl_lab import notebook
from icl_lab.compare import compare, compare_batches, mean_loss, prefix_losses, task_losses
from icl_lab.fast import batch_learner
from icl_lab.identify import identify
from icl_lab.identify.report import Identified
from icl_lab.lab.command_line import console_progress
from icl_lab.lab.session import Session
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Prompt, linear_regression
from icl_lab.prompts.naming import named_by_arguments
from icl_lab.solvers import centred, gradient_descent, ridge
from icl_lab.training import Fit, Model, progress, training
from icl_lab.training.trained import Trained

N, D, M = 4, 2, 3
SAMPLER = linear_regression(context_length=N, input_size=D)
NETWORK = LinearSelfAttention(init_scale=0.1)
GD = gradient_descent(1.0, steps=1)
RUN = "figures/von_oswald/weight_maps/lab"


@pytest.fixture(scope="module")
def trained():
    return icl_lab.train(
        NETWORK, SAMPLER, members=M, steps=4, batch=8, eval_tasks=8, learning_rate=3e-3,
        references={"gd": jax.vmap(GD)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def samples():
    return SAMPLER(jax.random.key(1), 16)


def test_a_repr_is_short_and_says_what_it_is(trained, samples):
    params = trained.params(0)
    for value, said in [
        (samples.prompt, r"Prompt\(x \(16, 4, 2\), y \(16, 4, 1\), x_query \(16, 2\)\)"),
        (samples, r"Sample\(Prompt\(.*\), target \(16, 1\), latent: w \(16, 2, 1\)\)"),
        (trained, r"Trained\(LinearSelfAttention, 3 members, 4 steps, loss [.\d]+ \([.\d]+ to [.\d]+\)\)$"),
        (
            trained.fit,
            r"Fit\(3 members, 4 steps, loss .*; 5 measurements of train_loss, .*w_k \(3, 1, 1, 3, 3\)",
        ),
        (trained.model, r"Model\(LinearSelfAttention, 1 layer\)"),
        (trained.learner(1), "member 1 of LinearSelfAttention"),
        (trained.batch_learner(2), "member 2 of LinearSelfAttention"),
        (learner(NETWORK, params), r"learner\(LinearSelfAttention\)"),
        (batch_learner(NETWORK, params), r"batch_learner\(LinearSelfAttention\)"),
        (ridge(0.1), r"ridge\(0\.1\)"),
        (gradient_descent(np.ones(300), w0=jnp.ones((D, 1))), r"gradient_descent\(array \(300,\), w0=array \(2, 1\)\)"),
        (centred(ridge(0.1)), r"centred\(ridge\(0\.1\)\)"),
        (icl_lab.load_run(RUN), r"FinishedRun\(von_oswald.weight_maps, lab, 10 members, 12 arrays\)"),
    ]:
        assert re.search(said, repr(value)), repr(value)
        assert len(repr(value)) <= 300


def test_long_values_are_cut():
    many = {f"a parameter with a long name {k}": np.zeros((2, 3, 4)) for k in range(50)}
    metrics = {f"a metric with a long name {k}": np.zeros((2, 3)) for k in range(50)} | {"loss": np.ones((2, 3))}
    fit = Fit(many, np.arange(3), metrics, np.array([-1, 1]))
    assert "1 diverged" in repr(fit)
    for value in (fit, Trained(Model(None, None, 1, "x" * 1000), fit)):
        assert len(repr(value)) <= 300
    long = named_by_arguments(lambda *names: lambda prompt: prompt)
    assert len(repr(long("x" * 1000))) < 200
    assert repr(Prompt(None, 0, object())).startswith("Prompt(x NoneType, y int")  # as axes of vmap are


def test_a_learner_that_is_made_under_a_trace_is_named_too(samples):
    first = jax.tree.map(lambda leaf: leaf[0], samples.prompt)

    @jax.jit
    def answer(strength):
        made = ridge(strength)
        assert "ridge(array)" in repr(made)
        return made(first)

    np.testing.assert_allclose(answer(0.1), ridge(0.1)(first), rtol=1e-6)


def test_a_table_has_a_row_for_every_number(trained):
    rows = list(trained.table())
    assert len(rows) == sum(values.size for values in trained.fit.metrics.values())
    assert set(rows[0]) == {"quantity", "member", "step", "value"}
    at = {(row["quantity"], row["member"], row["step"]): row["value"] for row in rows}
    assert at["loss", 2, 4] == trained.fit.metrics["loss"][2, -1]
    wide = Fit({}, np.arange(2), {"loss": np.ones((1, 2)), "curve": np.ones((1, 2, 5))}, np.array([-1]))
    found = list(Trained(trained.model, wide).table())
    assert len(found) == 12
    assert {row["axis 2"] for row in found} == {None, 0, 1, 2, 3, 4}


def test_a_plot_has_the_loss_of_every_member_and_of_references(trained):
    (axes,) = trained.plot().axes
    assert len(axes.lines) == 2 * (M + 1)
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), trained.fit.metrics["loss"][1])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss, median of 3", "gd_loss, median of 3"]
    assert len(trained.plot(["train_loss"]).axes[0].lines) == M + 1
    assert trained.plot()._repr_png_().startswith(b"\x89PNG")  # so a notebook draws it without pyplot
    with pytest.raises(ValueError, match=r"names must be of numbers that were measured, .*gd_loss.*; got 'nope'"):
        trained.plot(["nope"])


def test_a_notebook_gets_html(trained):
    shown = trained._repr_html_()
    assert "<td>gd_loss</td>" in shown
    assert "data:image/png;base64," in shown
    assert "<td>gd_loss</td>" in trained.fit._repr_html_()
    assert "<th>axes</th>" in icl_lab.load_run(RUN)._repr_html_()
    assert "<td>&lt;b&gt;</td><td>0.3333</td>" in notebook.table([{"a": "<b>", "b": 1 / 3}])


def test_members_are_compared_at_once(trained, samples):
    found = compare(trained, GD, samples)
    losses, curves = mean_loss(trained, samples), prefix_losses(trained, samples)
    assert task_losses(trained, samples).shape == (M, 16)
    assert curves.shape == (M, N + 1)
    one = trained.learner(1)
    of_one, loss = jax.jit(lambda samples: (compare(one, GD, samples), mean_loss(one, samples)))(samples)
    for name, value in of_one.items():
        np.testing.assert_allclose(found[name][1], value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses[1], loss, rtol=1e-5)
    np.testing.assert_allclose(curves[:, -1], losses, rtol=1e-5)
    both = compare(trained, trained, samples)["prediction_difference"]
    assert both.shape == (M, M)
    np.testing.assert_allclose(np.diagonal(both), 0, atol=1e-6)
    assert (both + np.eye(M) > 1e-6).all()
    other = compare_batches(jax.vmap(GD), trained, samples)["prediction_difference"]
    np.testing.assert_allclose(other, found["prediction_difference"], rtol=1e-4, atol=1e-6)


def test_trained_members_are_identified_on_what_they_were_measured_on(trained):
    found = identify(
        Trained(trained.model, trained.fit._replace(diverged_at=trained.fit.diverged_at[:1]), trained.call)
    )
    assert isinstance(found, Identified)
    assert found.asked == {"context_length": N, "input_size": D, "seed": 0}
    assert not found.units.assumed
    assert repr(found).startswith(f"Identified({found.verdict}")
    assert len(repr(found)) <= 300
    assert str(found).splitlines()[0] in found._repr_html_()
    with pytest.raises(ValueError, match="context_length and input_size must be given, or a sampler"):
        identify(Trained(trained.model, trained.fit))  # which does not know its sampler


def test_progress_says_the_loss_in_lines_a_minute_apart():
    now, out = [0.0], io.StringIO()
    say = progress.lines("training", clock=lambda: now[0], out=out)
    for second in range(0, 200, 10):
        now[0] = float(second)
        say(second // 2, 100, {"train_loss": np.ones(3), "loss": np.array([0.5, np.nan, 0.25])})
    assert out.getvalue().splitlines() == [f"training: {second // 2} of 100, loss 0.375" for second in (60, 120, 180)]
    assert progress.loss_of({"train_loss": np.array([2.0])}) == "train loss 2"
    assert progress.loss_of({"train_loss": np.array([np.nan])}) == ""


def test_a_training_is_watched(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    icl_lab.train(NETWORK, SAMPLER, members=1, steps=2, batch=4, eval_tasks=4, measure_every=1)
    said = capsys.readouterr().err
    assert re.findall(r"training: (\d) of 2, loss [\d.]+", said) == ["0", "1", "2"]
    icl_lab.train(NETWORK, SAMPLER, members=1, steps=2, batch=4, eval_tasks=4, measure_every=1, progress=False)
    assert capsys.readouterr().err == ""


def test_a_binary_says_its_loss_where_no_bar_can_move(monkeypatch, capsys, tmp_path):
    planned = training(NETWORK, SAMPLER, members=1, steps=2, batch=4, eval_tasks=4, measure_every=1)
    for seconds, said in ((0.0, ["0", "1", "2"]), (60.0, [])):
        monkeypatch.setattr(progress, "SECONDS", seconds)
        session = Session(tmp_path / str(seconds), "of this test", 15.0, console_progress())
        session.fit("layer", planned)
        with session.bar("names", 3) as advance:
            advance(1, 3)
        shown = capsys.readouterr().err
        assert re.findall(r"layer: (\d) of 2, loss [\d.]+", shown) == said
        assert ("names: 1 of 3\n" in shown) == bool(said)


def test_the_front_door_in_a_fresh_process():
    code = """
import icl_lab, types
assert {"train", "load", "load_run", "identify", "compare"} <= set(dir(icl_lab)), dir(icl_lab)
assert not {"Any", "importlib"} & set(dir(icl_lab))
for name in ("identify", "compare"):  # modules, with a function of that name
    assert isinstance(getattr(icl_lab, name), types.ModuleType)
    assert callable(getattr(getattr(icl_lab, name), name))
from icl_lab import identify, train
assert callable(train) and callable(identify.identify)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
