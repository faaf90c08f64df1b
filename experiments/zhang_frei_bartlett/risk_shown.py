"""What ``risk`` claims and shows: functions of its record."""

from typing import Any

import numpy as np

from experiments.panels import described
from experiments.statistics import Statistic, of_record, place_of
from experiments.zhang_frei_bartlett.risk import CLOSED, CLOSED_FLOOR, COVARIANCES, FLOOR, PREDICTED, RISK, SAMPLED
from icl_lab.claims import Quick
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels, viridis
from icl_lab.theory import error_floor_bound, optimum, risk

DASHES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
THIN = THEORY | {"linewidth": 1.0}
_TEST, _TRAIN = "test length M (examples)", "training length N (examples)"
LABELS = {"identity": "identity covariance", "spectrum": "unequal eigenvalues"}


@of_record
def deviation(record: Record, name: str, endless: bool = False) -> np.ndarray:
    """(M,) largest |risk - closed form| over N and M, in units of the closed form at M or at N, whichever is larger.

    A relative error e of A changes the risk by at most about 2 e of that unit: by 2 e (D+1)/N for M > N, where the risk
    itself is much smaller, and by about 2 e of itself for M < N. Control: from the closed form at Lam^-1, the best A of
    endless prompts, whatever the N of training.
    """
    closed = CLOSED(record, covariance=name)
    lam = np.diag(_spectrum(record, name))
    matched = [risk(optimum(lam, n), test_length=n, covariance=lam) for n in record.config["train_lengths"]]
    unit = np.maximum(closed, np.array(matched)[:, None])
    if endless:
        inverse = np.linalg.inv(lam)
        lengths = record.config["test_lengths"]
        closed = np.array([[risk(inverse, test_length=m, covariance=lam) for m in lengths]])
    return (np.abs(RISK(record, covariance=name) - closed[None]) / unit[None]).max(axis=(1, 2))


@of_record
def margin(record: Record, name: str, longer: int = 0) -> np.ndarray:
    """(M,) least risk of a layer trained at N /= M over that of the layer trained at N = M, on prompts of length M.

    ``longer``: for N = M, the training length that is so many places longer (control).
    """
    train, test = list(record.config["train_lengths"]), list(record.config["test_lengths"])
    risks, ratios = RISK(record, covariance=name), []
    for m in sorted(set(train[: len(train) - longer]) & set(test)):
        column, best = risks[:, :, test.index(m)], train.index(m) + longer
        ratios.append(np.delete(column, best, axis=1).min(axis=1) / column[:, best])
    if not ratios:
        raise NotRun("length in both train_lengths and test_lengths")
    return np.min(ratios, axis=0)


def context_rate(record: Record) -> np.ndarray:
    """(M,) slope of log(sampled risk - exact floor of the member) over log M; no value where that is negative."""
    n = list(record.config["train_lengths"]).index(record.config["context_length"])
    excess = SAMPLED(record, labels="clean") - FLOOR(record, covariance="spectrum")[:, n, None]
    x = np.log(record.config["test_lengths"])
    slopes = np.polyfit(x, np.log(np.where(excess > 0, excess, 1.0)).T, 1)[0]
    return np.where((excess > 0).all(axis=1), slopes, np.nan)


@of_record
def floor_rate(record: Record, name: str, matched: bool = False) -> np.ndarray:
    """(M,) exponent of the floor between the two longest training lengths, less that of the closed form.

    ``matched``: not of the floor but of the risk on prompts of the training length (control).
    """
    lengths = record.config["train_lengths"][-2:]
    floors = FLOOR(record, covariance=name)[:, -2:]
    if matched:
        test = [place_of(record, "test_lengths", n, f"test length {n}") for n in lengths]
        floors = RISK(record, covariance=name)[:, [-2, -1], test]
    return _exponent(floors, lengths) - _exponent(CLOSED_FLOOR(record, covariance=name)[-2:], lengths)


