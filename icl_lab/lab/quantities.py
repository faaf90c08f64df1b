"""A quantity: a family of arrays under one name with places, their axes, and which of them a configuration has."""

import dataclasses
import itertools
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from icl_lab.lab.record import Axes, Record, flat

Domain = str | tuple | Callable[[Mapping[str, Any]], Iterable]
"""Values of a place: the field of the configuration that lists them, the values, or a function of its plain mapping."""
Config = Mapping[str, Any]


class AxesError(ValueError):
    """An array whose axes an experiment does not name, or names wrongly."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A handle of the arrays ``name``, in which each place ``{size}`` stands for one value of its domain.

    A place without a domain is open: it holds any one word without ``/``, as metrics of a training do.

    Attributes:
      name: with places in braces.
      axes: names of the axes, which may have the same places.
      domains: by place, what may stand there. Every value that a configuration chooses must have an array; where fewer
        have one, a function says which (as ``LOOPED`` of ``experiments.depth.looped``).
      bound: places that are filled.
    """

    name: str
    axes: Axes
    domains: Mapping[str, Domain] = dataclasses.field(default_factory=dict)
    bound: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if unknown := (self.domains.keys() | self.bound.keys()) - set(self.places):
            raise ValueError(f"{self.name} has no place {', '.join(sorted(unknown))}; it has {self.places or 'none'}")

    @property
    def places(self) -> list[str]:
        """Names of the places, in order."""
        return [field for _, field, _, _ in string.Formatter().parse(self.name) if field]

    @property
    def unbound(self) -> list[str]:
        """Names of the places that are not filled, in order."""
        return [place for place in self.places if place not in self.bound]

    @property
    def open(self) -> int:
        """Number of places that any word may fill."""
        return len(set(self.places) - set(self.domains))

    @property
    def chosen(self) -> list[str]:
        """Names of the places whose values a configuration chooses."""
        return [place for place, domain in self.domains.items() if not isinstance(domain, tuple)]

    def at(self, /, **values: Any) -> "Quantity":
        """With some places filled.

        Raises:
          ValueError: for a place that there is not.
        """
        return dataclasses.replace(self, bound={**self.bound, **values})

    def named(self, value: Any) -> dict[str, Any]:
        """Arrays by their full names: of one array, or of a dict whose keys fill the places left (nested: one each).

        Raises:
          ValueError: if dicts are nested deeper, or less deep, than places are left.
        """
        places = self.unbound
        arrays = flat(value) if isinstance(value, Mapping) else {"": value}
        by_name = {}
        for key, array in arrays.items():
            words = key.split("/", len(places) - 1) if places else []
            if len(words) != len(places) or (not places and key):
                raise ValueError(f"{self.name}: {key!r} does not fill the places {places or 'none'}")
            by_name[self.name.format(**self.bound, **dict(zip(places, words)))] = array
        return by_name

    def __call__(self, record: Record, /, **values: Any) -> Any:
        """The array; where places are left, a dict of the arrays that the record has, by what fills them.

        Raises:
          KeyError: for one that the record has not.
        """
        one = self.at(**values)
        if not one.unbound:
            return record.arrays[one.name.format(**one.bound)]
        pattern = one.pattern(record.config)
        matches = {name: match for name in record.arrays if (match := pattern.fullmatch(name))}
        if not matches:
            raise KeyError(one.name.format(**one.bound, **dict.fromkeys(one.unbound, "*")))
        return {"/".join(match[p] for p in one.unbound): record.arrays[name] for name, match in matches.items()}

    def over(self, record: Record, place: str, values: Iterable) -> dict[str, np.ndarray]:
        """By the other place that is left, stacked over the values of one: ``{"trained": (S, M)}``."""
        slices = [self(record, **{place: value}) for value in values]
        return {name: np.stack([one[name] for one in slices]) for name in slices[0]}

    def pattern(self, config: Config) -> re.Pattern:
        """A regular expression of the names of its arrays, with a group for each place that is not filled."""
        parts = []
        for text, place, _, _ in string.Formatter().parse(self.name):
            parts.append(re.escape(text))
            if not place:
                continue
            if place in self.bound:
                parts.append(re.escape(str(self.bound[place])))
            else:
                values = self.values(place, config)
                words = "[^/]+" if values is None else "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
                parts.append(f"(?P<{place}>{words})")
        return re.compile("".join(parts))

    def values(self, place: str, config: Config) -> list[str] | None:
        """What may stand in a place, by a configuration's plain mapping; None: any word."""
        domain = self.domains.get(place)
        if domain is None or (isinstance(domain, str) and domain not in config):  # an older record's lacks the field
            return None
        choices = config[domain] if isinstance(domain, str) else domain if isinstance(domain, tuple) else domain(config)
        return [str(value) for value in choices]

    def axes_of(self, match: re.Match) -> Axes:
        """Axes of the array whose name matched."""
        return tuple(axis.format(**match.groupdict(), **self.bound) for axis in self.axes)

    def parts(self, config: Config) -> list[str]:
        """Patterns (``fnmatch``) of the names that a configuration chooses; none where it chooses nothing."""
        if not (chosen := self.chosen):
            return []
        rest = dict.fromkeys((place for place in self.places if place not in chosen), "*")
        choices = (self.values(place, config) for place in chosen)
        combinations = itertools.product(*(["*"] if values is None else values for values in choices))
        return [self.name.format(**rest, **dict(zip(chosen, values))) for values in combinations]

    def left_out(self, presets: Iterable[Config], config: Config) -> set[str]:
        """Patterns of the names of which a place holds what some preset chooses and this configuration does not."""
        patterns = set()
        for place in self.chosen:
            others = {value for preset in presets for value in self.values(place, preset) or ()}
            for value in others - set(self.values(place, config) or ()):
                patterns.add(self.name.format(**dict.fromkeys(self.places, "*") | {place: value}))
        return patterns


