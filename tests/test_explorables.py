"""What is computed in the page: its figures without a script, the bundle, and its code against JAX in Chromium."""

import dataclasses
import json
import re
import unicodedata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import page
from experiments.page.explorables.birth import recording
from experiments.page.explorables.fingerprint import measuring
from experiments.page.explorables.layer import data, fallback, training
from experiments.page.explorables.weights import checking
from icl_lab.constructions import gradient_descent_weights
from icl_lab.lab import records
from icl_lab.lab.records import RecordError
from icl_lab.models import LinearSelfAttention, folded_weights, learner
from icl_lab.pages import bundle, stripped
from icl_lab.prompts import linear_regression
from icl_lab.solvers import gradient_descent, least_squares
from icl_lab.theory import one_step_loss

MODEL = Path(data.__file__).with_name("model.js")


@pytest.fixture(scope="module")
def found():
    return data.record()


# Without a browser


def test_the_record_is_of_the_committed_training(found):
    assert found.config == json.loads(json.dumps(vars(training.CONFIG)))
    assert found.arrays["a"].shape == found.arrays["b"].shape == (10, 61, 3, 3)
    assert found.arrays["steps"][-1] == training.CONFIG.steps


def test_a_record_whose_weights_give_other_predictions_is_refused(found, tmp_path):
    changed = found.arrays | {"a": found.arrays["a"] * np.float32(1.0001)}
    records.save(dataclasses.replace(found, arrays=changed), tmp_path, [])
    with pytest.raises(RecordError, match="other predictions"):
        data.record(tmp_path)


def test_the_static_figure_has_the_step_that_the_laboratory_takes_and_the_layer_near_it(found):
    x, y = fallback.labelled()
    sampler = linear_regression(context_length=8, input_size=2)
    prompt = sampler(jax.random.key(0), 1).prompt
    of_query = lambda solver, q: solver(  # noqa: E731
        dataclasses.replace(
            jax.tree.map(lambda leaf: leaf[0], prompt), x=jnp.array(x), y=jnp.array(y)[:, None], x_query=q
        )
    )[0]
    eye = jnp.eye(2)
    told = fallback.answers(found)
    step = [of_query(gradient_descent(found.metrics["learning_rate"], 1), q) for q in eye]
    np.testing.assert_allclose(told["step"], step, rtol=1e-5)
    np.testing.assert_allclose(told["least_squares"], fallback.TRUTH, rtol=1e-6)
    assert fallback.distance(found) < 0.03


def test_waiting_members_are_far_from_the_step_and_others_near(found):
    waits = np.array(data.data(found)["waits"])
    assert 0 < waits.sum() < waits.size
    loss = found.arrays["loss"][:, -1] / found.metrics["closed_form"]
    assert loss[~waits].max() < 1.1 < 2 < loss[waits].min()


