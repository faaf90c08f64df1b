"""What ``nonlinear_transformer`` claims and shows: functions of its record.

An error is that of the final query after M examples over that of predicting zero.
"""

from typing import Any

import numpy as np

from experiments.statistics import Statistic, difference
from experiments.zhang_frei_bartlett.nonlinear_transformer import ERROR, INTERVAL, LEAST_SQUARES, LOSS, STEPS, tested
from experiments.zhang_frei_bartlett.prefix_statistics import (
    above,
    above_linear,
    error,
    least_squares_above,
    linear_error,
    own_test,
    pooled,
    rise,
)
from experiments.zhang_frei_bartlett.prefixes import COVARIANCES, POSITIONS, TRAINED, linear_attention_error, tests_of
from icl_lab.claims import NOT_REACHED, Beside, Criterion
from icl_lab.lab import Claim, Record, claims_of
from icl_lab.lab.meanings import explain
from icl_lab.lab.style import LEARNERS, SPARSE, Axes, Figure, band, panels

LOOKS: dict[tuple[str, int], dict] = {  # of a training covariance and the rank of its N
    ("identity", 0): {"color": "#56B4E9", "linestyle": "-", "marker": "o"},
    ("identity", 1): {"color": "#0072B2", "linestyle": "--", "marker": "s"},
    ("identity", 2): {"color": "#003F66", "linestyle": "-.", "marker": "P"},
    ("random", 0): {"color": "#E69F00", "linestyle": (0, (5, 1)), "marker": "^"},
    ("random", 1): {"color": "#D55E00", "linestyle": (0, (3, 1, 1, 1)), "marker": "v"},
    ("random", 2): {"color": "#7A3600", "linestyle": (0, (1, 0.6)), "marker": "X"},
}

KINDS = {
    "with": "with position embeddings",
    "without": "without position embeddings",
    "reused": "with, trained rows reused",
    "offset": "with, trained at random offsets",
}
"""What becomes of position embeddings, in figures."""
_ERROR = "error / error of predicting 0"


def _learned(record: Record) -> bool:
    errors = [error(record, n, "identity", "identity") for n in record.config["lengths"]]
    return bool((np.concatenate(errors) < 1 / 3).all())


LEARNED = Criterion(
    "trained on identity covariance, every member's error at M = N is below 1/3, what linear attention leaves on c = 1",
    _learned,
)
claim = claims_of("zhang_frei_bartlett.nonlinear_transformer", "Zhang, Frei & Bartlett 2023, Fig. 1")
_NOT_YET: dict[str, Any] = {"criterion": LEARNED, "at_lab": NOT_REACHED}
"""Of the five members of the committed record, which has 10,000 steps, some have not learned.

At a spread of 1/8 for GPT-2's .02 and 5,000 steps we expected that all do, that ``least_squares`` fails, that
``random_better_9`` is not resolved, and that the other four hold. In that run (``lab-spread-8th``) all do,
``least_squares`` would not be resolved, and the other five would hold.
"""
_TWICE = float(np.log10(2))


def _beyond_training(trained: str) -> list[Claim]:
    """Of one training covariance: the error beyond M = N by what becomes of the position embeddings."""
    test = own_test(trained)
    with_, without, reused, offset = (rise(trained, test, positions) for positions in POSITIONS)
    on = f"trained on {trained} covariance"

    def shrinking(positions: str) -> Statistic:
        return difference(rise(trained, "exp_9", positions), rise(trained, "exp_1", positions))

    return [
        claim(
            f"rises_{trained}",
            f"With position embeddings, {on}, its error rises beyond M = N on its own task distribution (log10 of the "
            "mean error at N < M <= 2N over that at N; control: trained at random offsets).",
            with_, at_least=0.0, control=offset, reason="an ordering",
        ),
        claim(
            f"positions_{trained}",
            f"Without position embeddings that rise is smaller (difference of log10, same start and prompts; {on}; "
            "control: than one of a network that was trained at random offsets).",
            difference(with_, without), at_least=0.0, where=" (test: this lab)", reason="an ordering",
            control=difference(offset, without), headline=1 if trained == "identity" else 0,
        ),
        claim(
            f"no_rise_without_{trained}",
            f"Without position embeddings there is no rise beyond M = N (log10 as above; {on}; control: with).",
            without, at_most=0.0, tolerance=0.05, where=" (test: this lab)", control=with_,
            reason="12 % of an error could not be told from none in the figure",
        ),
        claim(
            f"reused_{trained}",
            "Rows that were never trained are a part of the cause: in the same trained network, its trained rows "
            f"reused beyond N, the rise is smaller (difference of log10, with less reused; {on}; control: that of a "
            "network of which every row is trained, less reused; beside: the rise that remains).",
            difference(with_, reused), at_least=0.0, where=" (test: this lab)", reason="an ordering",
            control=difference(offset, reused), beside=Beside(reused, "a part of the cause may leave any rise"),
            published=("the rise beyond N is of untrained positions", "Fig. 1"),
        ),
        claim(
            f"offset_{trained}",
            "A network with position embeddings of which every row is trained, at random offsets, has no rise (log10 "
            f"as above; {on}; control: with).",
            offset, at_most=0.0, tolerance=0.05, where=" (test: this lab)", control=with_, reason="as without",
        ),
        claim(
            f"rise_shrinks_{trained}",
            f"The rise is smaller at higher variance: log10 at c = 9 minus at c = 1, {on}, with position embeddings "
            "(control: without them).",
            shrinking("with"), at_most=0.0, control=shrinking("without"), reason="an ordering",
        ),
    ]  # fmt: skip


