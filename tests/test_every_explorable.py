"""What all explorables of the page have in common: a checked record, and a figure that stands without a script."""

import numpy as np
import pytest

from experiments.page.explorables.birth import data as birth
from experiments.page.explorables.birth import fallback as of_birth
from experiments.page.explorables.fingerprint import data as fingerprint
from experiments.page.explorables.layer import data as layer
from experiments.page.explorables.weights import data as weights
from experiments.page.explorables.weights import fallback as of_weights
from icl_lab.identify.explorable.figure import context
from icl_lab.pages import packed

pytestmark = pytest.mark.xdist_group("browser")


STORED = {
    "layer": lambda: (packed(layer.record().arrays["predictions"]), 40),
    "head": lambda: (birth.data(birth.record())["arms"][2]["maps"], of_a_large_weight(birth.record())),
    "weights": lambda: (packed(weights.record().arrays["after"]), 4),
    "fingerprint": lambda: (packed(fingerprint.record().arrays["weights"]), 60),
}
"""Base 64 that the page holds, and a place in it that its numbers depend on."""


def of_a_large_weight(found):
    """Of the first label to its item, in the first layer."""
    return 4 * np.ravel_multi_index((10, 0, 1, 0), found.arrays["control/attention"].shape) // 3


STILL = {
    "layer": lambda: "of the step away",
    "head": lambda: of_birth.context(birth.record())["said"],
    "weights": lambda: of_weights.context()["said"],
    "fingerprint": lambda: context(*fingerprint.shown(fingerprint.record()))["said"],
}
"""What the static figure says."""
DRAWN = "path, rect, circle, line, polyline, polygon, text, use, image"


def assert_still(opened, name):
    root = opened.locator(f"#{name}")
    assert root.locator(".settings").is_hidden()
    assert root.locator("svg").first.is_visible()
    assert root.locator("svg").first.locator(DRAWN).count() > 5
    assert STILL[name]() in root.locator("[data-part=said]").inner_text()
    return root


@pytest.mark.parametrize("name", STILL)
def test_one_corrupted_byte_brings_the_static_figure_back(open_page, light_page, tmp_path, name):
    good, at = STORED[name]()
    text, bad = light_page.read_text(), f"{good[:at]}{'z' if good[at].isupper() else 'B'}{good[at + 1 :]}"
    assert good in text
    (tmp_path / "page.html").write_text(text.replace(good, bad))
    opened = open_page((tmp_path / "page.html").as_uri())
    assert assert_still(opened, name).locator("[data-part=check]").inner_text().startswith("✕")


def test_without_a_script_the_static_figures_stand(browser, light_page):
    without = browser.new_context(java_script_enabled=False)
    opened = without.new_page()
    opened.goto(light_page.as_uri())
    for name in STILL:
        assert_still(opened, name)
    without.close()
