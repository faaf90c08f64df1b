"""GD++ is gradient descent on better-conditioned data (von Oswald et al. 2022, Fig. 13 and A.10).

The input transformation maps an eigenvalue l of the context's X^T X to l(1 - gamma l)^2: large eigenvalues come down,
and the condition number falls until 1/gamma meets the largest one. Two looped layers are trained at several context
lengths; the gamma read off their weights is compared with the one that minimises the exact two-step GD++ loss.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from experiments import panels
from experiments.settings import check, member_keys
from experiments.statistics import array
from experiments.von_oswald.panels import condition_panel, eigenvalue_panel
from experiments.von_oswald.settings import Setting
from experiments.von_oswald.training import model, strengths, train
from experiments.von_oswald.tuning import eigenvalues, exactly_tuned, solver_json
from icl_lab.lab.claims import Claim, claims_of
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.records import Record
from icl_lab.lab.session import Session
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
    "quick": Config(members=2, batch=256, steps=3000, measure_every=1000, eval_tasks=500, lengths=(10, 25),
                    tuning_contexts=4000),
    "lab": Config(batch=512, measure_every=1000, eval_tasks=1000),
    "paper": Config(),
}  # fmt: skip


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains at every context length; extreme eigenvalues of each member's own contexts."""
    network = LinearSelfAttention(layers=2, looped=True, init_scale=config.init_scale)
    arrays: dict[str, np.ndarray] = {}
    metrics: dict[str, Any] = {}
    for stage, length in enumerate(config.lengths):
        one = dataclasses.replace(config, context_length=length)
        _, solver = exactly_tuned(one, network, config.tuning_contexts)
        keys = member_keys(config, stage)
        fitted = train(session, f"length_{length}", one, model(network, one), keys=keys)
        read = jax.vmap(lambda p: strengths(p, config.input_size))(fitted.params)
        spectra = [eigenvalues(one, key, config.contexts) for key in member_keys(config, 700 + stage)]
        arrays |= {
            f"gamma_{length}": np.asarray(read["gamma"][:, 0]),
            f"eta_over_n_{length}": np.asarray(read["eta_over_n"][:, 0]),
            f"smallest_{length}": np.array([s.min() for s in spectra]),
            f"largest_{length}": np.array([s.max() for s in spectra]),
            f"eigenvalues_{length}": spectra[0].astype(np.float32),
            f"loss_{length}": fitted.metrics["loss"][:, -1],
        }
        metrics[f"gd++_{length}"] = solver_json(solver)
    return metrics, arrays


def figures(record: Record) -> dict[str, Figure]:
    """The eigenvalue map; condition numbers for several gamma; gamma over N."""
    a, config = record.arrays, record.config
    lengths = config["lengths"]
    figure, ((curve, numbers, gammas),) = axes_grid(3, 1, width=3.4)
    best = {n: record.metrics[f"gd++_{n}"]["gammas"][0] for n in lengths}
    eigenvalue_panel(curve, best, {n: float(a[f"largest_{n}"].mean()) for n in lengths})
    shown = lengths[min(1, len(lengths) - 1)]
    condition_panel(numbers, a[f"eigenvalues_{shown}"], config["gammas"])
    numbers.set_title(f"N = {shown}")
    trained = {"trained": np.stack([a[f"gamma_{n}"] for n in lengths])}
    panels.points_panel(
        gammas, lengths, trained, "context length N", theory=(np.array(lengths), np.array(list(best.values())))
    )
    gammas.set_ylabel(r"$\gamma$")
    gammas.set_yscale("log")
    gammas.set_ylim(bottom=0.5 * min(best.values()))  # members still on the first plateau lie far below
    return {"curvature": figure}


def _gamma_ratio(length: int) -> Callable[[Record], np.ndarray]:
    return lambda record: record.arrays[f"gamma_{length}"] / record.metrics[f"gd++_{length}"]["gammas"][0]


_LAB = {"lab": "holds", "paper": "holds"}
_NOT_RESOLVED = {  # at lab: one member at N = 25, two at 50 still wait on the first plateau; the others lie on an edge
    "gamma_10", "gamma_25", "gamma_exact_25", "smallest_25", "largest_25", "gamma_50", "gamma_exact_50"
}  # fmt: skip
_FIGURE = "von Oswald et al. 2022, Fig. 13"


def _verdicts(name: str) -> dict[str, str]:
    return _LAB | ({"lab": "not resolved"} if name in _NOT_RESOLVED else {})


claim = claims_of("von_oswald.curvature")


def _claims() -> tuple[Claim, ...]:
    found = []
    for length, (smallest, largest, gamma) in PUBLISHED.items():
        found.append(
            claim(
                f"gamma_{length}", _FIGURE,
                f"Two looped layers trained at N = {length} read off the gamma published for it.",
                array(f"gamma_{length}"), expected=gamma, tolerance=0.05 * gamma,
                reason="the published value is read off one network; the loss is flat in gamma to about 5 %",
                expected_verdict=_verdicts(f"gamma_{length}"),
            )
        )  # fmt: skip
        found.append(
            claim(
                f"gamma_exact_{length}", f"{_FIGURE} (optimum: this lab)",
                f"At N = {length} that gamma is the one that minimises the exact two-step GD++ loss (ratio).",
                _gamma_ratio(length), expected=1.0, tolerance=0.05,
                reason="the loss is flat in gamma: 5 % changes it by less than .2 %",
                expected_verdict=_verdicts(f"gamma_exact_{length}"),
            )
        )  # fmt: skip
        for which, value in (("smallest", smallest), ("largest", largest)):
            if value is None:
                continue
            found.append(
                claim(
                    f"{which}_{length}", _FIGURE,
                    f"The {which} eigenvalue of X^T X over 10 000 contexts of length {length}.",
                    array(f"{which}_{length}"), expected=value,
                    tolerance=(0.25 if which == "smallest" else 0.1) * value,
                    reason="the published value is one draw of an extreme, which scatters by about a tenth (largest) "
                    "to a quarter (smallest)",
                    expected_verdict=_verdicts(f"{which}_{length}"),
                )
            )  # fmt: skip
    return tuple(found)


CLAIMS = _claims()

AXES = {"eigenvalues_*": ("context", "dimension"), "*": ("member",)}

EXPERIMENT = Experiment(
    "von_oswald.curvature", __doc__, PRESETS, run, figures, CLAIMS, check, lambda c: [f"*_{n}" for n in c["lengths"]],
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