def quantity(name: str, /, *axes: str, **domains: Domain) -> Quantity:
    """A family of arrays, ``quantity("size_{size}/{learner}", "member", size="sizes", learner=("gd", "trained"))``.

    Raises:
      ValueError: for the domain of a place that the name has not.
    """
    return Quantity(name, axes, domains)


def axes_of(quantities: Iterable[Quantity], names: Iterable[str], config: Config) -> dict[str, Axes]:
    """The axes of every array, by its name.

    Raises:
      AxesError: for a name of no quantity, or of two with as many open places.
    """
    patterns = [(one, one.pattern(config)) for one in sorted(quantities, key=lambda one: one.open)]
    axes = {}
    for name in names:
        matches = [(one, match) for one, pattern in patterns if (match := pattern.fullmatch(name))]
        if not matches:
            raise AxesError(f"array {name}: no quantity of the binary has this name")
        if len(matches) > 1 and matches[0][0].open == matches[1][0].open:
            raise AxesError(f"array {name}: is of two quantities, {matches[0][0].name} and {matches[1][0].name}")
        axes[name] = matches[0][0].axes_of(matches[0][1])
    return axes


def check_axes(axes: Mapping[str, Axes], arrays: Mapping[str, np.ndarray], members: int) -> None:
    """Checks that axes, by name of an array, fit the arrays; the axis ``member`` has so many members.

    Raises:
      AxesError: naming the array that has another number of axes than are named or one of them twice, or in which an
        axis has another length than elsewhere.
    """
    lengths = {"member": (members, "the configuration")}
    for name, array in arrays.items():
        names = axes[name]
        if len(names) != array.ndim or len(set(names)) != len(names):
            raise AxesError(f"array {name} has shape {array.shape}, but its axes are {', '.join(names) or 'none'}")
        for axis, length in zip(names, array.shape):
            expected, where = lengths.setdefault(axis, (length, f"array {name}"))
            if length != expected:
                raise AxesError(f"array {name} has length {length} on its axis {axis}, which is {expected} in {where}")
