"""``Identified.page``: the fingerprint of any learner as one offline file."""

import json
import re

import numpy as np
import pytest
from stranger_adaptive import softmax_head
from stranger_learners import descent

from icl_lab.identify import FAMILIES, identify
from icl_lab.identify.explorable.data import BY_NAME
from icl_lab.identify.explorable.own import shown
from icl_lab.prompts import linear_regression

TRIED = {name: FAMILIES[name] for name in ("GD", "ridge", "softmax regression")}
N, D, RATE = 6, 3, 0.9
two_steps = descent([RATE] * 2)
kernel = softmax_head(1.0)  # no filter, since it depends on the examples themselves


def nothing(x, y, q):
    """Zero."""
    return 0 * q[:, :1]


@pytest.fixture(scope="module")
def found():
    sampler = linear_regression(context_length=N, input_size=D, input_law="normal")
    return identify([two_steps, kernel, nothing], sampler=sampler, families=TRIED)


@pytest.fixture(scope="module")
def path(found, tmp_path_factory):
    out = tmp_path_factory.mktemp("mine") / "mine.html"
    found.page(out)
    return out


def held(path):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', path.read_text(), re.S)[1])


def test_the_same_answer_is_the_same_bytes_and_asks_for_nothing(found, path, tmp_path):
    found.page(str(tmp_path / "again.html"))
    text = path.read_text()
    assert (tmp_path / "again.html").read_bytes() == path.read_bytes()
    assert len(text) < 200_000
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text)
    assert "default-src 'none'" in text
    assert found.explain(0).splitlines()[0] in text


def test_a_filter_is_drawn_with_the_algorithm_that_it_is_named_after(found, path):
    text, told = path.read_text(), held(path)
    assert told["learners"] == ["member 0", "member 1", "member 2"]
    fit = told["fits"][0][told["start"][1]]
    assert told["families"][told["start"][1]]["name"] == "GD"
    assert (fit["steps"], told["others"][0]) == (2, None)
    np.testing.assert_allclose(fit["theta"][0], RATE * found.units.eigenvalue, rtol=0.01)
    assert fit["residual"] < 0.001
    assert "GD with 2 steps is 0.0" in text
    arrays, _ = shown(found)
    family = BY_NAME["GD"]
    again = 1 - arrays["grid"] * family.response(arrays["grid"], 2, RATE * found.units.eigenvalue)
    np.testing.assert_allclose(arrays["factors"][0, 0], again, atol=1e-5)


def test_doubled_answers_are_those_of_the_learner_on_training_prompts_twice_as_large(found):
    """Gradient descent is a filter: h(4 l) on eigenvalues, with weights 8 times as large."""
    judged = found.judged
    h = BY_NAME["GD"].response(4 * judged.eigenvalues[::2], 2, RATE * found.units.eigenvalue)
    expected = 8 * np.einsum("cqd,cd->cq", judged.weights[::2], h)
    np.testing.assert_allclose(judged.doubled[0], expected, rtol=1e-6, atol=1e-6 * abs(expected).max())


def test_a_learner_that_is_no_filter_is_shown_by_its_predictions_with_what_excludes_it(found, path):
    told = held(path)
    other = told["others"][1]
    assert "its predictions are not linear in the query (linear_query)" in other["said"]
    assert "softmax regression" in other["nearest"]
    assert told["fits"][1] is None
    places = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", other["path"]), float)
    assert places.shape == (found.judged.raw[1].size, 2)
    np.testing.assert_allclose(places.sum(1), 320, atol=1)  # on the diagonal
    assert all(check["learner"] == 0 for check in told["checks"])
    assert "predictions are below .001 labels" in told["others"][2]["said"]


def test_a_learner_that_no_family_is_near_shows_the_nearest(tmp_path):
    twisted = lambda x, y, q: kernel(x, np.sin(3 * y), q)  # noqa: E731
    alone = identify(twisted, context_length=N, input_size=D, families=TRIED)
    alone.page(tmp_path / "mine.html")
    member, told = alone.members[0], held(tmp_path / "mine.html")
    assert alone.verdict == "none of these"
    assert told["others"][0]["nearest"] == member.nearest
    assert "is no filter" in told["others"][0]["said"]
    assert told["checks"] == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (3, "path must be the name of a file, got 3"),
        ("", "is a folder"),
        ("nowhere/mine.html", "path must be the name of a file in a folder that exists"),
    ],
)
def test_what_is_no_file_name_is_refused(found, path, said):
    with pytest.raises(ValueError, match=said):
        found.page(path)


def two_outputs(x, y, q):
    """Two steps of gradient descent in the first output, softmax regression in the second."""
    return np.concatenate([two_steps(x, y[..., :1], q), kernel(x, y[..., 1:], q)], 1)


