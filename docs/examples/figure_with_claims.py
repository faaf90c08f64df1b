"""Does one trained layer of linear attention predict as one step of gradient descent of the best learning rate does?

A complete binary: a configuration with four presets, a run, and a figure and two claims that are functions of the
record. The members are trained in one program and compared with the gradient step, whose best learning rate has a
closed form, on the same tasks. Run ``python docs/examples/figure_with_claims.py --preset=smoke --outdir=...``.
"""

import dataclasses
import sys
from typing import Any

import jax
import optax

from experiments.settings import Members, check, member_keys
from experiments.training import Model, learners_of, model, train
from icl_lab.lab import Experiment, Record, Session, claims_of, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import input_variance, linear_regression
from icl_lab.solvers import gradient_descent
from icl_lab.theory import one_step_optimum


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The defaults are the published setting; every field is a flag."""

    context_length: int = setting(10, "N, context pairs in a prompt", at_least=1)
    input_size: int = setting(10, "D, dimension of the inputs", at_least=1)
    batch: int = setting(2048, "fresh tasks in a training step", at_least=1)
    eval_tasks: int = setting(10_000, "tasks that measure a member", at_least=1)
    steps: int = setting(5000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's learning rate", above=0)


SMALL = {"context_length": 4, "input_size": 4, "learning_rate": 3e-3}
PRESETS = {
    "smoke": Config(members=2, batch=16, eval_tasks=16, steps=4, measure_every=2, **SMALL),
    "quick": Config(members=4, batch=128, eval_tasks=1000, steps=1000, **SMALL),
    "lab": Config(batch=256, eval_tasks=2000, steps=2000, **SMALL),
    "paper": Config(),
}


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage (``load_run(folder, EXPERIMENT).learner(member)`` reads it back)."""
    return {"training": model(LinearSelfAttention(), config.context_length, config.input_size)}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the members and compares them with the gradient step: metrics to read, arrays for figures and claims."""
    sizes = {"context_length": config.context_length, "input_size": config.input_size}
    eta, best = one_step_optimum(**sizes, input_variance=input_variance("uniform"))
    fitted = train(
        session, "training", config, models(config)["training"], keys=member_keys(config),
        sampler_of=lambda now, _: linear_regression(**sizes),
        optimizer=lambda now: optax.adam(now.learning_rate),  # an argument: another rate compiles nothing anew
        references={"gd": jax.vmap(gradient_descent(eta, steps=1))},
    )  # fmt: skip
    return {"eta": float(eta), "closed_form": float(best)}, {"steps": fitted.steps, **fitted.metrics}


def figures(record: Record) -> dict[str, Figure]:
    """Loss over training."""
    figure, ((axes,),) = style.panels(1)
    for name, learner in (("loss", "trained"), ("gd_loss", "gd")):
        style.band(axes, record["steps"], record[name], learner)
    axes.axhline(record.metrics["closed_form"], **style.THEORY, label="GD, closed form")
    axes.set(xlabel="training step", ylabel="loss")
    axes.legend()
    return {"loss": figure}


claim = claims_of("examples.figure_with_claims", "von Oswald et al. 2022, section 3", presets=("lab",))

CLAIMS = (
    claim(
        "loss", "", "The trained layer's loss is that of the gradient step (ratio, last measurement).",
        lambda record: record["loss"][:, -1] / record["gd_loss"][:, -1], expected=1.0, tolerance=0.02,
        reason="chosen for this example: a fiftieth of the loss",
        control=lambda record: record["loss"][:, 0] / record["gd_loss"][:, 0],
    ),
    claim(
        "sensitivity", "", "The layer depends on the query as the gradient step does (mean cosine of sensitivities).",
        lambda record: record["gd_sensitivity_cosine"][:, -1], expected=0.95, relation=">=",
        reason="a cosine of .95 is an angle of 18 degrees",
    ),
)  # fmt: skip

AXES = {"steps": ("step",), "*": ("member", "step")}
EXPERIMENT = Experiment(
    "examples.figure_with_claims", __doc__, PRESETS, run, figures, CLAIMS, check,
    axes=AXES, learners=learners_of(models),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
