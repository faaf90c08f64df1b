"""Trainings are the same where their programs compute the same, wherever values are hidden and however called."""

import dataclasses
import enum
import functools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import flags
from flax import linen as nn

from icl_lab.lab import computed, own_comparison
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.solvers import gradient_descent, ridge
from icl_lab.training import Model
from icl_lab.training.plans import squared_error, training

SAMPLER = linear_regression(context_length=3, input_size=2)
TABLE = np.arange(4000.0, dtype=np.float32)


def parts(network=None, sampler=SAMPLER, **options):
    """Digests of a training by part; nothing is trained."""
    small = {"members": 2, "steps": 2, "batch": 4, "eval_tasks": 4}
    planned = training(network or LinearSelfAttention(), sampler, **small | options)
    return own_comparison.computed(planned, planned.traceable())["parts"]


def times(scale):
    """Samplers whose targets a function multiplies."""

    def sampler(key, batch):
        samples = SAMPLER(key, batch)
        return dataclasses.replace(samples, target=scale(samples.target))

    return {"sampler": sampler}


def by(number):
    return times(lambda target: number * target)


@dataclasses.dataclass(frozen=True)
class ByName:
    """A field called ``name`` is a value like any other."""

    name: str

    def __call__(self, target):
        return target * {"plain": 1.0, "loud": 5.0}[self.name]


def of_class(**attributes):
    """An instance of a class with these attributes, which its function reads."""
    return times(type("Scaled", (), {"__call__": lambda self, target: self._of(target), **attributes})())


class Law(enum.Enum):
    """Its member's value is a matter of the class."""

    FIRST = 1.0


class Dotted(dict):
    """A dict with attribute access, which knows no attribute but its keys."""

    __getattr__ = dict.__getitem__