def _exponent(values: np.ndarray, lengths: list[int]) -> np.ndarray:
    """(...) exponent in the length of values (..., 2) at two lengths."""
    return np.log(values[..., 1] / values[..., 0]) / np.log(lengths[1] / lengths[0])


def agreement(labels: str, of: str | None = None) -> Statistic:
    """(M,) sampled risk over the theorem's, mean over the test lengths; ``of``: over its risk on other labels."""
    return lambda record: (SAMPLED(record, labels=labels) / PREDICTED(record, labels=of or labels)[None]).mean(axis=1)


def over_best_linear(record: Record) -> np.ndarray:
    """(M,) risk over that of the best linear predictor on the same tasks, mean over the test lengths."""
    return (SAMPLED(record, labels="nonlinear") / SAMPLED(record, labels="nonlinear_best")).mean(axis=1)


def excess_over_best(record: Record, *, shorter: int = 0) -> np.ndarray:
    """(M,) risk less that of the best linear predictor on the same tasks, over the theorem's; mean over lengths.

    ``shorter``: over what the theorem says of prompts that are so many places shorter (control).
    """
    sampled = SAMPLED(record, labels="nonlinear") - SAMPLED(record, labels="nonlinear_best")
    predicted = PREDICTED(record, labels="nonlinear") - record.metrics["best_linear_risk"]
    return (sampled[:, shorter:] / predicted[None, : len(predicted) - shorter]).mean(axis=1)


@of_record
def learnability(record: Record, name: str, longer: int = 0) -> np.ndarray:
    """(M,) the largest over N of floor / eta and of (coefficient of 1/M) / ((D+1) tr Lam).

    ``longer``: of the floor over the eta of a training length so many places longer (control).
    """
    spectrum = _spectrum(record, name)
    floors, m = FLOOR(record, covariance=name), record.config["test_lengths"][-1]
    eta = np.array([error_floor_bound(np.diag(spectrum), n) for n in record.config["train_lengths"]])
    if longer >= len(eta):
        raise NotRun(f"training length {longer} places longer than another")
    if longer:
        return (floors[:, :-longer] / eta[None, longer:]).max(axis=1)
    coefficient = m * (RISK(record, covariance=name)[:, :, -1] - floors)
    slope = coefficient / ((len(spectrum) + 1) * spectrum.sum())
    return np.maximum(floors / eta[None], slope).max(axis=1)


def _spectrum(record: Record, name: str) -> np.ndarray:
    spectrum = np.array(record.config["spectrum"])
    return spectrum if name == "spectrum" else np.ones_like(spectrum)


_THEOREM = "Zhang, Frei & Bartlett 2023, Theorem 4.2"
_WHERE = {"identity": "inputs of identity covariance", "spectrum": "inputs of the covariance's spectrum"}
_EXPONENTS = {"identity": "-1.81", "spectrum": "-1.69"}  # of the closed form from N = 40 to 80; the limit is -2
_SUM_UP: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "identity": (
        {"headline": 1, "quick": Quick(
            0.12, "1,000 steps of 128 tasks for 6,000 of 256 leave A within 6 % of Gam^-1, which moves the risk by "
                  "12 %",
        )},
        {"headline": 2, "quick": Quick(0.0, "a bound without slack; between N = 5, 10, 20 the closed form's is wider")},
    ),
    "spectrum": ({}, {}),
}  # fmt: skip
"""By covariance: of the claims ``matrix`` and ``best_length``, where they sum the binary up."""

claim = claims_of("zhang_frei_bartlett.risk", _THEOREM)

