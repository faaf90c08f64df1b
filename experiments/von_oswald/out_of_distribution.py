"""Trained layers out of their distribution (von Oswald et al. 2022, Fig. 6).

Networks trained on U(-1/2, 1/2) inputs and N(0, I) tasks are evaluated on larger inputs, larger targets, inputs of
another law (exponential, normal or Laplace, normalised), and targets of another law, beside the best GD or GD++ and
the mean of trained and constructed weights. A network that *is* an algorithm must fail as the algorithm fails. For one
layer and larger inputs the loss is known: with c = N/(N + D - .2),
L(a) = (D s^2 a^2/2)[1 - 2 c a^2 + c^2 a^4 (N + D - .2)/N].
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array
from matplotlib.figure import Figure

from experiments import panels
from experiments.settings import member_keys
from experiments.training import paired_losses
from experiments.von_oswald.settings import Networks, check_networks, chosen, law_sizes, parts, sampler
from experiments.von_oswald.training import model, train
from experiments.von_oswald.tuning import compared, solver_json
from icl_lab.compare import interpolate
from icl_lab.lab.claims import claims_of
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import from_json, setting
from icl_lab.lab.records import Record
from icl_lab.lab.session import Session
from icl_lab.lab.style import panels as axes_grid
from icl_lab.prompts import Sampler
from icl_lab.theory.gradient_descent import one_step as theory

SHIFTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "inputs": ("larger inputs", "input_range", {}),
    "targets": ("larger targets", "task_scale", {}),
    "other_inputs": ("other inputs", "input_range", {"input_law": "mixture"}),
    "other_targets": ("other targets", "task_scale", {"task_law": "mixture"}),
}


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
        members=2, eval_tasks=500, input_scales=(0.5, 1.0, 1.5, 2.0), other_scales=(0.5, 1.0, 2.0, 3.5, 5.0),
        shift_tasks=1000, tuning_contexts=4000, tuning_steps=1000, tuning_batch=256,
    ),
    "lab": Config(batches=(2048, 2048, 256), steps=(5000, 5000, 30_000), eval_tasks=2000, tuning_steps=5000),
    "paper": Config(),
}  # fmt: skip


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains every network, then evaluates all learners on the same tasks at every shift."""
    arrays: dict[str, np.ndarray] = {}
    metrics: dict[str, Any] = {}
    for name, stage, network, plain, one, gd_solver, gdpp_solver, gd, gdpp in compared(session, config):
        trained, built = model(network, one), model(plain, one)
        fitted = train(session, name, one, trained, keys=member_keys(config, stage))

        def learners(params, network=network, plain=plain, trained=trained, built=built, gd=gd, gdpp=gdpp):
            found = {"trained": trained.learner(params), "gd": built.learner(gd)}
            if network.layers > 1:
                found["gd++"] = built.learner(gdpp)
            if network.looped and network == plain:
                weights = gdpp if network.layers > 1 else gd
                found["interpolated"] = built.learner(interpolate(params, weights, input_size=config.input_size))
            return found

        for column, (_, argument, law) in SHIFTS.items():

            def shifted(scale: Array, argument: str = argument, law: dict[str, str] = law) -> Sampler:
                return sampler(config, **{argument: scale}, **law)

            found = paired_losses(
                learners,
                shifted,
                fitted.params,
                member_keys(config, 900 + stage),
                config.shift_tasks,
                np.asarray(config.input_scales if column == "inputs" else config.other_scales),
            )
            arrays |= {f"{name}_{column}_{learner}": values for learner, values in found.items()}
        metrics[name] = {"gd": solver_json(gd_solver), "gd++": solver_json(gdpp_solver)}
    return metrics, arrays


def figures(record: Record) -> dict[str, Figure]:
    """One row a network, one column a shift."""
    a, config = record.arrays, record.config
    task = from_json(Config, config)
    names = chosen(task)
    figure, axes = axes_grid(4, len(names), width=2.8, height=2.4)
    for row, name in zip(axes, names):
        for axis, (column, (title, _, _)) in zip(row, SHIFTS.items()):
            prefix = f"{name}_{column}_"
            curves = {key[len(prefix) :]: value for key, value in a.items() if key.startswith(prefix)}
            scales = np.asarray(config["input_scales" if column == "inputs" else "other_scales"])
            order = [learner for learner in ("trained", "gd", "gd++", "interpolated") if learner in curves]
            panels.shift_panel(axis, scales, {learner: curves[learner] for learner in order}, r"$\alpha$")
            axis.set_title(f"{name.replace('_', ' ')}: {title}")
            if name == "looped_1" and column == "inputs":
                fine = np.linspace(scales.min(), scales.max(), 100)
                exact = theory.one_step_loss_out_of_distribution(fine / config["input_range"], **law_sizes(task))
                panels.theory_line(axis, fine, exact)
    return {"out_of_distribution": figure}


def _worst(name: str, columns: tuple[str, ...], learner: str, reference: str) -> Callable[[Record], np.ndarray]:
    """(M,) largest |log ratio| of two learners' losses over the shifts of these columns."""

    def statistic(record: Record) -> np.ndarray:
        found = [
            np.abs(np.log(record.arrays[f"{name}_{c}_{learner}"] / record.arrays[f"{name}_{c}_{reference}"])).max(
                axis=1
            )
            for c in columns
        ]
        return np.max(found, axis=0)

    return statistic


_ALL_COLUMNS = tuple(SHIFTS)


claim = claims_of("von_oswald.out_of_distribution")


def _coincide(
    id_: str, statement: str, name: str, learner: str, reference: str, columns=_ALL_COLUMNS, control=None, lab="holds"
):
    return claim(
        f"{id_}",
        "von Oswald et al. 2022, Fig. 6",
        f"{statement} (largest |log ratio| of the losses over all shifts, the same tasks for both).",
        _worst(name, columns, learner, reference),
        expected=0.1,
        relation="<=",
        reason="a tenth of e is the width of a line on the figure's logarithmic axis",
        control=control,
        expected_verdict={"lab": lab, "paper": "holds"},
    )


CLAIMS = (
    _coincide("one_step", "One layer fails as the GD step fails", "looped_1", "trained", "gd"),
    _coincide("one_step_interpolated", "So does the interpolated layer", "looped_1", "interpolated", "gd"),
    _coincide(
        "two_steps", "Two looped layers fail as tuned GD++ fails (control: plain GD)", "looped_2", "trained", "gd++",
        control=_worst("looped_2", _ALL_COLUMNS, "trained", "gd"), lab="fails",
    ),
    _coincide("two_steps_interpolated", "So do the interpolated layers", "looped_2", "interpolated", "gd++",
              lab="fails"),
    _coincide("five_targets", "Five free layers follow tuned GD++ on larger targets", "free_5", "trained", "gd++",
              columns=("targets",), lab="fails"),
    claim(
        "five_part", "von Oswald et al. 2022, Fig. 6",
        "Far out, where tokens are clipped, five free layers and tuned GD++ part (largest |log ratio| over larger and "
        "other inputs at least .1).",
        _worst("free_5", ("inputs", "other_inputs"), "trained", "gd++"), expected=0.1, relation=">=",
        reason="the complement of coinciding",
    ),
)  # fmt: skip

AXES = {
    "*_*_other_*": ("member", "other_scale"),
    "*_*_targets_*": ("member", "other_scale"),
    "*_*_inputs_*": ("member", "input_scale"),
}

EXPERIMENT = Experiment(
    "von_oswald.out_of_distribution", __doc__, PRESETS, run, figures, CLAIMS, check_networks, parts, axes=AXES
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
