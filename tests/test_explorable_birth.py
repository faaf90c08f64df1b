"""The explorable of the induction head: the record, the figure without a script, and its code in Chromium."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.binaries import GALLERY
from experiments.onsets import crossing
from experiments.page.explorables.birth import data, fallback, recording
from experiments.reddy.clamping import CURVE
from experiments.reddy.training import progress
from icl_lab.lab import records
from icl_lab.lab.records import RecordError
from icl_lab.models.inspection import Trace
from icl_lab.prompts import Prompt, Sample

MODEL = data.FOLDER.with_name("model.js")


@pytest.fixture(scope="module")
def found():
    return data.record()


# Without a browser


def test_the_record_is_the_first_member_of_the_committed_lab_record(found):
    """But for rounding that 5,000 steps of training grow: less than a test set of 1,000 sequences can tell.

    The standard error of a share of them is at most 0.016; attention is no count, and differs by less.
    """
    lab = records.load(GALLERY / "reddy/clamping/lab")
    assert found.config == json.loads(json.dumps(vars(recording.CONFIG)))
    assert {**lab.config, "members": 1} == found.config
    np.testing.assert_array_equal(found.arrays["steps"], lab.arrays["steps"])
    for arm in data.ARMS:
        for name, curve in zip(data.CURVES, found.arrays[f"{arm}/curves"]):
            within = 0.5 / 1000**0.5 if name in ("ic", "cla") else 2e-3
            np.testing.assert_allclose(curve, CURVE(lab, condition=arm, metric=name)[0], atol=within, err_msg=arm)


def test_progress_measures_are_sums_of_the_kept_attention():
    draw, n, count = np.random.default_rng(0), 3, 60
    pattern = draw.dirichlet(np.full(2 * n + 1, 0.3), (count, 2, 1, 2 * n + 1)).astype(np.float32)
    item = draw.integers(0, 2, count)  # never the last
    samples = Sample(
        Prompt(jnp.zeros((count, n)), jnp.zeros((count, n)), jnp.arange(count)),
        jnp.zeros(count, int),
        {"match": jnp.eye(n, dtype=bool)[item], "labels": jnp.tile(jnp.arange(n), (count, 1))},
    )

    def run(prompt):
        return jnp.zeros(n), Trace(jnp.asarray(pattern)[prompt.x_query], jnp.zeros(1), jnp.zeros(1))

    told = jax.tree.map(np.asarray, progress(run, samples, recording.attention))
    maps = recording.in_255ths(told["attention"][None], told["match"])
    np.testing.assert_allclose(told["match"], np.bincount(item, minlength=n) / count, rtol=1e-6)
    assert maps.dtype == np.uint8
    assert not maps[0, :, -1].any()
    for name, value in data.measures(maps / 255, told["match"]).items():
        assert abs(value[0] - told[name]) <= data.bound(name, n), name


@pytest.mark.parametrize(("row", "key"), [(1, 0), (9, 3)])
def test_a_record_whose_maps_give_other_measures_is_refused(found, tmp_path, row, key):
    name = "cla_held/attention"
    maps = found.arrays[name].copy()
    maps[7, row // 8, row, key] ^= 16
    records.save(dataclasses.replace(found, arrays=found.arrays | {name: maps}), tmp_path, [])
    with pytest.raises(RecordError, match="maps of cla_held give another"):
        data.record(tmp_path)


def test_the_static_figure_is_the_control_where_the_head_has_formed(found):
    shown, time = fallback.context(found), fallback.start(found)
    accuracy = found.arrays["control/curves"][0]
    assert accuracy[time] >= fallback.FORMED > accuracy[time - 1]
    widths = np.array([float(arc["width"]) for arc in shown["arcs"]])
    assert len(widths) == 36 + 8
    by_query = np.split(widths, np.cumsum(range(1, 9)))  # in the first layer, then of the target in the second
    assert [row.argmax() for row in by_query[:8:2]] == [0, 2, 4, 6]  # labels attend most to their items
    assert by_query[8].argmax() == 2 * fallback.ITEM + 1
    counted = [arc["kind"] for arc in shown["arcs"]]
    assert {kind: counted.count(kind) for kind in ("ila1", "tila2", "tla2")} == {"ila1": 4, "tila2": 1, "tla2": 3}
    ila1 = widths[[kind == "ila1" for kind in counted]].mean() / fallback.THICK
    np.testing.assert_allclose(ila1, found.arrays["control/curves"][3, time], atol=0.01)  # widths have one decimal


def test_what_the_page_says_of_the_arms(found):
    """The classifier delays the onset by most of the steps frozen, the first layer by next to nothing."""
    steps, n, hold = found.arrays["steps"], found.config["context_length"], found.config["hold"]
    control, classifier, layer, given = (
        fallback.onset(found.arrays[f"{arm}/curves"][0], steps, n) for arm in data.ARMS
    )
    assert (classifier - control) / hold > 0.5
    assert abs(layer - control) / hold < 0.1
    assert 0.4 < given / control < 0.6


# In Chromium


class TestAgainstPython:
    """Functions of model.js."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_measures_are_those_of_python(self, in_page, found):
        maps, share = found.arrays["ila1_held/attention"], found.arrays["share"].astype(float)
        told = in_page(
            MODEL, "v[1].map((_, t) => m.measures({maps: v[0]}, v[2], t))",
            maps.ravel().tolist(), list(range(len(maps))), share.tolist(),
        )  # fmt: skip
        for name, expected in data.measures(maps / 255, share).items():
            np.testing.assert_allclose([one[name] for one in told], expected, rtol=1e-12)

    def test_worst_is_one_where_a_measure_is_off_by_the_bound(self, in_page, found):
        share = found.arrays["share"].astype(float)
        maps = found.arrays["control/attention"]
        exact = data.measures(maps / 255, share)
        for name in exact:
            curves = np.stack([exact.get(one, np.zeros(len(maps))) for one in data.CURVES])
            curves[data.CURVES.index(name), 5] += 1.5 * data.bound(name, len(share))
            arm = {"maps": maps.ravel().tolist(), "curves": curves.ravel().tolist()}
            told = in_page(MODEL, "m.worst([v[0]], v[1], v[2], v[3])", arm, share.tolist(), data.HALF, data.FLOAT)
            np.testing.assert_allclose(told, 1.5, rtol=1e-9)

    def test_crossings_are_those_of_python(self, in_page):
        draw = np.random.default_rng(0)
        curves, steps = draw.uniform(size=(50, 9)).cumsum(axis=1) / 6, np.arange(0, 900, 100)
        told = in_page(MODEL, "v[0].map(c => m.crossing(c, v[1], v[2]))", curves.tolist(), steps.tolist(), 0.625)
        np.testing.assert_allclose(told, crossing(curves, steps, 0.625), rtol=1e-12)
        assert in_page(MODEL, "[m.crossing([0, .1], [0, 1], .5), m.crossing([1, 0], [3, 4], .5)]") == [np.inf, 3]


