"""Noisy context labels (in the released code of von Oswald et al. 2022 only, no figure of the paper).

One layer is trained, and the GD step tuned, *without* noise. Both, and the mean of their weights, are then evaluated on
contexts of which m labels are replaced by N(0, 1) draws, as the released code does, and on contexts whose labels have
Gaussian noise. With c = eta s^2 and n = N - m labels left the GD step's loss is, exactly (this lab),

    (D s^2/2) [1 - 2 c n/N + c^2 n (n + D - .2) / N^2] + (c^2 D / 2 N^2) (m + n v)

for noise of variance v. ``noisy_labels_retrained`` trains on the corrupted labels.
"""

import dataclasses
import sys
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments import panels
from experiments.settings import check, member_keys
from experiments.statistics import Statistic
from experiments.training import Model, learners_of, paired_losses
from experiments.von_oswald.common import (
    Setting,
    Task,
    constructed,
    interpolated,
    law_sizes,
    model,
    optimizer,
    sampler,
    train,
)
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.tuning import best_step
from icl_lab.lab import Experiment, FlagError, NotRun, Record, Session, claims_of, from_json, main, setting
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner

PUBLISHED = {0: (0.2074, 0.2079), 2: (0.2577, 0.2590), 4: (0.3158, 0.3177), 6: (0.3844, 0.3875), 8: (0.4616, 0.4664)}
"""Losses of GD and of the trained layer at m, measured with the released code (seed 0, 10,000 tasks)."""


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """The notebook on noisy labels."""

    corrupted: tuple[int, ...] = setting((0, 2, 4, 6, 8), "m, replaced labels among the N of a context", at_least=0)
    noises: tuple[float, ...] = setting((0.0, 0.25, 0.5, 0.75, 1.0), "standard deviation of label noise", at_least=0)
    population_tasks: int = setting(200_000, "tasks for each loss, shared by all learners", at_least=1)
    decay_steps: int = setting(0, "last steps of the training, in which the learning rate falls to 0", at_least=0)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32,
        corrupted=(0, 2), noises=(0.0, 1.0), population_tasks=64,
    ),
    "quick": Config(members=6, batch=256, steps=2000, eval_tasks=500, population_tasks=20_000),
    "lab": Config(eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


def check_labels(config: Any) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    if max(config.corrupted) > config.context_length:
        raise FlagError(
            f"--corrupted={max(config.corrupted)}: allowed is at most --context_length={config.context_length}"
        )


def models(config: Config) -> dict[str, Model]:
    """What is trained."""
    return {"training": model(LinearSelfAttention(layers=1, looped=True, init_scale=config.init_scale), config)}


def exact(config: Task, eta: float, corrupted: ArrayLike, noise: ArrayLike) -> np.ndarray:
    """Loss of one GD step with so many labels replaced by N(0, 1) and noise on the others; they broadcast."""
    sizes = law_sizes(config)
    n, d, c = sizes["context_length"], sizes["input_size"], eta * sizes["input_variance"]
    m = np.asarray(corrupted, float)
    left = n - m
    signal = 1 - 2 * c * left / n + c**2 * left * (left + d - 0.2) / n**2
    return d * sizes["input_variance"] / 2 * signal + c**2 * d / (2 * n**2) * (m + left * np.square(noise))


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains one layer on clean labels and evaluates it on noisy ones."""
    eta, _ = best_step(config)
    trained, weights = models(config)["training"], constructed(config, eta)
    middle = interpolated(trained, weights, config)
    decaying = partial(optimizer, decay_steps=config.decay_steps)
    fitted = train(session, "training", config, trained, optimizer=decaying)

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), "gd": trained.learner(weights), "interpolated": middle(params)}

    evaluated = partial(paired_losses, learners, params=fitted.params, keys=member_keys(config, 900))
    arrays: dict[str, Any] = {"steps": fitted.steps, "loss": fitted.metrics["loss"]}
    for name, values in (("corrupted_labels", config.corrupted), ("label_noise", config.noises)):
        noisy = lambda x, name=name: sampler(config, **{name: x})  # noqa: E731
        arrays[name] = evaluated(noisy, tasks=config.population_tasks, settings=np.array(values))
    return {"learning_rate": eta}, arrays


def figures(record: Record) -> dict[str, Figure]:
    """Loss against the number of replaced labels and against the noise of all."""
    config, eta = from_json(Config, record.config), record.metrics["learning_rate"]
    figure, (row,) = axes_grid(2, 1, width=3.6)
    shown = (("corrupted_labels", config.corrupted, "replaced labels of a context"),
             ("label_noise", config.noises, "standard deviation of label noise"))  # fmt: skip
    for axes, (name, at, label) in zip(row, shown):
        found = {learner: losses.T for learner, losses in record[name].items()}
        grid = np.linspace(0, max(at), 50)
        theory = exact(config, eta, *((grid, 0.0) if name == "corrupted_labels" else (0, grid)))
        panels.points_panel(axes, at, found, label, (grid, theory))
    return {"noisy_labels": figure}


def _worst(name: str, learner: str) -> Statistic:
    """(M,) largest distance of a learner's loss from the GD step's, relative, over all noisy contexts of a kind."""
    return lambda record: np.abs(record[f"{name}/{learner}"] / record[f"{name}/gd"] - 1).max(axis=1)


def _at(corrupted: int) -> Statistic:
    """(M,) loss of the trained layer at m."""

    def statistic(record: Record) -> np.ndarray:
        counts = list(record.config["corrupted"])
        if corrupted not in counts:
            raise NotRun(f"evaluation with {corrupted} replaced labels")
        return record["corrupted_labels/trained"][:, counts.index(corrupted)]

    return statistic


_WIDTH: dict[str, Any] = {"relation": "<=", "reason": "2 % is a line's width on the notebook's axis (.2 to .5)"}

claim = claims_of("von_oswald.noisy_labels", "von Oswald et al. 2022, released code (no figure)", presets=("lab",))

CLAIMS = (
    *(
        claim(f"trained_{m}", "", f"With {m} of 10 labels replaced the layer trained without noise has loss {loss}.",
              _at(m), loss, round(0.028 * loss, 4),
              reason="two standard errors of the released code's mean over 10,000 tasks")
        for m, (_, loss) in PUBLISHED.items()
    ),
    claim("follows_gd", "",
          "The layer trained without noise follows the GD step at every m (largest relative distance).",
          _worst("corrupted_labels", "trained"), 0.0, 0.02, **_WIDTH),
    claim("interpolated", "", "The mean of both weights follows it too (largest relative distance).",
          _worst("corrupted_labels", "interpolated"), 0.0, 0.02, **_WIDTH),
    claim("follows_gd_noise", " (this lab)", "Under Gaussian label noise of up to 1 the layer follows the GD step too.",
          _worst("label_noise", "trained"), 0.0, 0.02, **_WIDTH),
)  # fmt: skip

AXES = {"steps": ("step",), "loss": ("member", "step"), "corrupted_labels/*": ("member", "corrupted"),
        "label_noise/*": ("member", "noise")}  # fmt: skip

EXPERIMENT = Experiment(
    "von_oswald.noisy_labels", __doc__, PRESETS, run, figures, CLAIMS, check_labels, axes=AXES,
    learners=learners_of(models), quick=QUICK["noisy_labels"], finding=FINDINGS["noisy_labels"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
