"""Trained layers out of their distribution (von Oswald et al. 2022, Fig. 6).

Networks trained on U(-1/2, 1/2) inputs and N(0, I) task vectors are evaluated on larger inputs, on larger targets, on
inputs and on targets of another distribution (exponential, normal or Laplace, normalised), beside the best GD or GD++
and the mean of trained and constructed weights. A network that *is* an algorithm must fail as the algorithm fails. For
one layer and larger inputs the loss is known: with c = N/(N + D - .2),
L(a) = (D s^2 a^2/2)[1 - 2 c a^2 + c^2 a^4 (N + D - .2)/N].
"""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax import Array

from experiments import panels
from experiments.settings import member_keys
from experiments.statistics import Statistic, ratio
from experiments.training import Model, learners_of, paired_losses
from experiments.von_oswald.common import (
    Networks,
    check_networks,
    chosen,
    interpolated,
    law_sizes,
    models,
    parts,
    sampler,
    train,
)
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import network_label
from experiments.von_oswald.tuning import Compared, compared, solver_json
from icl_lab.lab import Claim, Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.prompts import BatchLearner, Sampler
from icl_lab.theory.gradient_descent import one_step as theory

SHIFTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "inputs": ("larger inputs", "input_range", {}),
    "targets": ("larger targets", "task_scale", {}),
    "other_inputs": ("other inputs", "input_range", {"input_law": "mixture"}),
    "other_targets": ("other targets", "task_scale", {"task_law": "mixture"}),
}
"""Title of a column, what its alpha scales, and what else of the task distribution is another."""


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Fig. 6 as the released code runs it."""

    networks: tuple[str, ...] = setting(("looped_1", "looped_2", "free_5"), "looped_K or free_K: K layers")
    heads: tuple[int, ...] = setting((1, 1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0, 0), "hidden width of each network's MLPs, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048,) * 3, "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 5000, 50_000), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((10,) * 3, "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 1e-3, 5e-4), "1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 1e-3, 10.0), ".001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 0.0, 10.0), "10 for K > 3 (text: K > 2), 0 is off", at_least=0)
    input_scales: tuple[float, ...] = setting(
        tuple(np.round(np.arange(0.5, 2.01, 0.15), 2).tolist()), "alpha of the larger inputs", above=0
    )
    other_scales: tuple[float, ...] = setting(
        tuple(np.round(np.arange(0.5, 5.01, 0.25), 2).tolist()), "alpha of the other three columns", above=0
    )
    shift_tasks: int = setting(10_000, "tasks at each alpha, the same draws at every alpha", at_least=1)


PRESETS = {
    "smoke": Config(
        networks=("looped_1", "free_2"), heads=(1, 1), mlp_widths=(0, 0), batches=(16, 16), steps=(20, 20),
        measurements=(2, 2), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 10.0), token_clips=(0.0, 10.0),
        members=2, context_length=4, input_size=3, eval_tasks=16, input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 5.0),
        shift_tasks=32, tuning_contexts=200, tuning_steps=4, tuning_batch=16,
    ),
    "quick": Config(
        networks=("looped_1", "looped_2"), heads=(1, 1), mlp_widths=(0, 0), batches=(256, 512), steps=(2000, 5000),
        measurements=(10, 10), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 1e-3), token_clips=(0.0, 0.0),
        members=6, eval_tasks=500, input_scales=(0.5, 1.0, 1.5, 2.0), other_scales=(0.5, 1.0, 2.0, 3.5, 5.0),
        shift_tasks=1000, tuning_contexts=4000, tuning_steps=1000, tuning_batch=256,
    ),
    "lab": Config(batches=(2048, 2048, 256), steps=(5000, 5000, 30_000), eval_tasks=2000, tuning_steps=5000),
    "paper": Config(),
}  # fmt: skip


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains every network, then evaluates all learners on the same tasks at every shift."""
    metrics, arrays, trained = {}, {}, models(config)
    for one in compared(session, config):
        keys = member_keys(config, one.stage)
        fitted = train(session, one.name, one.setting, trained[one.name], keys=keys)
        arrays[one.name] = _shifted(config, one, trained[one.name], fitted.params)
        metrics[one.name] = {"gd": solver_json(one.gd_solver), "gd++": solver_json(one.gdpp_solver)}
    return metrics, arrays


