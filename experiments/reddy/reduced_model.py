"""The reduced induction-head model (Reddy 2023, Figs. 5, 6 and A.2): two scalars are enough for the sudden transition.

Two layers of attention become three scalars: beta_1, with which layer 1 attends to the previous token, alpha, with
which layer 2 attends where the target's item was written, beta_2, with which it attends to labels; the classifier is
that of the network. Four parts:

- three: its progress measures over training. Attention to labels and the context-label accuracy go first, then
  attention to the previous token, attention to the right label and the in-context accuracy jump together.
- two: beta_2 = 0, no attention to labels that is not attention to the right one; the transition is there all the same.
- equal: as many labels as pairs, L = N. The first stage, to answer with some label of the context, teaches nothing:
  the start is a saddle, and whether and when it is left depends on the initial value of the scalars.
- more: the same with L > N, from scalars zero.

In the (beta_1, alpha) plane the trained path is compared with the gradient flow of the mean-field nested-logit loss
(``icl_lab.theory.mean_field_loss``), which has nothing to fit.
"""

import dataclasses
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.reddy import settings
from experiments.reddy.reduced_claims import CLAIMS
from experiments.reddy.reduced_figures import figures
from experiments.reddy.reduced_training import train_reduced
from experiments.reddy.settings import SMALL, SMOKE, Training, check_classes, laws, repeated
from experiments.settings import check as check_steps
from experiments.settings import check_each_once, member_keys
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.session import Session
from icl_lab.theory import nested_logit_flow
from icl_lab.training.fitting import Fit

PARTS = ("three", "two", "equal", "more")


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Fig. 5 at the published data; parts ``equal`` and ``more`` at N = 8."""

    steps: int = setting(50_000, "training steps of every part, a multiple of measure_every", at_least=1)
    only: tuple[str, ...] = setting(PARTS, "parts to run", choices=PARTS)
    starts: tuple[float, ...] = setting((0.0, 0.5, 1.0), "initial scalars of the part equal, rising")
    equal_length: int = setting(8, "N = L of the part equal, N of the part more", at_least=2)
    equal_size: int = setting(63, "D of both", at_least=1)
    equal_classes: int = setting(256, "K of both", at_least=1)
    more_labels: int = setting(32, "L of the part more, above N", at_least=3)
    equal_steps: int = setting(50_000, "training steps of both, a multiple of measure_every", at_least=1)


_SMALL: dict[str, Any] = {
    "equal_length": SMALL["context_length"], "equal_size": SMALL["input_size"], "equal_classes": SMALL["classes"],
    "more_labels": SMALL["labels"], "learning_rate": SMALL["learning_rate"],
}  # fmt: skip

PRESETS = {
    "smoke": Config(
        **SMOKE, only=("three", "two", "equal"), starts=(0.0, 1.0), equal_length=2, equal_size=5, equal_classes=8,
        more_labels=4, equal_steps=4,
    ),
    "quick": Config(
        **(_SMALL | SMALL), members=2, steps=1600, only=("three", "two", "equal"), starts=(0.0, 1.0), equal_steps=600,
    ),
    "lab": Config(**_SMALL, members=16, steps=8000, measure_every=100, eval_tasks=1000, equal_steps=4000),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    settings.check(config)
    check_each_once("only", config.only)
    check_each_once("starts", config.starts)
    if list(config.starts) != sorted(config.starts) or len(config.starts) < 2:
        raise FlagError(f"--starts={','.join(map(str, config.starts))}: allowed are two or more values that rise")
    if config.more_labels <= config.equal_length:
        raise FlagError(f"--more_labels={config.more_labels}: allowed is above --equal_length={config.equal_length}")
    check_steps(config, "equal_steps")
    for flag in ("equal_length", "more_labels"):
        labels = getattr(config, flag)
        check_classes("equal_classes", config.equal_classes, labels, flag)
        settings.check_prompt(_smaller(config, labels))
        settings.check_burstiness("burstiness", config.burstiness, _smaller(config, labels))


def _smaller(config: Config, labels: int) -> Config:
    """The setting of the parts ``equal`` and ``more``."""
    return dataclasses.replace(
        config,
        context_length=config.equal_length,
        labels=labels,
        input_size=config.equal_size,
        classes=config.equal_classes,
        steps=config.equal_steps,
    )


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains every part that is asked for, and the path of the theory beside."""
    arrays: dict[str, np.ndarray] = _theory(config)
    shown = [part for part in ("three", "two") if part in config.only]
    if shown:
        attention = [part == "three" for part in shown]
        fit = _grid(session, "measures", config, len(shown), label_attention=attention, measures=True)
        for i, part in enumerate(shown):
            arrays |= {f"{part}_{metric}": values[i] for metric, values in _kept(fit, len(shown)).items()}
        arrays["steps"] = fit.steps
    for name, labels, starts in (("equal", config.equal_length, config.starts), ("more", config.more_labels, (0.0,))):
        if name in config.only:
            fit = _grid(session, name, _smaller(config, labels), len(starts), starts=starts)
            arrays |= {f"{name}_{metric}": values for metric, values in _kept(fit, len(starts)).items()}
            arrays["equal_steps"] = fit.steps
    return {}, arrays


def _grid(session: Session, stage: str, config: Config, points: int, **options: Any) -> Fit:
    """All members at every point; options are ``train_reduced``'s, those of several values one for each point."""
    keys, worlds = (repeated(member_keys(config, s), points) for s in (0, settings.WORLDS))
    each: dict[str, Any] = {
        name: jnp.repeat(jnp.array(v), config.members) if np.ndim(v) else v for name, v in options.items()
    }
    return train_reduced(session, stage, config, keys, laws(config, worlds), **each)


def _kept(fit: Fit, points: int) -> dict[str, np.ndarray]:
    """(points, M, R) what is measured."""
    return {name: values.reshape(points, -1, *values.shape[1:]) for name, values in fit.metrics.items()}


def _theory(config: Config) -> dict[str, np.ndarray]:
    """beta_1 and alpha on the flow of the mean-field loss from the origin, at the setting of the first parts."""
    times = np.geomspace(1.0, 3000.0, 400)
    sizes = {"context_length": config.context_length, "labels": config.labels}
    path = nested_logit_flow(np.zeros(3), times, **sizes, form="mean_field").path[0]
    return {"theory_beta_1": path[:, 0], "theory_alpha": path[:, 1]}


AXES = {
    "steps": ("step",),
    "theory_*": ("time",),
    "equal_steps": ("small_step",),
    "equal_*": ("start", "member", "small_step"),
    "more_*": ("more_start", "member", "small_step"),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "reddy.reduced_model", __doc__, PRESETS, run, figures, CLAIMS, check, lambda c: [f"{part}_*" for part in c["only"]],
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
