"""What a person gave to train is recognised: other values and other code differ, the same differ in nothing."""

import dataclasses
import functools
import itertools
import json
import os
import random
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from optax import contrib

from icl_lab import prompts, solvers
from icl_lab.lab.recognised import described
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression

SCALE = 2.0
helpers = types.ModuleType("helpers")


def of(value):
    return described({"it": value})


def scaled(x):
    return SCALE * x


def through(x):
    """Calls another function."""
    return scaled(x) + helpers.offset


def recursive(n):
    return 0 if n == 0 else recursive(n - 1)


def closed(value):
    return lambda x: value * x


class Box:
    """An object with fields."""

    def __init__(self, value):
        self.value = value

    def times(self, x):
        return self.value * x


class Mlp(nn.Module):
    width: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(x)


@dataclasses.dataclass(frozen=True)
class Named:
    """A field called ``name`` is one of Flax's modules only."""

    name: str


class Private:
    """A number that is an attribute of a class."""

    _scale = 1.0


class Louder(Private):
    """The same attribute, with another value."""

    _scale = 2.0


class Dotted(dict):
    """A dict with attribute access, which knows no attribute but its keys."""

    __getattr__ = dict.__getitem__


class Sealed(type):
    """A metaclass that knows no further attribute."""

    def __getattr__(cls, name):
        raise KeyError(name)


class Kept(metaclass=Sealed):
    """Its attributes are found without asking for others."""

    def __init__(self, value):
        self.value = value


class Config:
    """As a ``ConfigDict`` of ml_collections, which raises KeyError for an attribute that is none of its keys."""

    def __init__(self, **values):
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name):
        return self._values[name]

    def items(self):
        return self._values.items()


Config.__module__ = "ml_collections.config_dict"


DIFFERENT = {
    "fields called name": (Named("plain"), Named("loud")),
    "private attributes of classes": (Private(), Louder()),
    "dicts with attributes": (Dotted(rate=0.1), Dotted(rate=0.2)),
    "a ConfigDict": (Config(rate=0.1), Config(rate=0.2)),
    "classes of a metaclass": (Kept(1), Kept(2)),
    "namespaces": (types.SimpleNamespace(rate=0.1), types.SimpleNamespace(rate=0.2)),
    "sets": (closed({1, 2}), closed({1, 3})),
    "closures": (closed(1.0), closed(2.0)),
    "code": (lambda x: x + 1, lambda x: x - 1),
    "constants": (lambda x: x + 1, lambda x: x + 2),
    "names": (lambda x: jnp.sin(x), lambda x: jnp.cos(x)),
    "defaults": (lambda x, y=1: x, lambda x, y=2: x),
    "keyword defaults": (lambda x, *, y=1: x, lambda x, *, y=2: x),
    "inner functions": (lambda x: (lambda y: y + 1)(x), lambda x: (lambda y: y + 2)(x)),
    "partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "methods": (Box(1).times, Box(2).times),
    "methods of what is built in": ({"a": 1}.get, {"a": 2}.get),
    "jit": (jax.jit(closed(1.0)), jax.jit(closed(2.0))),
    "vmap": (jax.vmap(closed(1.0)), jax.vmap(closed(2.0))),
    "arrays": (closed(np.arange(3)), closed(np.arange(3)[::-1])),
    "types": (closed(np.float32(1)), closed(np.float64(1))),
    "keys": (closed(jax.random.key(0)), closed(jax.random.key(1))),
    "modules": (Mlp(), Mlp(4)),
    "networks": (LinearSelfAttention(), LinearSelfAttention(damping=0.5)),
    "ridge": (solvers.ridge(0.1), solvers.ridge(0.2)),
    "rates": (optax.adam(1e-3), optax.adam(1e-2)),
    "betas": (optax.adam(1e-3, b1=0.8), optax.adam(1e-3)),
    "schedules": (optax.adam(optax.cosine_decay_schedule(1.0, 5)), optax.adam(optax.cosine_decay_schedule(1.0, 6))),
    "optimizers": (optax.adam(1e-3), optax.adamw(1e-3)),
    "chains": (optax.chain(optax.clip(1.0), optax.sgd(1.0)), optax.chain(optax.clip(2.0), optax.sgd(1.0))),
    "samplers": tuple(
        prompts.linear_regression(context_length=4, input_size=2, input_law=law) for law in ("uniform", "normal")
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_other_values_and_other_code_differ(case):
    (one, unknown), (other, _) = map(of, DIFFERENT[case])
    assert one != other
    assert unknown == []
    assert json.loads(json.dumps(one)) == one


def test_globals_count_also_those_of_functions_that_are_called(monkeypatch):
    helpers.offset = 1.0
    for name, (where, what) in {"SCALE": (sys.modules[__name__], 3.0), "offset": (helpers, 2.0)}.items():
        before, _ = of(through)
        with monkeypatch.context() as patch:
            patch.setattr(where, name, what)
            after, _ = of(through)
        assert [place for place in before if before[place] != after[place]] == [
            "it/scaled/SCALE" if name == "SCALE" else "it/helpers.offset"
        ]
    assert of(recursive)[0]["it/recursive"] == "as it"


def test_comments_names_of_variables_and_places_do_not_count():
    texts = ("def f(x):\n    return x + k\n", "\n\ndef f(y):\n    # a comment\n    return y + k  # and another\n")
    found = []
    for i, text in enumerate(texts):
        space = {"k": 3, "__name__": f"page_{i}"}
        exec(compile(text, f"page_{i}", "exec"), space)
        found.append(of(space["f"])[0])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (np.random.default_rng(0), "it"),
        (random.random, "it/self"),
        (closed(iter([1])), "it/value"),
        (lambda x, counter=itertools.count(): next(counter), "it/defaults/0"),  # noqa: B008
        ({"a": [1, open(os.devnull)]}, "it/a/1"),  # noqa: SIM115
    ],
    ids=["generator", "random", "iterator", "counter", "file"],
)
def test_what_cannot_be_compared_is_said_to_be_unknown(value, place):
    found, unknown = of(value)
    assert unknown == [place]
    assert found[place].startswith("unknown (")


ALL = [
    *(one for pair in DIFFERENT.values() for one in pair), through, recursive, {"b", "a", "c"}, jax.nn.relu, jnp.tanh,
    contrib.schedule_free_adamw(0.1), optax.lbfgs(), optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
]  # fmt: skip


def test_another_process_says_the_same():
    """Where words hash otherwise and objects lie elsewhere; of releases of Python each compiles in its own way."""
    helpers.offset = 1.0
    program = "import json, test_recognised as t; t.helpers.offset = 1.0; print(json.dumps([t.of(v) for v in t.ALL]))"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps([of(value) for value in ALL]))


def test_what_only_checks_options_is_described_as_what_it_checks():
    sampler = lambda noise: linear_regression(context_length=3, input_size=2, label_noise=noise)  # noqa: E731
    found, unknown = described({"sampler": sampler})
    assert unknown == []
    named = {place: said for place, said in found.items() if "linear_regression" in place}
    assert named == {"sampler/linear_regression": "icl_lab.prompts.regression.linear_regression"}
