"""Several layers of linear self-attention learn GD++ (von Oswald et al. 2022, Figs. 3a, 3b, 7).

Looped networks apply one set of weights K times, free networks have one set a layer. Each is compared with K steps of
gradient descent at the best shared learning rate, and with K steps of GD++, which also transforms the inputs by
(I - gamma X^T X); eta and gamma are tuned on the exact loss given the contexts' eigenvalues (shared by the steps for
looped networks, one pair a step for free ones).

Networks: one layer looped twice (Fig. 3a), five layers (3b), one looped ten times (7); ``twelve_layers`` runs the same
for Fig. 8. With --decays the learning rate falls to zero at the end: at a constant rate, as published, Adam keeps the
weights jittering around the solver, which the lab preset leaves out for the twice looped layer.
"""

import dataclasses
import sys
from functools import partial
from typing import Any

import numpy as np

from experiments import panels
from experiments.settings import member_keys
from experiments.statistics import Statistic, last, ratio
from experiments.training import Model, always, learners_of, paired_losses
from experiments.von_oswald.common import (
    Networks,
    check_networks,
    chosen,
    constructed,
    interpolated,
    model,
    models,
    optimizer,
    parts,
    sampler,
    strengths,
    train,
)
from experiments.von_oswald.criteria import settled
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import loss_lines, network_label, strength_panel
from experiments.von_oswald.tuning import Compared, compared, solver_json
from icl_lab.lab import Experiment, FlagError, Record, Session, claims_of, from_json, main, setting
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Figs. 3 and 7 as the released code runs them."""

    networks: tuple[str, ...] = setting(
        ("looped_2", "free_5", "looped_10"), "looped_K or free_K: K layers, shared or own weights"
    )
    heads: tuple[int, ...] = setting((1, 1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0, 0), "hidden width of each network's MLPs, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048,) * 3, "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 50_000, 17_500), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((50,) * 3, "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 5e-4, 5e-4), "1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 10.0, 10.0), ".001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 10.0, 10.0), "10 for K > 3 (text: K > 2), 0 is off", at_least=0)
    decays: tuple[int, ...] = setting((0, 0, 0), "last steps, in which the learning rate falls to 0", at_least=0)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        networks=("looped_2", "free_2"), heads=(1, 2), mlp_widths=(0, 8), batches=(16, 16), steps=(20, 20),
        measurements=(2, 2), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 10.0), token_clips=(0.0, 10.0),
        decays=(10, 0), members=2, context_length=4, input_size=3, eval_tasks=16, tuning_contexts=200,
        tuning_steps=4, tuning_batch=16, population_tasks=64,
    ),
    "quick": Config(
        networks=("looped_2",), heads=(1,), mlp_widths=(0,), batches=(512,), steps=(5000,), measurements=(25,),
        learning_rates=(1e-3,), gradient_clips=(1e-3,), token_clips=(0.0,), decays=(0,), members=6, eval_tasks=500,
        tuning_contexts=4000, population_tasks=20_000,
    ),
    "lab": Config(batches=(2048, 256, 256), decays=(1500, 0, 0), eval_tasks=2000, tuning_steps=5000),
    "paper": Config(),
}  # fmt: skip


def check_decays(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_networks(config)
    if len(config.decays) != len(config.networks):
        raise FlagError(
            f"--decays has {len(config.decays)} values; allowed is one per network ({len(config.networks)})"
        )
    for name, decay, steps in zip(config.networks, config.decays, config.steps):
        if decay > steps:
            raise FlagError(f"--decays: {decay} for {name}: allowed is at most its --steps={steps}")


def run(config: Networks, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tunes the solvers, trains every network, compares."""
    metrics, arrays, trained = {}, {}, models(config)
    for one in compared(session, config):
        metrics[one.name], arrays[one.name] = _compared(config, session, one, trained[one.name])
    return metrics, arrays