class TestExplorable:
    """The explorable in a page without records."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_the_default_state_is_the_static_figure(self, light_tab, found):
        root, shown = light_tab.locator("#head"), fallback.context(found)
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        assert root.locator("[data-part=said]").inner_text() == shown["said"]
        attributes = "(all, name) => all.map(one => one.getAttribute(name))"
        assert root.locator(".arc").evaluate_all(attributes, "stroke-width") == [a["width"] for a in shown["arcs"]]
        cells = [value for one in shown["maps"] for *_, value in one]
        assert root.locator(".cell").evaluate_all(attributes, "fill-opacity") == cells
        curves = root.locator("[data-part=plot] .curve").evaluate_all(attributes, "d")
        assert curves == list(shown["curves"].values())
        assert {name: root.locator(f"[data-part={name}]").inner_text() for name in data.CURVES} == shown["values"]

    def test_keys_and_mouse_reach_the_same_state_which_is_in_the_address(self, light_tab, browser, found):
        root, times = light_tab.locator("#head"), light_tab.locator("#head [data-part=time]")

        def told(tab):
            parts = ("said", "delay", *data.CURVES)
            return [tab.locator(f"#head [data-part={one}]").text_content() for one in parts]

        times.focus()
        for key in ("Home", "PageUp", "ArrowRight", "ArrowRight", "ArrowLeft"):
            light_tab.keyboard.press(key)
        at = int(times.input_value())
        assert 1 < at < 12
        light_tab.keyboard.press("Tab")
        light_tab.keyboard.press("ArrowDown")  # the radio buttons are one stop
        assert root.get_by_label("classifier frozen").is_checked()
        by_keys = told(light_tab)
        steps, n = found.arrays["steps"], found.config["context_length"]
        soon, later = (fallback.onset(found.arrays[f"{arm}/curves"][0], steps, n) for arm in ("control", "cla_held"))
        assert f"the onset comes {later - soon:,.0f} steps later" in by_keys[0]
        assert by_keys[1] == f"+{later - soon:,.0f}"
        address = light_tab.url
        assert address.endswith(f"#head?arm=cla_held&time={at}")
        root.locator("[data-part=reset]").evaluate("one => one.click()")
        root.get_by_label("classifier frozen").click()
        plot, left = root.locator("[data-part=plot]"), (34 + 360 * at / (len(steps) - 1)) / 402
        box = plot.bounding_box()
        plot.click(position={"x": left * box["width"], "y": box["height"] / 2})
        assert told(light_tab) == by_keys
        assert light_tab.url == address
        again = browser.new_page()
        again.goto(address)
        assert told(again) == by_keys
        again.close()
        root.locator("[data-part=reset]").evaluate("one => one.click()")
        assert told(light_tab)[0] == fallback.context(found)["said"]