CLAIMS = (
    claim(
        "least_squares",
        "Trained on identity covariance the network is near least squares, whose error is 0, at M = N (control: "
        "linear attention at its optimum).",
        pooled(lambda r, n: error(r, n, "identity", "identity")), at_most=0.0, tolerance=0.05,
        where="; Garg et al. 2022, Fig. 2",
        control=pooled(linear_error), **_NOT_YET,
        reason="Garg et al. print .02 at M = D and .0006 at M = 2 D after 500,000 steps",
    ),
    claim(
        "beats_linear",
        "At M = N the network beats linear attention trained to its optimum at the same N (log10 of the ratio of "
        "errors).",
        above_linear("identity", "identity"), at_most=0.0, **_NOT_YET, reason="an ordering",
    ),
    claim(
        "handles_1",
        "Trained on identity covariance it handles random covariance at c = 1 better than linear attention trained "
        "the same (log10 of the ratio of errors at M = N; control: at the largest M, beyond its trained positions).",
        above_linear("identity", "exp_1"), at_most=0.0, control=above_linear("identity", "exp_1", "test_length"),
        reason="an ordering",
    ),
    *(
        claim(
            f"fails_{c}",
            f"Trained on identity covariance the network fails at c = {c}: its error there is at least twice that at "
            "c = 1 (log10 of the ratio at M = N, same prompts; control: least squares, below D examples).",
            above("identity", f"exp_{c}", "identity", "exp_1"), at_least=_TWICE,
            control=least_squares_above(f"exp_{c}", "exp_1"), **_NOT_YET,
            reason="least squares and every predictor that scales with its labels have the same error at every c",
            headline=2 if c == 9 else 0,
        )
        for c in (4, 9)
    ),
    claim(
        "random_better_9",
        "At c = 9 training on random covariance is better than on identity (log10 of the ratio of errors at M = N, "
        "same prompts; control: at c = 1, without position embeddings).",
        above("random", "exp_9", "identity", "exp_9"), at_most=0.0,
        control=above("random", "exp_1", "identity", "exp_1", "without"), **_NOT_YET, reason="an ordering",
        published=("random covariance better at c = 9 (below 0)", "Fig. 1"),
    ),
    claim(
        "random_above_9",
        "Trained on random covariance the network fails at c = 9 too: its error there is at least twice that at c = 1 "
        "(log10 of the ratio at M = N; control: least squares, below D examples).",
        above("random", "exp_9", "random", "exp_1"), at_least=_TWICE, **_NOT_YET, reason="as above",
        control=least_squares_above("exp_9", "exp_1"),
    ),
    *(one for trained in COVARIANCES for one in _beyond_training(trained)),
)  # fmt: skip


BOOTSTRAP = "thin outlines are the mean over members of the 90\u00a0% bootstrap interval over covariances"


def figures(record: Record) -> dict[str, Figure]:
    """The paper's figure; the error beyond N with and without position embeddings; the training."""
    drawn = {"nonlinear_transformer": _published, "beyond_training": _beyond, "training": _training}
    return {name: one(record) for name, one in drawn.items()}