def twice_two_steps(x, y, q):
    """Two steps of gradient descent in either output."""
    return np.concatenate([two_steps(x, y[..., k : k + 1], q) for k in (0, 1)], 1)


@pytest.fixture(scope="module")
def of_two_outputs():
    sampler = linear_regression(context_length=N, input_size=D, output_size=2, input_law="normal")
    return identify([two_outputs, twice_two_steps], sampler=sampler, families=TRIED)


@pytest.fixture(scope="module")
def two_path(of_two_outputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("two") / "mine.html"
    of_two_outputs.page(out)
    return out


def test_each_output_is_shown_as_the_answer_on_it_alone(of_two_outputs, two_path):
    """Its labels give its weights, so the same learner is as far from the same steps in either output."""
    told = held(two_path)
    assert told["learners"] == [f"member {m}, output {k}" for k in (0, 1) for m in (0, 1)]
    assert told["outputs"] == [0, 0, 1, 1]
    assert [other is None for other in told["others"]] == [True, True, False, True]
    assert "Member 0, output 1 is no filter" in told["others"][2]["said"]
    gd = [family["name"] for family in told["families"]].index("GD")
    for k, one in enumerate(of_two_outputs.outputs):
        assert one.explain(1) in two_path.read_text()
        fit = told["fits"][2 * k + 1][gd]
        assert fit["residual"] < 0.001
        np.testing.assert_allclose(fit["theta"][0], RATE * one.units.eigenvalue, rtol=0.01)
    assert {check["learner"] for check in told["checks"]} == {0, 1, 3}


def test_outputs_of_one_learner_are_called_by_their_number(tmp_path):
    sampler = linear_regression(context_length=N, input_size=D, output_size=2, input_law="normal")
    identify(two_outputs, sampler=sampler, families=TRIED).page(tmp_path / "mine.html")
    told, text = held(tmp_path / "mine.html"), (tmp_path / "mine.html").read_text()
    assert told["learners"] == ["output 0", "output 1"]
    assert told["others"][1]["said"].startswith("Output 1 is no filter")
    assert "<label>Output <select" in text
    assert "Each of the 2 outputs was asked by itself" in text


class TestInChromium:
    """The page, opened."""

    pytestmark = pytest.mark.xdist_group("browser")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing(self, axe, browser, path, two_path, scheme):
        opened = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 844})
        for page, learners in ((path, ("member 0", "member 1")), (two_path, ("member 0, output 1",))):
            opened.goto(page.as_uri())
            for learner in learners:
                opened.locator("[data-part=learner]").select_option(learner)
                assert axe(opened) == []
        opened.close()

    def test_each_output_is_calculated_on_its_own_labels(self, browser, two_path):
        """The check line takes every output's residuals; the named steps of an output are near it."""
        opened = browser.new_page(viewport={"width": 390, "height": 844})
        opened.goto(two_path.as_uri())
        root = opened.locator("#fingerprint")
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        for name in ("member 0, output 0", "member 1, output 0", "member 1, output 1"):
            root.locator("[data-part=learner]").select_option(name)
            root.locator("[data-part=family]").select_option(label="GD")
            assert float(root.get_attribute("data-residual")) < 0.001
            assert f"away from {name}" in root.locator("[data-part=said]").inner_text()
        root.locator("[data-part=learner]").select_option("member 0, output 1")
        assert "no filter" in root.locator("[data-part=said]").inner_text()
        assert opened.evaluate("document.documentElement.scrollWidth") <= 390
        opened.close()

    def test_it_calculates_without_a_request_and_says_what_a_member_is(self, browser, path):
        opened, said, asked = browser.new_page(viewport={"width": 390, "height": 844}), [], []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda sent: asked.append(sent.url))
        opened.goto(path.as_uri())
        root = opened.locator("#fingerprint")
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        assert float(root.get_attribute("data-residual")) < 0.001
        root.get_by_label("Steps").fill("1")
        assert float(root.get_attribute("data-residual")) > 0.05
        root.get_by_role("button", name="Fit").click()
        root.locator("[data-part=learner]").select_option("member 1")
        assert "no filter" in root.locator("[data-part=said]").inner_text()
        assert root.locator("[data-part=predictions]").is_visible()
        for hidden in ("filter", "ladder", "family", "fit"):
            assert root.locator(f"[data-part={hidden}]").is_hidden()
        root.locator("[data-part=learner]").select_option("member 0")
        assert root.locator("[data-part=filter]").is_visible()
        assert root.locator("[data-part=other]").is_hidden()
        assert opened.evaluate("document.documentElement.scrollWidth") <= 390
        assert said == []
        assert {url.split("#")[0] for url in asked if not url.startswith("data:")} == {path.as_uri()}
        opened.close()