CLAIMS = (
    *(
        one
        for name, (matrix, best_length) in _SUM_UP.items()
        for one in (
            claim(
                f"matrix_{name}",
                "Trained at any N, tested at any M, the layer has the risk of the closed form at Gam^-1 "
                f"({_WHERE[name]}; largest deviation, in units of the closed form at M or at N, whichever is larger; "
                "control: from that at Lam^-1).",
                deviation(name), at_most=0.0, tolerance=0.04, control=deviation(name, endless=True), **matrix,
                reason="training leaves A within 2 % of Gam^-1, which moves the risk by up to 4 % of that unit",
            ),
            claim(
                f"best_length_{name}",
                "For each M every other of the training lengths is worse than N = M, by 2 % at least "
                f"({_WHERE[name]}; least ratio of risks; control: than the next longer one).",
                margin(name), at_least=1.02, where=" (this lab)", control=margin(name, longer=1), **best_length,
                reason="the closed form's least ratio at lab's lengths is 1.03, near N = M it tends to 1; an error of "
                       "A of 1 % moves it by .01",
            ),
            claim(
                f"floor_rate_{name}",
                "Between the two longest training lengths the floor falls with the exponent of the closed form, at "
                f"lab {_EXPONENTS[name]} on the way to -2 ({_WHERE[name]}; difference of exponents; control: of the "
                "risk at M = N).",
                floor_rate(name), near=0.0, tolerance=0.1, where=", its rate 1/N^2",
                control=floor_rate(name, matched=True),
                reason="a floor that is 7 % off at the longer length, as if A were off by .3 % of itself at N = 80",
            ),
            claim(
                f"learnability_{name}",
                "Trained layers learn the linear functions in context within the paper's bounds: the floor is at most "
                f"eta, M(eps) at most (D+1) tr(Lam)/eps ({_WHERE[name]}; largest ratio; control: eta of the N "
                "after the next).",
                learnability(name), at_most=1.0, where=", its corollary", control=learnability(name, longer=2),
                reason="bounds need no slack",
            ),
        )
    ),
    claim(
        "context_rate", "The sampled risk falls to the floor of the member's weights as 1/M (exponent over all M).",
        context_rate, near=-1.0, tolerance=0.05, where=", its rate 1/M", kind="identity",
        reason="10^5 tasks a member leave the difference at the longest prompts uncertain by 3 %, the exponent by .02",
        headline=3, quick=Quick(0.15, "10^4 tasks a member for 10^5: three times the noise"),
    ),
    *(
        claim(
            labels,
            f"On {labels} labels the layer trained on clean linear ones has the risk of the theorem (sampled over "
            f"exact, mean over M; control: over that of {other}).",
            agreement(labels), near=1.0, tolerance=0.03, control=control,
            reason="an error of A of 1 % moves the risk of the longest prompts by some 7 %, the mean over M by 2 %",
        )
        for labels, other, control in (
            ("clean", "noisy ones", agreement("clean", "noisy")),
            ("noisy", "clean ones", agreement("noisy", "clean")),
            ("nonlinear", "the best linear predictor, on the same prompts", over_best_linear),
        )
    ),
    claim(
        "best_linear",
        "On nonlinear labels its risk exceeds that of the best linear predictor by what the theorem says (ratio of "
        "the excesses, mean over M; control: what it says of the next shorter prompts).",
        excess_over_best, near=1.0, tolerance=0.05, control=lambda record: excess_over_best(record, shorter=1),
        reason="an error of A of 2 % moves the term in 1/M by 4 %; 10^6 tasks leave 1 % of noise",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Risk over test length for each training length; the rates; noisy and nonlinear labels."""
    return {"risk": _risks(record), "rates": _rates(record), "labels": _labels(record)}


def _points(axes: Axes, x: np.ndarray, members: np.ndarray, i: int, count: int, label: str) -> None:
    """Member (M, X) values as a band with the i-th colour, dash and marker of a family."""
    shade = viridis(count)[i]
    band(axes, x, members, color=shade, linestyle=DASHES[i % 5], marker=MARKERS[i % 5], label=label)


def _risks(record: Record) -> Figure:
    """Risk over test length for each training length, one panel a covariance."""
    config = record.config
    test, train = np.array(config["test_lengths"]), np.array(config["train_lengths"])
    figure, (row,) = panels(2, 1)
    for axes, name in zip(row, COVARIANCES):
        for i, n in enumerate(train):
            _points(axes, test, RISK(record, covariance=name)[:, i], i, len(train), f"N = {n}")
            axes.plot(test, CLOSED(record, covariance=name)[i], **THIN, label="theory" if i == len(train) - 1 else None)
        _logarithmic(axes, test, _TEST, "risk (mean squared error)", 3, LABELS[name])
    return figure


def _rates(record: Record) -> Figure:
    """What is above the floor over M, the floor over N, and the training length that is best for each M."""
    config = record.config
    test, train = np.array(config["test_lengths"]), np.array(config["train_lengths"])
    figure, ((context, floor, fixed),) = panels(3, 1)
    n = list(train).index(config["context_length"])
    excess = SAMPLED(record, labels="clean") - FLOOR(record, covariance="spectrum")[:, n, None]
    _points(context, test, np.where(excess > 0, excess, np.nan), 0, 2, f"trained at N = {train[n]}, sampled")
    predicted = PREDICTED(record, labels="clean") - CLOSED_FLOOR(record, covariance="spectrum")[n]
    context.plot(test, predicted, **THIN, label="theory: c/M")
    _logarithmic(context, test, _TEST, "risk above its floor (MSE)", 1, f"over its floor, {LABELS['spectrum']}")
    for i, name in enumerate(COVARIANCES):
        _points(floor, train, FLOOR(record, covariance=name), i, 2, LABELS[name])
        floor.plot(train, CLOSED_FLOOR(record, covariance=name), **THIN, label=None if i else "theory")
    spectrum = np.diag(config["spectrum"])
    bound = [error_floor_bound(spectrum, int(n)) for n in train]
    floor.plot(train, bound, color="0.5", label=r"bound $\eta$, unequal eigenvalues")
    _logarithmic(floor, train, _TRAIN, r"floor, $M\to\infty$ (MSE)", 2, "endless prompts", (1, 3))
    shared = [m for m in test if m in train]
    for i, m in enumerate(shared):
        at = list(test).index(m)
        best = CLOSED(record, covariance="identity")[:, at].min()
        _points(fixed, train, RISK(record, covariance="identity")[:, :, at] / best, i, len(shared), f"M = {m}")
        fixed.plot(train, CLOSED(record, covariance="identity")[:, at] / best, **THIN, label=None if i else "theory")
    marks, about = (1, 1.2, 1.5, 2, 3, 4, 6), f"best length, {LABELS['identity']}"
    _logarithmic(fixed, train, _TRAIN, "risk / least over N", 3, about, marks)
    return figure


def _labels(record: Record) -> Figure:
    """Sampled risks on clean, noisy and nonlinear labels on the theorem's lines."""
    config = record.config
    test = np.array(config["test_lengths"])
    figure, ((linear, curve),) = panels(2, 1)
    noisy = rf"noise $\sigma$ = {config['label_noise']:g}"
    for i, (name, label) in enumerate((("clean", "clean labels"), ("noisy", noisy))):
        _points(linear, test, SAMPLED(record, labels=name), i, 2, label)
        linear.plot(test, PREDICTED(record, labels=name), **THIN, label="theory" if i else None)
    _points(curve, test, SAMPLED(record, labels="nonlinear"), 0, 2, r"$y = x_1^2 + x_2/2 + \sin x_3$")
    curve.plot(test, PREDICTED(record, labels="nonlinear"), **THIN, label="theory")
    curve.axhline(record.metrics["best_linear_risk"], color="0.5", linestyle="--", label="best linear predictor")
    about = f"trained at N = {config['context_length']}, clean linear labels"
    for axes in (linear, curve):
        _logarithmic(axes, test, _TEST, "risk (mean squared error)", 2, about)
    return figure


def _logarithmic(
    axes: Axes, lengths: np.ndarray, x: str, y: str, columns: int, about: str, marks: tuple = (1, 2, 5)
) -> None:
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", yscale="log")
    axes.set_xticks(lengths, [str(v) for v in lengths])
    axes.yaxis.set_major_locator(LogLocator(subs=marks))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    described(axes, columns, about, xlabel=x, ylabel=y)
