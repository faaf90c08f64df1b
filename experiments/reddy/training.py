"""How the binaries of this paper train a network or the reduced model, and measure it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.reddy.settings import Data, Training
from experiments.training import members_at_once
from icl_lab.compare import progress_measures
from icl_lab.experiment import Session
from icl_lab.layouts import Layout, content_layout, item_label_layout
from icl_lab.models import InductionNetwork, ReducedInduction, induction_logits, reduced_logits, traced
from icl_lab.models.inspection import Intervention, Trace
from icl_lab.prompts import (
    ItemLabelLaw,
    Prompt,
    Sample,
    Sampler,
    evaluation_laws,
    item_label_classification,
)
from icl_lab.training import Fit


class Induction(NamedTuple):
    """What is trained on item-label prompts.

    Attributes:
      init: ``key -> params``.
      logits: ``(params, B prompts) -> (B, L)``, the fast form.
      run: ``(params, prompt, intervention=None, step=0) -> ((L,) logits, Trace)``, the form with the inside visible.
    """

    init: Callable[[Array], dict]
    logits: Callable[[dict, Prompt], Array]
    run: Callable[..., tuple[Array, Trace]]


def network(config: Training) -> Induction:
    """The two-layer attention-only network with the deep classifier (section 2 of the paper)."""
    module = InductionNetwork(labels=config.labels, slots=config.slots, hidden=config.hidden)
    return _induction(module, item_label_layout(config.slots), induction_logits, config)


def reduced(config: Training, target_label_attention: bool = True, start: float = 0.0) -> Induction:
    """The reduced induction-head model (section 4 of the paper): three parameters, or two without beta_2."""
    module = ReducedInduction(
        labels=config.labels, hidden=config.hidden, target_label_attention=target_label_attention, start=start
    )
    return _induction(module, content_layout(), reduced_logits, config)


def _induction(module: InductionNetwork | ReducedInduction, layout: Layout, fast: Callable, config: Data) -> Induction:
    n, d = config.context_length, config.input_size
    empty = Prompt(jnp.zeros((n, d)), jnp.zeros((n, d)), jnp.zeros((d,)), jnp.int32(0))

    def run(
        params: dict, prompt: Prompt, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        return traced(module, params, layout)(prompt, intervention, step)

    return Induction(lambda key: dict(module.init(key, layout.encode(empty))), partial(fast, module), run)


def sgd(learning_rate: ArrayLike, shrink: float) -> optax.GradientTransformation:
    """Plain SGD; every parameter shrinks by the share ``shrink`` in every step, whatever the learning rate."""
    return optax.chain(optax.add_decayed_weights(shrink / learning_rate), optax.scale_by_learning_rate(learning_rate))


def cross_entropy(logits: Array, samples: Sample) -> Array:
    """(B,) the loss of every sequence."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, samples.target)


def sampler(config: Data, law: ItemLabelLaw, swapped: ArrayLike = False) -> Sampler:
    """Sequences of a law, as this configuration lays them out."""
    return item_label_classification(
        law,
        context_length=config.context_length,
        slots=config.slots,
        distinct_labels=config.distinct_labels,
        swapped=swapped,
    )


EVALUATION_SETS = ("train", "iwl", "ic", "ic2")
"""The test sets (section 2 of the paper): the training law, in weights, in context, in context with labels swapped."""


def evaluation_samples(config: Training, law: ItemLabelLaw, name: str | Array, key: Array) -> Sample:
    """``config.eval_tasks`` sequences of a test set, by its name or (traced) number."""
    number = EVALUATION_SETS.index(name) if isinstance(name, str) else name
    tests = evaluation_laws(law, config.context_length) | {"train": law}
    drawn = {
        field: jnp.stack([getattr(tests[test], field) for test in EVALUATION_SETS])[number]
        for field in ("burstiness", "bursty_share", "novel_share")
    }
    swapped = number == EVALUATION_SETS.index("ic2")
    return sampler(config, replace(law, **drawn), swapped)(jax.random.fold_in(key, number), config.eval_tasks)


def measure(config: Training, model: Induction, measures: bool = False) -> Callable[..., dict[str, Array]]:
    """``(params, key, law) -> {name: ()}``: loss and accuracy on the training law, accuracies and losses on the tests.

    ``accuracy`` and ``loss`` are of the training law; ``ic``, ``ic2`` and ``iwl`` accuracies; ``ic_loss``. With
    ``measures`` the progress measures of the ``ic`` set too.
    """

    def measured(params: dict, key: Array, law: ItemLabelLaw) -> dict[str, Array]:
        def one(
            number: Array,
        ) -> tuple[Array, Array]:  # one program for all sets: four take longer to compile than to run
            samples = evaluation_samples(config, law, number, key)
            logits = model.logits(params, samples.prompt)
            return cross_entropy(logits, samples).mean(), (logits.argmax(-1) == samples.target).mean()

        losses, right = jax.lax.map(one, jnp.arange(len(EVALUATION_SETS)))
        found = {"loss": losses[0], "ic_loss": losses[EVALUATION_SETS.index("ic")], "accuracy": right[0]}
        found |= dict(zip(EVALUATION_SETS[1:], right[1:]))
        return found | (progress(model, params, evaluation_samples(config, law, "ic", key)) if measures else {})

    return measured


def progress(model: Induction, params: dict, samples: Sample) -> dict[str, Array]:
    """Mean progress measures of a batch of sequences (section 3 of the paper)."""

    def one(sample: Sample) -> dict[str, Array]:
        logits, trace = model.run(params, sample.prompt)
        return progress_measures(trace.attention, logits, sample.latent["labels"], sample.latent["match"])

    return {name: values.mean() for name, values in jax.vmap(one)(samples).items()}


def train(
    session: Session,
    stage: str,
    config: Training,
    model: Induction,
    keys: Array,
    law: ItemLabelLaw,
    *,
    measures: bool = False,
    learning_rates: ArrayLike | None = None,
) -> Fit:
    """Trains M members, each on its own law, in one program.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting; what ``law`` holds is taken from there.
      model: what is trained.
      keys: (M,) member keys.
      law: training laws with a leading member axis (``settings.laws``); a grid is just more members.
      measures: the progress measures too.
      learning_rates: (M,), where members differ.

    Returns:
      A ``Fit`` whose metrics are those of ``measure``, (M, R).
    """
    rates = np.broadcast_to(config.learning_rate if learning_rates is None else learning_rates, keys.shape)
    settings = {"law": law, "learning_rate": jnp.asarray(rates, jnp.float32)}
    observe = measure(config, model, measures)

    def loss(params: dict, key: Array, setting: dict) -> Array:
        samples = sampler(config, setting["law"])(key, config.batch)
        return cross_entropy(model.logits(params, samples.prompt), samples).mean()

    return session.fit(
        stage,
        lambda key, _: model.init(key),
        loss,
        lambda setting: sgd(setting["learning_rate"], config.shrink),
        keys,
        settings,
        steps=config.steps,
        measure_every=config.measure_every,
        measure=lambda params, key, setting: observe(params, key, setting["law"]),
        members_at_once=members_at_once(config.batch, 2),
    )
