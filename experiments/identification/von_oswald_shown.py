"""What ``von_oswald`` claims and shows: names of networks, against what was expected of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.identification.expected import (
    CONTROLS,
    EXPECTED,
    HALF_THE_DIRECTIONS,
    HALF_TRAINED,
    ONE_LAYER,
    OTHERWISE,
    UNTRAINED,
    Expected,
)
from experiments.identification.von_oswald import EQUALS, FACTOR, GRID, LOSS, NAMES, NUMBER
from experiments.statistics import among
from icl_lab.lab import Claim, NotRun, Record, claims_of, style
from icl_lab.lab.meanings import explain
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Figure


def of(quantity: Quantity, name: str) -> Quantity:
    """A quantity of the network ``record/training``."""
    record, training = name.split("/")
    return quantity.at(record=record, training=training)


def present(record: Record) -> list[str]:
    """The networks that were there."""
    return [name for name in record.config["networks"] if name not in record.metrics["missing"]]


IN_WORDS = {
    "weight_maps/looped_1": "one layer",
    "multi_step/looped_2": "two loops",
    "weight_maps/looped_3": "three loops",
    "multi_step/free_5": "five layers",
    "multi_step/looped_10": "ten loops",
    "twelve_layers/free_12": "twelve layers",
    "softmax/heads_1": "one softmax head",
    "softmax/heads_2": "two softmax heads",
    "layer_norm/looped_1": "one layer, LayerNorm",
    "layer_norm/free_2": "two layers, LayerNorm",
    "layer_norm/looped_1_without": "one plain layer",
    "layer_norm/free_2_without": "two plain layers",
    "separate_tokens/softmax": "softmax, then linear",
    "separate_tokens/linear": "linear, then linear",
    HALF_TRAINED: "two loops, half trained",
    UNTRAINED: "one layer, untrained",
}
"""What titles call the networks, in the order of the panels."""


def answer(record: Record, name: str) -> str:
    """The name that most members got, that which was expected where most are equal to it; and of how many."""
    equals, named = of(EQUALS, name)(record), of(NUMBER, name)(record, number="named").astype(int)
    counts = {family: int(equals[:, NAMES.index(family)].sum()) for family in EXPECTED[name].families}
    family = max(counts, key=lambda one: counts[one], default="")
    if 2 * counts.get(family, 0) > len(named):
        return f"equal to {family} ({counts[family]} of {len(named)})"
    (most, count), *_ = Counter(named.tolist()).most_common(1)
    return f"{NAMES[most] if most >= 0 else 'no name'} ({count} of {len(named)})"


def figures(record: Record) -> dict[str, Figure]:
    """The measured residual factors, first of linear attention, then of all else; of equal networks the first."""
    networks = set(present(record))
    names = [name for name in IN_WORDS if name in networks and not name.endswith("_without")]
    linear = [name for name in names if name.split("/")[0] in LINEAR]
    others = [name for name in names if name not in linear]
    return {"von_oswald": _factors(record, linear)} | ({"others": _factors(record, others)} if others else {})


LINEAR = ("weight_maps", "multi_step", "twelve_layers")
"""Records of linear attention on joint tokens."""


def _factors(record: Record, names: list[str]) -> Figure:
    """A panel for each network: members as lines, spread over rotations as bands."""
    figure, axes = style.panels(3, max(1, -(-len(names) // 3)))
    for axis, name in zip(axes.flat, names):
        grid, factor = of(GRID, name)(record), of(FACTOR, name)
        for line, width in zip(factor(record, factor="r"), factor(record, factor="spread")):
            spread = axis.fill_between(grid, line - width, line + width, color="0.85", lw=0)
            explain([spread], "bands reach one standard deviation over rotations to either side of a member")
        members = axis.plot(grid, factor(record, factor="r").T, color="#0072B2", lw=0.8)
        axis.axhline(0, color="0.6", lw=0.5)
        axis.set(xscale="log", ylim=(-0.6, 1.2), title=f"{IN_WORDS[name]}:\n{answer(record, name)}")
        axis.set_xlabel("eigenvalue of X$^T$X/N")
    for axis in axes[:, 0]:
        axis.set_ylabel("residual factor")
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    if names:
        figure.legend([members[0], spread], ["a member", "its spread over rotations"])
    return figure


def values(name: str, number: str) -> Callable[[Record], np.ndarray]:
    """(M,) a number of every member of a network."""
    return lambda record: there(record, name, NUMBER)(record, number=number).astype(float)


def there(record: Record, name: str, quantity: Quantity) -> Quantity:
    """A quantity of a network that was there; raises NotRun."""
    if name not in present(record):
        raise NotRun(f"{name}, whose record was not there or kept no parameters")
    return of(quantity, name)


def as_expected(name: str, expected: Expected, record: Record) -> np.ndarray:
    """(M,) 1 for members that are named as expected."""
    if not expected.families:
        named = there(record, name, NUMBER)(record, number="named")
        return np.isin(named, (-1, NAMES.index("zero"))).astype(float)
    equals = there(record, name, EQUALS)(record)
    return equals[:, [NAMES.index(family) for family in expected.families]].any(1).astype(float)


def off_plateau(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) whether a member uses more than half of the directions of the inputs."""
    return lambda record: values(name, "asymmetry")(record) < HALF_THE_DIRECTIONS


