"""How the binaries of this paper train a network or the reduced model, and measure it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.reddy.settings import Data, Schedule, repeated
from experiments.settings import member_keys
from icl_lab.compare import progress_measures
from icl_lab.fast import induction_logits
from icl_lab.lab import arguments
from icl_lab.models import InductionNetwork, ReducedInduction, reduced_logits, traced
from icl_lab.models.inspection import Trace
from icl_lab.prompts import (
    BatchLearner,
    ItemLabelLaw,
    Prompt,
    Sample,
    Sampler,
    evaluation_laws,
    item_label_classification,
)
from icl_lab.prompts.layouts import Layout, content_layout, item_label_layout
from icl_lab.training.plans import Training, members_at_once


class Induction(NamedTuple):
    """What is trained on item-label prompts. No ``training.Model``: ``logits`` can be clamped, ``run`` looks inside.

    Attributes:
      init: ``key -> params``.
      logits: ``(params, B prompts) -> (B, L)``, the fast form; that of the network may be clamped as ``run`` is.
      run: ``(params, prompt, intervention=None, step=0) -> ((L,) logits, Trace)``, the form with the inside visible.
    """

    init: Callable[[Array], dict]
    logits: Callable[..., Array]
    run: Callable[..., tuple[Array, Trace]]

    def learner(self, params: dict) -> BatchLearner:
        """The learner that these parameters are, for a whole batch of prompts."""
        return partial(self.logits, params)


def induction_model(config: Schedule) -> Induction:
    """The two-layer attention-only network with the deep classifier (section 2 of the paper)."""
    module = InductionNetwork(labels=config.labels, slots=config.slots, hidden=config.hidden)
    return _induction(module, item_label_layout(config.slots), induction_logits, config)


def reduced(config: Schedule) -> Induction:
    """The reduced induction-head model of three parameters (section 4 of the paper)."""
    module = ReducedInduction(labels=config.labels, hidden=config.hidden)
    return _induction(module, content_layout(), reduced_logits, config)


def _induction(module: InductionNetwork | ReducedInduction, layout: Layout, fast: Callable, config: Data) -> Induction:
    n, d = config.context_length, config.input_size

    def init(key: Array) -> dict:
        empty = Prompt(jnp.zeros((n, d)), jnp.zeros((n, d)), jnp.zeros((d,)), jnp.int32(0))
        return dict(module.init(key, layout.encode(empty)))

    def run(params: dict, prompt: Prompt, *acting: Any) -> tuple[Array, Trace]:
        return traced(module, params, layout)(prompt, *acting)

    return Induction(init, partial(fast, module), run)


def sgd(config: Schedule) -> optax.GradientTransformation:
    """Plain SGD; every parameter shrinks by the share ``shrink`` in every step, whatever the learning rate."""
    rate = config.learning_rate
    return optax.chain(optax.add_decayed_weights(config.shrink / rate), optax.scale_by_learning_rate(rate))


def cross_entropy(logits: Array, samples: Sample) -> Array:
    """(B,) the loss of every sequence."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, samples.target)


def accuracy(logits: Array, samples: Sample) -> Array:
    """() the share of sequences whose largest logit is the right label's."""
    return (logits.argmax(-1) == samples.target).mean()


def sampler(config: Data, law: ItemLabelLaw, swapped: ArrayLike = False) -> Sampler:
    """Sequences of a task distribution, as this configuration lays them out."""
    return item_label_classification(
        law,
        context_length=config.context_length,
        slots=config.slots,
        distinct_labels=config.distinct_labels,
        swapped=swapped,
    )


EVALUATION_SETS = ("train", "iwl", "ic", "ic2")
"""The test sets (section 2 of the paper): training distribution, in weights, in context, and with labels swapped."""


def evaluation_samples(config: Schedule, law: ItemLabelLaw, name: str | Array, key: Array) -> Sample:
    """``config.eval_tasks`` sequences of a test set, by its name or (traced) number."""
    number = EVALUATION_SETS.index(name) if isinstance(name, str) else name
    tests = evaluation_laws(law, config.context_length) | {"train": law}
    drawn = {
        field: jnp.stack([getattr(tests[test], field) for test in EVALUATION_SETS])[number]
        for field in ("burstiness", "bursty_share", "novel_share")
    }
    swapped = number == EVALUATION_SETS.index("ic2")
    return sampler(config, replace(law, **drawn), swapped)(jax.random.fold_in(key, number), config.eval_tasks)


