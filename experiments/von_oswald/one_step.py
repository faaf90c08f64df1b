"""One layer of linear self-attention learns one step of gradient descent (von Oswald et al. 2022, Fig. 2).

A one-layer LSA is trained on linear tasks y = w.x, w ~ N(0, I), and compared with one gradient-descent step of the best
learning rate, in the lab's three ways: by loss, by predictions and sensitivities, by weights modulo symmetry. The best
step has the closed form L* = (D s^2/2)(D - 0.2)/(N + D - 0.2) for inputs U(-r/2, r/2), s^2 = r^2/12.

Panels: loss over training; agreement over training; final loss over N = D; loss on inputs of another range; and the
distribution over members of the time at which the loss drops.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from experiments import panels
from experiments.onsets import at_exact_start, half_drop_times
from experiments.settings import check, member_keys
from experiments.statistics import last
from experiments.training import Model, learners_of, paired_losses
from experiments.von_oswald.settings import Setting, law_sizes, sampler
from experiments.von_oswald.training import constructed, model, train
from experiments.von_oswald.tuning import best_step
from icl_lab.compare import align_weights, interpolate
from icl_lab.lab.claims import claims_of
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import from_json, setting
from icl_lab.lab.records import Record
from icl_lab.lab.session import Session
from icl_lab.lab.style import panels as axes_grid
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import BatchLearner
from icl_lab.theory.gradient_descent import one_step as theory


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 2 as the released code runs it."""

    sizes: tuple[int, ...] = setting((2, 5, 10, 15, 20, 25), "N = D of the sweep over sizes", at_least=2)
    sweep_members: int = setting(5, "members at each size", at_least=1)
    sweep_batch: int = setting(2048, "batch of the sweep", at_least=1)
    population_tasks: int = setting(
        1_000_000, "tasks for final losses, shared by trained, GD and interpolated", at_least=1
    )
    ranges: tuple[float, ...] = setting(
        tuple(np.round(np.arange(0.5, 2.01, 0.03), 2).tolist()), "input ranges alpha of the shift panel", above=0
    )
    shift_tasks: int = setting(10_000, "tasks at each alpha, the same draws at every alpha", at_least=1)
    onset_members: int = setting(64, "members of the ensembles that show when the loss drops", at_least=1)
    onset_batches: tuple[int, ...] = setting((256, 2048), "batch of each of these ensembles", at_least=1)
    onset_steps: int = setting(5000, "their training steps, a multiple of onset_every", at_least=1)
    onset_every: int = setting(20, "steps between their measurements", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=4, batch=32, steps=20, measure_every=10, eval_tasks=32, sizes=(2,),
        sweep_members=2, sweep_batch=32, population_tasks=64, ranges=(0.5, 1.0, 2.0), shift_tasks=32, onset_members=3,
        onset_batches=(16,), onset_steps=20, onset_every=10,
    ),
    "quick": Config(
        members=4, batch=256, steps=2000, eval_tasks=2000, sizes=(2, 5, 10), sweep_members=4, sweep_batch=256,
        population_tasks=100_000, ranges=(0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0), shift_tasks=2000, onset_members=16,
        onset_batches=(256,), onset_steps=1000,
    ),
    "lab": Config(sweep_members=10, sweep_batch=512),
    "paper": Config(),
}  # fmt: skip


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    network = LinearSelfAttention(layers=1, looped=True, init_scale=config.init_scale)
    found = dict.fromkeys(["training", *(f"onset_{batch}" for batch in config.onset_batches)], model(network, config))
    return found | {f"size_{size}": model(network, _at_size(config, size)) for size in config.sizes}


