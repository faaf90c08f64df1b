"""What ``pretrain`` claims, of each position encoding by itself: they differ by construction and are never pooled.

Expectations and tolerances were committed before any record of these networks. Where a bound is no theory it comes from
pilots with another seed (11, a network of each encoding, before tasks were drawn within a band of chance), and the
reason says so: after all demonstrations polar .98 and 1.00, topic .62 and .75; both passed the gate.

Figures: the loss over the stages, and accuracy against the number of demonstrations.
"""

from typing import Any

import numpy as np

from experiments.dai.common import ENCODINGS, GAIN, TASKS, encodings, gated
from experiments.dai.pretrain import CEILING, CURVE, END, FINAL, MEANING_ONLY, REACHED
from experiments.panels import SERIES
from experiments.statistics import Statistic, among, of_record
from icl_lab.claims import NOT_REACHED, NOT_RESOLVED, Beside, Criterion, Quick
from icl_lab.lab import Claim, NotRun, Record, claims_of
from icl_lab.lab.style import THEORY, Figure, band, panels
from icl_lab.prompts.text_sequences import FAMILY_SHARES, STAGES
from icl_lab.prompts.text_tasks import HELD_OUT

_CHANCE = np.array([1 / task.classes for task in HELD_OUT])
PILOTS = "loose: pilots with another seed have .98 and 1.00"
_TOPICS = (1 / 2 + 1 / 3 + 1 / 4) / 3
GUESSING = float(np.dot(FAMILY_SHARES, [_TOPICS, 1 / 2, 1 / 5, 1 / 2, 1 / 3]))
"""Share of the labels of the mixture that guessing among those of the context gets right: its families by share."""
JUDGED = ENCODINGS[:2]
"""Learned positions are a control, of three networks: shown, and not judged."""


def passed(encoding: str, demonstrations: int | None = None) -> Statistic:
    """(M,) 1 for a network that passes the gate after so many demonstrations (None: all), else 0."""
    last = None if demonstrations is None else demonstrations + 1
    return lambda record: gated(FINAL(record, positions=encoding)[..., :last]).astype(float)


def _trained(encoding: str) -> Statistic:
    """(M,) 1 for a network that got through the mixture."""
    return lambda record: (REACHED(record, positions=encoding) == len(STAGES)).astype(float)


@of_record
def _trained_in_half(record: Record, encoding: str) -> np.ndarray:
    """(M,) 1 for a network that would have got through the mixture with half of the steps before it, else 0."""
    steps = END(record, positions=encoding, metric="steps")[:, :-1].sum(-1)
    return _trained(encoding)(record) * (steps <= record.config["most_steps"] / 2)


@of_record
def _above_guessing(record: Record, encoding: str) -> np.ndarray:
    """(M,) accuracy on labels of the second half of mixture sequences, less that of guessing; NaN without mixture.

    Classes are independent and uniform, so guessing among the labels of the context is right 1 / classes of the time,
    whatever is guessed. (The loss is no such measure: a label that has not occurred yet costs more than the entropy of
    the set, and most of the loss is that.)
    """
    accuracy = CURVE(record, positions=encoding, stage=STAGES[-1], metric="late_accuracy")[:, -1]
    return accuracy - GUESSING  # the last row is measured only of those that came to the end


def _untrained(encoding: str) -> Statistic:
    """(M,) accuracy before any training, on strings (it is next to none on any sequence), less that of guessing."""
    first = CURVE.at(stage=STAGES[0], metric="late_accuracy")
    return lambda record: first(record, positions=encoding)[:, 0] - GUESSING


def over_chance(encoding: str, demonstrations: int = 0) -> Statistic:
    """(M,) accuracy after so many demonstrations (-1: all) less chance, mean over tasks."""
    return lambda record: (FINAL(record, positions=encoding)[..., demonstrations] - _CHANCE).mean(-1)


def _meaning_alone(record: Record) -> np.ndarray:
    """(M,) accuracy of guessing by the meanings alone, less chance, mean over tasks."""
    return (MEANING_ONLY(record) - _CHANCE).mean(-1)


@of_record
def follows_meaning(record: Record, encoding: str, of_others: bool = False) -> np.ndarray:
    """(M,) correlation over tasks of zero-shot accuracy with that of meanings alone, both less chance.

    With ``of_others`` meanings are those of the language and the tasks of the network before.
    """
    excess = FINAL(record, positions=encoding)[..., 0] - _CHANCE
    alone = np.roll(MEANING_ONLY(record)[: len(excess)] - _CHANCE, int(of_others), axis=0)
    return np.array([np.corrcoef(x, y)[0, 1] if np.ptp(x) and np.ptp(y) else np.nan for x, y in zip(excess, alone)])