def _published(record: Record) -> Figure:
    """One panel a test: error over M, of networks with position embeddings; the bootstrap is that of the paper."""
    config, tests = record.config, tests_of(record.config["scales"])
    figure, (row,) = panels(len(tests), 1, shape=0.88)
    shown = _looks(record, "with")
    errors = [ERROR(record, **network, test=test) for network, *_ in shown for test in tests]
    lowest = min((values.min() for values in errors), default=0.1)
    lengths, d = np.arange(config["test_length"] + 1), config["input_size"]
    for axes, (test, scale) in zip(row, tests.items()):
        for network, rank, look in shown:
            _curve(axes, record, network, test, markevery=(3 * rank, 10), **look)
            interval = INTERVAL(record, **network, test=test).mean(axis=0)
            outline = {"facecolor": "none", "edgecolor": look["color"], "alpha": 0.3, "linewidth": 0.5}
            explain([axes.fill_between(lengths, *interval, **outline)], BOOTSTRAP)
        band(axes, lengths[:d], LEAST_SQUARES[0](record, test=test)[:, :d], color="0.45", label="least squares")
        for trained, dash in (("identity", (0, (1, 1))), ("random", (0, (1, 3)))):
            n = max(config["lengths"])
            exact = [linear_attention_error(TRAINED[trained], n, scale, m, d) for m in lengths[1:]]
            axes.plot(lengths[1:], exact, color="black", linestyle=dash, label=f"linear attention, {trained}, N = {n}")
        limit = linear_attention_error(TRAINED["random"], np.inf, scale, np.inf, d)
        axes.axhline(
            limit, color="black", linestyle=(0, (6, 2, 1, 2)), linewidth=0.8, label="its limit M, N = ∞, random"
        )
        axes.axhline(1.0, color="0.6", linewidth=0.6, label="predicting 0")
        title = rf"${scale:g}\,$diag(Exp(1))" if scale else "identity covariance"
        axes.set(yscale="log", ylim=(lowest / 1.5, None), title=title, xlabel="examples in context M")
    row[0].set_ylabel(_ERROR)
    _legend(figure, row, 4)
    return figure


def _looks(record: Record, positions: str) -> list[tuple[dict[str, Any], int, dict]]:
    """Places of every network that was trained, the rank of its N, and its look."""
    ran = tested(record.config)
    return [
        (
            {"covariance": covariance, "length": n, "positions": positions}, rank,
            {"label": f"{covariance} covariance, N = {n}"} | LOOKS[covariance, rank],
        )
        for covariance in COVARIANCES for rank, n in enumerate(record.config["lengths"])
        if (covariance, rank) in LOOKS and positions != "reused" and (n, positions) in ran
    ]  # fmt: skip


def _legend(figure: Figure, row: np.ndarray, columns: int) -> None:
    """One legend above all panels, of the panel with most curves."""
    most = max((axes.get_legend_handles_labels() for axes in row), key=lambda legend: len(legend[0]))
    figure.legend(*most, loc="outside upper center", ncols=columns)


def _curve(axes: Axes, record: Record, network: dict, test: str, **line) -> None:
    values = ERROR(record, **network, test=test)
    band(axes, np.arange(values.shape[1]), values, **line)


def _beyond(record: Record) -> Figure:
    """One panel a training: error over M on its own covariance, with and without position embeddings."""
    ran = tested(record.config)
    shown = [(covariance, n) for covariance in COVARIANCES for n in record.config["lengths"] if n in dict(ran)]
    figure, (row,) = panels(len(shown), 1, shape=0.8)
    for axes, (covariance, n) in zip(row, shown):
        for (positions, label), learner in zip(KINDS.items(), ("trained", "gd", "gd++", "interpolated")):
            if (n, positions) in ran:
                network = {"covariance": covariance, "length": n, "positions": positions}
                look = LEARNERS[learner] | {"label": label, "markevery": 10}
                _curve(axes, record, network, own_test(covariance), **look)
        axes.axvline(n, color="0.6", linewidth=0.8, label="M = N")
        axes.set(yscale="log", title=f"{covariance} covariance, N = {n}", xlabel="examples in context M", ylabel=_ERROR)
    low, high = zip(*(axes.get_ylim() for axes in row))
    for axes in row:  # panels are compared
        axes.set_ylim(min(low), max(high))
    _legend(figure, row, 3)
    return figure


def _training(record: Record) -> Figure:
    """Error over training, mean over all prefixes."""
    kinds = [positions for positions in POSITIONS if _looks(record, positions)]
    figure, (row,) = panels(len(kinds), 1, shape=0.58)
    for axes, positions in zip(row, kinds):
        for network, _, look in _looks(record, positions):
            band(axes, STEPS(record, **network), LOSS(record, **network), **look | SPARSE)
        axes.set(yscale="log", title=KINDS[positions], xlabel="training step", ylabel="error, mean over prefixes")
        axes.locator_params(axis="x", nbins=4)  # wide labels
    _legend(figure, row, 4)
    return figure
