"""GD++ is gradient descent on better-conditioned data (von Oswald et al. 2022, Fig. 13 and A.10).

The input transformation maps an eigenvalue l of the context's X^T X to l(1 - gamma l)^2: large eigenvalues come down,
and the condition number falls until 1/gamma meets the largest one. The paper says that it explodes for gamma > 0.1; at
N = 25 its median falls until 0.14 and explodes beyond 0.16. A layer looped twice is trained at several context lengths;
the gamma read off its weights is compared with the one that minimises the exact two-step GD++ loss.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import numpy as np

from experiments.settings import member_keys
from experiments.von_oswald.common import DECAYS, Setting, looped, model, optimizer, planned, strengths
from experiments.von_oswald.tuning import eigenvalues, exactly_tuned, solver_json
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.theory import condition_number, gd_plus_plus_eigenvalues


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 13 as the released code runs it."""

    lengths: tuple[int, ...] = setting((10, 25, 50, 100), "context lengths N", at_least=1)
    contexts: int = setting(10_000, "contexts whose eigenvalues are taken", at_least=2)
    tuning_contexts: int = setting(100_000, "contexts on which GD++ is tuned, and as many held out", at_least=2)
    extreme_draws: int = setting(99, "draws of these contexts whose extremes are taken", at_least=39)
    gammas: tuple[float, ...] = setting(
        tuple(sorted({0.099, *np.round(np.arange(0, 0.251, 0.01), 2).tolist()})),
        "gamma of the condition numbers",
        at_least=0,
    )
    histograms: tuple[float, ...] = setting(
        (0.0, 0.05, 0.099, 0.15, 0.2), "no effect; of records whose histograms were drawn", at_least=0
    )
    decay_steps: int = setting(0, "last steps of a training, in which the learning rate falls to 0", at_least=0)


PRESETS = {
    "smoke": Config(
        members=2, input_size=3, batch=16, steps=20, measure_every=10, eval_tasks=16, lengths=(3,), contexts=50,
        tuning_contexts=200, extreme_draws=39, decay_steps=10,
    ),
    "quick": Config(members=6, batch=256, steps=5000, measure_every=1000, eval_tasks=500, lengths=(10,),
                    tuning_contexts=4000, extreme_draws=39),
    "lab": Config(batch=512, measure_every=1000, decay_steps=1500, eval_tasks=1000),
    "paper": Config(),
}  # fmt: skip


OF_MEMBER = quantity("length_{length}/{name}", "member", length="lengths", name=("gamma", "eta_over_n", "loss"))
EXTREME = quantity("length_{length}/{which}", "draw", length="lengths", which=("smallest", "largest"))
KAPPA = quantity("length_{length}/kappa", "member", "gamma", length="lengths")
EIGENVALUES = quantity("length_{length}/eigenvalues", "context", "dimension", length="lengths")


def trainings(config: Config) -> Table:
    """A layer looped twice at every context length."""
    decaying, table = partial(optimizer, decay_steps=config.decay_steps), {}
    for stream, length in enumerate(config.lengths):
        one = dataclasses.replace(config, context_length=length)
        table[f"length_{length}"] = planned(one, model(looped(one, 2), one), stream=stream, optimizer=decaying)
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """What the weights of every length say; extremes of many draws of contexts, condition numbers of each member's."""
    for stream, length in enumerate(config.lengths):
        one = dataclasses.replace(config, context_length=length)
        _, solver = exactly_tuned(one, looped(one, 2), config.tuning_contexts)
        fit = fits[f"length_{length}"]
        read = jax.vmap(lambda params: strengths(params, config.input_size))(fit.params)
        last = {name: values[:, 0] for name, values in read.items()} | {"loss": fit.metrics["loss"][:, -1]}
        yield OF_MEMBER.at(length=length), last
        extremes = []
        for key in member_keys(config, 700 + stream, config.extreme_draws):
            drawn = eigenvalues(one, key, config.contexts)
            extremes.append((drawn.min(), drawn.max()))
        yield EXTREME.at(length=length), dict(zip(("smallest", "largest"), np.array(extremes).T))
        spectra = [eigenvalues(one, key, config.contexts) for key in member_keys(config, 700 + stream)]
        medians = [[np.median(log_kappa(of_member, gamma)) for gamma in config.gammas] for of_member in spectra]
        yield KAPPA.at(length=length), np.stack(medians)
        if length == shown_length(config.lengths):
            yield EIGENVALUES.at(length=length), spectra[0].astype(np.float32)
        yield "facts", {f"gd++_{length}": solver_json(solver)}


def log_kappa(spectra: np.ndarray, gamma: float) -> np.ndarray:
    """(C,) log10 of the condition number of contexts after one GD++ transformation."""
    return np.log10(condition_number(gd_plus_plus_eigenvalues(spectra, gamma)))


def shown_length(lengths: Sequence[int]) -> int:
    """The context length whose condition numbers are shown: the second."""
    return lengths[min(1, len(lengths) - 1)]


EXPERIMENT = Experiment(
    "von_oswald.curvature", __doc__, PRESETS, measured, (OF_MEMBER, EXTREME, KAPPA, EIGENVALUES),
    trainings=trainings, constraints=(*DECAYS, once("lengths")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
