"""What is necessary for the induction head, and what is sufficient: parts given, and held.

``clamping`` holds each part once, in the phase in which CLA makes most of its way and the attention hardly any; what
moves only later costs nothing there. Here every part is

- *held* at its start from step 0 on, for a short, a middle and a long window, the last one longer than the control's
  wait. What remains of the wait after the release, over the control's, tells what was learned meanwhile: nothing (1) if
  all else waits for this part, most of it (0) if this part alone was missing;
- *given*: the network starts with this part of its own control, trained on the same classes, all else at its start; and
  *all but* it given. A part is sufficient if hardly anything of the wait remains with it alone, and quick to learn if
  hardly anything remains where it alone is missing.

Parts that are given are the parameters of layer 1 (queries, keys, values), the queries and keys of layer 2, and the
answer (values of layer 2, classifier); all parameters train on. Parts that are held are those of ``clamping``.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.onsets import crossing
from experiments.panels import ABOVE, SERIES
from experiments.reddy.clamping import ATTENTION, clamps, train_clamped
from experiments.reddy.clamping_claims import NAMES
from experiments.reddy.findings import FINDINGS
from experiments.reddy.headlines import QUICK
from experiments.reddy.settings import SMALL, SMOKE, WORLDS, Training, by_part, check_training, laws, repeated
from experiments.reddy.statistics import present, solved
from experiments.reddy.training import Induction, network, sgd
from experiments.settings import check_each_once, member_keys
from experiments.training import learners_of
from icl_lab.lab import Experiment, FlagError, Record, Session, arguments, claims_of, main, setting
from icl_lab.lab.style import Figure, panels
from icl_lab.training.fitting import Tree

HELD = ("ila1", "tila2", "tla2", "cla")
GIVEN = {"layer_1": "layer 1", "layer_2": "attention of layer 2", "answer": "values and classifier"}


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """The task distribution of Fig. 3 at several N; all else as in ``clamping``."""

    context_length: int = setting(8, "not used: lengths replace it")
    steps: int = setting(150_000, "not used: length_steps replace it")
    lengths: tuple[int, ...] = setting((4, 8), "N", at_least=2)
    length_steps: tuple[int, ...] = setting((75_000, 150_000), "training steps at each N", at_least=1)
    windows: tuple[float, ...] = setting((0.1, 0.3, 0.6), "holds, shares of the steps, rising", above=0, at_most=0.9)


PRESETS = {
    "smoke": Config(**SMOKE | {"steps": 10}, lengths=(2,), length_steps=(10,), windows=(0.2, 0.4)),
    "quick": Config(
        **SMALL | {"measure_every": 10, "eval_tasks": 100},
        batch=32,
        members=2,
        lengths=(4,),
        length_steps=(20,),
        windows=(0.5,),
    ),
    # --lengths=4,8 --length_steps=5000,14000 adds N = 8: hours more of one core
    "lab": Config(**SMALL, members=10, lengths=(4,), length_steps=(5000,)),
    "paper": Config(),
}


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_each_once("lengths", config.lengths)
    if len(config.length_steps) != len(config.lengths):
        raise FlagError(f"--length_steps: allowed are as many values as --lengths has, {len(config.lengths)}")
    if list(config.windows) != sorted(set(config.windows)):
        raise FlagError("--windows: allowed are values that rise")
    for one in settings_of(config).values():
        check_training(one)
        for window in config.windows:
            if round(window * one.steps) % one.measure_every:
                raise FlagError(f"--windows: allowed are shares of {one.steps} steps at which --measure_every measures")


def settings_of(config: Config) -> dict[int, Config]:
    """The setting at each N."""
    return {
        n: dataclasses.replace(config, context_length=n, steps=steps)
        for n, steps in zip(config.lengths, config.length_steps)
    }


def models(config: Config) -> dict[str, Induction]:
    """What is trained, by stage: the controls of each N, then the members of each condition."""
    return {f"{stage}_{n}": network(one) for n, one in settings_of(config).items() for stage in ("control", "training")}


def holds(windows: Sequence[float]) -> dict[str, tuple[str, float]]:
    """Conditions in which a part is held: the part and its window."""
    return {f"{part}_held_{i}": (part, window) for part in HELD for i, window in enumerate(windows)}


STARTS = {f"{group}_{how}": (group, how) for group in GIVEN for how in ("given", "missing")}
"""Conditions in which a part, or all but a part, is given."""


def conditions(config: Config) -> list[str]:
    """All but the control: a part held for a window, a part given, all but a part given."""
    return [*holds(config.windows), *STARTS]


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """At each N: the control, and from its end and its start the members of every condition in one program."""
    arrays: dict[str, Any] = {}
    for n, one in settings_of(config).items():
        model = models(config)[f"training_{n}"]
        fresh = jax.jit(lambda keys, model=model: jax.lax.map(model.init, keys))(member_keys(one))
        readout = tuple(name for name in fresh["params"] if name not in (*ATTENTION, "w_v"))

        def train(stage: str, start: Tree, each: list, one: Config = one, model: Induction = model) -> Any:
            count = len(each) // one.members
            settings = {
                "config": arguments(one, len(each)),
                "law": laws(one, repeated(member_keys(one, WORLDS), count)),
                "fresh": start,
            }
            keys = repeated(member_keys(one), count)
            return train_clamped(session, stage, one, model, keys, each, settings, lambda s: sgd(s["config"]))

        control = train(f"control_{n}", fresh, [clamps(one, {}, readout)] * one.members)
        start = jax.jit(partial(starts, config))(fresh, control.params)
        windows = [
            {f"{part}_held": (0, round(window * one.steps))} for part, window in holds(config.windows).values()
        ] + [{}] * len(STARTS)
        each = [clamps(one, window, readout) for window in windows for _ in range(one.members)]
        fitted = train(f"training_{n}", start, each)
        arrays[f"n_{n}"] = {
            "steps": fitted.steps,
            "control": control.metrics,
            **by_part(fitted.metrics, conditions(config)),
        }
    return {}, arrays


def starts(config: Config, fresh: Tree, trained: Tree) -> Tree:
    """The parameters (conditions * M, ...) at which all conditions start."""
    each = (mixed(fresh, trained, condition) for condition in conditions(config))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *each)


def mixed(fresh: Tree, trained: Tree, condition: str) -> Tree:
    """The parameters (M, ...) at which a condition starts."""
    if condition not in STARTS:
        return fresh
    group, how = STARTS[condition]

    def one(name: str, new: Array, old: Array) -> Array:
        layers = jnp.arange(new.shape[1]).reshape(1, -1, *[1] * (new.ndim - 2)) if name in (*ATTENTION, "w_v") else None
        if group == "answer":
            here = layers == 1 if name == "w_v" else jnp.array(layers is None)
        elif group == "layer_1":
            here = jnp.array(False) if layers is None else layers == 0
        else:
            here = jnp.array(False) if name not in ATTENTION else layers == 1
        return jnp.where(here == (how == "given"), old, new)

    names = fresh["params"]
    return {"params": {name: one(name, names[name], jnp.asarray(trained["params"][name])) for name in names}}


def onset_of(record: Record, n: int, condition: str) -> np.ndarray:
    """(M,) step of the onset, by interpolation; infinite if never."""
    curves, steps = record[f"n_{n}/{condition}/ic"], record[f"n_{n}/steps"]
    return crossing(curves, steps, solved(record.config, context_length=n))


def remaining(n: int, condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) what is left of the wait after the release (or from the start, where a part is given), over the control's.

    At most up to the last step; NaN where the control has no onset, or where the hold ends before it.
    """

    def statistic(record: Record) -> np.ndarray:
        found, control = onset_of(record, n, condition), present(onset_of(record, n, "control"))
        steps = record[f"n_{n}/steps"]
        _, window = holds(record.config["windows"]).get(condition, ("", 0.0))
        start = steps[-1] * window
        last = np.minimum(found, steps[-1])
        judged = (start == 0) | (control < start)
        return np.where(judged, np.maximum(last - start, 0) / control, np.nan)

    return statistic


