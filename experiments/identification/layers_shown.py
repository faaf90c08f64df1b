"""What ``layers`` claims and shows."""

from collections.abc import Mapping

import numpy as np

from experiments import panels
from experiments.identification.layers import FACTOR, GPT_ERROR, GPTS, GRID, LOW, READ, learners
from experiments.statistics import Statistic, of_record
from icl_lab.claims import FAILS, NOT_RESOLVED
from icl_lab.identify.filters import newton
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid

RATE = 0.5
"""Of the Newton iteration of controls, over the largest eigenvalue of training: its steps do not depend on it."""


def asked(record: Record, learner: str) -> str:
    """A learner of the record.

    Raises:
      NotRun: for one that is not in it.
    """
    if learner not in learners(tuple(record.config["networks"])):
        raise NotRun(learner)
    return learner


def steps(record: Record, learner: str) -> np.ndarray:
    """(M, L) K_j, how many times the first layer would have to be applied."""
    at = {"learner": asked(record, learner)}
    grid, low = np.log(GRID(record, **at)), np.log(LOW(record, **at))
    r = np.array([[np.interp(low, grid, one) for one in member] for member in FACTOR(record, **at)])
    logs = np.log(np.abs(r))
    return logs / logs[:, :1]


def by_newton(record: Record, learner: str) -> np.ndarray:
    """(1, L) the same of Newton's iteration from a I."""
    low, count = LOW(record, learner=asked(record, learner)), FACTOR(record, learner=learner).shape[1]
    logs = np.array([[np.log(1 - low * newton(low, k, np.array(RATE))) for k in range(count)]])
    return logs / logs[:, :1]


@of_record
def growth(record: Record, learner: str, of=steps, doubling: bool = True) -> np.ndarray:
    """(M,) slope of log2 K against the layer, or not ``doubling`` against log2 of it, over all layers."""
    logs = np.log2(of(record, learner))
    layer = np.arange(1, 1 + logs.shape[1])
    return np.polyfit(layer if doubling else np.log2(layer), logs.T, 1)[0]


@of_record
def fall(record: Record, learner: str) -> np.ndarray:
    """(M,) largest ratio of the error after a layer to that before it."""
    error = READ(record, learner=asked(record, learner), read="error")
    return (error[:, 1:] / error[:, :-1]).max(1)


@of_record
def longer(record: Record, learner: str, loops: int, trained: int) -> np.ndarray:
    """(M,) ratio of the error at so many loops to that at those of training."""
    error = READ(record, learner=asked(record, learner), read="error")
    if error.shape[1] < loops:
        raise NotRun(f"{loops} loops")
    return error[:, loops - 1] / error[:, trained - 1]


def gain(learner: str, layer: int) -> Statistic:
    """(M,) gain of the read-out after a layer."""
    return lambda record: READ(record, learner=asked(record, learner), read="gain")[:, layer - 1]


@of_record
def against(record: Record, learner: str, other: str) -> np.ndarray:
    """(M,) error after all layers over that of another learner."""
    first, second = (READ(record, learner=asked(record, one), read="error")[:, -1] for one in (learner, other))
    return first / second


@of_record
def gpt_error(record: Record, of: str, layer: int) -> np.ndarray:
    """(members of GPT-2,) error of the read-out after a layer."""
    if not record.config.get("gpts"):
        raise NotRun("GPT-2")
    return GPT_ERROR(record, of=of)[:, layer]


_AT_LAB = {"growth_free": FAILS, "fall_free": NOT_RESOLVED}
claim = claims_of(
    "identification.layers", "Fu et al. 2023; networks of von Oswald et al. 2022", _AT_LAB, presets=("lab",)
)
_GARG = "; GPT-2 of Garg et al. 2022"
_MIDDLE = "half-way between GD of equal steps (0.57 over five layers) and Newton (1)"