Observe = Callable[[dict, Array, ItemLabelLaw], dict[str, Array]]
"""``(params, key, distribution) -> {name: array}``, what is measured of a member."""


def standard_observe(config: Schedule, model: Induction) -> Observe:
    """Loss and accuracy on the training distribution, accuracies on the tests: ``loss``, ``accuracy``, ``iwl``, ``ic``,
    ``ic2``; and ``ic_loss``, the loss on novel classes. What a figure measures beside them is added to these.
    """

    def observe(params: dict, key: Array, distribution: ItemLabelLaw) -> dict[str, Array]:
        # one program for all sets: four take longer to compile than to run
        def one(number: Array) -> tuple[Array, Array]:
            samples = evaluation_samples(config, distribution, number, key)
            logits = model.logits(params, samples.prompt)
            return cross_entropy(logits, samples).mean(), accuracy(logits, samples)

        losses, right = jax.lax.map(one, jnp.arange(len(EVALUATION_SETS)))
        metrics = {"loss": losses[0], "ic_loss": losses[EVALUATION_SETS.index("ic")], "accuracy": right[0]}
        return metrics | dict(zip(EVALUATION_SETS[1:], right[1:]))

    return observe


def progress(
    run: Callable[[Prompt], tuple[Array, Trace]],
    samples: Sample,
    beside: Callable[[Sample, Array, Trace], dict[str, Array]] | None = None,
) -> dict[str, Array]:
    """Mean progress measures of a batch of sequences (section 3 of the paper), and of what ``beside`` reads off each.

    Args:
      run: ``prompt -> (logits, trace)``.
      samples: the sequences.
      beside: ``(sample, logits, trace) -> {name: array}``; None for nothing more.
    """

    def one(sample: Sample) -> dict[str, Array]:
        logits, trace = run(sample.prompt)
        measures = progress_measures(trace.attention, logits, sample.latent["labels"], sample.latent["match"])
        return measures | (beside(sample, logits, trace) if beside else {})

    return {name: values.mean(0) for name, values in jax.vmap(one)(samples).items()}


Change = Callable[[dict, dict], dict]
"""``(params, setting of the member) -> params``."""


def _as_is(params: dict, setting: dict) -> dict:
    return params


def planned(
    config: Schedule,
    model: Induction,
    law: ItemLabelLaw,
    *,
    each: Mapping[str, Sequence[float]] | None = None,
    starting: Change = _as_is,
    acting: Change = _as_is,
    observe: Observe | None = None,
    one_by_one: bool = False,
) -> Training:
    """The training of M members at all points of a grid, each on its own task distribution, in one program.

    Drawing their dictionaries takes seconds: binaries plan it when it is asked for (``After``).

    Args:
      config: the setting; what ``law`` holds is taken from there.
      model: what is trained.
      law: (points * M,) task distributions (``settings.member_laws``); a member has the same key at every point.
      each: (points,) values that ``starting`` and ``acting`` find in a member's setting, by name.
      starting: what is made of the initial parameters.
      acting: what is made of the parameters wherever they act, in training and measurement.
      observe: what is measured; None means ``standard_observe``.
      one_by_one: on a CPU no two members are vectorised together, which is faster for some sizes.

    Returns:
      The training, whose metrics are those of ``observe``, (points * M, R, ...).
    """
    keys = repeated(member_keys(config), law.classes.size // config.members)
    settings = {"config": arguments(config, keys.size), "law": law} | {
        name: jnp.asarray(np.repeat(values, config.members), jnp.float32) for name, values in (each or {}).items()
    }
    observe = observe or standard_observe(config, model)

    def loss(params: dict, key: Array, setting: dict) -> Array:
        samples = sampler(config, setting["law"])(key, config.batch)
        return cross_entropy(model.logits(acting(params, setting), samples.prompt), samples).mean()

    together = members_at_once(config.batch, 2)
    return Training(
        lambda key, setting: starting(model.init(key), setting),
        loss,
        lambda setting: sgd(setting["config"]),
        keys,
        settings,
        steps=config.steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: observe(acting(params, setting), key, setting["law"]),
        members_at_once=1 if one_by_one and together else together,
        learner=model.learner,
        sampler=sampler_of(config),
    )


def sampler_of(config: Data) -> Callable[[dict], Sampler]:
    """``setting of a member -> sampler`` of its task distribution."""
    return lambda setting: sampler(config, setting["law"])
