"""What ``in_training`` claims and shows: names over time, beside the loss."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from experiments.identification.expected import HALF_THE_DIRECTIONS
from experiments.identification.in_training import AGREES, ANSWER, FULL, LOSS, NAMES, NETWORKS, NONE, STEPS, TIMES
from experiments.statistics import Statistic, among, of_record
from icl_lab.lab import NotRun, Record, claims_of, style
from icl_lab.lab.style import Axes, Figure

Order = Callable[[np.ndarray], np.ndarray]
"""Of (M, T) answers over time: as they came, or in another order."""
ZERO, GD, GDPP = (NAMES.index(name) for name in ("zero", "GD", "GD++"))
PLATEAU = 0.1
"""Share of the fall that ends the plateau."""


def as_it_came(answers: np.ndarray) -> np.ndarray:
    """(M, T) in the order of training."""
    return answers


def backwards(answers: np.ndarray) -> np.ndarray:
    """(M, T) with the end of training first."""
    return answers[:, ::-1]


def shuffled(answers: np.ndarray) -> np.ndarray:
    """(M, T) in an order without meaning, the same for all members."""
    return answers[:, np.random.default_rng(0).permutation(answers.shape[1])]


def names(record: Record, network: str) -> np.ndarray:
    """(M, T) places in ``NAMES`` of the algorithms; ``NONE`` for no name, and for zero."""
    if network not in record.config["networks"]:
        raise NotRun(f"the network {network}")
    answers = ANSWER(record, network=network, answer="algorithm")
    return np.where(answers == ZERO, NONE, answers).astype(int)


@of_record
def learned(record: Record, network: str, time: int = -1) -> np.ndarray:
    """(M,) whether a member has left the plateau at the end, or at another answer: uses half of the directions."""
    if network not in record.config["networks"]:
        raise NotRun(f"the network {network}")
    return (ANSWER(record, network=network, answer="asymmetry")[:, time] < HALF_THE_DIRECTIONS).astype(float)


@of_record
def all_learned(record: Record, time: int = -1) -> np.ndarray:
    """(networks x M,) the same of all networks."""
    return np.concatenate([learned(network, time)(record) for network in record.config["networks"]])


def of_learned(network: str, statistic: Statistic) -> Statistic:
    """(M,) a statistic of the members of a network that have left the plateau."""
    return among(learned(network), statistic)


def fallen(record: Record, network: str) -> np.ndarray:
    """(M, T) share of the fall of the loss that is done when a member is asked."""
    loss = LOSS(record, network=network)
    share = (loss[:, :1] - loss) / (loss[:, :1] - loss[:, -1:])
    return share[:, np.searchsorted(STEPS(record, network=network), TIMES(record, network=network))]


@of_record
def before_the_name(record: Record, network: str, order: Order = as_it_came) -> np.ndarray:
    """(M,) share of the fall that is done at the last answer before a member's last name is first given.

    So the name came later than that. 0 where it is the first answer, NaN where no name is given.
    """
    answers, share = order(names(record, network)), fallen(record, network)
    named, rows = answers != NONE, np.arange(len(answers))
    last = answers[rows, answers.shape[1] - 1 - named[:, ::-1].argmax(1)]
    first = (answers == last[:, None]).argmax(1)
    return np.where(named.any(1), np.where(first > 0, share[rows, first - 1], 0.0), np.nan)


@of_record
def after_half(record: Record, order: Order = as_it_came) -> np.ndarray:
    """(networks x M,) whether the name comes after half of the fall."""
    every = np.concatenate([before_the_name(name, order)(record) for name in record.config["networks"]])
    return np.where(np.isnan(every), np.nan, every >= 0.5)


@of_record
def in_order(record: Record, network: str, order: Order = as_it_came) -> np.ndarray:
    """(M,) whether GD is named, and GD++ later, but never before it."""
    answers = order(names(record, network))
    gd, gdpp = answers == GD, answers == GDPP
    return (gd.any(1) & gdpp.any(1) & (gd.argmax(1) < gdpp.argmax(1))).astype(float)


@of_record
def unnamed(record: Record, at_the_end: bool = False) -> np.ndarray:
    """(networks x M,) whether no algorithm is named at the last answer on the plateau, or at the end of training."""
    values = []
    for network in record.config["networks"]:
        answers, share = names(record, network), fallen(record, network)
        left = (share >= PLATEAU).argmax(1)  # the first answer after the plateau
        values.append(answers[np.arange(len(answers)), np.where(at_the_end, -1, np.maximum(left - 1, 0))] == NONE)
    return np.concatenate(values).astype(float)


@of_record
def ever(record: Record, network: str, name: str) -> np.ndarray:
    """(M,) whether a member has this name at some time."""
    return (names(record, network) == NAMES.index(name)).any(1).astype(float)


@of_record
def ends_as(record: Record, network: str, families: Collection[str], time: int = -1) -> np.ndarray:
    """(M,) whether a member has one of these names at the end, or at another answer."""
    return np.isin(names(record, network)[:, time], [NAMES.index(one) for one in families]).astype(float)


@of_record
def stays(record: Record, network: str, name: str, order: Order = as_it_came) -> np.ndarray:
    """(M,) share of the answers after the first with this name that are this name too; NaN where there are none."""
    matches = order(names(record, network)) == NAMES.index(name)
    repeated = np.cumsum(matches, axis=1) - matches > 0
    with np.errstate(invalid="ignore"):
        return (matches & repeated).sum(1) / repeated.sum(1)


def agrees(record: Record) -> np.ndarray:
    """(networks x M,) whether all families give the name that the short list gives at the end."""
    if not record.config["in_full"]:
        raise NotRun("answers among all families")
    return np.concatenate([AGREES(record, network=name) for name in record.config["networks"]])


def agrees_untrained(record: Record) -> np.ndarray:
    """(networks x M,) whether that is the name, or none, which the short list gives at the first answer."""
    if not record.config["in_full"]:
        raise NotRun("answers among all families")
    pairs = []
    for network in record.config["networks"]:
        full = FULL(record, network=network, answer="algorithm")
        pairs.append(names(record, network)[:, 0] == np.where(full == ZERO, NONE, full))
    return np.concatenate(pairs).astype(float)


_TEN = "ten of ten leave the share open down to .72"
_SHARE: dict[str, Any] = {"interval": "wilson", "at_least": 0.5, "reason": _TEN}
_POOLED: dict[str, Any] = {"interval": "wilson", "unit": "network", "at_least": 0.8}
_SAID = {
    "one_layer": "One layer", "two_loops": "Two loops", "softmax_heads": "Two softmax heads",
    "five_layers": "Five layers", "delta_net": "DeltaNet",
}  # fmt: skip
_BEFORE = {
    "one_layer": "a name needs an asymmetry below .15, which leaves 2 % of the fall",
    "two_loops": "two steps of GD leave most of what is left of the fall to GD++",
    "softmax_heads": "its name needs a distance below .05, which leaves less than 1 % of the fall",
    "five_layers": "least squares or GD++ needs all layers, and the loss falls by half when it is one step",
    "delta_net": "a name needs an asymmetry below .15, which leaves 2 % of the fall",
}
claim = claims_of("identification.in_training", "This lab", presets=("lab",))

CLAIMS = (
    claim(
        "learned",
        "Members of all networks have left the plateau on which they use less than half of the directions of the "
        "inputs, share at the end (the other claims are of these; control: at the start).",
        all_learned(), control=all_learned(0), **_POOLED, reason="most; 46 of 50 leave the share open down to .81",
    ),
    claim(
        "after_half",
        "The name that a network is given last comes after half of the loss has fallen, share of the members of all "
        "networks that get one (control: answers in reverse).",
        among(all_learned(), after_half()), control=among(all_learned(), after_half(backwards)), headline=1, **_POOLED,
        reason="46 of 50 leave the share open down to .81; a name needs a distance below .05, a half of the loss one "
        "of .7",
    ),
    *(
        claim(
            f"before_{network}",
            f"{_SAID[network]}: share of the fall of the loss that is done before that name is first given (control: "
            "answers in reverse).",
            of_learned(network, before_the_name(network)), at_least=0.5, reason=reason,
            control=of_learned(network, before_the_name(network, backwards)),
        )
        for network, reason in _BEFORE.items()
    ),
    *(
        claim(
            f"order_{network}",
            f"{_SAID[network]}: GD is named first, and GD++ later, share of the members (control: answers in reverse).",
            of_learned(network, in_order(network)), control=of_learned(network, in_order(network, backwards)), **_SHARE,
            headline=2 * (network == "two_loops"),
        )
        for network in ("two_loops", "five_layers")
    ),
    claim(
        "plateau",
        "At the last answer before a tenth of the loss has fallen no algorithm is named, share of the members of all "
        "networks (control: at the end).",
        among(all_learned(), unnamed()), control=among(all_learned(), unnamed(at_the_end=True)), **_POOLED,
        reason="46 of 50 leave the share open down to .81; weights that leave zero are not yet symmetric",
    ),
    claim(
        "falling_one_layer",
        "One layer is named preconditioned GD before it is GD, share of the members (control: at the end).",
        of_learned("one_layer", ever("one_layer", "preconditioned GD")),
        control=of_learned("one_layer", ends_as("one_layer", ("preconditioned GD",))),
        **_SHARE | {"reason": f"queries and keys grow together, so that their product is symmetric, in its large "
                              f"directions first; {_TEN}"},
    ),
    *(
        claim(
            f"stays_{network}",
            f"Once {who} is named {name}, later answers are {name} too (share; control: answers in another order).",
            of_learned(network, stays(network, name)), control=of_learned(network, stays(network, name, shuffled)),
            at_least=0.9,
            reason="one answer in ten may be another", headline=3 * (network == "one_layer"),
        )
        for network, who, name in (("one_layer", "one layer", "GD"), ("delta_net", "DeltaNet", "LMS"))
    ),
    *(
        claim(
            f"ends_{network}",
            f"{_SAID[network]}: {' or '.join(families)} at the end, share of the members (control: at the start).",
            of_learned(network, ends_as(network, families)),
            control=of_learned(network, ends_as(network, families, 0)), **_SHARE,
        )
        for network, families in (
            ("one_layer", ("GD",)), ("two_loops", ("GD++",)), ("softmax_heads", ("softmax regression", "centred GD")),
            ("five_layers", ("GD++", "least squares", "gradient flow")), ("delta_net", ("LMS",)),
        )
    ),
    claim(
        "short_list",
        "At the end all families of identify give the name that the short list gives, share of the members of all "
        "networks (control: the short list at the start).",
        among(all_learned(), agrees), control=among(all_learned(), agrees_untrained), **_POOLED,
        reason="46 of 50 leave the share open down to .81",
    ),
)  # fmt: skip

LOOKS: dict[str, dict[str, Any]] = {
    "GD": {"color": "#D55E00", "marker": "s"}, "GD++": {"color": "#009E73", "marker": "^"},
    "preconditioned GD": {"color": "#E69F00", "marker": "D"}, "centred GD": {"color": "#CC79A7", "marker": "p"},
    "softmax regression": {"color": "#CC79A7", "marker": "*"}, "least squares": {"color": "#0072B2", "marker": "o"},
    "gradient flow": {"color": "#56B4E9", "marker": ">"}, "ridge": {"color": "#0072B2", "marker": "v"},
    "LMS": {"color": "#000000", "marker": "P"},
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "another name": {"color": "#333333", "marker": "X"}, "zero": {"color": "#777777", "marker": "_"},
    "not separable": {"color": "#777777", "marker": "x"}, "no name": {"color": "#777777", "marker": "."},
}  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Of every network the loss, and below it the name of every member over log time."""
    networks = [name for name in NETWORKS if name in record.config["networks"]]
    columns = min(3, len(networks))
    figure, axes = style.panels(columns, 2 * -(-len(networks) // columns), width=3.2, height=2.4)
    drawn: dict[str, Any] = {}
    for k, network in enumerate(networks):
        above, below = axes[2 * (k // columns) :, k % columns][:2]
        steps, loss = STEPS(record, network=network), LOSS(record, network=network)
        above.plot(steps[1:], loss[:, 1:].T, color="#0072B2", lw=0.7)
        above.set(xscale="log", ylabel="loss", title=_SAID[network], ylim=(0, None))
        drawn |= _names(below, record, network, float(steps[1]))
        above.set_xlim(below.get_xlim())
    for axis in axes.flat:
        if not axis.has_data():
            axis.set_axis_off()
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=4)
    return {"in_training": figure}


def _names(axes: Axes, record: Record, network: str, first: float) -> dict[str, Any]:
    """Names as colours and marks; the answer before the first step stands at half of the first measured one."""
    answers, times = ANSWER(record, network=network, answer="algorithm"), TIMES(record, network=network)
    wavers = ANSWER(record, network=network, answer="wavers")
    texts = np.array([["no name", "not separable"][int(w)] if one < 0 else NAMES[int(one)]
                      for one, w in zip(answers.ravel(), wavers.ravel())]).reshape(answers.shape)  # fmt: skip
    at = np.broadcast_to(np.maximum(times, first / 2), answers.shape)
    rows = np.broadcast_to(np.arange(1, len(answers) + 1)[:, None], answers.shape)
    handles = {}
    for name in sorted({*texts.ravel()}):
        label = name if name in LOOKS or name in OTHERS else "another name"
        mask = texts == name
        look = (LOOKS | OTHERS)[label]
        (handles[label],) = axes.plot(at[mask], rows[mask], linestyle="", label=label, **look)
    axes.set(xscale="log", xlabel="training step", ylabel="member", yticks=rows[:, 0], ylim=(0.4, len(answers) + 0.6))
    axes.set(xlim=(0.4 * first, None), title="its names")
    return handles
