"""Trained layers out of their distribution (von Oswald et al. 2022, Fig. 6).

Networks trained on U(-1/2, 1/2) inputs and N(0, I) task vectors are evaluated on larger inputs, on larger targets, on
inputs and on targets of another distribution (exponential, normal or Laplace, normalised), beside the best GD or GD++
and the mean of trained and constructed weights. A network that *is* an algorithm must fail as the algorithm fails. For
one layer and larger inputs the loss is known: with c = N/(N + D - .2), L(a) = (D s^2 a^2/2)[1 - 2 c a^2 + c^2 a^4 (N +
D - .2)/N]. Why two loops differ from GD++ on targets: ``label_couplings``.
"""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments import panels
from experiments.settings import member_keys
from experiments.statistics import Statistic, ratio
from experiments.training import Model, learners_of
from experiments.von_oswald import shifts
from experiments.von_oswald.common import (
    Networks,
    check_networks,
    chosen,
    interpolated,
    law_sizes,
    models,
    parts,
    train,
)
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import network_label
from experiments.von_oswald.tuning import Compared, compared, solver_json
from icl_lab.lab import Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.prompts import BatchLearner
from icl_lab.theory.gradient_descent import one_step as theory


@dataclasses.dataclass(frozen=True)
class Config(Networks, shifts.Scales):
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


PRESETS = {
    "smoke": Config(
        networks=("looped_1", "free_2"), heads=(1, 1), mlp_widths=(0, 0), batches=(16, 16), steps=(20, 20),
        measurements=(2, 2), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 10.0), token_clips=(0.0, 10.0),
        members=2, context_length=4, input_size=3, eval_tasks=16, input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 5.0),
        shift_tasks=32, tuning_contexts=200, tuning_steps=4, tuning_batch=16,
    ),
    "quick": Config(
        networks=("looped_1",), heads=(1,), mlp_widths=(0,), batches=(256,), steps=(4000,), measurements=(10,),
        learning_rates=(1e-3,), gradient_clips=(1e-3,), token_clips=(0.0,), members=6, eval_tasks=500,
        input_scales=(0.5, 1.0, 1.5, 2.0), other_scales=(0.5, 1.0, 2.0, 3.5, 5.0), shift_tasks=1000,
        tuning_contexts=4000,
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

    columns = config.columns(*shifts.COLUMNS)
    return shifts.losses(config, learners, params, member_keys(config, 900 + one.stage), columns)


def figures(record: Record) -> dict[str, Figure]:
    """One row a network, one column a shift."""
    config = from_json(Config, record.config)
    names = chosen(config)
    figure, axes = style.panels(4, len(names), width=2.8, height=2.6)
    for row, name in zip(axes, names):
        shifts.draw(row, config.columns(*shifts.COLUMNS), record[name])
        if name == "looped_1":
            fine = np.linspace(min(config.input_scales), max(config.input_scales), 100)
            exact = theory.one_step_loss_out_of_distribution(fine / config.input_range, **law_sizes(config))
            panels.theory_line(row[0], fine, exact)
        row[0].set_ylabel(f"{network_label(name)}\nloss")
    return {"out_of_distribution": figure}


def _log_ratio(name: str, column: str, learner: str, reference: str) -> Statistic:
    """(M, A) log of one learner's loss over another's."""
    over = ratio(f"{name}/{column}/{learner}", f"{name}/{column}/{reference}")
    return lambda record: np.log(over(record).astype(float))


def _worst(name: str, learner: str, reference: str, columns: Iterable[str] = shifts.COLUMNS) -> Statistic:
    """(M,) largest |log ratio| of two learners' losses over the shifts of these columns."""
    over = [_log_ratio(name, column, learner, reference) for column in columns]
    return lambda record: np.max([np.abs(one(record)).max(axis=1) for one in over], axis=0)


def _worst_of_shift(record: Record) -> np.ndarray:
    """(M,) the same of five free layers and GD++ on targets, of the log ratios less that in training (alpha = 1)."""
    over = [_log_ratio("free_5", column, "trained", "gd++")(record) for column in _TARGETS]
    trained = over[0][:, record.config["other_scales"].index(1.0)]
    return np.max([np.abs(one - trained[:, None]).max(axis=1) for one in over], axis=0)


def _furthest(record: Record) -> np.ndarray:
    """(M,) largest |log ratio| of five free layers and GD++ at the largest alpha of larger and of other inputs."""
    over = [_log_ratio("free_5", column, "trained", "gd++")(record)[:, -1] for column in ("inputs", "other_inputs")]
    return np.abs(over).max(axis=0)


_TARGETS = ("targets", "other_targets")
_SAME: dict[str, Any] = {"relation": "<=", "reason": "a tenth of e is a line's width on the logarithmic axis"}
_SHIFTS = "(largest |log ratio| of the losses over all shifts, the same tasks for both)"

claim = claims_of(
    "von_oswald.out_of_distribution", "von Oswald et al. 2022, Fig. 6", presets=("lab",),
    at_lab=dict.fromkeys(("two_steps", "two_steps_interpolated", "five_targets"), "fails"),
)  # fmt: skip

CLAIMS = (
    claim("one_step", "", f"One layer fails as the GD step fails {_SHIFTS}.",
          _worst("looped_1", "trained", "gd"), 0.1, **_SAME),
    claim("one_step_interpolated", "", f"One layer, interpolated, fails as the GD step fails {_SHIFTS}.",
          _worst("looped_1", "interpolated", "gd"), 0.1, **_SAME),
    claim("two_steps", "", f"One layer looped twice fails as tuned GD++ fails {_SHIFTS} (control: plain GD).",
          _worst("looped_2", "trained", "gd++"), 0.1, control=_worst("looped_2", "trained", "gd"), **_SAME),
    claim("two_steps_interpolated", "", f"Two loops, interpolated, fail as tuned GD++ fails {_SHIFTS}.",
          _worst("looped_2", "interpolated", "gd++"), 0.1, **_SAME),
    claim("five_targets", "",
          "Five free layers follow tuned GD++ on larger and other targets (largest |log ratio|, less that in training; "
          "control: without this subtraction).",
          _worst_of_shift, 0.1, control=_worst("free_5", "trained", "gd++", _TARGETS), **_SAME),
    claim("five_far", "", "On the largest inputs, where tokens are clipped, they coincide (|log ratio| at the largest "
          "alpha of larger and other inputs).", _furthest, 0.1, **_SAME),
)  # fmt: skip

AXES = shifts.AXES

EXPERIMENT = Experiment(
    "von_oswald.out_of_distribution", __doc__, PRESETS, run, figures, CLAIMS, check_networks, parts, axes=AXES,
    learners=learners_of(models), quick=QUICK["out_of_distribution"], finding=FINDINGS["out_of_distribution"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