def _compared(config: Any, session: Session, one: Compared, trained: Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metrics and arrays of one network."""
    solvers, single = one.solvers(), one.network == one.plain
    middle = interpolated(trained, one.gdpp, config)
    finalists = dict(solvers)
    if one.released:
        weights = constructed(config, one.released.learning_rates, one.released.gammas)
        finalists["released"] = model(one.plain, one.setting).learner(weights)
    decay = getattr(config, "decays", {one.stage: 0})[one.stage]
    fitted = train(
        session, one.name, one.setting, trained, keys=member_keys(config, one.stage), references=solvers,
        variants=(lambda p: {"interpolated": middle(p)}) if single and one.network.looped else None,
        extra=(lambda p, _: strengths(p, config.input_size)) if single else None,
        optimizer=partial(optimizer, decay_steps=decay),
    )  # fmt: skip
    finals = paired_losses(
        lambda params: {"trained": trained.learner(params), **finalists},
        always(sampler(config)),
        fitted.params,
        member_keys(config, 900 + one.stage),
        config.population_tasks,
    )
    metrics = {
        "gd": solver_json(one.gd_solver),
        "gd++": solver_json(one.gdpp_solver),
        **({"released": solver_json(one.released)} if one.released else {}),
        "diverged": int((fitted.diverged_at >= 0).sum()),
        **{f"final_{learner}": float(values.mean()) for learner, values in finals.items()},
    }
    return metrics, {"steps": fitted.steps, **fitted.metrics, "final": finals}


def figures(record: Record) -> dict[str, Figure]:
    """One row a network: loss; agreement with GD; agreement with GD++; and gamma, where it can be read off."""
    return {name: _row(record, name) for name in chosen(from_json(Config, record.config))}


def _row(record: Record, name: str) -> Figure:
    found = record[name]
    figure, (axes,) = axes_grid(4 if "gamma" in found else 3, 1)
    curves = {"trained": found["loss"], "gd": found["gd_loss"], "gd++": found["gd++_loss"]}
    loss_lines(axes[0], found["steps"], curves, network_label(name))
    axes[0].set_ylim(0, 0.45)
    panels.alignment_panel(axes[1], found["steps"], found, "gd")
    panels.alignment_panel(axes[2], found["steps"], found, "gd++")
    if "gamma" in found:
        strength_panel(axes[3], found["steps"], found["gamma"], record.metrics[name]["gd++"]["gammas"][0])
    return figure


def _looped_over_free(record: Record) -> np.ndarray:
    """(M,) final loss of each ten times looped member over the median one with five layers."""
    return record["looped_10/final/trained"] / np.median(record["free_5/final/trained"])


def _interpolated_loss(record: Record) -> np.ndarray:
    """(M,) last loss of the mean of two looped layers' weights and those of GD++, over that of GD++."""
    return record["looped_2/interpolated_loss"][:, -1] / record["looped_2/gd++_loss"][:, -1]


def second_transition(record: Record) -> np.ndarray:
    """(M,) share of the way from the first loss to that of two-step GD already gone when gamma reaches half its end."""
    gamma, loss = record["looped_2/gamma"][:, :, 0], record["looped_2/loss"]
    at = (gamma >= 0.5 * gamma[:, -1:]).argmax(axis=1)
    start, two_steps = loss[:, 0], record["looped_2/gd_loss"][:, 0]
    return (start - loss[np.arange(len(at)), at]) / (start - two_steps)


def _over(name: str, reference: str) -> Statistic:
    """(M,) final loss of a network over that of a reference on the same tasks."""
    return ratio(f"{name}/final/trained", f"{name}/final/{reference}")


def _cosine(name: str, reference: str) -> Statistic:
    """(M,) final sensitivity cosine of a network with a reference."""
    return last(f"{name}/{reference}_sensitivity_cosine")


_EVER = dict.fromkeys(("lab", "paper"), "holds")  # at paper, of free_5: entered after its training, as is what follows
_MEDIAN: dict[str, Any] = {"interval": "median", "expected_verdict": _EVER}
"""Some members of the deep networks leave the plateau late: the mean over members says nothing."""
_NOT_REACHED = {"expected_verdict": dict.fromkeys(_EVER, "not reached"), "criterion": settled("free_5/train_loss")}

claim = claims_of("von_oswald.multi_step", "von Oswald et al. 2022, Fig. ")

CLAIMS = (
    claim("looped_2_beats_gd", "3a",
          "A layer looped twice beats two GD steps: loss at most .85 of the best two-step GD's.",
          _over("looped_2", "gd"), 0.85, relation="<=", expected_verdict=_EVER,
          reason="tuned GD++ reaches .1106 against .1567, a ratio of .71; half of that gain is asked for"),
    claim("looped_2_loss", "3a", "A layer looped twice has the loss of tuned two-step GD++ (ratio).",
          _over("looped_2", "gd++"), 1.0, 0.02,
          reason="the figure's curves coincide; 2 % of .11 is its line width", control=_over("looped_2", "gd"),
          expected_verdict={"lab": "holds", "paper": "not resolved"}),
    claim("looped_2_cosine", "3a",
          "A layer looped twice has the sensitivities of tuned GD++: cosine at least .99 (control: two-step GD).",
          _cosine("looped_2", "gd++"), 0.99, relation=">=", control=_cosine("looped_2", "gd"),
          reason="the figure's cosine reaches 1 to its resolution of about .01"),
    claim("looped_2_interpolated", "3a",
          "The mean of trained and GD++ weights has the loss of tuned GD++ (ratio on the evaluation tasks).",
          _interpolated_loss, 1.0, 0.02, reason="as for the trained network"),
    claim("second_transition", "3a",
          "GD++ sets in later than GD: when gamma reaches half its final size, the loss has already gone at least "
          "half of the way from its start to that of two-step GD.",
          second_transition, 0.5, relation=">=", reason="a second transition follows the first one's half"),
    claim("free_5_beats_gd", "3b",
          "Five layers beat five GD steps: loss at most .6 of the best five-step GD's (median).",
          _over("free_5", "gd"), 0.6, relation="<=", **_MEDIAN,
          reason="GD++ with one pair a layer reaches .0371 or less against .1087, .34 times; the figure shows half"),
    claim("free_5_loss", "3b",
          "Five layers are no worse than five-step GD++ tuned through the token clip (ratio of losses, median).",
          _over("free_5", "gd++"), 1.0, 0.1, relation="<=", **_MEDIAN | _NOT_REACHED,
          reason="both lie within .01 of each other in the figure, a tenth of what GD leaves"),
    claim("free_5_loss_released", "3b",
          "Five layers are no worse than five-step GD++ tuned from the released start (median).",
          _over("free_5", "released"), 1.0, 0.1, relation="<=", **_MEDIAN | _NOT_REACHED,
          reason="as for the better tuned GD++"),
    claim("free_5_cosine", "3b",
          "Five layers have the sensitivities of tuned five-step GD++: cosine at least .95 (median; control: "
          "five-step GD).",
          _cosine("free_5", "gd++"), 0.95, relation=">=", control=_cosine("free_5", "gd"), **_MEDIAN,
          reason="the figure's cosine lies near 1 on an axis from .8 to 1.05"),
    claim("looped_10_cosine", "7",
          "A layer looped ten times agrees with tuned ten-step GD++: cosine at least .95 (median; control: GD).",
          _cosine("looped_10", "gd++"), 0.95, relation=">=", control=_cosine("looped_10", "gd"), **_MEDIAN,
          reason="the figure's cosine lies near 1"),
    claim("looped_10_which", "7 (this lab)",
          "It is nearer to tuned ten-step GD++ than to ten-step GD, whose cosine passes the bound above too "
          "(difference of the cosines, median).",
          lambda record: _cosine("looped_10", "gd++")(record) - _cosine("looped_10", "gd")(record), 0.0,
          relation=">=", **_MEDIAN, reason="an ordering; written after the records"),
    claim("looped_10_above_free_5", "7",
          "Ten loops end above five layers (final loss over the median of theirs, median).",
          _looped_over_free, 1.0, relation=">=", **_MEDIAN, reason="an ordering"),
)  # fmt: skip

AXES = {
    "*/steps": ("{0}_step",),
    "*/final/*": ("member",),
    "*/gamma": ("member", "{0}_step", "{0}_layer"),
    "*/eta_over_n": ("member", "{0}_step", "{0}_layer"),
    "*/*": ("member", "{0}_step"),
}

EXPERIMENT = Experiment(
    "von_oswald.multi_step", __doc__, PRESETS, run, figures, CLAIMS, check_decays, parts, axes=AXES,
    learners=learners_of(models), quick=QUICK["multi_step"], finding=FINDINGS["multi_step"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
