"""A small GPT-2 learns linear functions in context (Garg et al. 2022, Fig. 2 and Fig. 5a).

It reads x_1, y_1, x_2, .. with y = w.x, w ~ N(0, I), x ~ N(0, I), and is trained on the loss of all prefixes, by a
curriculum: few input coordinates and few examples at first. Each prediction is judged: the error behind k = 0 .. N
examples is the squared error of the next answer over that of predicting zero, which is 1. A second network is trained
on sparse functions, whose w has one entry that is not zero.

Beside it, on the same tasks: least squares, whose error is (D - k)/D below D examples and 0 from there on; ridge
regression; averaging, the mean of y x; the mean of the three nearest neighbours; and the lasso. The network of the
other tasks is the control. Of some members identify says which algorithm they compute, at several numbers of examples.

The published network has twelve layers and saw 32 million prompts; here one of two layers sees half a million. Its
weights start at a spread of 1 / sqrt(width): at GPT-2's .02 three of ten such networks learned in as many steps.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from experiments.settings import Members, member_keys
from experiments.training import model, planned, warmed_up
from icl_lab.compare import mean_loss, prefix_losses
from icl_lab.identify import identify
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_most, below, holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import GPT
from icl_lab.prompts import Learner, Prompt, Sample, Sampler, linear_regression, one_prompt
from icl_lab.prompts.layouts import alternating_layout
from icl_lab.prompts.prompt import all_answers, all_inputs
from icl_lab.solvers import averaging, lasso, least_squares, nearest_neighbours, ridge
from icl_lab.training import Model, Training, curriculum, every_prefix, rising

TASKS = ("dense", "sparse")
SOLVERS: dict[str, Callable[[], Learner]] = {
    "ridge": partial(ridge, 0.5), "averaging": averaging, "neighbours": partial(nearest_neighbours, 3),
    "lasso": partial(lasso, 0.01),
}  # fmt: skip
LEARNERS = ("trained", "other", "least_squares", *SOLVERS)
"""Of which ``other`` is the network that was trained on the other tasks."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The published setting, but for the members and what the sparse tasks are at its size."""

    input_size: int = setting(20, "D", at_least=2)
    context_length: int = setting(40, "N, the most examples that are seen", at_least=2)
    used_weights: int = setting(3, "entries of w that are not zero in sparse tasks", at_least=1)
    layers: int = setting(12, "layers", at_least=1)
    heads: int = setting(8, "heads, a divisor of the width", at_least=1)
    width: int = setting(256, "width of the residual stream", at_least=1)
    spread: float = setting(0.02, "standard deviation of the initial weights", above=0)
    batch: int = setting(64, "fresh tasks in a training step", at_least=1)
    steps: int = setting(500_000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(10_000, "steps between measurements", at_least=1)
    eval_tasks: int = setting(1280, "tasks of a measurement during training", at_least=1)
    learning_rate: float = setting(1e-4, "Adam's learning rate behind the warm-up", above=0)
    warm_up: int = setting(0, "steps in which the learning rate rises from 0", at_least=0)
    decay: bool = setting(False, "the learning rate falls to 0 as a cosine behind the warm-up")
    start_inputs: int = setting(5, "coordinates of the inputs that are used at first; one more a stage", at_least=1)
    start_examples: int = setting(10, "examples at first; two more a stage", at_least=1)
    curriculum_every: int = setting(2000, "steps of a stage", at_least=1)
    test_tasks: int = setting(12_800, "tasks of a final error, a multiple of 16", at_least=16)
    lengths: tuple[int, ...] = setting((20, 40), "numbers of examples at which members are identified", at_least=2)
    identified: int = setting(2, "members that are identified; 0: none", at_least=0)


_LAB = Config(
    input_size=5, context_length=15, used_weights=1, layers=2, heads=4, width=64, spread=0.125, steps=10_000,
    measure_every=400, eval_tasks=512, learning_rate=2e-3, warm_up=250, decay=True, start_inputs=3, start_examples=15,
    curriculum_every=250, lengths=(5, 10, 15), identified=4,
)  # fmt: skip

PRESETS = {
    "smoke": dataclasses.replace(
        _LAB, members=2, input_size=2, context_length=4, layers=1, heads=2, width=8, spread=0.35, batch=8, steps=20,
        measure_every=10, eval_tasks=16, warm_up=4, start_inputs=1, start_examples=2, curriculum_every=4,
        test_tasks=32, lengths=(2,), identified=1,
    ),
    "quick": dataclasses.replace(
        _LAB, members=2, input_size=2, context_length=4, layers=1, heads=2, width=16, spread=0.25, steps=200,
        measure_every=50, eval_tasks=256, learning_rate=3e-3, warm_up=20, start_inputs=1, start_examples=4,
        curriculum_every=50, test_tasks=1600, lengths=(4,), identified=0,
    ),
    "lab": _LAB,
    "paper": Config(),
}  # fmt: skip

STEPS = quantity("steps", "step")
LOSS = quantity("{tasks}/loss", "member", "step", tasks=TASKS)
ERROR = quantity("{tasks}/error/{learner}", "member", "examples", tasks=TASKS, learner=LEARNERS)
OF_MEMBERS = ("named", "residual", "asymmetry")
IDENTIFIED = quantity(
    "identified/{number}", "identified_member", "length", number=lambda c: OF_MEMBERS if c["identified"] else ()
)
PLANTED = quantity("identified_ridge/residual", "length")


def network(config: Config) -> Model:
    """GPT-2 as a learner of all prefixes."""
    gpt = GPT(config.layers, config.heads, config.width, 2 * config.context_length + 1, config.spread)
    return model(gpt, config.context_length, config.input_size, alternating_layout(prefixes=True))


def sampler(config: Any, tasks: str, **law: Any) -> Sampler:
    """The tasks of a test, or with ``used_inputs`` and ``examples`` of a stage of the curriculum."""
    law = {"context_length": config.context_length} | law
    weights = config.used_weights if tasks == "sparse" else None
    return linear_regression(input_size=config.input_size, input_law="normal", used_weights=weights, **law)


def zero_loss(config: Config, tasks: str) -> float:
    """Loss of predicting zero, half the mean square of an answer."""
    return 0.5 * (config.used_weights if tasks == "sparse" else config.input_size)


def trainings(config: Config) -> Table:
    """A network on each kind of tasks; members have the same start and the same inputs on both."""
    each, most = np.ones(config.members, int), {"used_inputs": config.input_size, "examples": config.context_length}
    stages = curriculum(
        used_inputs=rising(config.start_inputs, most["used_inputs"], every=config.curriculum_every),
        examples=rising(config.start_examples, most["examples"], by=2, every=config.curriculum_every),
    )

    def of_tasks(tasks: str) -> Training:
        plan = planned(
            config, network(config), keys=member_keys(config), objective=every_prefix,
            sampler_of=lambda config, now: sampler(config, tasks, **now),
            optimizer=lambda config: optax.adam(warmed_up(config)),
            settings={name: value * each for name, value in most.items()},
            schedule=lambda setting, step: (setting[0], stages(setting[1], step)),
        )  # fmt: skip
        return dataclasses.replace(plan, members_at_once=1 if jax.default_backend() == "cpu" else None)

    return {tasks: of_tasks(tasks) for tasks in TASKS}


Losses = Callable[[Any, Sample], jax.Array]
"""``(params, tasks) -> (N + 1,)`` losses behind every number of examples."""


@partial(jax.jit, static_argnums=0)
def losses(of: Losses, params: Any, samples: Sample) -> jax.Array:
    """(M, ...) means over the parts of each member's tasks, (M, parts, tasks of a part, ...)."""
    return jax.lax.map(lambda own: jax.lax.map(lambda part: of(own[0], part), own[1]).mean(0), (params, samples))


def least_squares_at(k: int) -> Losses:
    """The loss of least squares behind k examples, (): a program each, since SVDs side by side may wait for ever."""

    def loss(_: Any, samples: Sample) -> jax.Array:
        asked, answers = jax.vmap(all_inputs)(samples.prompt)[:, k], jax.vmap(all_answers)(samples)[:, k]
        cut = Prompt(samples.prompt.x[:, :k], samples.prompt.y[:, :k], asked)
        return mean_loss(least_squares(), Sample(cut, answers, {}))

    return loss


def learners(config: Config) -> dict[str, Losses]:
    """The network, the same function for both kinds of tasks, and the solvers."""
    whole = network(config)
    by_network = lambda params, part: prefix_losses(one_prompt(whole.learner(params)), part)  # noqa: E731
    made = {name: make() for name, make in SOLVERS.items()}
    solvers = {name: lambda _, part, solver=solver: prefix_losses(solver, part) for name, solver in made.items()}
    return {"trained": by_network, "other": by_network, **solvers}


def errors(
    config: Config, tasks: str, params: dict[str, Any], of: dict[str, Losses], below_d: list[Losses]
) -> Iterator[tuple[str, np.ndarray]]:
    """(M, N + 1) loss of every learner, on the same tasks; ``params`` of the network by what it was trained on."""
    kinds = {"trained": tasks, "other": TASKS[1 - TASKS.index(tasks)]}
    draw = jax.jit(jax.vmap(lambda key: sampler(config, tasks)(key, config.test_tasks)))
    cut = lambda leaf: leaf.reshape(len(leaf), 16, -1, *leaf.shape[2:])  # noqa: E731
    samples = jax.tree.map(cut, draw(member_keys(config, 900 + TASKS.index(tasks))))
    for name, loss in of.items():
        own = params[kinds[name]] if name in kinds else np.zeros(config.members)
        yield name, np.asarray(losses(loss, own, samples))
    few = [np.asarray(losses(one, np.zeros(config.members), samples)) for one in below_d]
    exact = [np.zeros(config.members)] * (config.context_length + 1 - config.input_size)
    yield "least_squares", np.stack(few + exact, axis=1)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Training, the error behind every number of examples, and what members are called."""
    params = {tasks: fits[tasks].params for tasks in TASKS}
    of = learners(config), [least_squares_at(k) for k in range(config.input_size)]
    yield STEPS, fits["dense"].steps
    yield "params", jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), params)
    for tasks in TASKS:
        unit = zero_loss(config, tasks)
        yield LOSS.at(tasks=tasks), fits[tasks].metrics["loss"] / unit
        yield ERROR.at(tasks=tasks), {name: found / unit for name, found in errors(config, tasks, params, *of)}
    if config.identified:
        yield from identified(config, params["dense"], fits)


def identified(config: Config, params: Any, fits: Fits) -> Iterator[Yield]:
    """What some members are called at every length, and ridge regression where it is asked in the same way."""
    whole, found = network(config), []
    own = [jax.tree.map(lambda leaf, m=m: leaf[m], params) for m in range(config.identified)]
    asked = [*(one_prompt(whole.learner(one)) for one in own), SOLVERS["ridge"]()]
    with fits.bar("lengths", len(config.lengths)) as advance:
        for done, length in enumerate(config.lengths, 1):
            tasks = sampler(config, "dense", context_length=length)
            found += [identify(asked, context_length=length, input_size=config.input_size, sampler=tasks)]
            advance(done, len(config.lengths))
    members = [one.members for one in found]
    named = [["least squares" in (m.family, *m.equals) for m in many] for many in members]
    numbers = [[[getattr(m, name) for m in many] for many in members] for name in OF_MEMBERS[1:]]
    arrays = {name: np.array(values, float).T for name, values in zip(OF_MEMBERS, [named, *numbers])}
    yield IDENTIFIED, {name: values[:-1] for name, values in arrays.items()}
    yield PLANTED, arrays["residual"][-1]
    verdicts = {str(n): [m.family or m.verdict for m in many] for n, many in zip(config.lengths, members)}
    yield "facts", {"verdicts": verdicts}


CONSTRAINTS = (
    multiple_of("steps", "measure_every"), multiple_of("test_tasks", 16), below("warm_up", "steps"),
    at_most("start_inputs", "input_size"), at_most("start_examples", "context_length"), once("lengths"),
    at_most("lengths", "context_length"), at_most("used_weights", "input_size"), at_most("identified", "members"),
    holds("a divisor of --width", "heads", "width", when=lambda c: c.width % c.heads == 0),
    holds("at least twice --input_size", "context_length", when=lambda c: c.context_length >= 2 * c.input_size),
)  # fmt: skip

EXPERIMENT = Experiment(
    "garg.linear_functions", __doc__, PRESETS, measured, (STEPS, LOSS, ERROR, IDENTIFIED, PLANTED),
    trainings=trainings, constraints=CONSTRAINTS, effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