class Slots:
    """An object without a dict."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, target):
        return self.value * target


def flagged(value):
    values = flags.FlagValues()
    flags.DEFINE_float("rate", 0.0, "A number.", flag_values=values)
    values(["program", f"--rate={value}"])
    return times(lambda target: values.rate * target)


class Scaled(nn.Module):
    """A network that multiplies by an attribute of its class."""

    _scale = 1.0

    @nn.compact
    def __call__(self, prompts):
        return nn.Dense(1)(prompts.x_query) * self._scale


def scaled_network(scale):
    network = type("Scaled", (Scaled,), {"_scale": scale})()
    return {"network": Model(lambda key: network.init(key, SAMPLER(key, 1).prompt), network.apply)}


def inside_jit(table):
    return times(jax.jit(lambda target: target * jnp.sum(table)))


def with_jvp(slope):
    @jax.custom_jvp
    def same(x):
        return x

    same.defjvp(lambda primals, tangents: (primals[0], slope * tangents[0]))
    return {"objective": lambda predictions, samples: squared_error(same(predictions), samples)}


def same_with(slope):
    """The same number, with another slope."""

    @jax.custom_vjp
    def same(x):
        return x

    same.defvjp(lambda x: (x, None), lambda _, gradient: (slope * gradient,))
    return same


def with_vjp(slope):
    same = same_with(slope)
    return {"objective": lambda predictions, samples: squared_error(same(predictions), samples)}


def edited(at):
    """A table of which a printed text shows the ends alone."""
    table = TABLE.copy()
    table[at] += 1
    return table


def partitionable(flag):
    def sampler(key, batch):
        with jax.threefry_partitionable(flag):
            return SAMPLER(key, batch)

    return {"sampler": sampler}


def metrics(name):
    return {"extra": lambda params, samples: {name: jnp.zeros(())}}


def references(*names):
    learners = {"gd": gradient_descent(1.0, 1), "ridge": ridge(0.1), "other": ridge(0.2)}
    return {"references": {name.split("=")[0]: jax.vmap(learners[name.split("=")[-1]]) for name in names}}


def at_rate(rate):
    return {"optimizer": optax.adam(rate)}


def scheduled(slope):
    sampler = lambda noise: linear_regression(context_length=3, input_size=2, label_noise=noise)  # noqa: E731
    return {"sampler": SAMPLER, "training_sampler": sampler, "schedule": lambda setting, step: slope * step}


DIFFERENT = {  # two trainings, and the parts that differ
    "values of closures": (lambda: by(1.0), lambda: by(5.0), "loss, measurement"),
    "a field called name": (lambda: times(ByName("plain")), lambda: times(ByName("loud")), "loss, measurement"),
    "a private attribute of a class": (
        lambda: of_class(_of=lambda self, x: self._scale * x, _scale=1.0),
        lambda: of_class(_of=lambda self, x: self._scale * x, _scale=2.0),
        "loss, measurement",
    ),
    "a dict of a class": (
        lambda: of_class(_of=lambda self, x: self.table["a"] * x, table={"a": 1.0}),
        lambda: of_class(_of=lambda self, x: self.table["a"] * x, table={"a": 2.0}),
        "loss, measurement",
    ),
    "a static method": (
        lambda: of_class(_of=lambda self, x: self.f(x), f=staticmethod(jnp.abs)),
        lambda: of_class(_of=lambda self, x: self.f(x), f=staticmethod(jnp.square)),
        "loss, measurement",
    ),
    "an attribute of a network": (lambda: scaled_network(1.0), lambda: scaled_network(2.0), "loss, measurement"),
    "the value of an Enum": (
        lambda: by(Law.FIRST.value),
        lambda: by(enum.Enum("Law", {"FIRST": 2.0}).FIRST.value),
        "loss, measurement",
    ),
    "a dict with attributes": (
        lambda: times(functools.partial(lambda d, x: d.a * x, Dotted(a=1.0))),
        lambda: times(functools.partial(lambda d, x: d.a * x, Dotted(a=2.0))),
        "loss, measurement",
    ),
    "slots": (lambda: times(Slots(1.0)), lambda: times(Slots(2.0)), "loss, measurement"),
    "flags of absl": (lambda: flagged(1.0), lambda: flagged(2.0), "loss, measurement"),
    "outputs of an inner program": (
        lambda: times(lambda target: jax.jit(lambda x: (jnp.sin(x), jnp.cos(x)))(target)[0]),
        lambda: times(lambda target: jax.jit(lambda x: (jnp.sin(x), jnp.cos(x)))(target)[1]),
        "loss, measurement",
    ),
    "an array inside a jitted function": (
        lambda: inside_jit(TABLE), lambda: inside_jit(edited(2000)), "loss, measurement",
    ),
    "a rule of custom_jvp": (lambda: with_jvp(1.0), lambda: with_jvp(2.0), "gradient of the loss"),
    "a rule of custom_vjp": (lambda: with_vjp(1.0), lambda: with_vjp(2.0), "gradient of the loss"),
    "random numbers of threefry": (lambda: partitionable(True), lambda: partitionable(False), "loss, measurement"),
    "a metric renamed": (lambda: metrics("one"), lambda: metrics("other"), "measurement"),
    "a reference renamed": (lambda: references("gd"), lambda: references("ours=gd"), "measurement"),
    "another reference": (lambda: references("ridge"), lambda: references("ridge=other"), "measurement"),
    "references exchanged": (
        lambda: references("ridge=gd", "gd=ridge"), lambda: references("ridge", "gd"), "measurement",
    ),
    "a learning rate": (lambda: at_rate(1e-3), lambda: at_rate(1e-2), "optimizer"),
    "a schedule of rates": (
        lambda: at_rate(optax.cosine_decay_schedule(1.0, 5)),
        lambda: at_rate(optax.cosine_decay_schedule(1.0, 6)),
        "optimizer",
    ),
    "a state of the optimizer": (
        lambda: {"optimizer": optax.adagrad(0.1)}, lambda: {"optimizer": optax.adagrad(0.1, 0.2)}, "optimizer",
    ),
    "a schedule": (lambda: scheduled(0.1), lambda: scheduled(0.2), "schedule, loss"),
    "initial weights": (
        lambda: {"network": LinearSelfAttention(init_scale=0.1)},
        lambda: {"network": LinearSelfAttention(init_scale=0.2)},
        "initial weights",
    ),
    "an objective": (
        lambda: {}, lambda: {"objective": lambda p, s: jnp.abs(p - s.target).sum(1)}, "loss, measurement",
    ),
    "a precision in the code": (
        lambda: times(lambda target: jnp.matmul(target, jnp.ones((1, 1)), precision="default")),
        lambda: times(lambda target: jnp.matmul(target, jnp.ones((1, 1)), precision="highest")),
        "loss, measurement",
    ),
    "seeds": (lambda: {"seed": 0}, lambda: {"seed": 1}, "keys"),
    "tasks of a step": (lambda: {"batch": 4}, lambda: {"batch": 5}, "loss"),
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENT)
def test_trainings_that_compute_something_else_differ(case):
    one, other, expected = DIFFERENT[case]
    there, here = parts(**one()), parts(**other())
    differing = [part for part in here if there[part] != here[part]]
    shown = [part for part in differing if part != own_comparison.GRADIENT] or differing
    assert sorted(shown) == sorted(expected.split(", "))


def named(first):
    def squared(x):
        return 3.0 * x

    def trebled(x):
        return 3.0 * x

    return times(jax.jit(squared if first else trebled))


def reporting(words):
    def scale(target):
        if words:
            jax.debug.print(words + " {}", target.sum())
            jax.debug.callback(lambda: None)
        return jax.jit(lambda x: (words and jax.debug.print("{}", x), 3.0 * x)[1])(target)

    return times(scale)


def in_order(first):
    def scale(target):
        if first:
            a, b = jnp.sin(target), jnp.cos(target)
        else:
            b, a = jnp.cos(target), jnp.sin(target)
        return a * b

    return times(scale)


def with_precision(precision):
    with jax.default_matmul_precision(precision):
        return parts()


EQUAL = {
    "two objects of one value": (lambda: by(2.0), lambda: by(2.0)),
    "a jitted function under another name": (lambda: named(True), lambda: named(False)),
    "references in another order": (lambda: references("gd", "ridge"), lambda: references("ridge", "gd")),
    "what only prints": (lambda: reporting("target"), lambda: reporting("")),
    "another text": (lambda: reporting("target"), lambda: reporting("other")),
    "independent operations in another order": (lambda: in_order(True), lambda: in_order(False)),
    "a closure and a partial": (
        lambda: by(2.0), lambda: times(functools.partial(lambda scale, target: scale * target, 2.0)),
    ),
    "a value that no program reads": (
        lambda: times(functools.partial(lambda unread, target: target, 1)),
        lambda: times(functools.partial(lambda unread, target: target, object())),
    ),
    "a policy": (
        lambda: times(jax.checkpoint(jnp.sin)),
        lambda: times(jax.checkpoint(jnp.sin, policy=jax.checkpoint_policies.everything_saveable)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EQUAL)
def test_trainings_that_compute_the_same_are_equal(case):
    one, other = EQUAL[case]
    assert parts(**one()) == parts(**other())


def with_mutable_arrays(function):
    """A program of two mutable arrays alike."""
    like = jax.ShapeDtypeStruct((), jnp.float32)
    return computed.program(jax.jit(lambda x: function(jax.new_ref(x), jax.new_ref(x))), like)[0]


def test_what_is_done_to_mutable_arrays_counts_by_array_and_order():
    def first(one, other):
        one[...] = 3.0
        return one[...]

    def second(one, other):
        other[...] = 3.0
        return one[...]

    def earlier(one, other):
        value = one[...]
        one[...] = 3.0
        return value

    found = [with_mutable_arrays(function) for function in (first, second, earlier)]
    assert len(set(found)) == 3
    assert found[0] == with_mutable_arrays(first)


def test_the_precision_of_matrix_products_that_jax_is_told_does_not_count():
    assert with_precision("highest") == with_precision(None) == parts()


def test_another_process_hash_seed_and_folder_say_the_same(tmp_path):
    """This process has traced other trainings before, whose inner functions JAX keeps."""
    cases = ["initial weights", "a schedule", "a rule of custom_vjp", "an array inside a jitted function"]
    trainings = f"[*(t.DIFFERENT[case][0]() for case in {cases}), t.references('gd', 'ridge')]"
    program = f"import json, test_computed as t; print(json.dumps([t.parts(**given) for given in {trainings}]))"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = [parts(**DIFFERENT[case][0]()) for case in cases] + [parts(**references("ridge", "gd"))]
    assert json.loads(done.stdout) == found


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: jax.jit(lambda y: jax.lax.map(lambda z: jax.pure_callback(np.sin, z, z), y))(x), "pure_callback"),
        (lambda x: jax.experimental.io_callback(np.sin, x, x), "io_callback"),
        (jax.custom_batching.sequential_vmap(jnp.sin), "custom_vmap_call"),
    ],
    ids=["pure", "at a depth", "with an effect", "a rule of vmap"],
)
def test_operations_that_cannot_be_compared_are_named(function, operation):
    like = jax.ShapeDtypeStruct((3,), jnp.float32)
    assert computed.program(jax.jit(function), like)[1] == [operation]


def test_rules_that_a_program_does_not_use_are_no_hindrance():
    like = jax.ShapeDtypeStruct((3,), jnp.float32)
    for function in (jax.nn.relu, same_with(1.0), jax.checkpoint(jnp.sin)):
        assert computed.program(jax.jit(function), like)[1] == []
