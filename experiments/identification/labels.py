"""Does identification carry over to learners of labels? How often ``identify_classifier`` is right, and one network.

Sixty learners are planted, twelve of each of five families (votes by dot product and by distance in turn), with numbers
drawn log-uniform up to limits in which families coincide, on prompts of their own sizes. Predictions are moved by 0.02
(mean total variation) towards those of a random network, of all labels alike, or of another family, in turn. Outsiders
of seven kinds follow, undisturbed: thirty with three or five labels, and fourteen with two. An outcome is the own name;
a name that is equal (no more numbers, and within 0.02 of the undisturbed learner on held-out prompts); no name; or a
wrong one.

Expected before: 57 of 60 own or equal names and none wrong; outsiders refused, but of those with two labels, where all
distances are small, some named (so it was in a trial with another seed).

The first network is that of Reddy 2023, trained as in ``reddy.transition`` on mostly novel classes. Expected before: no
name. It matches by a soft inner product, so it should be nearer to a vote than to a copy, which says nothing where no
example equals the query; but the classifier after it sharpens the vote.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.identification.label_outsiders import KINDS, network, outsider
from experiments.reddy import transition
from experiments.reddy.settings import member_laws
from experiments.reddy.training import Induction, induction_model, sampler
from experiments.settings import Members
from icl_lab.identify.label_families import LABEL_FAMILIES, LabelPrompts
from icl_lab.identify.labels import IdentifiedLabels, identify_classifier, label_battery, total_variation
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.prompts import Prompt
from icl_lab.training import Training

NAMES = tuple(LABEL_FAMILIES)
PLANTED = ("nearest label", "kernel vote", "logistic step", "majority", "induction copy")
OUTCOMES = OWN, EQUAL, REFUSED, WRONG = range(4)
CHANGE = 0.02
"""Mean total variation by which planted learners are disturbed."""

SIZES = (8, 16, 32), (3, 5, 10), (2, 3, 5)
"""Of N, D and C."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """How large the suite is, and how long networks train."""

    members: int = setting(12, "draws of each family's numbers", at_least=1)
    suite: int = setting(1, "seed of the suite; 0 is for trying", at_least=0)
    outsiders: int = setting(30, "learners that are no family, of three or five labels", at_least=1)
    two_labels: int = setting(14, "more of them, of two labels", at_least=1)
    networks: int = setting(5, "trained networks; 0: none", at_least=0)
    steps: int = setting(5000, "training steps of a network, a multiple of 1000", at_least=1000)


PRESETS = {
    "smoke": Config(members=1, suite=0, outsiders=1, two_labels=1, networks=0),
    "quick": Config(members=1, suite=0, outsiders=3, two_labels=1, networks=0),
    "lab": Config(),
    "paper": Config(),
}

NUMBERS = ("outcome", "named", "nearest", "distance")
PLANT, OUTSIDE = (quantity(f"{of}/{{number}}", of, number=NUMBERS) for of in ("planted", "outsider"))
OF = {"network": lambda config: ("network",) if config["networks"] else ()}
READ = quantity("{network}/{read}", "network", read=("accuracy", "named"), **OF)
DISTANCE = quantity("{network}/distance", "network", "family", **OF)
STRUCTURE = quantity("{network}/structure", "network", "property", **OF)


def trainings(config: Config) -> Table:
    """The networks, if any."""
    if not config.networks:
        return {}
    model = induction_model(trained(config))

    def plan(fits: Fits) -> Training:
        return dataclasses.replace(transition.plan(trained(config), model), kept=False, learner=None)

    return {"network": After(plan)}


def trained(config: Config) -> transition.Config:
    """How networks train."""
    return dataclasses.replace(
        transition.PRESETS["lab"], only=("novel",), members=config.networks, steps=config.steps, measure_every=1000,
        seed=config.seed,
    )  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """What every learner is called."""
    planted = [(family, k) for family in PLANTED for k in range(config.members)]
    rows: list[list[float]] = []
    count = len(planted) + config.outsiders + config.two_labels
    with fits.bar("learners", count) as advance:
        for place in range(count):
            inside = place < len(planted)
            rows.append(of_planted(config, place, *planted[place]) if inside else of_outsider(config, place))
            advance(place + 1, count)
    table = np.array(rows)
    yield PLANT, dict(zip(NUMBERS, table[: len(planted)].T))
    yield OUTSIDE, dict(zip(NUMBERS, table[len(planted) :].T))
    if config.networks:
        fit, setup = fits["network"], trained(config)
        worlds = member_laws(setup)
        results = []
        for member in range(config.networks):
            params, world = (jax.tree.map(lambda leaf: leaf[member], one) for one in (fit.params, worlds))  # noqa: B023
            learner = of_vectors(induction_model(setup), params, world.label_vectors)
            sizes = {"context_length": setup.context_length, "input_size": setup.input_size, "labels": setup.labels}
            results.append(identify_classifier(learner, **sizes, sampler=sampler(setup, world), seed=config.seed))
        named = np.array([NAMES.index(one.family) if one.family else -1 for one in results])
        yield READ.at(network="network"), {"accuracy": fit.metrics["ic"][:, -1], "named": named}
        yield DISTANCE.at(network="network"), np.array([distances(one) for one in results])
        yield STRUCTURE.at(network="network"), np.array([list(one.structure.values()) for one in results])


def of_vectors(model: Induction, params: dict, vectors: jax.Array) -> Callable:
    """A network of label vectors as a function of whole labels."""

    @jax.jit
    def logits(x: jax.Array, labels: jax.Array, q: jax.Array) -> jax.Array:
        return model.logits(params, Prompt(x, vectors[labels], q, jnp.zeros(len(x), int)))

    return lambda x, labels, q: np.asarray(logits(np.float32(x), labels, np.float32(q)))


def distances(found: IdentifiedLabels) -> list[float]:
    """By family, in the order of ``NAMES``."""
    return [next(one.distance for one in found.fits if one.family == name) for name in NAMES]


def sizes_of(rng: np.random.Generator) -> dict[str, Any]:
    """Drawn sizes of a learner's prompts."""
    return {name: int(rng.choice(of)) for name, of in zip(("context_length", "input_size", "labels"), SIZES)}