def _shifted(config: Config, one: Compared, trained: Model, params: dict) -> dict[str, Any]:
    """(M, A) losses of every learner over each column's scales alpha."""
    several, solvers = one.network.layers > 1, one.solvers()
    fixed = solvers if several else {"gd": solvers["gd"]}
    middle = interpolated(trained, one.gdpp if several else one.gd, config)
    single = one.network == one.plain and one.network.looped

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), **fixed} | ({"interpolated": middle(params)} if single else {})

    keys, found = member_keys(config, 900 + one.stage), {}
    for column, (_, argument, changes) in SHIFTS.items():

        def shifted(scale: Array, argument: str = argument, changes: dict[str, str] = changes) -> Sampler:
            return sampler(config, **{argument: scale}, **changes)

        scales = np.asarray(_scales(config, column))
        found[column] = paired_losses(learners, shifted, params, keys, config.shift_tasks, scales)
    return found


def _scales(config: Config, column: str) -> tuple[float, ...]:
    return config.input_scales if column == "inputs" else config.other_scales


def figures(record: Record) -> dict[str, Figure]:
    """One row a network, one column a shift."""
    config = from_json(Config, record.config)
    names = chosen(config)
    figure, axes = style.panels(4, len(names), width=2.8, height=2.4)
    for row, name in zip(axes, names):
        for axis, (column, (title, _, _)) in zip(row, SHIFTS.items()):
            curves, scales = record[f"{name}/{column}"], np.asarray(_scales(config, column))
            order = [learner for learner in ("trained", "gd", "gd++", "interpolated") if learner in curves]
            panels.shift_panel(axis, scales, {learner: curves[learner] for learner in order}, r"$\alpha$")
            axis.set_title(title)
            if name == "looped_1" and column == "inputs":
                fine = np.linspace(scales.min(), scales.max(), 100)
                exact = theory.one_step_loss_out_of_distribution(fine / config.input_range, **law_sizes(config))
                panels.theory_line(axis, fine, exact)
        row[0].set_ylabel(f"{network_label(name)}\nloss")
    return {"out_of_distribution": figure}


def _worst(name: str, learner: str, reference: str, columns: Iterable[str] = SHIFTS) -> Statistic:
    """(M,) largest |log ratio| of two learners' losses over the shifts of these columns."""
    over = [ratio(f"{name}/{column}/{learner}", f"{name}/{column}/{reference}") for column in columns]
    return lambda record: np.max([np.abs(np.log(one(record))).max(axis=1) for one in over], axis=0)


claim = claims_of(
    "von_oswald.out_of_distribution", "von Oswald et al. 2022, Fig. 6",
    at_lab=dict.fromkeys(("two_steps", "two_steps_interpolated", "five_targets"), "fails"),
)  # fmt: skip


def _coincide(
    claimed: str, statement: str, name: str, learner: str, reference: str, columns: Iterable[str] = SHIFTS, **options
) -> Claim:
    return claim(
        claimed,
        "",
        f"{statement} (largest |log ratio| of the losses over all shifts, the same tasks for both).",
        _worst(name, learner, reference, columns),
        0.1,
        relation="<=",
        reason="a tenth of e is the width of a line on the figure's logarithmic axis",
        **options,
    )


CLAIMS = (
    _coincide("one_step", "One layer fails as the GD step fails", "looped_1", "trained", "gd"),
    _coincide("one_step_interpolated", "So does the interpolated layer", "looped_1", "interpolated", "gd"),
    _coincide(
        "two_steps", "Two looped layers fail as tuned GD++ fails (control: plain GD)", "looped_2", "trained", "gd++",
        control=_worst("looped_2", "trained", "gd"),
    ),
    _coincide("two_steps_interpolated", "So do the interpolated layers", "looped_2", "interpolated", "gd++"),
    _coincide("five_targets", "Five free layers follow tuned GD++ on larger targets", "free_5", "trained", "gd++",
              columns=("targets",)),
    claim(
        "five_part", "",
        "Far out, where tokens are clipped, five free layers and tuned GD++ part (largest |log ratio| over larger and "
        "other inputs at least .1).",
        _worst("free_5", "trained", "gd++", ("inputs", "other_inputs")), 0.1, relation=">=",
        reason="the complement of coinciding",
    ),
)  # fmt: skip

AXES = {"*/inputs/*": ("member", "input_scale"), "*": ("member", "other_scale")}

EXPERIMENT = Experiment(
    "von_oswald.out_of_distribution", __doc__, PRESETS, run, figures, CLAIMS, check_networks, parts, axes=AXES,
    learners=learners_of(models), quick=QUICK["out_of_distribution"], finding=FINDINGS["out_of_distribution"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
