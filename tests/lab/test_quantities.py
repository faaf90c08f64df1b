"""Quantities: names are composed and read back by the handle alone, by what a configuration lists."""

import numpy as np
import pytest

from icl_lab.lab import Record
from icl_lab.lab.quantities import AxesError, axes_of, quantity

CONFIG = {"sizes": [2, 10], "networks": ["a", "a/b"]}
AT_SIZE = quantity("size_{size}/{learner}", "member", size="sizes", learner=("gd", "trained"))
CURVE = quantity("{network}/{metric}", "member", "{network}_step", network=lambda config: config["networks"])
STEPS = quantity("steps", "step")
OPEN = quantity("{metric}", "member")
ALL = (CURVE, OPEN, AT_SIZE, STEPS)


def record(config=CONFIG):
    arrays = AT_SIZE.at(size=2).named({"gd": np.ones(3), "trained": np.zeros(3)})
    arrays |= AT_SIZE.at(size=10).named({"gd": 2 * np.ones(3), "trained": np.zeros(3)})
    arrays |= CURVE.named({"a": {"loss": np.ones((3, 2))}}) | STEPS.named(np.arange(2))
    return Record("toy.a", "smoke", config, {}, arrays)


def test_a_handle_reads_what_it_has_named():
    assert set(record().arrays) == {
        "size_2/gd", "size_2/trained", "size_10/gd", "size_10/trained", "a/loss", "steps",
    }  # fmt: skip
    assert AT_SIZE(record(), size=10, learner="gd").tolist() == [2, 2, 2]
    assert set(AT_SIZE(record(), size=2)) == {"gd", "trained"}
    assert set(AT_SIZE(record())) == {"2/gd", "2/trained", "10/gd", "10/trained"}
    stacked = AT_SIZE.over(record(), "size", (2, 10))
    assert stacked["gd"].tolist() == [[1, 1, 1], [2, 2, 2]]
    with pytest.raises(KeyError, match="size_5/gd"):
        AT_SIZE(record(), size=5, learner="gd")
    with pytest.raises(KeyError, match=r"size_5/\*"):
        AT_SIZE(record(), size=5)


def test_a_place_holds_what_the_configuration_lists_and_an_open_one_a_word():
    axes = axes_of(ALL, record().arrays, CONFIG)
    assert axes["size_10/gd"] == ("member",)
    assert axes["a/loss"] == ("member", "a_step")
    assert axes["steps"] == ("step",)
    assert axes_of(ALL, ["a/b/loss", "loss"], CONFIG) == {"a/b/loss": ("member", "a/b_step"), "loss": ("member",)}
    for foreign in ("size_3/gd", "size_2/other", "b/loss", "a/loss/x"):
        with pytest.raises(AxesError, match=foreign):
            axes_of(ALL, [foreign], CONFIG)


def test_an_array_of_two_quantities_that_say_as_little_is_refused():
    with pytest.raises(AxesError, match="of two quantities"):
        axes_of((OPEN, quantity("{name}", "step")), ["loss"], CONFIG)
    assert axes_of((OPEN, STEPS), ["steps"], CONFIG) == {"steps": ("step",)}


def test_names_are_neither_too_short_nor_too_long():
    for wrong in ({"gd": np.ones(3)}, np.ones(3)):
        with pytest.raises(ValueError, match="does not fill"):
            AT_SIZE.named(wrong)
    with pytest.raises(ValueError, match="does not fill"):
        STEPS.named({"a": np.ones(3)})
    with pytest.raises(ValueError, match="no place width"):
        AT_SIZE.at(width=2)
    with pytest.raises(ValueError, match="no place width"):
        quantity("size_{size}", size="sizes", width="widths")


def test_parts_are_what_a_configuration_chooses():
    assert AT_SIZE.parts(CONFIG) == ["size_2/*", "size_10/*"]
    assert CURVE.parts(CONFIG) == ["a/*", "a/b/*"]
    assert STEPS.parts(CONFIG) == OPEN.parts(CONFIG) == []
    assert AT_SIZE.parts(CONFIG | {"sizes": ()}) == []  # nothing is chosen, so all is left out
    assert AT_SIZE.values("size", {}) is None  # an older record lacks the field: any word


def test_what_a_preset_chooses_and_a_configuration_does_not_is_left_out_place_by_place():
    one = quantity("{width}_{size}/{learner}", "member", width="widths", size="sizes", learner=("gd",))
    presets = [{"widths": [1, 2], "sizes": [5]}, {"widths": [1], "sizes": [6]}]
    assert one.left_out(presets, {"widths": [1], "sizes": [7]}) == {"2_*/*", "*_5/*", "*_6/*"}
    assert one.left_out(presets, {"sizes": [5, 6]}) == {"1_*/*", "2_*/*"}  # an older record lacks the field
    assert STEPS.left_out(presets, {}) == set()


def test_places_may_be_called_as_arguments_are():
    odd = quantity("{record}/{self}", "member", record=("r",), self=("s",))
    found = Record("toy.a", "smoke", {}, {}, odd.at(record="r", self="s").named(np.ones(2)))
    assert odd(found, record="r", self="s").tolist() == [1, 1]
