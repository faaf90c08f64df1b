"""The explorable of names over training: what the page holds of the record, and its cursor in Chromium."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.identification.in_training import ANSWER, NAMES, NONE, SHORT
from experiments.page.explorables.names import data, fallback
from icl_lab.lab.records import Record, load


@pytest.fixture(scope="module")
def found():
    return load(data.FOLDER)


@pytest.fixture(scope="module")
def shown(found):
    return data.data(found)


def resized(found: Record, members: int, times: int) -> Record:
    """The record with other members and answers, by repeating and leaving out."""
    arrays = dict(found.arrays)
    for name, array in arrays.items():
        if name.endswith("/times"):
            arrays[name] = array[:times]
        elif "/answer/" in name or name.endswith("/loss"):
            array = np.resize(array, (members, array.shape[1]))
            arrays[name] = array[:, :times] if "/answer/" in name else array
    return dataclasses.replace(found, arrays=arrays)


# Without a browser


def test_letters_say_the_names_of_the_record(found, shown):
    for network in shown["networks"]:
        for member, letters in enumerate(network["names"]):
            answers = ANSWER(found, network=network["key"], answer="algorithm")[member]
            wavers = ANSWER(found, network=network["key"], answer="wavers")[member]
            expected = [
                NAMES[int(name)] if name != NONE else "not separable" if wavering else "no name"
                for name, wavering in zip(answers, wavers)
            ]
            assert [shown["kinds"][letter][0] for letter in letters] == expected


def test_the_names_that_are_asked_for_most_have_letters_of_their_own():
    assert len({name for name, _, _ in data.KINDS.values()}) == len(data.KINDS)
    assert {*SHORT} - {*data.LETTERS} == {"normalised LMS", "mean of labels"}


@pytest.mark.parametrize(("members", "times"), [(10, 6), (2, 4)])
def test_any_number_of_members_and_answers_is_drawn(found, members, times):
    shown = data.data(resized(found, members, times))
    drawn = fallback.context(shown)
    assert drawn["bottom"] == fallback.TOP + fallback.ROW * members
    for network, drawing in enumerate(drawn["drawings"]):
        assert drawing["lines"].count("M") == members
        assert len(drawing["xs"]) == times
        for time in range(times):
            assert sum(count for _, count in fallback.counted(shown["networks"][network], time)) == members


def test_the_first_answer_with_names_is_shown_first():
    one = {"times": [0, 1, 2, 4], "names": ["0GGG", "0?GG", "0···"]}
    assert data.start([one | {"names": ["0···"] * 3}, one]) == (1, 2)
    assert data.start([one | {"names": ["0·?0"] * 3}]) == (0, 3)


def test_the_sentence_counts_members_and_the_fall():
    one = {"times": [0, 1200], "names": ["0G", "0G", "0·"], "plural": "two-loop networks", "fallen": [0, 91]}
    said = fallback.said({"networks": [one], "kinds": data.KINDS}, 0, 1)
    assert said == (
        "At step 1,200, 2 of 3 two-loop networks are named GD, 1 without a name; "
        "91 % of the fall of their mean loss is done."
    )


def test_the_fall_is_from_the_first_loss_to_the_last_and_stays_within_it():
    assert data.fallen(np.array([3.0, 3.1, 2.0, 0.9, 1.0])) == [0, 0, 50, 100, 100]


def test_places_are_even_in_log_time_behind_half_of_the_first_step():
    xs = np.array(fallback.places([0, 10, 20, 40]))
    np.testing.assert_allclose(np.diff(xs), (fallback.WIDTH - 16) / 3, atol=0.11)


# In Chromium


class TestExplorable:
    """The explorable in a page without records."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_every_state_says_what_python_says_and_is_reached_by_keys(self, light_tab, shown):
        root, (network, time) = light_tab.locator("#names"), shown["start"]
        said, last = root.locator("[data-part=said]"), len(shown["networks"][0]["times"]) - 1
        assert said.inner_text() == fallback.said(shown, network, time)
        cursor = root.get_by_role("slider")
        cursor.focus()
        for _ in range(network):
            light_tab.keyboard.press("ArrowUp")
        for each, one in enumerate(shown["networks"]):
            light_tab.keyboard.press("Home")
            for at in range(last + 1):
                assert said.inner_text() == fallback.said(shown, each, at)
                assert cursor.get_attribute("aria-valuetext") == f"{one['name']}, step {one['times'][at]:,}"
                light_tab.keyboard.press("ArrowRight")
            assert root.locator(".drawing:visible").count() == 1
            assert root.locator("tr.chosen th").inner_text() == one["name"]
            light_tab.keyboard.press("ArrowDown")
        assert root.locator("tr.chosen th").inner_text() == shown["networks"][0]["name"]
        for key, at in {"End": last, "ArrowLeft": last - 1, "Home": 0, "ArrowRight": 1}.items():
            light_tab.keyboard.press(key)
            assert cursor.get_attribute("aria-valuenow") == str(at)

    def test_all_networks_are_counted_after_the_same_share_of_training(self, light_tab, shown):
        rows = light_tab.locator("#names tbody tr")
        light_tab.locator("#names").get_by_role("slider").press("End")
        for network, one in enumerate(shown["networks"]):
            cells = rows.nth(network).locator("td").all_inner_texts()
            assert cells[0] == f"{one['times'][-1]:,}"
            names = [f"{letter} {shown['kinds'][letter][0]} × {k}" for letter, k in fallback.counted(one, -1)]
            assert rows.nth(network).locator(".chip").all_inner_texts() == names

    @pytest.mark.parametrize("width", [390, 1280])
    def test_a_finger_moves_the_cursor_and_the_address_keeps_it(self, light_tab, shown, width):
        light_tab.set_viewport_size({"width": width, "height": 800})
        root = light_tab.locator("#names")
        assert light_tab.evaluate("document.documentElement.scrollWidth") <= width
        other = shown["networks"][1]
        root.get_by_role("button", name=other["name"]).click()
        plot = root.locator("[data-part=plot]")
        plot.scroll_into_view_if_needed()
        box, xs = plot.bounding_box(), fallback.places(other["times"])
        scale = box["width"] / 402
        at = len(xs) - 3
        light_tab.mouse.move(box["x"] + scale * 40, box["y"] + 20)
        light_tab.mouse.down()
        light_tab.mouse.move(box["x"] + scale * (34 + xs[at] + 2), box["y"] + 30)
        light_tab.mouse.up()
        assert root.locator("[data-part=said]").inner_text() == fallback.said(shown, 1, at)
        assert root.locator(".touch").bounding_box()["width"] >= 43.9
        light_tab.reload()
        assert root.locator("[data-part=said]").inner_text() == fallback.said(shown, 1, at)
        light_tab.goto(f"{light_tab.url.split('#')[0]}#names?network=none&time=1e9")
        assert root.locator("[data-part=said]").inner_text() == fallback.said(shown, *shown["start"])

    def test_it_is_one_stop_of_the_tab_key(self, light_tab):
        stops = "all => all.filter(one => one.tabIndex >= 0 && one.checkVisibility()).length"
        assert light_tab.locator("#names :is(button, input, select, summary, [tabindex])").evaluate_all(stops) == 1

    def test_without_a_script_the_static_figure_stands(self, browser, light_page, shown):
        context = browser.new_context(java_script_enabled=False)
        opened = context.new_page()
        opened.goto(light_page.as_uri())
        root = opened.locator("#names")
        assert root.locator("[data-part=said]").inner_text() == fallback.said(shown, *shown["start"])
        assert root.locator(".drawing:visible").count() == 1
        assert root.locator("[data-part=cursor]").count() == 1  # the script has one of its own
        assert root.locator("button").count() == 0
        context.close()

    def test_the_same_record_gives_the_same_data(self, light_page, found):
        assert json.dumps(data.read_by_script(data.data(found)), ensure_ascii=False) in light_page.read_text("utf-8")
