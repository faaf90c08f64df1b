"""Constraints between settings: what is allowed passes, what is not is refused by its flag."""

import dataclasses

import pytest

from icl_lab.lab import constraints
from icl_lab.lab.flags import FlagError


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 10
    every: int = 5
    rates: tuple = (0.1, 0.2)
    lengths: tuple = (4, 8)
    more: tuple = (1,)
    check: bool = False
    draw: bool = False
    show: bool = False


@pytest.mark.parametrize(
    ("constraint", "right", "wrong", "said"),
    [
        (constraints.once("rates"), {"rates": (2, 1)}, {"rates": (1, 1)}, "--rates=1,1: allowed is each value once"),
        (constraints.rising("rates"), {}, {"rates": (2, 1)}, "--rates=2,1: allowed is values that rise"),
        (constraints.rising("rates", fewest=2), {}, {"rates": (1,)}, "at least 2 values that rise"),
        (constraints.multiple_of("steps", "every"), {}, {"every": 4}, "--steps=10: allowed is a multiple of --every=4"),
        (constraints.multiple_of("steps", 2), {}, {"steps": 5}, "--steps=5: allowed is a multiple of 2"),
        (constraints.at_most("every", "steps"), {"every": 10}, {"every": 11}, "--every=11: allowed is at most"),
        (constraints.at_most("lengths", "steps"), {}, {"lengths": (4, 11)}, "--lengths=4,11: allowed is at most"),
        (constraints.at_least("steps", 2), {"steps": 2}, {"steps": 1}, "--steps=1: allowed is at least 2"),
        (constraints.below("every", "steps"), {"every": 9}, {"every": 10}, "--every=10: allowed is less than"),
        (constraints.above("steps", "every"), {"steps": 6}, {"steps": 5}, "--steps=5: allowed is more than --every=5"),
        (constraints.as_long_as("rates", "lengths"), {}, {"lengths": (1,)}, "--lengths has 1 values; allowed is one"),
        (
            constraints.holds("a divisor of --steps", "every", when=lambda c: c.steps % c.every == 0),
            {"every": 2}, {"every": 3}, "--every=3: allowed is a divisor of --steps",
        ),
        (
            constraints.holds("one of them", "check", "draw", "show", when=lambda c: c.check + c.draw + c.show <= 1),
            {"show": True}, {"check": True, "show": True}, "^--check --show: allowed is one of them",
        ),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_its_flag(constraint, right, wrong, said):
    constraints.check(Config(**right), [constraint])
    with pytest.raises(FlagError, match=said):
        constraints.check(Config(**wrong), [constraints.once("more"), constraint])