def delay(record: Record, n: int, condition: str) -> np.ndarray:
    """(M,) delay of the onset, at least, over the steps of the hold."""
    steps = record[f"n_{n}/steps"]
    hold = steps[-1] * holds(record.config["windows"])[condition][1]
    return (np.minimum(onset_of(record, n, condition), steps[-1]) - present(onset_of(record, n, "control"))) / hold


def _median(values: np.ndarray) -> float:
    """Of those that are finite; NaN where none is."""
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else np.nan


def figures(record: Record) -> dict[str, Figure]:
    """A row for each N: delays over the hold; what remains after the longest; what remains where parts are given."""
    config = record.config
    last = len(config["windows"]) - 1
    figure, rows = panels(3, len(config["lengths"]), width=3.2, height=2.7)
    for n, row in zip(config["lengths"], rows):
        for part, look in zip(HELD, SERIES):
            delays = [_median(delay(record, n, f"{part}_held_{i}")) for i in range(last + 1)]
            lengths = [window * record[f"n_{n}/steps"][-1] for window in config["windows"]]
            row[0].plot(lengths, delays, label=NAMES[f"{part}_held"], **look)
        row[0].axvline(_median(onset_of(record, n, "control")), color="0.6", linewidth=0.8)
        row[0].set(xlabel="steps of the hold (grey: control's onset)", ylabel="delay / hold")
        row[0].legend(title=f"N = {n}", ncols=2, **ABOVE)
        held = {NAMES[f"{part}_held"]: f"{part}_held_{last}" for part in HELD}
        given = {f"{GIVEN[group]} {how}": condition for condition, (group, how) in STARTS.items()}
        for axes, shown, about in ((row[1], held, "after the longest hold"), (row[2], given, "with parts given")):
            every = [np.sort(remaining(n, condition)(record)) for condition in shown.values()]
            if np.isfinite(onset_of(record, n, "control")).any() and not np.isfinite(every).any():
                axes.text(0.5, 0.5, "the hold ends\nbefore the control's onset", ha="center", transform=axes.transAxes)
            for y, values in enumerate(every):
                axes.plot(values, np.full(len(values), y), ".", color="#0072B2", markersize=4, alpha=0.6)
            axes.set_yticks(range(len(shown)), list(shown), fontsize="x-small")
            axes.axvline(1.0, color="0.6", linewidth=0.8)
            axes.set(xlabel="wait that remains / control's", title=about, xlim=(0, None), ylim=(-0.5, len(shown) - 0.5))
        if not np.isfinite(onset_of(record, n, "control")).any():
            for axes in row:
                axes.text(0.5, 0.5, "no control has its onset", ha="center", transform=axes.transAxes)
    return {"interventions": figure}


