"""Does one trained layer of linear attention predict as one step of gradient descent of the best learning rate does?

A complete binary: a configuration with four presets, a training, what is measured, a figure and two claims. The members
are trained in one program and compared with the gradient step, whose best learning rate has a closed form, on the same
tasks. Run ``python docs/examples/figure_with_claims.py --preset=smoke --outdir=...``. Move the claims and figures of
``x.py`` to ``x_shown.py`` beside it where it grows long, or where their edits must leave checkpoints and anchors valid.
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import optax

from experiments.settings import Members, member_keys
from experiments.training import always, model, planned
from icl_lab.lab import Experiment, Record, claims_of, main, setting, style
from icl_lab.lab.constraints import multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
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
STEPS, CURVE = quantity("steps", "step"), quantity("{metric}", "member", "step")


def trainings(config: Config) -> Table:
    """The members' training by its name; nothing is trained before ``measured`` asks for it."""
    shape = {"context_length": config.context_length, "input_size": config.input_size}
    eta, _ = one_step_optimum(**shape, input_variance=input_variance("uniform"))
    return {"training": planned(
        config, model(LinearSelfAttention(), **shape), keys=member_keys(config),
        sampler_of=always(linear_regression(**shape)), references={"gd": jax.vmap(gradient_descent(eta, steps=1))},
        optimizer=lambda now: optax.adam(now.learning_rate),  # an argument: another rate compiles nothing anew
    )}  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The curves over training: arrays for figures and claims, and facts to read."""
    yield STEPS, fits["training"].steps
    yield CURVE, fits["training"].metrics
    yield "facts", {"final_loss": float(fits["training"].metrics["loss"][:, -1].mean())}


def figures(record: Record) -> dict[str, style.Figure]:
    """Loss over training."""
    figure, ((axes,),) = style.panels(1)
    for name, learner in (("loss", "trained"), ("gd_loss", "gd")):
        style.band(axes, STEPS(record), CURVE(record, metric=name), learner)
    axes.set(xlabel="training step", ylabel="loss")
    axes.legend()
    return {"loss": figure}


claim = claims_of("examples.figure_with_claims", "von Oswald et al. 2022, section 3", presets=("lab",))
CLAIMS = (
    claim(
        "loss", "The trained layer's loss is that of the gradient step (ratio, last measurement).",
        lambda record: CURVE(record, metric="loss")[:, -1] / CURVE(record, metric="gd_loss")[:, -1], near=1.0,
        control=lambda record: CURVE(record, metric="loss")[:, 0] / CURVE(record, metric="gd_loss")[:, 0],
        tolerance=0.02, headline=1, reason="a fiftieth of the loss",
    ),
    claim(
        "sensitivity", "The layer depends on the query as the gradient step does (mean cosine of sensitivities).",
        lambda record: CURVE(record, metric="gd_sensitivity_cosine")[:, -1], at_least=0.95,
        reason="a cosine of 0.95 is an angle of 18 degrees",
    ),
)  # fmt: skip
EXPERIMENT = Experiment(
    "examples.figure_with_claims", __doc__, PRESETS, measured, (STEPS, CURVE), trainings=trainings, claims=CLAIMS,
    figures=figures, constraints=(multiple_of("steps", "measure_every"),), finding="The losses' ratio is {loss:.2f}.",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