def _at_size(config: Config, size: int) -> Config:
    return dataclasses.replace(config, context_length=size, input_size=size, batch=config.sweep_batch)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains, compares, sweeps; everything that figures and claims need."""
    eta, best = best_step(config)
    trained, weights = models(config)["training"], constructed(config, eta)
    middle = lambda p: {"interpolated": trained.learner(interpolate(p, weights, input_size=config.input_size))}  # noqa: E731
    references = {"gd": trained.learner(weights)}
    fitted = train(session, "training", config, trained, references=references, variants=middle)
    arrays = {"steps": fitted.steps, **fitted.metrics}
    arrays |= _finals(config, trained, fitted.params, "final")
    aligned = jax.vmap(
        lambda p: align_weights(p, weights, layers=1, looped=True, input_size=config.input_size)["distance"][0]
    )
    arrays["distance"] = np.asarray(aligned(fitted.params))
    arrays |= _shift(config, trained, fitted.params)

    for stage, batch in enumerate(config.onset_batches):
        onset = dataclasses.replace(config, steps=config.onset_steps, measure_every=config.onset_every, batch=batch)
        keys = member_keys(config, 10 + stage, config.onset_members)
        ensemble = train(session, f"onset_{batch}", onset, trained, keys=keys)
        arrays |= {"onset_steps": ensemble.steps, f"onset_loss_{batch}": ensemble.metrics["loss"]}

    for size in config.sizes:
        one, sized = _at_size(config, size), models(config)[f"size_{size}"]
        keys = member_keys(config, 100 + size, config.sweep_members)
        sweep = train(session, f"size_{size}", one, sized, keys=keys, measured=False)
        arrays |= _finals(one, sized, sweep.params, f"size_{size}")
    metrics = {
        "learning_rate": eta,
        "closed_form": best,
        "diverged": int((fitted.diverged_at >= 0).sum()),
        **{
            name: float(np.mean(arrays[name]))
            for name in ("final_trained", "final_gd", "final_interpolated", "distance")
        },
        **{
            name: float(np.mean(arrays[name][:, -1])) for name in arrays if name.startswith("gd_") and name != "gd_loss"
        },
    }
    return metrics, arrays


def _learners(config: Config, trained: Model) -> Callable[[dict], dict[str, BatchLearner]]:
    """``params -> learners``: trained, best GD step, and the mean of their weights."""
    learner, weights = trained.learner, constructed(config, best_step(config)[0])
    middle = lambda params: interpolate(params, weights, input_size=config.input_size)  # noqa: E731
    return lambda params: {"trained": learner(params), "gd": learner(weights), "interpolated": learner(middle(params))}


def _finals(config: Config, trained: Model, params: dict, label: str) -> dict[str, np.ndarray]:
    """(M,) final losses on the same tasks."""
    keys = member_keys(config, 900 + config.input_size, jax.tree.leaves(params)[0].shape[0])
    found = paired_losses(_learners(config, trained), lambda _: sampler(config), params, keys, config.population_tasks)
    return {f"{label}_{name}": values for name, values in found.items()}


def _shift(config: Config, trained: Model, params: dict) -> dict[str, np.ndarray]:
    """(M, A) losses over input ranges alpha, on the same draws at every alpha."""
    found = paired_losses(
        _learners(config, trained),
        lambda alpha: sampler(config, input_range=alpha),
        params,
        member_keys(config, 800),
        config.shift_tasks,
        np.asarray(config.ranges),
    )
    return {f"range_{name}": values for name, values in found.items()}


def figures(record: Record) -> dict[str, Figure]:
    """Fig. 2, and the distribution of the times at which the loss drops."""
    a, config = record.arrays, record.config
    best = record.metrics["closed_form"]
    figure, ((loss, agreement), (sizes, ranges)) = axes_grid(2, 2, width=3.6)
    panels.loss_panel(loss, a["steps"], {"trained": a["loss"], "gd": a["gd_loss"]}, floor=best)
    loss.set_title(f"one layer, N = {config['context_length']}, D = {config['input_size']}")
    panels.alignment_panel(agreement, a["steps"], a, "gd")
    names = ("trained", "gd", "interpolated")
    grid = np.arange(min(config["sizes"]), max(config["sizes"]) + 1)
    panels.points_panel(
        sizes,
        config["sizes"],
        {n: np.stack([a[f"size_{d}_{n}"] for d in config["sizes"]]) for n in names},
        "N = D",
        theory=(grid, np.array([best_loss(config, d) for d in grid])),
    )
    sizes.set_ylim(0, 1.4 * best_loss(config, max(config["sizes"])))  # an unaligned layer interpolates to anything
    sizes.set_title("final loss")
    x = np.asarray(config["ranges"])
    panels.shift_panel(
        ranges, x, {n: a[f"range_{n}"] for n in names}, r"input range $\alpha$", training=config["input_range"]
    )
    ranges.set_title("larger inputs")

    batches = config["onset_batches"]
    onsets, (row,) = axes_grid(len(batches) + 1, 1)
    for axes, batch in zip(row, batches):
        for member in scaled_onsets(record, batch):
            axes.plot(a["onset_steps"], member, color="#0072B2", alpha=0.3, linewidth=0.7)
        axes.axhline(plateau_loss(config), color="0.3", linestyle=":", label="one direction learned")
        axes.axhline(best, color="black", linestyle="--", label="best GD step")
        axes.set_xlabel("training step")
        axes.set_ylabel("loss (scaled to one start)")
        axes.set_title(f"batch {batch}, {config['onset_members']} members")
        axes.legend()
    for batch, shade, hatch in zip(batches, ("#0072B2", "#E69F00", "#009E73"), ("", "///", "...")):
        times = onset_times(record, batch)
        bins = np.geomspace(min(100, 0.1 * config["onset_steps"]), config["onset_steps"], 25).tolist()
        times = times[np.isfinite(times)]
        row[-1].hist(times, bins=bins, color=shade, hatch=hatch, alpha=0.6, label=f"batch {batch}")
    row[-1].set_xscale("log")
    row[-1].set_xlabel("step at which half of the drop is done")
    row[-1].set_ylabel("members")
    row[-1].legend()
    return {"one_step": figure, "onset": onsets}


def best_loss(config: Mapping[str, Any], size: int) -> float:
    """Closed form of the best GD step at N = D = size."""
    return best_step(dataclasses.replace(from_json(Config, config), context_length=size, input_size=size))[1]


def predict_zero_loss(config: Mapping[str, Any]) -> float:
    """Loss of predicting zero."""
    return float(theory.one_step_loss(0.0, **law_sizes(from_json(Config, config))))


def plateau_loss(config: Mapping[str, Any]) -> float:
    """Loss of the best layer whose A has rank one: a plateau of training.

    A = c v v^T explains one of D directions, each worth N / (N + D - .2) of its share of the loss (this lab, from the
    moments of the closed form of the best step): (D s^2/2)(1 - N / (D (N + D - .2))), .3956 by default.
    """
    zero, best = predict_zero_loss(config), best_step(from_json(Config, config))[1]
    return zero - (zero - best) / config["input_size"]


def scaled_onsets(record: Record, batch: int) -> np.ndarray:
    """(M, R) curves of an onset ensemble, each scaled to start at the exact loss of predicting zero."""
    return at_exact_start(record.arrays[f"onset_loss_{batch}"], predict_zero_loss(record.config))


def onset_times(record: Record, batch: int) -> np.ndarray:
    """(M,) first measured step with half of the way from predict-zero to the best GD step done; infinite if never."""
    start, end = predict_zero_loss(record.config), record.metrics["closed_form"]
    return half_drop_times(scaled_onsets(record, batch), record.arrays["onset_steps"], start, end)


def waits(record: Record) -> np.ndarray:
    """(M,) 1 for members of the first onset ensemble whose half drop comes at least twice as late as the median's."""
    times = onset_times(record, record.config["onset_batches"][0])
    return (times >= 2 * np.median(times)).astype(float)