def test_bundle_calls_each_module_once_in_order_of_need(tmp_path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nimport { c } from "./c.js";\nb(c);\n')
    (tmp_path / "b.js").write_text('import { c } from "./c.js";\nexport function b() { return c; }\n')
    (tmp_path / "c.js").write_text("// a comment\n/**\n * another\n */\nexport const c = 1; // a third\n")
    text = bundle(tmp_path / "a.js")
    assert text.count("(()=>{") == 3
    assert text.index("const c=1") < text.index("function b()") < text.index("b(c)")
    assert [word for word in ("import", "export", "comment", "another", "third") if word in text] == []


@pytest.mark.parametrize(
    ("script", "wanted"),
    [("  a = b  // c\n\n  d", "a=b\nd"), ("return  x in y", "return x in y"), ("a + +b - -c", "a+ +b- -c"),
     ("a / 2 / b // c", "a/2/b"), ("f(/[/] \\/ *'/, 1)", "f(/[/] \\/ *'/,1)"),
     ("'//  ' + \"a ' \\\" b\"", "'//  '+\"a ' \\\" b\""),
     ("`a  ${ b ? `c  ${ { d : `}` } }  //` : \"\" }  e` + f", "`a  ${b?`c  ${{d:`}`}}  //`:\"\"}  e`+f"),
     ("a /* b\n */ c", "a\nc"), ("`$  \\` ${ 1 }`", "`$  \\` ${1}`")],
)  # fmt: skip
def test_a_script_is_stripped_of_comments_and_of_spaces_that_separate_nothing(script, wanted):
    assert stripped(script) == wanted
    assert stripped(wanted) == wanted


@pytest.mark.parametrize("script", ["a = 'b\n'", "`a ${b}", "f(/a\n/)"])
def test_a_text_without_an_end_is_refused(script):
    with pytest.raises(ValueError, match="no end"):
        stripped(script)


@pytest.mark.parametrize(
    ("content", "said"),
    [("export default 1;\n", "not bundled"), ('import * as b from "./b.js";\n', "not bundled"),
     ('import { a } from "./a.js";\n', "imports itself")],
)  # fmt: skip
def test_bundle_refuses_what_it_does_not_understand(tmp_path, content, said):
    (tmp_path / "a.js").write_text(content)
    with pytest.raises(ValueError, match=said):
        bundle(tmp_path / "a.js")


def test_scripts_are_within_their_budget():
    assert len(bundle(Path(page.__file__).parent / "templates" / "page.js")) <= 60_000


@pytest.mark.parametrize("module", [training, measuring, checking, recording])
def test_commands_that_make_records_say_what_they_do_and_refuse_what_they_do_not_know(module, capsys):
    assert module.main(["", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(module.__doc__.splitlines()[0])
    assert "--outdir" in said
    assert module.main(["", "--out=here"]) == 2


# In Chromium


def off(tab):
    """How far the ring is from the arrow's tip, as a share of the step."""
    return float(tab.locator("#layer").get_attribute("data-off"))


@pytest.fixture(scope="module")
def prompts():
    """200 fresh prompts, as arrays and as ``model.js`` takes them."""
    prompt = linear_regression(context_length=8, input_size=2, input_range=2.0)(jax.random.key(7), 200).prompt
    plain = [{"x": x.tolist(), "y": y[:, 0].tolist()} for x, y in zip(np.asarray(prompt.x), np.asarray(prompt.y))]
    return prompt, plain


class TestAgainstJax:
    """Functions of model.js on fresh prompts."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_layer_is_the_network(self, in_page, prompts):
        prompt, plain = prompts
        network = LinearSelfAttention(layers=1, looped=True, init_scale=1.0)
        tokens = jnp.zeros((9, 3))
        params = network.init(jax.random.key(3), tokens)
        expected = jax.vmap(learner(network, params))(prompt)[:, 0]
        a, b = (np.asarray(matrix[0, 0], float).ravel().tolist() for matrix in folded_weights(params))
        told = in_page(MODEL, "v[2].map((p, i) => m.layer({a: v[0], b: v[1]}, p, v[3][i]))", a, b, plain,
                       np.asarray(prompt.x_query, float).tolist())  # fmt: skip
        np.testing.assert_allclose(told, expected, atol=1e-5)

    def test_solvers_and_weights_by_hand_are_those_of_the_laboratory(self, in_page, prompts):
        prompt, plain = prompts
        query = np.asarray(prompt.x_query, float)
        step, best = in_page(MODEL, "[v[0].map(p => m.gradientStep(1.7, p)), v[0].map(m.leastSquares)]", plain)
        hand = in_page(MODEL, "v[0].map(p => m.implied(m.built(1.7, 8), p))", plain)
        for told, solver, near in ((step, gradient_descent(1.7, 1), 1e-5), (best, least_squares(), 1e-3)):
            expected = jax.vmap(solver)(prompt)[:, 0]
            np.testing.assert_allclose((np.array(told) * query).sum(1), expected, atol=near)
        np.testing.assert_allclose(hand, step, atol=1e-12)
        a, b = folded_weights(gradient_descent_weights(1.7, context_length=8, input_size=2))
        np.testing.assert_allclose(-b[0, 0, 2, 2] * a[0, 0, 0, 0], 1.7 / 8, rtol=1e-6)

    def test_relative_loss_is_the_closed_form(self, in_page):
        sizes = [0.5, 1.0, 1.4, 2.0]
        told = in_page(MODEL, "v[0].map(s => m.relativeLoss(s, 2.4, 1 / 3, 8))", sizes)
        law = [{"context_length": 8, "input_size": 2, "input_variance": s**2 / 3} for s in sizes]
        expected = [one_step_loss(2.4, **one) / one_step_loss(0.0, **one) for one in law]
        np.testing.assert_allclose(told, expected, rtol=1e-12)

    def test_a_direction_is_named_where_there_is_only_one(self, in_page, found):
        waits = data.data(found)["waits"]
        matrices = found.arrays["a"][:, -1].astype(float).reshape(10, 9).tolist()
        told = in_page(MODEL, "v[0].map(a => m.onlyDirection({a}))", matrices)
        named = [one is not None for one in told]
        assert any(named)
        assert named[data.of_one_direction(found) - 1]
        assert not any(one and not waiting for one, waiting in zip(named, waits))
        for one, matrix in zip(told, found.arrays["a"][:, -1]):
            if one is not None:
                left = np.linalg.svd(matrix[:2].astype(float))[0][:, 0]
                np.testing.assert_allclose(abs(np.dot(one, left)), 1, atol=1e-6)


class TestExplorable:
    """The first screen."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_check_line_says_how_near_and_the_default_state_is_the_static_figure(self, light_tab, found):
        check = light_tab.locator("#layer [data-part=check]").inner_text()
        assert check.startswith("✓")
        digit, power = re.search(r"(\d)\s×\s10⁻(.)\.$", check).groups()
        assert int(digit) * 10.0 ** -unicodedata.digit(power) <= data.TOLERANCE
        assert off(light_tab) == pytest.approx(fallback.distance(found), rel=1e-4)
        said = light_tab.locator("#layer [data-part=said]")
        assert said.inner_text().startswith("After 3,000 steps of training the layer’s answer is")
        assert light_tab.locator("#layer .static").count() == 0
        box = said.bounding_box()
        assert box["y"] + box["height"] < 800  # the story is told on the first screen

    def test_mouse_and_keys_move_a_point_and_the_ring_stays_on_the_tip(self, light_tab):
        point = light_tab.locator("#layer [data-part=prompt] .handle").first
        before = point.get_attribute("aria-label")
        point.focus()
        for key in ("ArrowLeft", "ArrowUp", "Home", "PageDown", "Shift+ArrowRight"):
            light_tab.keyboard.press(key)
            assert off(light_tab) < 0.05
        by_keys = point.get_attribute("aria-label")
        assert by_keys != before
        assert "at -1.19, -1.00" in by_keys
        light_tab.locator("#layer [data-part=prompt]").scroll_into_view_if_needed()
        plane = light_tab.locator("#layer [data-part=prompt]").bounding_box()
        box = point.bounding_box()
        light_tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        light_tab.mouse.down()
        middle = plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2
        light_tab.mouse.move(middle[0] + plane["height"] / 264 * 126 * 0.5, middle[1], steps=4)
        light_tab.mouse.up()
        place = [float(v) for v in point.get_attribute("aria-label").split(" at ")[1].split(",")]
        np.testing.assert_allclose(place, [0.5, 0], atol=0.02)
        assert off(light_tab) < 0.05
        assert "x=" in light_tab.evaluate("location.hash")

    def test_points_are_one_tab_stop_among_which_enter_and_numbers_move(self, light_tab):
        points = light_tab.locator("#layer [data-part=prompt] .handle")
        places = points.evaluate_all("all => all.map(one => one.getAttribute('transform'))")
        points.first.focus()
        for key, at in (("Enter", 1), ("5", 4), ("Shift+Enter", 3), ("8", 7), ("Space", 0)):
            light_tab.keyboard.press(key)
            focused = "all => all.map(one => [one === document.activeElement, one.tabIndex === 0])"
            assert points.evaluate_all(focused) == [[k == at, k == at] for k in range(8)]
        assert points.evaluate_all("all => all.map(one => one.getAttribute('transform'))") == places
        light_tab.keyboard.press("Tab")
        assert "true weights" in light_tab.evaluate("document.activeElement.ariaLabel")

    def test_the_state_is_in_the_address_and_comes_back(self, light_tab, open_page, found):
        waiting = data.of_one_direction(found)
        light_tab.locator("#layer [data-part=network]").select_option(str(waiting))
        assert "along one direction only" in light_tab.locator("#layer [data-part=said]").inner_text()
        assert off(light_tab) > 0.1
        light_tab.locator("#layer [data-part=weights] .handle").focus()
        light_tab.keyboard.press("ArrowRight")
        again = open_page(light_tab.url)
        assert off(again) == pytest.approx(off(light_tab), rel=1e-3)
        assert again.locator("#layer [data-part=network]").input_value() == str(waiting)

    def test_weights_by_hand_are_the_step_and_edited_ones_are_put_back(self, light_tab):
        light_tab.locator("#layer [data-part=hand]").fill("1")
        assert off(light_tab) < 1e-6
        light_tab.locator("#layer [data-part=hand]").fill("0")
        before = off(light_tab)
        light_tab.locator("details.numbers summary").click()
        light_tab.get_by_label("A, row 1, column 1").fill("3")
        assert off(light_tab) > 1
        light_tab.get_by_role("button", name="Put the numbers back").click()
        assert off(light_tab) == before

    def test_at_the_largest_inputs_the_layer_and_the_tip_of_the_step_are_still_in_sight(self, light_tab):
        light_tab.locator("#layer [data-part=size]").fill("2")
        plane = light_tab.locator("#layer [data-part=weights]").bounding_box()
        for selector in ("circle.trained", "path.step"):
            box = light_tab.locator(f"#layer {selector}").bounding_box()
            assert plane["x"] < box["x"] < box["x"] + box["width"] < plane["x"] + plane["width"]
            assert plane["y"] < box["y"] < box["y"] + box["height"] < plane["y"] + plane["height"]

    @pytest.mark.parametrize("width", [360, 390, 768, 1280])
    def test_fits_every_width_and_points_are_large_enough_for_a_finger(self, open_page, light_page, width):
        opened = open_page(light_page.as_uri(), viewport={"width": width, "height": 844}, has_touch=True)
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        sizes = opened.locator("#layer .touch").evaluate_all("all => all.map(c => c.getBoundingClientRect().width)")
        assert min(sizes) >= 43.5
