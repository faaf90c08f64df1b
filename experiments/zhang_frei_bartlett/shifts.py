"""A trained linear attention layer on other prompts than its own (Zhang, Frei & Bartlett 2023, section 4.2).

Layers trained on Gaussian inputs, of identity covariance or of the given spectrum, are tested on scaled inputs and
weights, queries and tasks along one eigenvector, and on the out-of-distribution prompts of Garg et al. 2022: contexts
in one orthant, prompts in a subspace, queries orthogonal to the context. Every point has a closed form (this lab). A
linear layer is indifferent to the scale of the task, but inputs c times as large are answered c^2 times too large, with
a normalised error of (1 - c^2)^2 for long prompts, those of a subspace that are rescaled to their former mean square
among them; contexts in one orthant have a mean, whose square adds to the covariance that it reads; and for a query
orthogonal to the context it predicts 0 only if the training covariance was isotropic. Least squares has no error on any
of them (and predicts 0 for the orthogonal query), so that a transformer that tolerates them, as Garg et al. report, is
not this layer.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.zhang_frei_bartlett import shift_families as shift
from experiments.zhang_frei_bartlett.common import lsa, planned, product
from experiments.zhang_frei_bartlett.shift_families import FAMILIES, OVER_LENGTHS, TRAININGS, Config, points
from icl_lab.lab import Experiment, main
from icl_lab.lab.constraints import holds, multiple_of, rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner, Sample, Sampler, gaussian_regression
from icl_lab.solvers import least_squares
from icl_lab.training.plans import squared_error

PRESETS = {
    "smoke": Config(
        members=2, context_length=4, spectrum=(1.5, 0.5), eval_tasks=32, steps=20, measure_every=20, batch=16,
        input_scales=(0.5, 2.0), weight_scales=(0.5, 2.0), test_lengths=(3,), subspace_size=1, risk_tasks=64,
    ),
    "quick": Config(
        members=6, spectrum=(2.0, 1.0, 0.3), eval_tasks=1000, steps=1500, measure_every=500, batch=128,
        test_lengths=(5, 80), risk_tasks=20_000,
    ),
    "lab": Config(measure_every=1000),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    rising("input_scales", "weight_scales", "test_lengths"),
    holds("two values or more, which the shifts need", "spectrum", when=lambda c: len(c.spectrum) >= 2),
    holds(
        "at most D, the number of eigenvalues", "subspace_size", "spectrum",
        when=lambda c: c.subspace_size <= len(c.spectrum),
    ),
)  # fmt: skip

PRODUCT = quantity("{training}/product", "member", "row", "column", training=tuple(TRAININGS))
ERROR = quantity(
    "{training}/{family}/{of}", "member", "{training}_{family}_point", training=tuple(TRAININGS), family=FAMILIES,
    of=("trained", "exact", "least_squares"),
)  # fmt: skip


def trainings(config: Config) -> Table:
    """The same layer on both covariances."""
    return {
        training: planned(shift.training_config(config, training), member_keys(config, stream))
        for stream, training in enumerate(TRAININGS)
    }


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Each layer on sampled prompts of every shift, and the closed forms of what it learned."""
    layer = lsa(len(config.spectrum), config.init_scale)
    for stream, (training, families) in enumerate(TRAININGS.items()):
        one, params = shift.training_config(config, training), fits[training].params
        a, keys = np.asarray(product(params), np.float64), member_keys(config, 900 + stream)
        error = ERROR.at(training=training)
        yield PRODUCT.at(training=training), a
        yield error.at(of="trained"), _errors(one, families, layer.learner, params, keys, config.risk_tasks)
        for family in families:
            exact = [[shift.closed_form(one, family, point, member) for point in points(one, family)] for member in a]
            yield error.at(of="exact", family=family), np.array(exact)
        if training == "isotropic":
            nothing = jnp.zeros(config.members)
            yield error.at(of="least_squares"), _errors(one, families, _least_squares, nothing, keys, config.eval_tasks)


def _least_squares(_: Array) -> BatchLearner:
    return jax.vmap(least_squares())


def _errors(
    config: Config,
    families: tuple[str, ...],
    learner: Callable[[Any], BatchLearner],
    params: Any,
    keys: Array,
    tasks: int,
) -> dict[str, np.ndarray]:
    """(M, points) errors of ``params -> learner`` on the prompts of each family, over that of predicting 0."""
    learners = lambda params: {"it": learner(params)}  # noqa: E731
    gaussian = [(name, point) for name in families if name not in OVER_LENGTHS for point in points(config, name)]
    stacks = [jnp.asarray(np.stack(kind)) for kind in zip(*(shift.moments(config, *where) for where in gaussian))]

    def shifted(index: Array) -> Sampler:
        covariance, query, task = (stack[index.astype(int)] for stack in stacks)
        n = config.context_length
        return gaussian_regression(context_length=n, covariance=covariance, query_covariance=query, task_moment=task)

    # all points of these in one program
    joint = paired_losses(learners, shifted, params, keys, tasks, np.arange(len(gaussian)))["it"]
    errors = {}
    for family in families:
        if family in OVER_LENGTHS:
            objective = _square if family == "orthogonal" else squared_error
            samplers = [always(shift.sampler_over_lengths(config, family, int(m))) for m in points(config, family)]
            columns = [paired_losses(learners, one, params, keys, tasks, objective=objective) for one in samplers]
            losses = np.stack([column["it"] for column in columns], axis=1)
        else:
            losses = joint[:, [name == family for name, _ in gaussian]]
        errors[family] = 2 * losses / np.array([shift.power(config, family, point) for point in points(config, family)])
    return errors


def _square(values: Array, _: Sample) -> Array:
    """(B,) half the square of the prediction."""
    return 0.5 * jnp.sum(values**2, axis=1)


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.shifts", __doc__, PRESETS, measured, (PRODUCT, ERROR), trainings=trainings,
    constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