def plateau_levels(record: Record) -> np.ndarray:
    """(M,) median loss of a member that waits, from 1.5 times the median half drop to 3/4 of its own; else NaN."""
    batch, steps = record.config["onset_batches"][0], record.arrays["onset_steps"]
    times, curves = onset_times(record, batch), scaled_onsets(record, batch)
    start, stop = 1.5 * np.median(times), 0.75 * np.minimum(times, steps[-1])[:, None]
    plateau = np.where((steps >= start) & (steps <= stop) & (waits(record) == 1)[:, None], curves, np.nan)
    return np.array([np.median(row[~np.isnan(row)]) if np.isfinite(row).any() else np.nan for row in plateau])


def _worst_over_sizes(numerator: str, denominator: str | None) -> Callable[[Record], np.ndarray]:
    """(M,) largest relative distance, over all sizes, of a final loss from another (None: from the closed form)."""

    def statistic(record: Record) -> np.ndarray:
        worst = []
        for size in record.config["sizes"]:
            value = record.arrays[f"size_{size}_{numerator}"]
            base = (
                best_loss(record.config, size) if denominator is None else record.arrays[f"size_{size}_{denominator}"]
            )
            worst.append(np.abs(value / base - 1))
        return np.max(worst, axis=0)

    return statistic


def _past_plateau(record: Record) -> np.ndarray:
    """(M,) as the trained excess over sizes, without trainings that still wait (less than 9/10 of the drop done)."""
    worst = []
    for size in record.config["sizes"]:
        trained, gd = record.arrays[f"size_{size}_trained"], record.arrays[f"size_{size}_gd"]
        one = dict(record.config) | {"context_length": size, "input_size": size}
        nearly = 0.1 * predict_zero_loss(one) + 0.9 * best_loss(record.config, size)
        worst.append(np.where(trained < nearly, np.abs(trained / gd - 1), -np.inf))
    largest = np.max(worst, axis=0)
    return np.where(np.isfinite(largest), largest, np.nan)


def _excess(name: str) -> Callable[[Record], np.ndarray]:
    return lambda record: record.arrays[f"final_{name}"] / record.arrays["final_gd"] - 1


_LAB = {"lab": "holds", "paper": "holds"}
_QUICK = {"quick": "holds"} | _LAB

claim = claims_of("von_oswald.one_step")