_claim = claims_of("reddy.interventions", "Reddy 2023, Figs. 4 to 6 (this lab)", presets=["lab"], minimum_members=6)


def _claims(n: int, last: int) -> tuple:
    """At one N; the last window is the one longer than the wait."""
    tenth = {"tolerance": 0.0, "reason": "a quarter of the wait: what is less could be the rise itself"}
    return (
        _claim(
            f"cla_necessary_{n}", "",
            f"N = {n}: nothing else is learned while the classifier is held past the control's onset (share of the "
            "control's wait that remains after the release).",
            remaining(n, f"cla_held_{last}"), 0.75, relation=">=",
            reason="three quarters: some of the values' way is possible without the classifier",
        ),
        *(
            _claim(
                f"{part}_last_{n}", "",
                f"N = {n}: while {NAMES[f'{part}_held'].split()[0]} is held past the control's onset most else is "
                "learned (the same share; control: the classifier held).",
                remaining(n, f"{part}_held_{last}"), 0.5, relation="<=",
                reason="less than half: more is learned without it than with it",
                control=remaining(n, f"cla_held_{last}"),
            )
            for part in ("ila1", "tila2")
        ),
        *(
            _claim(
                f"{group}_not_sufficient_{n}", "",
                f"N = {n}: {about} alone, given by a trained network, does not suffice (share of the control's wait "
                "that remains).",
                remaining(n, f"{group}_given"), 0.25, relation=">=", **tenth,
            )
            for group, about in GIVEN.items()
        ),
        *(
            _claim(
                f"{group}_quick_{n}", "",
                f"N = {n}: {about} alone missing, all else given, is learned soon (the same share).",
                remaining(n, f"{group}_missing"), 0.25, relation="<=", **tenth,
            )
            for group, about in GIVEN.items()
        ),
    )  # fmt: skip


CLAIMS = tuple(claim for n in PRESETS["lab"].lengths for claim in _claims(n, len(PRESETS["lab"].windows) - 1))

AXES = {"*/steps": ("{0}_step",), "*": ("member", "{0}_step")}

EXPERIMENT = Experiment(
    "reddy.interventions", __doc__, PRESETS, run, figures, CLAIMS, check,
    lambda c: [f"n_{n}/*" for n in c["lengths"]] + [f"*_held_{i}/*" for i in range(len(c["windows"]))],
    axes=AXES, learners=learners_of(models), quick=QUICK["interventions"], effort={"quick": "little"},
    finding=FINDINGS["interventions"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