def of_planted(config: Config, place: int, family: str, k: int) -> list[float]:
    """The row of a planted learner."""
    rng = np.random.default_rng([config.suite, place, 51])
    sizes = sizes_of(rng)
    name, theta = drawn(family, k, rng, **sizes)
    learner = disturbed(predicting(name, theta), place, rng, **sizes)
    result = identify_classifier(learner_of(learner, sizes["labels"]), **sizes, seed=place)
    outcome = REFUSED
    if result.fit is not None:
        on, _ = label_battery(None, sizes["context_length"], sizes["input_size"], sizes["labels"], place)
        truth = LABEL_FAMILIES[name].predict(on.take(slice(1, None, 2)), *theta)
        fewer = len(result.fit.parameters) <= len(theta)
        near = fewer and total_variation(truth, result.fit.answers) <= CHANGE
        outcome = OWN if result.family == name else EQUAL if near or name in result.equals else WRONG
    return row(outcome, result)


def of_outsider(config: Config, place: int) -> list[float]:
    """The row of an outsider, which gets a name wrongly."""
    rng = np.random.default_rng([config.suite, place, 51])
    place -= config.members * len(PLANTED)
    sizes = sizes_of(rng) | {"labels": int(rng.choice(SIZES[2][1:])) if place < config.outsiders else 2}
    kind = KINDS[place % len(KINDS)]
    if kind == "mixture of two":
        pairs = [pair for pair in itertools.combinations(PLANTED, 2) if pair != ("nearest label", "induction copy")]
        pair = pairs[int(rng.integers(len(pairs)))]
        parts = [predicting(*drawn(one, place, rng, middle=True, **sizes)) for one in pair]
        share = rng.uniform(0.4, 0.6)
        learner: Callable = lambda on: share * parts[0](on) + (1 - share) * parts[1](on)  # noqa: E731
    else:
        learner = outsider(kind, rng, **sizes)
    result = identify_classifier(learner_of(learner, sizes["labels"]), **sizes, seed=place)
    return row(REFUSED if result.family is None else WRONG, result)


def row(outcome: int, found: IdentifiedLabels) -> list[float]:
    """In the order of ``NUMBERS``."""
    named = NAMES.index(found.family) if found.family else -1
    return [outcome, named, NAMES.index(found.fits[0].family), found.fits[0].distance]


def drawn(
    family: str, k: int, rng: np.random.Generator, context_length: int, input_size: int, labels: int,
    middle: bool = False,
) -> tuple[str, tuple[float, ...]]:  # fmt: skip
    """A family's name and numbers, log-uniform; ``middle``: from the middle third of the range, away from limits."""

    def between(low: float, high: float) -> float:
        u = rng.uniform(1 / 3, 2 / 3) if middle else rng.uniform()
        return float(low * (high / low) ** u)

    confidence = 1 - (1 - 1 / labels) * between(0.01, 0.9)
    temperature, radius = input_size * between(0.03, 10), input_size**0.5 * between(0.05, 2)
    rate, smoothing = context_length / input_size * between(0.1, 10), between(0.05, 20)
    return {
        "nearest label": ("nearest label", (confidence,)),
        "kernel vote": (f"kernel vote ({('dot product', 'distance')[k % 2]})", (temperature,)),
        "logistic step": ("logistic step", (rate,)),
        "majority": ("majority", (smoothing,)),
        "induction copy": ("induction copy", (confidence, radius)),
    }[family]


def predicting(name: str, theta: tuple[float, ...]) -> Callable[[LabelPrompts], np.ndarray]:
    """A family with its numbers as a function of prompts."""
    return lambda on: LABEL_FAMILIES[name].predict(on, *theta)


def disturbed(
    learner: Callable, place: int, rng: np.random.Generator, context_length: int, input_size: int, labels: int
) -> Callable:
    """A learner moved by ``CHANGE`` towards another, on average over prompts of its own."""
    other = predicting(*drawn(PLANTED[int(rng.integers(len(PLANTED)))], place, rng, context_length, input_size, labels))
    random = network(rng, context_length, input_size, labels)
    towards = (random, predicting("flat", ()), other)[place % 3]
    on, _ = label_battery(None, context_length, input_size, labels, 1000 + place)
    if total_variation(learner(on), towards(on)) < CHANGE:
        towards = random
    share = CHANGE / total_variation(learner(on), towards(on))
    return lambda on: (1 - share) * learner(on) + share * towards(on)


def learner_of(predict: Callable[[LabelPrompts], np.ndarray], labels: int) -> Callable:
    """Probabilities of prompts as log-probabilities of arrays."""

    def learner(x: np.ndarray, c: np.ndarray, q: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(predict(LabelPrompts(x, c, q, labels)))

    return learner


EXPERIMENT = Experiment(
    "identification.labels", __doc__, PRESETS, measured, (PLANT, OUTSIDE, READ, DISTANCE, STRUCTURE),
    trainings=trainings, constraints=(holds("a multiple of 1000", "steps", when=lambda c: c.steps % 1000 == 0),),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