CLAIMS = (
    claim(
        "closed_form",
        "von Oswald et al. 2022, Fig. 2 (closed form: this lab)",
        "The best single GD step has the loss L* = (D s^2/2)(D - 0.2)/(N + D - 0.2) at every N = D of the sweep "
        "(largest relative deviation over the sizes).",
        _worst_over_sizes("gd", None),
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="the mean of 10^6 tasks has a relative standard error of 0.2 %; the largest of six stays below 1 %",
    ),
    claim(
        "trained_excess",
        "von Oswald et al. 2022, Fig. 2",
        "The trained layer's loss exceeds that of the best GD step by less than 1 % (same 10^6 tasks).",
        _excess("trained"),
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="the figure shows the curves on top of each other; 1 % is what its line width hides",
        expected_verdict=_QUICK,
    ),
    claim(
        "trained_excess_sizes",
        "von Oswald et al. 2022, Fig. 2",
        "At every N = D of the sweep the trained layer's loss is within 1 % of the best GD step (largest over sizes).",
        _worst_over_sizes("trained", "gd"),
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="as for the excess at the default size",
        expected_verdict={"lab": "fails", "paper": "not resolved"},
    ),
    claim(
        "past_plateau_sizes",
        "von Oswald et al. 2022, Fig. 2",
        "The same without the trainings that still wait on the plateau at the last step.",
        _past_plateau,
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="as for the excess at the default size",
        expected_verdict={"paper": "holds"},
    ),
    claim(
        "interpolated_excess",
        "von Oswald et al. 2022, Fig. 2",
        "So does the network whose weights are the mean of trained and constructed ones.",
        _excess("interpolated"),
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="as for the trained network",
        expected_verdict=_QUICK,
    ),
    claim(
        "interpolated_excess_sizes",
        "von Oswald et al. 2022, Fig. 2",
        "At every N = D of the sweep the interpolated network's loss is within 1 % of the best GD step (largest).",
        _worst_over_sizes("interpolated", "gd"),
        expected=0.0,
        tolerance=0.01,
        relation="<=",
        reason="as for the trained network",
        expected_verdict={"lab": "not resolved", "paper": "not resolved"},
    ),
    claim(
        "cosine",
        "von Oswald et al. 2022, Fig. 2",
        "The sensitivities d prediction / d query of trained layer and GD step have cosine at least .999.",
        last("gd_sensitivity_cosine"),
        expected=0.999,
        relation=">=",
        reason="the figure's cosine is 1 to its resolution",
        control=lambda record: record.arrays["gd_sensitivity_cosine"][:, 0],
    ),
    claim(
        "prediction_difference",
        "von Oswald et al. 2022, Fig. 2",
        "The mean prediction difference falls below a twentieth of its value at initialisation (where the layer is 0).",
        lambda record: (
            record.arrays["gd_prediction_difference"][:, -1] / record.arrays["gd_prediction_difference"][:, 0]
        ),
        expected=0.05,
        relation="<=",
        reason="the figure's axis resolves about a twentieth of the initial difference",
    ),
    claim(
        "distance",
        "von Oswald et al. 2022, Fig. 2 and 9 (distance modulo symmetry: this lab)",
        "The trained weights are the GD step modulo symmetry: relative distance at most 0.05.",
        lambda record: record.arrays["distance"],
        expected=0.05,
        relation="<=",
        reason="an excess of 1 % in a quadratic loss is a tenth in weights; half of that is asked for",
        expected_verdict={"lab": "not resolved", "paper": "not resolved"},
    ),
    claim(
        "plateau_level",
        "von Oswald et al. 2022, Fig. 2 and 15 (level: this lab)",
        "Members whose loss drops late wait on a plateau near .39 to .40: the loss of the best rank-one A, .3956 "
        "(batch 256).",
        plateau_levels,
        expected=0.3956,
        tolerance=0.006,
        reason="the published plateau lies between .39 and .40; the expectation is the closed form of rank one",
        minimum_members=3,
    ),
    claim(
        "plateau_share",
        "von Oswald et al. 2022, Fig. 2 and 15",
        "Which members wait depends on the seed: neither none nor all drop at twice the median time or later "
        "(share of members, batch 256).",
        waits,
        expected=0.5,
        tolerance=0.48,
        interval="wilson",
        reason="the interval must exclude 2 % and 98 %",
        minimum_members=50,
    ),
)

AXES = {
    "steps": ("step",),
    "onset_steps": ("onset_step",),
    "onset_loss_*": ("onset_member", "onset_step"),
    "range_*": ("member", "range"),
    "size_*": ("size_member",),
    "final_*": ("member",),
    "distance": ("member",),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "von_oswald.one_step", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES, learners=learners_of(models)
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
