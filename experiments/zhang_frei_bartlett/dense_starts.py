"""Dense initial weights of usual size: which flows reach the optimum, and what SGD and Adam do (this lab).

``landscape`` follows the flow from small starts. Here the eigenvalues are those of the other binaries, and the standard
deviation of every entry goes up to 1/sqrt(D), as in a usual initialisation. The map shows the share of flows that end
at the optimum over scale and prompt length; the spurious point (see ``landscape``) is a minimum for N <= 5 at these
eigenvalues. Then SGD and Adam train on fresh prompts at such a length: from the spurious minimum itself, all other
entries at a hundredth, and from the dense starts of the largest scale, each paired with the flow from the same start. A
training counts as at the optimum where its exact loss is nearer to the optimal than to the spurious one.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.panels import ABOVE, SERIES
from experiments.settings import member_keys
from experiments.statistics import Statistic
from experiments.training import Model, learners_of
from experiments.zhang_frei_bartlett import paths
from experiments.zhang_frei_bartlett.common import Tasks, check_rising, covariance, lsa
from experiments.zhang_frei_bartlett.findings import FINDINGS
from experiments.zhang_frei_bartlett.headlines import QUICK
from experiments.zhang_frei_bartlett.landscape import ends_of
from icl_lab import theory
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab import Experiment, FlagError, Record, Session, claims_of, main, setting
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.style import THEORY, Figure, panels

OPTIMIZERS = {"sgd": optax.sgd, "adam": optax.adam}
STARTS = ("spurious", "dense")
STAGES = {f"{name}_{start}": (name, start) for name in OPTIMIZERS for start in STARTS}
SHIFT = 0.01
"""Standard deviation of what is added to the spurious minimum."""


@dataclasses.dataclass(frozen=True)
class Config(Tasks):
    """The map, and trainings at one prompt length; the paper has no experiment of this kind."""

    members: int = setting(16, "trainings of each kind", at_least=2)
    context_length: int = setting(5, "N of the trainings, at which the spurious point is a minimum", at_least=1)
    scales: tuple[float, ...] = setting((0.02, 0.1, 0.2, 0.447), "standard deviations of the entries, rising", above=0)
    lengths: tuple[int, ...] = setting((2, 5, 10, 20, 40), "N of the map, rising", at_least=1)
    starts: int = setting(50, "flows in every cell of the map", at_least=2)
    horizon: float = setting(1e5, "time at which a flow is judged", above=0)
    batch: int = setting(256, "fresh prompts in a step", at_least=1)
    steps: int = setting(4000, "training steps, a multiple of measurements", at_least=1)
    sgd_rate: float = setting(0.01, "rate of SGD at the start; it falls to zero as a cosine", above=0)
    adam_rate: float = setting(0.01, "rate of Adam at the start; it falls to zero as a cosine", above=0)
    measurements: int = setting(40, "measurements of every path", at_least=2)


PRESETS = {
    "smoke": Config(members=2, spectrum=(1.0, 0.5), context_length=2, scales=(0.1, 0.5), lengths=(2, 4), starts=2,
                    horizon=100.0, batch=8, steps=4, measurements=2),
    "quick": Config(members=2, scales=(0.1, 0.447), lengths=(5, 20), starts=10, batch=64, steps=1000),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_rising(config, "scales", at_least=2)
    check_rising(config, "lengths", at_least=2)
    if config.steps % config.measurements:
        raise FlagError(f"--steps={config.steps}: allowed is a multiple of --measurements={config.measurements}")
    if theory.spurious_curvature(covariance(config), config.context_length) <= 0:
        raise FlagError(
            f"--context_length={config.context_length}: allowed are N at which the spurious point is a minimum"
        )


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage: the same layer from given weights."""
    return dict.fromkeys(STAGES, lsa(len(config.spectrum), max(config.scales)))


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """The map by flows; the trainings, and the flows from their dense starts."""
    lam, n = covariance(config), config.context_length
    cells = [(lam, scale, length) for length in config.lengths for scale in config.scales]
    with session.bar("map", 1) as advance:
        _, found = ends_of(cells, config.starts, config.horizon, np.random.default_rng((config.seed, 0)))
        advance(1, 1)
    dense, flow = ends_of(
        [(lam, config.scales[-1], n)], config.members, config.horizon, np.random.default_rng((config.seed, 1))
    )
    best, spurious = theory.optimal_loss(lam, n), theory.spurious_loss(lam, n)
    arrays: dict[str, Any] = {
        "ended": found["ended"].reshape(len(config.lengths), len(config.scales), config.starts),
        "flow": flow["ended"][0],
    }
    starts = {"spurious": _spurious(config), "dense": dense[0]}
    every = config.steps // config.measurements
    for stage, model in models(config).items():
        name, start = STAGES[stage]
        weights = jax.vmap(lambda b: linear_attention_weights(b["u11"], b["u"], b["u12"], b["u21"]))(
            {block: jnp.asarray(value, jnp.float32) for block, value in starts[start].items()}
        )
        path = paths.train_blocks(
            session, stage, config, model, _scheduled(name, config.steps), keys=member_keys(config), starts=weights,
            rate=getattr(config, f"{name}_rate"), batch=config.batch, steps=config.steps, measure_every=every,
        )  # fmt: skip
        loss = (paths.excess_losses({stage: path}, config)[stage] + 1) * best
        arrays[stage] = (loss - best) / (spurious - best)
    return {"classes": ["optimum", "spurious", "mixed", "unresolved"]}, arrays | {
        "steps": every * np.arange(config.measurements + 1)
    }


