"""GD++ is gradient descent on better-conditioned data (von Oswald et al. 2022, Fig. 13 and A.10).

The input transformation maps an eigenvalue l of the context's X^T X to l(1 - gamma l)^2: large eigenvalues come down,
and the condition number falls until 1/gamma meets the largest one. Two looped layers are trained at several context
lengths; the gamma read off their weights is compared with the one that minimises the exact two-step GD++ loss.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments import panels
from experiments.settings import check, member_keys
from experiments.statistics import array
from experiments.training import Model, learners_of
from experiments.von_oswald.common import Setting, model, strengths, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.panels import condition_panel, eigenvalue_panel
from experiments.von_oswald.tuning import eigenvalues, exactly_tuned, solver_json
from icl_lab.lab import Claim, Experiment, Record, Session, claims_of, main, setting
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.models import LinearSelfAttention

PUBLISHED = {  # N: smallest and largest eigenvalue over 10 000 contexts, gamma read off one trained network
    10: (None, 4.6, 0.179),
    25: (0.097, 7.712, 0.099),
    50: (0.666, 10.845, 0.056),
    100: (2.870, 17.196, 0.029),
}


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 13 as the released code runs it."""

    lengths: tuple[int, ...] = setting((10, 25, 50, 100), "context lengths N", at_least=1)
    contexts: int = setting(10_000, "contexts whose extreme eigenvalues are taken, anew for each member", at_least=2)
    tuning_contexts: int = setting(100_000, "contexts on which GD++ is tuned, and as many held out", at_least=2)
    gammas: tuple[float, ...] = setting((0.0, 0.05, 0.099, 0.12), "gamma of the condition-number panel", at_least=0)


PRESETS = {
    "smoke": Config(
        members=2, input_size=3, batch=16, steps=20, measure_every=10, eval_tasks=16, lengths=(3,), contexts=50,
        tuning_contexts=200,
    ),
    "quick": Config(members=6, batch=256, steps=3000, measure_every=1000, eval_tasks=500, lengths=(10, 25),
                    tuning_contexts=4000),
    "lab": Config(batch=512, measure_every=1000, eval_tasks=1000),
    "paper": Config(),
}  # fmt: skip


def _network(config: Config) -> LinearSelfAttention:
    return LinearSelfAttention(layers=2, looped=True, init_scale=config.init_scale)


def _at_length(config: Config, length: int) -> Config:
    return dataclasses.replace(config, context_length=length)


def models(config: Config) -> dict[str, Model]:
    """What is trained, by context length."""
    return {f"length_{n}": model(_network(config), _at_length(config, n)) for n in config.lengths}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains at every context length; extreme eigenvalues of each member's own contexts."""
    arrays: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for stage, (length, (name, trained)) in enumerate(zip(config.lengths, models(config).items())):
        one = _at_length(config, length)
        _, solver = exactly_tuned(one, _network(config), config.tuning_contexts)
        fitted = train(session, name, one, trained, keys=member_keys(config, stage))
        read = jax.vmap(lambda p: strengths(p, config.input_size))(fitted.params)
        spectra = [eigenvalues(one, key, config.contexts) for key in member_keys(config, 700 + stage)]
        arrays[name] = {
            "gamma": np.asarray(read["gamma"][:, 0]),
            "eta_over_n": np.asarray(read["eta_over_n"][:, 0]),
            "smallest": np.array([s.min() for s in spectra]),
            "largest": np.array([s.max() for s in spectra]),
            "eigenvalues": spectra[0].astype(np.float32),
            "loss": fitted.metrics["loss"][:, -1],
        }
        metrics[f"gd++_{length}"] = solver_json(solver)
    return metrics, arrays


def figures(record: Record) -> dict[str, Figure]:
    """The eigenvalue map; condition numbers for several gamma; gamma over N."""
    lengths = record.config["lengths"]
    figure, ((curve, numbers, gammas),) = axes_grid(3, 1, width=3.4)
    best = {n: record.metrics[f"gd++_{n}"]["gammas"][0] for n in lengths}
    eigenvalue_panel(curve, best, {n: float(record[f"length_{n}/largest"].mean()) for n in lengths})
    shown = lengths[min(1, len(lengths) - 1)]
    condition_panel(numbers, record[f"length_{shown}/eigenvalues"], record.config["gammas"])
    numbers.set_title(f"N = {shown}")
    trained = {"trained": np.stack([record[f"length_{n}/gamma"] for n in lengths])}
    panels.points_panel(
        gammas, lengths, trained, "context length N", theory=(np.array(lengths), np.array(list(best.values())))
    )
    gammas.set_ylabel(r"$\gamma$")
    gammas.set_yscale("log")
    gammas.set_ylim(bottom=0.5 * min(best.values()))  # members still on the first plateau lie far below
    return {"curvature": figure}


def _gamma_ratio(length: int) -> Callable[[Record], np.ndarray]:
    return lambda record: record[f"length_{length}/gamma"] / record.metrics[f"gd++_{length}"]["gammas"][0]


_AT_LAB = dict.fromkeys(
    ("gamma_10", "gamma_25", "gamma_exact_25", "smallest_25", "largest_25", "gamma_50", "gamma_exact_50"),
    "not resolved",
)  # fmt: skip
"""One member at N = 25 and two at 50 are still on the first plateau; of the others the interval has an edge inside."""

claim = claims_of("von_oswald.curvature", "von Oswald et al. 2022, Fig. 13", _AT_LAB)


def _claims(length: int, smallest: float | None, largest: float, gamma: float) -> Iterator[Claim]:
    """The claims at one context length."""
    yield claim(
        f"gamma_{length}", "",
        f"Two looped layers trained at N = {length} read off the gamma published for it.",
        array(f"length_{length}/gamma"), gamma, 0.05 * gamma,
        reason="the published value is read off one network; the loss is flat in gamma to about 5 %",
    )  # fmt: skip
    yield claim(
        f"gamma_exact_{length}", " (optimum: this lab)",
        f"At N = {length} that gamma is the one that minimises the exact two-step GD++ loss (ratio).",
        _gamma_ratio(length), 1.0, 0.05, reason="the loss is flat in gamma: 5 % changes it by less than .2 %",
    )  # fmt: skip
    for which, value, share in (("smallest", smallest, 0.25), ("largest", largest, 0.1)):
        if value is not None:
            yield claim(
                f"{which}_{length}", "",
                f"The {which} eigenvalue of X^T X over 10 000 contexts of length {length}.",
                array(f"length_{length}/{which}"), value, share * value,
                reason="the published value is one draw of an extreme, which scatters by about a tenth (largest) "
                "to a quarter (smallest)",
            )  # fmt: skip


CLAIMS = tuple(one for length, published in PUBLISHED.items() for one in _claims(length, *published))

AXES = {"*/eigenvalues": ("context", "dimension"), "*/*": ("member",)}

EXPERIMENT = Experiment(
    "von_oswald.curvature", __doc__, PRESETS, run, figures, CLAIMS, check,
    lambda config: [f"length_{n}/*" for n in config["lengths"]], axes=AXES, learners=learners_of(models),
    quick=QUICK["curvature"], finding=FINDINGS["curvature"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