def all_off_plateau(record: Record) -> np.ndarray:
    """(networks x M,) the same of all trained networks."""
    names = [name for name in present(record) if name not in CONTROLS]
    return np.concatenate([off_plateau(name)(record) for name in names]).astype(float) if names else np.array([])


def over_chance(name: str, of_members: Callable[[np.ndarray], Any]) -> Callable[[Record], np.ndarray]:
    """(1,) of the asymmetries of a network, as shares of the 1 % quantile of random ones, one number."""
    return lambda record: np.atleast_1d(
        of_members(values(name, "asymmetry")(record) / values(name, "by_chance")(record))
    )


def asymmetric(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) 1 for layers that are less symmetric than one in a hundred random ones."""
    return lambda record: (values(name, "asymmetry")(record) > values(name, "by_chance")(record)).astype(float)


def better(record: Record) -> np.ndarray:
    """(cases,) whether the algorithm predicts a named member's loss at a scale better than the training loss does.

    One layer, which no scale takes away from its name, is left out.
    """
    cases = []
    for name in present(record):
        if name not in ONE_LAYER:
            true, ours, theirs = (of(LOSS, name)(record, loss=loss) for loss in ("loss", "by_algorithm", "by_loss"))
            keep = np.isfinite(ours)
            cases.append((np.abs(ours - true) < np.abs(theirs - true))[keep])
    return np.concatenate(cases).astype(float) if cases else np.array([])


claim = claims_of(
    "identification.von_oswald", "von Oswald et al. 2022, networks of this lab", OTHERWISE, presets=("lab",)
)
TRAINED_ON = {HALF_TRAINED: "multi_step/looped_2", UNTRAINED: "weight_maps/looped_1"}
"""The trained network beside each control: as many loops, to the end."""
FIRST = {"weight_maps_looped_1_class": 1, "weight_maps_looped_3_class": 2}
"""Headlines. Quick asks two members of two networks: too few for a share."""


def claims_of_network(name: str, expected: Expected) -> Iterator[Claim]:
    """Class, and asymmetry or residual and range."""
    tag, families = name.replace("/", "_"), " or ".join(expected.families) or "none"
    is_control = name in CONTROLS
    yield claim(
        f"{tag}_class",
        f"{name}: no name in at least 80 % of the members (control: {TRAINED_ON[name]})." if is_control
        else f"{name}: {families}, share of the members (an estimate without a verdict).",
        partial(as_expected, name, expected), at_least=0.8 if is_control else 0.0, reason=expected.why,
        interval="wilson", unit="network", headline=FIRST.get(f"{tag}_class", 0),
        **({"control": partial(as_expected, TRAINED_ON[name], expected)} if is_control else {"at_lab": None}),
    )  # fmt: skip
    if name in ONE_LAYER:
        yield claim(
            f"{tag}_asymmetry",
            f"{name}: largest asymmetry of a member, over that below which one in a hundred random layers of the same "
            "size is.",
            over_chance(name, np.max), at_most=1.0, interval="exact", control=over_chance(UNTRAINED, np.median),
            reason="the weights are nearer to a multiple of the identity than by chance",
        )  # fmt: skip
    elif expected.families:
        common: dict[str, Any] = {"interval": expected.interval, "reason": expected.why}
        yield claim(
            f"{tag}_residual",
            f"{name}: residual of the named model, or of the nearest (members off the plateau; control: half-trained "
            "loops).",
            among(off_plateau(name), values(name, "residual")), at_most=expected.residual,
            control=values(HALF_TRAINED, "residual"), **common,
        )  # fmt: skip
        yield claim(
            f"{tag}_range",
            f"{name}: holds up to inputs times this, of the factors tried (0: not in training; members off the "
            "plateau; control: half-trained loops).",
            among(off_plateau(name), values(name, "range")), at_least=expected.range,
            control=values(HALF_TRAINED, "range"), **common,
        )  # fmt: skip


CLAIMS = (
    *(one for name, expected in EXPECTED.items() for one in claims_of_network(name, expected)),
    claim(
        "learned",
        "Trained networks have left the plateau on which they use less than half of the directions of the inputs, at "
        "least 80 % of all (control: untrained layers).",
        all_off_plateau, at_least=0.8, interval="wilson", unit="network",
        control=lambda record: off_plateau(UNTRAINED)(record).astype(float),
        reason="most; residuals and ranges are of these",
    ),
    claim(
        "untrained_asymmetry", "Untrained layers are above this, at least 80 % of them (control: trained ones).",
        asymmetric(UNTRAINED), at_least=0.8, interval="wilson", unit="network",
        control=asymmetric(TRAINED_ON[UNTRAINED]), reason="the control of the asymmetry of one layer",
    ),
    claim(
        "out_of_range",
        "At held-back scales the named algorithm predicts the loss better than the training loss does (share of "
        "members and scales; networks of more than one layer).",
        better, at_least=0.8, interval="wilson", unit="case", headline=3,
        reason="a name that helps in less than four of five cases says little",
    ),
)  # fmt: skip