def _in_family(encoding: str, family: str, demonstrations: int = -1) -> Statistic:
    """(M,) accuracy after so many demonstrations (-1: all), mean over the tasks of a family."""
    indices = [i for i, task in enumerate(HELD_OUT) if task.family == family]
    return lambda record: FINAL(record, positions=encoding)[:, indices, demonstrations].mean(-1)


def encoding_difference(record: Record) -> np.ndarray:
    """(M,) accuracy after all demonstrations, mean over tasks, with rotary less sinusoidal positions.

    Of pairs with one language and the same tasks that both got through the mixture, which has the same steps for all.
    """
    ends = [FINAL(record, positions=encoding)[..., -1].mean(-1) for encoding in JUDGED]
    through = [_trained(encoding)(record) == 1 for encoding in JUDGED]
    pairs = min(map(len, ends))
    both = through[0][:pairs] & through[1][:pairs]
    return np.where(both, ends[0][:pairs] - ends[1][:pairs], np.nan)


def _learned_positions(record: Record) -> np.ndarray:
    """(M,) accuracy with rotary less learned positions (no such network came to the mixture), same tasks."""
    if "learned" not in encodings(record):
        raise NotRun("networks of learned positions")
    rotary, learned = (FINAL(record, positions=encoding)[..., -1].mean(-1) for encoding in ("rotary", "learned"))
    pairs = min(len(rotary), len(learned))
    return rotary[:pairs] - learned[:pairs]


def _beyond_guessing(record: Record) -> bool:
    """Whether late labels of the mixture are predicted better than by guessing among those of the context."""
    loss, entropy = (END(record, positions="rotary", metric=name)[:, -1] for name in ("late_loss", "label_entropy"))
    return bool((loss < entropy).all())


UNRESOLVED = ("gated_rotary", "gated_sinusoidal", "follows_meaning_rotary")
"""By the first record; all others hold."""
_judged = claims_of("dai.pretrain", "this lab, for Dai et al. 2022", minimum_members=3)


def _claim(name: str, *positional: Any, **options: Any) -> Claim:
    verdict = {"presets": (), "at_lab": NOT_RESOLVED} if name in UNRESOLVED else {}
    return _judged(name, *positional, **options, **verdict)


def _of(encoding: str) -> tuple[Claim, ...]:
    with_positions, first = f"With {encoding} positions", encoding == "rotary"
    return (
        _claim(
            f"gated_{encoding}",
            f"{with_positions} at least half of the networks learn in context: demonstrations gain {GAIN} or more over "
            f"zero-shot on {TASKS} of the six held-out tasks (the share; those that never got to the mixture count).",
            passed(encoding), at_least=0.5, interval="wilson", reason="most networks", headline=1 * first,
            control=passed(encoding, 1),
            quick=Quick(
                0.0, "at most 50 steps a stage for 6,000", NOT_REACHED,
                Criterion(
                    "every member predicts labels better than by guessing among those of the context", _beyond_guessing
                ),
            ) if first else None,
        ),
        _claim(
            f"trained_{encoding}",
            f"{with_positions} at least half of the networks come through the curriculum in its steps (the share).",
            _trained(encoding), at_least=0.5, interval="wilson", reason="most networks",
            control=_trained_in_half(encoding),
        ),
        _claim(
            f"beyond_the_set_{encoding}",
            f"{with_positions} networks that came through the mixture predict its late labels better than by guessing "
            "among those of the context (accuracy above that of guessing).",
            _above_guessing(encoding), at_least=0.1, headline=2 * first,
            reason="a network that copies the label set is at 0; two pilots: .28, .29",
            control=_untrained(encoding),
        ),
        _claim(
            f"zero_shot_{encoding}",
            f"{with_positions} a gated network is near chance without demonstrations (accuracy less chance, mean of "
            "the tasks, which are drawn so that meanings alone are near chance).",
            among(passed(encoding), over_chance(encoding)), near=0.0, tolerance=0.1,
            reason="meanings alone are within .25 of chance on either side, and six tasks are averaged",
            control=among(passed(encoding), over_chance(encoding, -1)),
            beside=Beside(_meaning_alone, "tasks are drawn so that it is near chance"),
        ),
        _claim(
            f"follows_meaning_{encoding}",
            f"{with_positions} a gated network's zero-shot accuracy follows that of meanings alone (correlation over "
            "the six tasks, accuracies less chance).",
            among(passed(encoding), follows_meaning(encoding)), at_least=0.5,
            reason="half: words have few dimensions and tasks are six",
            control=among(passed(encoding), follows_meaning(encoding, of_others=True)),
        ),
        _claim(
            f"polar_{encoding}",
            f"{with_positions} a gated network answers polar tasks after all demonstrations, accuracy .85 or more.",
            among(passed(encoding), _in_family(encoding, "polar")), at_least=0.85, reason=PILOTS,
            control=among(passed(encoding), _in_family(encoding, "polar", 1)),
        ),
        _claim(
            f"topic_{encoding}",
            f"{with_positions} a gated network answers the topic task of four classes after all demonstrations with "
            "accuracy .5 or more, twice chance.",
            among(passed(encoding), _in_family(encoding, "topic")), at_least=0.5,
            reason="twice chance; pilots: .62, .75",
            control=among(passed(encoding), _in_family(encoding, "topic", 1)),
        ),
    )  # fmt: skip


