"""What a family of algorithms is: models of growing size, their parameters, and what they predict on a battery."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.probes import Battery

FILTER = ("linear_labels", "linear_query", "permutation", "example_rotation")
CENTRED_FILTER = ("linear_labels", "linear_query", "permutation", "centred_rotation")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A number of a model, in units in which the mean training eigenvalue and the label size are 1.

    Attributes:
      name: as the solver of that name takes it.
      low: smallest value.
      high: largest.
      eigenvalue: what it is reported as: the value times the eigenvalue unit to this power,
      examples: times N to this power,
      labels: times the label size to this power.
      logarithmic: it is fitted, and starts are drawn, on a log scale.
    """

    name: str
    low: float
    high: float
    eigenvalue: float = 0.0
    examples: int = 0
    labels: int = 0
    logarithmic: bool = True


Predict = Callable[[Floats, Battery], Floats]
"""``(parameters (S, P), battery) -> (S, C, Q)`` predictions of S candidates at once."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A family at one size: so many steps, with these parameters.

    Attributes:
      family: name.
      steps: K, 0 where it has none.
      parameters: P of them.
      predict: what it predicts.
      own: every step has parameters of its own.
      starts: random starts of the fit.
      warm: further starts, made of what the models before it were fitted to: ``{key: (P,)}`` -> [(P,)].
      unit: what its steps are.
      turns: steps of the fit, at most.
      scaled: its predictions contain a free scale, so that it is fitted without a gain.
      also: ``(P,) parameters -> names`` of other families that hold this very model.
    """

    family: str
    steps: int
    parameters: tuple[Parameter, ...]
    predict: Predict
    own: bool = False
    starts: int = 8
    warm: Callable[[Mapping["Key", Floats]], Sequence[Floats]] = lambda fitted: ()
    unit: str = "step"
    turns: int = 40
    scaled: bool = False
    also: Callable[[Floats], tuple[str, ...]] = lambda theta: ()

    @property
    def key(self) -> "Key":
        """What names it among all models."""
        return self.family, self.steps, self.own

    @property
    def size(self) -> int:
        """How many numbers it is fitted by."""
        return len(self.parameters)


Key = tuple[str, int, bool]


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of algorithms.

    Attributes:
      name: the key in ``FAMILIES``.
      models: in the order of their size, so that later ones start from earlier ones.
      needs: parts of the structure that must not be "no" (``structure.PARTS``).
      breaks: parts that its members lack: a learner that has one of them exactly is none of this family.
      raw: fitted to f, not to the symmetrised f: it depends on the basis of the inputs.
      contains: families all of which lie in it, at some parameters or in a limit.
      filters: how it acts on eigenvalues, "plain" or "centred"; empty: it is no filter.
      of_set: it is tried only where the tasks of training are a finite set.
      for_size: further models, for inputs of a size D: they are tried where the learner is not quite symmetric.
    """

    name: str
    models: tuple[Model, ...]
    needs: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    raw: bool = False
    contains: tuple[str, ...] = ()
    filters: str = ""
    of_set: bool = False
    for_size: Callable[[int], Sequence[Model]] = lambda size: ()

    def __post_init__(self):
        if isinstance(self.contains, str):
            raise ValueError(f"contains must be a tuple of names of families, got the text {self.contains!r}")


def containers(families: Mapping[str, Family]) -> dict[str, set[str]]:
    """Of every family, the names of those that contain it, directly or through others."""
    holders: dict[str, set[str]] = {name: set() for name in families}
    for _ in families:  # as often as a chain can be long
        for name, family in families.items():
            for inner in family.contains:
                if inner in holders:
                    holders[inner] |= {name} | holders[name]
    return holders


def single(
    name: str,
    predict: Predict,
    parameters: Sequence[Parameter] = (),
    *,
    starts: int = 8,
    warm: Callable[[Mapping[Key, Floats]], Sequence[Floats]] = lambda fitted: (),
    scaled: bool = False,
    **options: Any,
) -> Family:
    """A family of one model without steps; ``options`` are those of ``Family``."""
    model = Model(name, 0, tuple(parameters), predict, starts=starts, warm=warm, scaled=scaled)
    return Family(name, (model,), **options)


Response = Callable[..., Floats]
"""``(eigenvalues (..., C, r), steps, *columns (S, 1, 1)) -> h (S, C, r)``: numpy code that broadcasts."""


def filter_family(
    name: str,
    parameters: Sequence[Parameter],
    response: Response,
    *,
    steps: Sequence[int] = (0,),
    contains: Sequence[str] = (),
    starts: int = 8,
    warm: Callable[..., Sequence[Floats]] = lambda fitted, steps: (),
) -> Family:
    """A family of spectral filters: x_q^T h(S) b with ``h = response(eigenvalues, steps, *parameters)``."""
    models = tuple(
        Model(name, k, tuple(parameters), filtered(response, k), starts=starts, warm=functools.partial(warm, steps=k))
        for k in steps
    )
    return of_filters(name, models, contains)


def of_filters(name: str, models: Sequence[Model], contains: Sequence[str] = ()) -> Family:
    """A family of these spectral filters."""
    return Family(name, tuple(models), FILTER, ("centred_rotation",), contains=tuple(contains), filters="plain")


def filtered(response: Response, steps: int, part: str = "plain") -> Predict:
    """What a spectral filter predicts."""

    def predict(theta: Floats, on: Battery) -> Floats:
        seen = getattr(on, part)
        columns = [theta[:, p, None, None] for p in range(theta.shape[1])]
        h = response(seen.eigenvalues[None], steps, *columns)
        return (seen.weights @ np.broadcast_to(h, (len(theta), *h.shape[1:]))[..., None])[..., 0]

    predict.response = response  # type: ignore[attr-defined]
    return predict


def centred(family: Family, *, add_mean: bool) -> Family:
    """The same filters of centred inputs and labels; with ``add_mean`` the mean of the labels is added."""
    name = "centred {}" + (" + mean" if add_mean else "")
    return _moved(family, name, "centred", add_mean, needs=CENTRED_FILTER, filters="centred")


def with_intercept(family: Family) -> Family:
    """The same filters of centred inputs, labels and query, plus the mean of the labels; within limits of the family.

    They have no ``centred_rotation``: the context alone, moved by a vector, moves the query's place in it.
    """
    return _moved(family, "{} with an intercept", "shifted", True, needs=CENTRED_FILTER[:3])


def _moved(family: Family, called: str, part: str, add_mean: bool, **options: Any) -> Family:
    name = called.format(family.name)

    def move(model: Model) -> Model:
        inner = filtered(model.predict.response, model.steps, part)  # type: ignore[attr-defined]

        def predict(theta: Floats, on: Battery) -> Floats:
            return inner(theta, on) + (on.y.mean(1)[None, :, None] if add_mean else 0.0)

        def warm(fitted: Mapping[Key, Floats]) -> Sequence[Floats]:
            return model.warm({(family.name, *key[1:]): t for key, t in fitted.items() if key[0] == name})

        return dataclasses.replace(model, family=name, predict=predict, warm=warm)

    models, contains = tuple(move(model) for model in family.models), tuple(map(called.format, family.contains))
    return Family(name, models, breaks=("example_rotation",), contains=contains, **options)
