"""What ``labels`` claims and shows."""

import numpy as np

from experiments.identification.label_outsiders import KINDS
from experiments.identification.labels import DISTANCE, EQUAL, NAMES, OUTSIDE, PLANT, PLANTED, READ, WRONG
from experiments.panels import described
from experiments.statistics import of_record
from icl_lab.claims import FAILS
from icl_lab.identify.labels import BAR
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.style import Figure, panels

LEARNED = 0.9
"""In-context accuracy from which a network counts as trained."""


def right(record: Record) -> np.ndarray:
    """(60,) whether a planted learner gets its own name or an equal one."""
    return PLANT(record, number="outcome") <= EQUAL


def wrong(record: Record) -> np.ndarray:
    """(1,) planted learners with a wrong name."""
    return np.array([(PLANT(record, number="outcome") == WRONG).sum()], float)


def another(record: Record) -> np.ndarray:
    """(60,) whether learners would be right with the names of those of the next family."""
    named, draws = PLANT(record, number="named"), record.config["members"]
    of = np.array([[name.startswith(family) for name in (*NAMES, "")] for family in PLANTED])
    return of[np.repeat(np.arange(len(PLANTED)), draws), np.roll(named, draws).astype(int)]


def another_wrong(record: Record) -> np.ndarray:
    """(1,) wrong names by that count."""
    named = np.roll(PLANT(record, number="named"), record.config["members"])
    return np.array([((named >= 0) & ~another(record)).sum()], float)


@of_record
def outsiders(record: Record, two: bool, refusing: bool = True) -> np.ndarray:
    """(1,) outsiders that get a name; not ``refusing``: that of the nearest family, however far."""
    named, first = OUTSIDE(record, number="named"), record.config["outsiders"]
    chosen = named[first:] if two else named[:first]
    return np.array([(chosen >= 0).sum() if refusing else len(chosen)], float)


def distances(record: Record) -> np.ndarray:
    """(M, F) of networks, NaN of one that has not learned.

    Raises:
      NotRun: where there is no network.
    """
    if not record.config["networks"]:
        raise NotRun("network")
    learned = READ(record, network="network", read="accuracy") >= LEARNED
    return np.where(learned[:, None], DISTANCE(record, network="network"), np.nan)


def nearest(record: Record) -> np.ndarray:
    """(M,) distance of a trained network from its nearest family."""
    return distances(record).min(1)


@of_record
def copy_less(record: Record, *others: str) -> np.ndarray:
    """(M,) how much further a trained network is from a copy than from the nearest of other families."""
    far = dict(zip(NAMES, distances(record).T))
    return far["induction copy"] - np.min([far[name] for name in others], axis=0)


_AT_LAB = {
    "two_labels": FAILS,
    "wrong": FAILS,  # expected to hold; two learners near a limit
    "network_votes": FAILS,  # expected to hold; but a copy of a large radius is nearest label, which answers everywhere
}
claim = claims_of("identification.labels", "This lab, planted suite; network of Reddy 2023", _AT_LAB, presets=("lab",))
_SET = "the bar set before the suite was run"

CLAIMS = (
    claim(
        "right",
        "Of 60 planted learners of labels, changed by 0.02, four in five get their name or an equal one (control: that "
        "of the next family).",
        right, at_least=0.8, control=another, interval="wilson", unit="learner", headline=1, reason=_SET,
    ),
    claim(
        "wrong", "At most one of them gets a wrong name (control: names of the next family).",
        wrong, at_most=1, control=another_wrong, interval="exact", reason=_SET,
    ),
    claim(
        "outsiders",
        "None of 30 learners of three or five labels that are no family gets a name (control: never refusing).",
        outsiders(False), at_most=0, control=outsiders(False, refusing=False), interval="exact", headline=2,
        reason=_SET,
    ),
    claim(
        "two_labels", "None of 14 such learners of two labels gets a name (control: never refusing).",
        outsiders(True), at_most=0, control=outsiders(True, refusing=False), interval="exact",
        reason="the same bar; with two labels all distances are smaller, and in a trial it was missed",
    ),
    claim(
        "network", "Trained networks of Reddy get no name (distance of the nearest family; control: planted learners).",
        nearest, at_least=BAR, control=PLANT.at(number="distance"),
        reason="the bar for a name; a deep classifier sharpens the vote of the attention",
    ),
    claim(
        "network_votes",
        "They are nearer to a vote than to a copy, which is silent where no example equals the query (difference of "
        "distances; control: from the nearest label, which copies contain).",
        copy_less("kernel vote (dot product)", "kernel vote (distance)"), at_least=0.1,
        control=copy_less("nearest label"),
        reason="on far queries, a third, a copy is flat over 16 labels and a vote is over at most four",
    ),
)  # fmt: skip


_LOOKS = (("planted", "#0072B2", "o"), ("outsiders", "#D55E00", "s"))


def figures(record: Record) -> dict[str, Figure]:
    """Distance of every learner from its nearest family, and of networks from every family."""
    figure, ((suite, network),) = panels(2, 1, width=3.4, height=3.0)
    draws, first = record.config["members"], record.config["outsiders"]
    inside, outside = PLANT(record, number="distance"), OUTSIDE(record, number="distance")
    kind = np.arange(len(outside)) % len(KINDS)
    for at in range(len(PLANTED) + len(KINDS)):
        of = inside[at * draws : (at + 1) * draws] if at < len(PLANTED) else outside[:first][kind[:first] == at - 5]
        label, color, marker = _LOOKS[at >= len(PLANTED)]
        look = {"marker": marker, "markersize": 3, "linestyle": "", "label": label if at in (0, len(PLANTED)) else None}
        suite.plot(of, np.full(len(of), at), color=color, **look)
    two = outside[first:]
    suite.plot(two, kind[first:] + len(PLANTED), "x", color="black", markersize=4, label="outsiders, two labels")
    labels = (*PLANTED, *KINDS)
    described(suite, yticks=np.arange(len(labels)), yticklabels=labels, title="planted learners and outsiders",
              xlabel="distance of the nearest family")  # fmt: skip
    if record.config["networks"]:
        for one in DISTANCE(record, network="network"):
            network.plot(one, np.arange(len(NAMES)), "o", color=_LOOKS[0][1], markersize=3)
    network.set(yticks=np.arange(len(NAMES)), yticklabels=NAMES, title="trained networks",
                xlabel="distance of every family")  # fmt: skip
    for axes in (suite, network):
        axes.axvline(BAR, color="0.5", linestyle=":")
        axes.invert_yaxis()
    return {"labels": figure}