CLAIMS = (
    *(claim for encoding in JUDGED for claim in _of(encoding)),
    _claim(
        "same_steps_same_accuracy",
        "At equal steps of the mixture the encoding makes no difference of .1 in accuracy after all demonstrations "
        "(rotary less sinusoidal, mean of the tasks; pairs with one language that both came through).",
        encoding_difference, near=0.0, tolerance=0.1, reason="an equivalence: the gain that the gate asks for",
        control=_learned_positions,
    ),
)  # fmt: skip

LOOK = dict(zip(ENCODINGS, SERIES[1:]))
_NAMES = ("repeated strings", "words and labels", "clear classes", "mixture")


def figures(record: Record) -> dict[str, Figure]:
    """``curriculum`` and ``demonstrations``."""
    return {"curriculum": _curriculum(record), "demonstrations": _demonstrations(record)}


def _curriculum(record: Record) -> Figure:
    """Loss of predictable tokens in each stage, a thin line for each network; dots where networks end a stage."""
    schemes = encodings(record)
    figure, axes = panels(len(STAGES), len(schemes))
    for row, encoding in zip(axes, schemes):
        passes, reached = gated(FINAL(record, positions=encoding)), REACHED(record, positions=encoding)
        for i, (at, stage) in enumerate(zip(row, STAGES)):
            curves = CURVE(record, positions=encoding, stage=stage, metric="late_loss")
            if not (entered := int(np.isfinite(curves).any(1).sum())):
                at.set_axis_off()
                continue
            steps = record.config["measure_every"] * np.arange(curves.shape[1])
            ends = (END(record, positions=encoding, metric=name)[:, i] for name in ("steps", "late_loss"))
            for curve, end, loss, passed in zip(curves, *ends, passes):
                look = LOOK[encoding] if passed else {"color": "0.6", "linestyle": "-"}
                at.plot(steps, curve, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.7)
                at.plot([end], [loss], color=look["color"], marker="o", markersize=2.5)
            if stage == STAGES[-1]:
                guessing = END(record, positions=encoding, metric="label_entropy")[:, -1]
                for entropy in guessing[np.isfinite(guessing)][:1]:
                    at.axhline(entropy, **THEORY, label="guessing among the labels")
                    at.legend()
            else:
                at.axhline(record.config["stage_loss"][i], color="0.3", linewidth=0.7, linestyle="--")
            ended = f"{int((reached > i).sum())} of {entered} came to its end"
            at.set(title=f"{_NAMES[i]}: {ended}", xlabel="step of the stage")
            at.set_ylim(bottom=0)
        row[0].set_ylabel(f"{encoding} positions: loss of predictable tokens (nats)")
        row[0].plot([], [], color="0.6", linewidth=0.7, label=_failed(passes))
        row[0].legend()
    return figure


def _failed(passes: np.ndarray) -> str:
    return f"failed the gate: {int((~passes).sum())} of {passes.size}"


def _demonstrations(record: Record) -> Figure:
    """Accuracy on the six held-out tasks against the number of demonstrations, of the networks that pass the gate."""
    figure, axes = panels(3, 2)
    for i, (at, task) in enumerate(zip(axes.ravel(), HELD_OUT)):
        for encoding in encodings(record):
            accuracy = FINAL(record, positions=encoding)
            passes = gated(accuracy)
            x, look = np.arange(accuracy.shape[-1]), LOOK[encoding]
            if passes.any():
                label = f"{encoding}: {int(passes.sum())} that pass the gate"
                band(at, x, accuracy[passes, i], label=label, **look | {"markevery": 2})
            if (~passes).any():
                thin = look | {"marker": "", "linewidth": 0.5}
                at.plot(x, accuracy[~passes, i].T, alpha=0.4, **thin)
                at.plot([], [], alpha=0.6, label=f"{encoding}: {_failed(passes)}", **thin)
        at.axhline(1 / task.classes, color="0.6", linewidth=0.8, label="chance")
        at.axhline(np.median(CEILING(record)[:, i]), **THEORY, label="who knows the task (Bayes)")
        alone = float(np.median(MEANING_ONLY(record)[:, i]))
        at.axhline(alone, color="0.3", linewidth=0.8, linestyle="-.", label="meanings of the labels alone")
        title = f"{task.family}, {task.classes} classes (for {task.stands_for})"
        at.set(title=title, xlabel="demonstrations", ylabel="accuracy", ylim=(0, 1.03))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure
