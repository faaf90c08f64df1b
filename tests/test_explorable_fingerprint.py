"""The explorable of fingerprints: the record, the figure without a script, and its code against Python in Chromium."""

import dataclasses

import numpy as np
import pytest

from experiments.page.explorables.fingerprint import data
from icl_lab.identify import explorable
from icl_lab.identify.decision import NAMED
from icl_lab.identify.explorable.data import FAMILIES, residual
from icl_lab.identify.explorable.figure import context
from icl_lab.lab import records
from icl_lab.lab.records import RecordError

MODEL = explorable.FOLDER / "model.js"


@pytest.fixture(scope="module")
def found():
    return data.record()


def test_a_record_whose_arrays_give_other_residuals_is_refused(found, tmp_path):
    changed = found.arrays | {"answers": found.arrays["answers"] * np.float32(1.001)}
    records.save(dataclasses.replace(found, arrays=changed), tmp_path, [])
    with pytest.raises(RecordError, match="the record says otherwise"):
        data.record(tmp_path)


def test_best_fits_say_what_is_known_of_the_learners(found):
    """One layer is a step of GD, three loops are three of GD++, the planted solver is ridge, two heads are none."""
    names = [family.name for family in FAMILIES]
    told = {learner: dict(zip(names, fits)) for learner, fits in zip(found.metrics["learners"], found.metrics["fits"])}
    assert told["one layer"]["GD"]["steps"] == 1
    assert told["one layer"]["GD"]["residual"] < 0.01 < NAMED < told["one layer"]["ridge"]["residual"]
    assert told["three loops of one layer"]["GD++"]["steps"] == 3
    assert told["three loops of one layer"]["GD++"]["residual"] < 0.01
    assert told["a mystery learner"]["ridge"]["residual"] < 0.001
    assert min(fit["residual"] for fit in told["two softmax heads"].values()) > NAMED


def test_the_static_figure_is_the_default_state(found):
    shown = context(*data.shown(found))
    assert [row["name"] for row in shown["ladder"] if row["chosen"]] == ["GD++"]
    assert shown["members"].count("M") == 10
    assert "GD++ with 3 steps" in shown["said"]


class TestInChromium:
    """The explorable in a page without records."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_filters_and_residuals_are_those_of_identify(self, in_page, found):
        rng = np.random.default_rng(5)
        arrays = {name: found.arrays[name].astype(float) for name in ("eigenvalues", "weights", "answers")}
        shapes = dict(zip(("contexts", "queries", "size"), arrays["weights"].shape))
        on = shapes | {name: arrays[name].ravel().tolist() for name in ("eigenvalues", "weights")}
        asked = []
        for family in FAMILIES:
            for _ in range(20):
                steps = int(rng.integers(1, family.most + 1))
                theta = [float(np.exp(rng.uniform(*np.log(bounds)))) for bounds in family.bounds]
                asked.append((family, steps, theta, int(rng.integers(5))))
        expected = [residual(arrays, learner, family, steps, theta) for family, steps, theta, learner in asked]
        plain = [(family.name, steps, theta, learner) for family, steps, theta, learner in asked]
        told = in_page(
            MODEL,
            """v[2].map(([name, steps, theta, learner]) =>
                m.residual(v[0], v[1][learner], (l) => m.filters[name](l, steps, ...theta), 1))""",
            on, [one.ravel().tolist() for one in arrays["answers"]], plain,
        )  # fmt: skip
        np.testing.assert_allclose(told, expected, rtol=1e-9)

    def test_inputs_twice_as_large_are_those_of_the_battery(self, in_page, found):
        """The one layer is a step at every scale: it makes as small an error on doubled inputs as on its own."""
        fit = found.metrics["fits"][0][0]
        on = dict(zip(("contexts", "queries", "size"), found.arrays["weights"].shape))
        on |= {name: found.arrays[name].astype(float).ravel().tolist() for name in ("eigenvalues", "weights")}
        doubled = found.arrays["doubled"][0].astype(float).ravel().tolist()
        told = in_page(MODEL, "m.residual(v[0], v[1], (l) => m.gd(l, 1, v[2]), 2)", on, doubled, fit["theta"][0])
        assert told < 0.001

    def test_default_state_choices_and_fit(self, light_tab, found):
        root = light_tab.locator("#fingerprint")
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        assert root.locator("[data-part=said]").inner_text().startswith(context(*data.shown(found))["said"])
        root.locator("[data-part=learner]").select_option("a mystery learner")
        root.locator("[data-part=family]").select_option("ridge")
        assert float(root.get_attribute("data-residual")) < 0.001
        strength = root.locator("[data-part=number-0]")
        strength.focus()
        for _ in range(40):
            light_tab.keyboard.press("ArrowRight")
        moved = float(root.get_attribute("data-residual"))
        assert moved > 0.05
        assert "outside the bar" in root.locator("[data-part=said]").inner_text()
        address = light_tab.url
        assert "family=ridge" in address
        light_tab.get_by_role("button", name="Fit", exact=True).click()
        assert float(root.get_attribute("data-residual")) < 0.001
        light_tab.goto("about:blank")
        light_tab.goto(address)
        assert float(root.get_attribute("data-residual")) == pytest.approx(moved, rel=0.01)
