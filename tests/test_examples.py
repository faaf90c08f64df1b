"""The examples of docs/examples run, are short, and show what docs/extending.md says of them."""

import runpy
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from icl_lab import load_run
from icl_lab.models.attention import ATTENTIONS
from icl_lab.prompts import Prompt

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
PATHS = sorted(FOLDER.glob("[!.]*.py"))


def names_of(example):
    return runpy.run_path(str(FOLDER / f"{example}.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_example_is_short_and_named_where_it_is_explained(path):
    assert len(path.read_text().splitlines()) < 100
    assert f"(examples/{path.name})" in (FOLDER.parent / "extending.md").read_text()


def test_a_new_family_is_named():
    assert names_of("family")["main"]() == {"without": "GD++", "with": "twice-shrunk ridge"}


def test_a_new_task_is_drawn_as_it_says_and_learnt():
    task = names_of("task")
    sample = task["quadratic_regression"](context_length=2, input_size=3, label_noise=0.0)(jax.random.key(0), 4)
    x, w = np.asarray(sample.prompt.x), np.asarray(sample.latent["w"])
    np.testing.assert_allclose(sample.prompt.y[..., 0], np.einsum("bni,bij,bnj->bn", x, w, x), rtol=1e-4, atol=1e-5)
    query = np.asarray(sample.prompt.x_query)
    np.testing.assert_allclose(sample.target[:, 0], np.einsum("bi,bij,bj->b", query, w, query), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="at least 1, got 0 and 3"):
        task["quadratic_regression"](context_length=0, input_size=3)

    losses = task["main"](steps=150, batch=32)
    assert losses["Bayes"] < losses["network"] < losses["zero"] < losses["linear ridge"]


def test_a_new_solver_is_what_it_says_of_itself():
    solver = names_of("solver")
    found = solver["main"](batch=50)
    distance = {name: metrics["prediction_difference"] for name, metrics in found.items()}
    assert distance["Newton, 1 step"] < 1e-5 < distance["GD, 10 steps"] < distance["GD, 1 step"]
    assert found["Newton, 1 step"]["sensitivity_cosine"] == pytest.approx(1, abs=1e-5)
    assert found["Newton, 2 steps damped by 1/2"]["sensitivity_cosine"] == pytest.approx(1, abs=1e-5)

    x, y, query = (jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(6, 3), (6, 1), (3,)]))
    full, damped = (solver["newton"](0.5, steps, damping) for steps, damping in ((1, 1.0), (2, 0.5)))
    full, damped = jax.jit(lambda prompt: (full(prompt), damped(prompt)))(Prompt(x=x, y=y, x_query=query))
    assert np.abs(full).min() > 0.01
    np.testing.assert_allclose(damped, (1 - 0.5**2) * full, rtol=1e-4)
    with pytest.raises(ValueError, match="strength must be above 0"):
        solver["newton"](0.0)


def test_a_new_attention_has_two_forms_that_agree_and_is_refused_without_one():
    before = dict(ATTENTIONS)
    with mock.patch.dict(ATTENTIONS):
        found = names_of("attention")["main"](batch=4)
        assert set(ATTENTIONS) - set(before) == {"relu", "relu_plain"}
    assert before == ATTENTIONS
    assert found["largest prediction"] > 0.1
    assert found["forms differ by"] < 1e-5 * found["largest prediction"]
    assert found["plain form alone differs by"] == 0
    assert "'relu_plain' has no form for batches" in found["refused"]


def test_a_new_binary_leaves_a_record_a_figure_and_claims(tmp_path):
    binary = names_of("figure_with_claims")
    experiment = binary["EXPERIMENT"]
    assert set(experiment.presets) == {"smoke", "quick", "lab", "paper"}
    assert binary["main"](experiment, ["example", "--preset=smoke", f"--outdir={tmp_path}"]) == 0
    assert (tmp_path / "loss.png").stat().st_size
    run = load_run(tmp_path, experiment)
    assert run.record.axes["loss"] == ("member", "step")
    assert run.learner(member=1)(Prompt(np.ones((4, 4)), np.ones((4, 1)), np.ones(4))).shape == (1,)
    assert experiment.headlines == ("examples.figure_with_claims.loss",)
    rows = experiment.judged(run.record)
    assert [row["verdict"] for row in rows] == ["not judged"] * 2  # smoke judges nothing ...
    assert np.isfinite([row["estimate"] for row in rows]).all()  # ... but evaluates every statistic
    assert np.isfinite(rows[0]["control"])