def _scheduled(name: str, steps: int) -> Any:
    return lambda rate: OPTIMIZERS[name](optax.schedules.cosine_decay_schedule(rate, steps))


def _spurious(config: Config) -> dict[str, np.ndarray]:
    """Blocks (M, ...) next to the spurious minimum."""
    u11, u, u12, u21 = theory.spurious_point(covariance(config), config.context_length)
    rng = np.random.default_rng((config.seed, 2))
    point = {"u11": u11, "u": np.asarray(u), "u12": u12, "u21": u21}
    return {name: b + SHIFT * rng.standard_normal((config.members, *np.shape(b))) for name, b in point.items()}


def reached(stage: str) -> Statistic:
    """(M,) whether a training ends nearer to the optimal loss than to the spurious one."""
    return lambda record: (record[stage][:, -1] < 0.5).astype(float)


def more(name: str) -> Statistic:
    """(M,) reached the optimum from a dense start: an optimizer less the flow."""
    return lambda record: reached(f"{name}_dense")(record) - (record["flow"] == 0)


def figures(record: Record) -> dict[str, Figure]:
    """The map; loss over training from the spurious minimum, and from dense starts."""
    config = record.config
    figure, ((share, *losses),) = panels(3, 1, width=3.4, height=2.9)
    for i, scale in enumerate(config["scales"]):
        found = [wilson_interval(record["ended"][k, i] == 0) for k in range(len(config["lengths"]))]
        middle, ends = np.array([m for m, _ in found]), np.array([e for _, e in found])
        share.errorbar(
            config["lengths"], middle, np.abs(ends.T - middle[None]), capsize=2, label=f"{scale:g}", **SERIES[i % 5]
        )
    share.set(
        xscale="log", ylim=(-0.03, 1.03), xlabel="examples in a prompt, N", ylabel="share of flows at the optimum"
    )
    share.set_xticks(config["lengths"], [str(n) for n in config["lengths"]])
    share.minorticks_off()
    share.legend(title=f"scale of the start ({config['starts']} each)", ncols=len(config["scales"]), **ABOVE)
    for axes, start in zip(losses, STARTS):
        for name, color, dash in (("sgd", "#0072B2", "-"), ("adam", "#D55E00", "--")):
            for m, curve in enumerate(record[f"{name}_{start}"]):
                label = None if m else f"{name.upper() if name == 'sgd' else 'Adam'}, each of {config['members']}"
                axes.plot(record["steps"], curve, color=color, linestyle=dash, linewidth=0.8, alpha=0.7, label=label)
        for level, label in ((0.0, "optimum"), (1.0, "spurious minimum")):
            axes.axhline(level, **THEORY, label=label if level else None)
        axes.set(ylim=(-0.1, 3), xlabel="training step", ylabel="loss: 0 optimal, 1 spurious")
        about = {"spurious": "from the spurious minimum", "dense": f"from dense starts of {config['scales'][-1]:g}"}
        axes.legend(title=f"{about[start]}, N = {config['context_length']}", ncols=2, **ABOVE)
    return {"dense_starts": figure}


_claim = claims_of("zhang_frei_bartlett.dense_starts", "this lab")

CLAIMS = (
    *(
        _claim(
            f"{name}_stays", "",
            f"{about} does not leave the spurious minimum: started there it does not reach the optimum (share of "
            "members that do).",
            reached(f"{name}_spurious"), 0.4, relation="<=", interval="wilson",
            reason="none is expected to; the interval needs none of six, 2 of 16",
        )
        for name, about in (("sgd", "SGD"), ("adam", "Adam"))
    ),
    *(
        _claim(
            f"{name}_dense", "",
            f"From dense starts of the usual scale {about} reaches the optimum at least as often as the flow from the "
            "same starts (difference of shares).",
            more(name), 0.0, 0.1, relation=">=", reason="a tenth of the starts",
        )
        for name, about in (("sgd", "SGD"), ("adam", "Adam"))
    ),
    _claim(
        "long_prompts", "",
        "At the longest prompts the flow reaches the optimum from nearly every start of the usual scale (share; "
        "control: at the shortest).",
        lambda record: (record["ended"][-1, -1] == 0).astype(float), 0.9, relation=">=", interval="wilson", unit="flow",
        reason="no minimum but the optimum is known there; 50 of 50 give .93",
        control=lambda record: (record["ended"][0, -1] == 0).astype(float),
    ),
)  # fmt: skip

AXES = {
    "ended": ("length", "scale", "start"),
    "steps": ("step",),
    "flow": ("member",),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "zhang_frei_bartlett.dense_starts", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES,
    learners=learners_of(models), quick=QUICK["dense_starts"], finding=FINDINGS["dense_starts"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