CLAIMS = (
    claim(
        "growth_free",
        "Over five layers of their own steps grow more like those of GD than like Newton's (slope of log2 of the steps "
        "against the layer; control: Newton).",
        growth("free_5"), at_most=0.78, control=growth("free_5", by_newton), headline=1, reason=_MIDDLE,
    ),
    *(
        claim(
            f"growth_loops_{trained}",
            f"A layer trained for {word} loops takes as many steps as loops, up to ten (slope of log2 of the steps "
            "against log2 of the loops; control: Newton).",
            growth(f"looped_{trained}", doubling=False), near=1.0, tolerance=0.05,
            control=growth(f"looped_{trained}", by_newton, doubling=False),
            reason="every loop adds the same to small eigenvalues, whatever its weights: untrained ones do too",
            kind="identity",
        )
        for trained, word in ((2, "two"), (10, "ten"))
    ),
    claim(
        "fall_free",
        "Every one of five layers takes a tenth off the error of its read-out (largest ratio of neighbours; control: "
        "untrained).",
        fall("free_5"), at_most=0.9, control=fall("free_5_untrained"), headline=2,
        reason="a layer that did nothing leaves 1; a step of GD on ten inputs takes more than a tenth",
    ),
    claim(
        "gain_last", "After the last of five layers the read-out is the answer (gain; control: after the first).",
        gain("free_5", 5), near=1.0, tolerance=0.05, control=gain("free_5", 1),
        reason="least loss has the gain 1; Adam's constant rate leaves some per cent",
    ),
    claim(
        "order",
        "Five layers in the opposite order leave more (error over that in the order of training; control: over that of "
        "untrained ones).",
        against("free_5_reversed", "free_5"), at_least=1.5, control=against("free_5_reversed", "free_5_untrained"),
        reason="without moved inputs steps of GD would commute and leave 1",
    ),
    claim(
        "longer",
        "A layer trained for two loops leaves less error at four (over that at two; control: untrained).",
        longer("looped_2", 4, 2), at_most=0.9, control=longer("looped_2_untrained", 4, 2),
        reason="two more steps take off what two have left of small eigenvalues; large ones may diverge",
    ),
    claim(
        "gpt_first",
        "After the first of two layers of GPT-2 a read-out knows little of the answer to 2D examples (error; control: "
        "after the second).",
        gpt_error("trained", 1), at_least=0.8, control=gpt_error("trained", 2), where=_GARG,
        reason="inputs and answers are tokens apart, and one layer can pair those of one or two examples at most",
        falsified_by="a first layer that makes the best step of gradient descent, which leaves (D + 1)/(3D + 1) = .375",
    ),
    claim(
        "gpt_order",
        "Two layers of GPT-2 in the opposite order know as little after both (error; control: the order of training).",
        gpt_error("reversed", 2), at_least=0.8, control=gpt_error("trained", 2), where=_GARG,
        reason="what the second layer asks for is made by the first",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Residual factors after each layer, steps over layers, errors of read-outs."""
    names = tuple(record.config["networks"])
    gpts = bool(record.config.get("gpts"))
    figure, axes = axes_grid(2 if gpts else 3, 2 if gpts else 1, width=3.2, height=2.9)
    factors, grown, errors, *more = axes.flat
    _factors(factors, record, names[0])
    of_names = {_said(name): steps(record, name) for name in names}
    _over_layers(grown, of_names)
    layer = np.arange(1, 1 + max(values.shape[1] for values in of_names.values()))
    for of in (layer, 2.0 ** (layer - 1)):  # GD, and above it Newton
        grown.plot(layer, of, **THEORY)
    grown.set(title="equivalent steps", xlabel="layers or loops", ylabel="steps of the first layer", yscale="log")
    panels.described(grown, 1, ylim=(0.9, 5000))
    first = [name for name in learners(names) if name.startswith(names[0])]
    _over_layers(errors, {_said(name): READ(record, learner=name, read="error") for name in first})
    panels.described(errors, 1, title="error of the read-out", xlabel="layers", ylabel="error", yscale="log")
    for axes in more:
        _over_layers(axes, {f"GPT-2, {name}": GPT_ERROR(record, of=name) for name in GPTS}, start=0)
        axes.set_xticks(range(GPT_ERROR(record, of="trained").shape[1]))
        panels.described(axes, 1, title="the same of GPT-2", xlabel="layers", ylabel="error", yscale="log")
    return {"layers": figure}


def _over_layers(axes: Axes, curves: Mapping[str, np.ndarray], start: int = 1) -> None:
    """Members (M, L) of every label, from the layer ``start`` on."""
    for look, (label, values) in zip(panels.SERIES, curves.items()):
        panels.strip(axes, np.arange(start, start + values.shape[1]), values, label, look, width=0.1)


def _factors(axes: Axes, record: Record, name: str) -> None:
    """The median residual factor after each layer."""
    grid, r = GRID(record, learner=name), np.median(FACTOR(record, learner=name), axis=0)
    for j, (look, one) in enumerate(zip(panels.SERIES, r), 1):
        axes.plot(grid, one, label=str(j), **(look | {"marker": None}))
    axes.axhline(0, **THEORY)
    axes.set(title="residual factor", xlabel="eigenvalue over its mean", ylabel="left of the target")
    panels.described(axes, 3, "after layer", xscale="log", ylim=(-1, 1.05))


def _said(name: str) -> str:
    kind, count, *more = name.split("_")
    return ", ".join([f"{count} {'free layers' if kind == 'free' else 'loops'}", *more])
