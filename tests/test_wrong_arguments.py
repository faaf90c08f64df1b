"""Public functions driven with wrong arguments: each is refused in one sentence that names the argument.

A new public function is covered by a row in ``ROWS``; one without is told by the last test.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import icl_lab
from icl_lab import compare, constructions, fast, models, prompts, solvers, theory, training
from icl_lab.identify import identify, identify_classifier
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts.layouts import joint_layout
from icl_lab.training import Model

N, D = 4, 2
SAMPLER = prompts.linear_regression(context_length=N, input_size=D)
SAMPLES = SAMPLER(jax.random.key(0), 3)
BATCH = SAMPLES.prompt
FIRST = jax.tree.map(lambda leaf: leaf[0], SAMPLES)
ONE = FIRST.prompt
NETWORK = LinearSelfAttention()
PARAMS = NETWORK.init(jax.random.key(0), jnp.zeros((N + 1, D + 1)))
OTHERS = LinearSelfAttention(layers=2, heads=2).init(jax.random.key(0), jnp.zeros((N + 1, D + 1)))
MEMBERS = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), PARAMS)
RIDGE = solvers.ridge(0.1)
SPECTRUM = np.array([1.0, 2.0]), np.array([0.5, 0.5])
NAN = float("nan")
SIZE = (0, -1, 2.5, "3", None, True)
SEED = (-1, 1.5, 2**32, "1", True)
REAL = ("0.1", NAN, None)
NUMBER = (*REAL, np.ones(2))
POSITIVE = (*REAL, 0.0, -1.0, np.float32(-1))
RATES = (*REAL, np.ones((2, 2)))
KEY = (3, None, "key")
FUNCTION = (3, "ridge", None)
CHOICE = ("nope", 3)
TASK_COVARIANCES = (None, 3.0, np.ones(2), -np.eye(2), np.zeros((2, 2)))


class Mine(nn.Module):
    """Called with tokens alone."""

    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(1)(tokens)


@dataclasses.dataclass
class Row:
    call: Callable[..., Any]
    right: Mapping[str, Any]
    wrong: Mapping[str, tuple]
    name: str = ""

    def __post_init__(self):
        self.name = self.name or self.call.__name__


def of_sampler(make, right, wrong):
    """A function that returns a sampler, and the draw itself."""
    sizes = {"input_size": 2} if "input_size" in inspect.signature(make).parameters else {}
    right = {"context_length": 4} | sizes | right
    wrong = {name: SIZE for name in ("context_length", "input_size") if name in right} | wrong
    return [
        Row(make, right, wrong),
        Row(lambda **given: make(**right)(**given), {"key": jax.random.key(0), "batch": 2.0},
            {"key": KEY, "batch": SIZE}, f"draw of {make.__name__}"),
    ]  # fmt: skip


def of_solver(make, right, wrong):
    """A function that returns a learner, and what it answers."""
    binary = dataclasses.replace(ONE, y=jnp.sign(ONE.y)) if "logistic" in make.__name__ else ONE
    return [
        Row(make, right, wrong),
        Row(lambda prompt: make(**right)(prompt), {"prompt": binary}, {"prompt": (BATCH, None, 3)},
            f"answer of {make.__name__}"),
    ]  # fmt: skip


NOISE = {"label_noise": (-1.0, "0.1", NAN)}
TASKS = jnp.ones((5, D, 1))
LAW = prompts.item_label_law(jax.random.key(0), classes=8, labels=4, input_size=3)
STEPS = {"learning_rate": 0.1, "steps": 2.0}
KERNEL = solvers.feature_kernel(lambda x: x)
FLAT = Model(lambda key: {"w": jnp.zeros(D)}, lambda params, prompts: prompts.x_query @ params["w"])
TURNED = Model(lambda key: {"w": jnp.zeros(D)}, lambda params, prompts: (prompts.x_query @ params["w"])[None])


def flat_targets(key, batch):
    found = SAMPLER(key, batch)
    return dataclasses.replace(found, target=found.target[:, 0])


TRAINED = {"network": NETWORK, "sampler": SAMPLER, "members": 2, "steps": 2.0, "batch": 4.0, "eval_tasks": 4.0}
OF_TRAINING = {
    "network": (3, LinearSelfAttention, Mine()),
    "sampler": (3, None, lambda key, batch: 3),
    "members": (0, 2.5, "2"), "steps": SIZE, "batch": SIZE, "eval_tasks": SIZE, "measure_every": (0, 1.5, "2"),
    "learning_rate": ("1e-3", 0.0, -1.0, NAN),
    "layout": ("joint", 3, joint_layout),
    "seed": SEED,
    "references": ([RIDGE], RIDGE, {1: RIDGE}, {"ridge": 3}),
}  # fmt: skip
OF_TRAIN = {
    "optimizer": ("adam", optax.adam, optax.GradientTransformation),
    "network": (FLAT, TURNED),
    "sampler": (flat_targets,),
    "references": ({"ridge": RIDGE},),
    "until": (3, "loss"), "schedule": (3, lambda setting, step: 1.0), "extra": (3,), "variants": ([RIDGE],),
    "start": (3, [1], OTHERS), "dtype": ("half a word", jnp.int32, 3), "devices": (0, 99, "cpu", 1.5, [], ["gpu"]),
    "folder": (3, True), "overwrite": (True,), "keep": (2,),
}  # fmt: skip
SEQUENCE = {"queries": np.ones((3, 2)), "keys": np.ones((3, 2)), "values": np.ones((3, 1))}
OF_LEARNER = {
    "network": (LinearSelfAttention, 3), "params": (None, [1], 3), "layout": ("joint", joint_layout),
}  # fmt: skip


def asked(make):
    """What the learner answers that a function makes of a network."""
    return lambda network, params, prompt: make(network, params)(prompt)


ROWS = [
    *of_sampler(prompts.linear_regression, {"output_size": 2.0}, NOISE | {
        "output_size": SIZE, "input_law": CHOICE, "task_law": CHOICE, "input_range": POSITIVE, "task_scale": REAL,
        "tasks": (np.ones((2, 3)), np.full((2, D, 1), NAN), "pool"), "corrupted_labels": (-1, 9, 0.5, "1")}),
    *of_sampler(prompts.gaussian_regression, {"covariance": np.eye(2)}, NOISE | {"covariance": (np.ones(2), 3.0)}),
    *of_sampler(prompts.random_covariance_regression, {}, {
        "law": CHOICE, "shape": POSITIVE, "scale": (*POSITIVE, np.inf, np.ones(3))}),
    *of_sampler(prompts.sine_regression, {}, {
        "input_range": POSITIVE, "amplitude": ((2.0, 1.0), ("a", "b")), "phase": ((0.0, np.inf), (1.0,))}),
    *of_sampler(prompts.logistic_regression, {}, {"input_range": POSITIVE, "task_scale": REAL}),
    *of_sampler(prompts.item_label_classification, {"law": LAW}, {"law": (3, None), "slots": (0, 2, "3")}),
    Row(prompts.burstiness_values, {"context_length": 4.0}, {"context_length": SIZE}),
    Row(prompts.correlated_context, {"sampler": SAMPLER, "correlation": 0.5}, {"correlation": (*REAL, 2.0)}),
    Row(prompts.in_a_subspace, {"sampler": SAMPLER, "size": 1.0}, {"size": SIZE}),
    *of_solver(solvers.ridge, {"strength": 0.1}, {"strength": (*POSITIVE, np.ones(2))}),
    *of_solver(solvers.weighted_ridge, {"strength": 0.1}, {"strength": POSITIVE, "slope": NUMBER, "bend": NUMBER}),
    *of_solver(solvers.least_squares, {}, {}),
    *of_solver(solvers.gradient_descent, STEPS, {"learning_rate": RATES, "steps": SIZE}),
    *of_solver(solvers.trace_normalised_gradient_descent, STEPS, {"learning_rate": RATES, "steps": SIZE}),
    *of_solver(solvers.gd_plus_plus, {"learning_rates": 0.1, "gammas": 0.1, "steps": 1.0}, {
        "learning_rates": RATES, "gammas": RATES, "steps": SIZE}),
    *of_solver(solvers.heavy_ball, STEPS | {"momentum": 0.1}, {
        "learning_rate": NUMBER, "momentum": NUMBER, "steps": SIZE}),
    *of_solver(solvers.nesterov, STEPS | {"momentum": 0.1}, {
        "learning_rate": NUMBER, "momentum": NUMBER, "steps": SIZE}),
    *of_solver(solvers.chebyshev, {"low": 0.1, "high": 1.0, "steps": 2.0}, {
        "low": POSITIVE, "high": (0.05, *NUMBER), "steps": SIZE}),
    *of_solver(solvers.newton, {"start": 0.1, "steps": 2.0}, {"start": NUMBER, "steps": SIZE, "of": CHOICE}),
    *of_solver(solvers.conjugate_gradients, {"steps": 2.0}, {"steps": SIZE}),
    *of_solver(solvers.gradient_flow, {"time": 1.0}, {"time": NUMBER}),
    *of_solver(solvers.preconditioned_gradient_descent, {"preconditioner": np.eye(D)}, {
        "preconditioner": ("eye", None), "steps": SIZE}),
    *of_solver(solvers.dmmse, {"tasks": TASKS, "noise_variance": 1.0}, {
        "tasks": (3.0, "tasks", np.ones((2, 2))), "noise_variance": POSITIVE}),
    *of_solver(solvers.dmmse_or_ridge, {"tasks": TASKS, "noise_variance": 1.0, "strength": 1.0}, {
        "tasks": (3.0,), "noise_variance": POSITIVE, "strength": POSITIVE}),
    *of_solver(solvers.noise_adaptive_ridge, {"strengths": np.ones(2)}, {
        "strengths": (*POSITIVE, np.zeros(0), np.arange(2.0))}),
    *of_solver(solvers.softmax_regression, {"sharpness": 1.0}, {"sharpness": REAL, "amplitude": REAL}),
    *of_solver(solvers.gaussian_smoothing, {"bandwidth": 1.0}, {
        "bandwidth": (*POSITIVE, np.ones(2)), "amplitude": REAL}),
    *of_solver(solvers.averaging, {}, {}),
    *of_solver(solvers.nearest_neighbours, {"count": 3.0}, {"count": SIZE}),
    *of_solver(solvers.lasso, {"strength": 1.0, "sweeps": 3.0}, {"strength": POSITIVE, "sweeps": SIZE}),
    *of_solver(solvers.lms, {"learning_rate": 0.1}, {"learning_rate": NUMBER}),
    *of_solver(solvers.leaky_lms, {"learning_rate": 0.1, "leak": 0.1}, {"learning_rate": REAL, "leak": (*REAL, 2.0)}),
    *of_solver(solvers.recursive_least_squares, {"strength": 1.0}, {
        "strength": POSITIVE, "forgetting": (*REAL, 0.0, 1.5)}),
    *of_solver(solvers.centred, {"learner": RIDGE}, {"learner": FUNCTION}),
    *of_solver(solvers.with_intercept, {"learner": RIDGE}, {"learner": FUNCTION}),
    *of_solver(solvers.kernel_smoothing, {"kernel": KERNEL, "learning_rate": 0.1}, {"kernel": FUNCTION}),
    *of_solver(solvers.functional_gradient_descent, {"kernel": KERNEL, "learning_rates": 0.1, "steps": 1.0}, {
        "kernel": FUNCTION, "learning_rates": RATES, "steps": SIZE}),
    Row(solvers.feature_kernel, {"features": lambda x: x}, {"features": FUNCTION}),
    *of_solver(solvers.logistic_gradient_descent, STEPS, {"learning_rate": RATES, "steps": SIZE}),
    *of_solver(solvers.logistic_map, {"prior_scale": 1.0}, {"prior_scale": POSITIVE, "steps": SIZE}),
    *of_solver(solvers.logistic_bayes, {"key": jax.random.key(0), "prior_scale": 1.0}, {
        "key": KEY, "prior_scale": POSITIVE, "draws": (0, 3, 2.5, "4")}),
    Row(solvers.effective_draws, {"key": jax.random.key(0), "prior_scale": 1.0}, {"draws": (0, 3, 2.5, "4")}),
    *of_solver(solvers.median_regression, {}, {}),
    *of_solver(solvers.huber_regression, {"threshold": 1.0}, {"threshold": POSITIVE}),
    Row(constructions.gradient_descent_weights, {"learning_rates": 0.1, "context_length": 4.0, "input_size": 2.0}, {
        "learning_rates": RATES, "context_length": POSITIVE, "input_size": SIZE, "output_size": SIZE,
        "w0": (np.ones(2),)}),
    Row(constructions.gd_plus_plus_weights, {
        "learning_rates": 0.1, "gammas": 0.1, "context_length": 4, "input_size": 2}, {
        "learning_rates": RATES, "gammas": RATES, "context_length": POSITIVE, "input_size": SIZE, "output_size": SIZE}),
    Row(constructions.functional_gradient_descent_weights, {
        "features": {"embedding": jnp.ones((2, 3))}, "learning_rates": 0.1, "context_length": 4}, {
        "features": (3, None, {}), "learning_rates": RATES, "context_length": POSITIVE, "output_size": SIZE}),
    Row(constructions.copy_then_gradient_descent_weights, {
        "learning_rate": 0.1, "context_length": 2, "input_size": 2, "position_size": 6.0}, {
        "learning_rate": RATES, "context_length": SIZE, "input_size": SIZE, "position_size": (5, *SIZE),
        "attention": CHOICE}),
    Row(constructions.induction_head_weights, {"label_vectors": jnp.ones((2, 3)), "slots": 5.0, "input_size": 3}, {
        "label_vectors": (3.0, "labels", np.ones((2, 2))), "slots": (2, *SIZE), "input_size": SIZE,
        "hidden": (1, *SIZE), "sharpness": POSITIVE}),
    Row(constructions.linear_attention_weights, {"u11": np.eye(2), "u": 1.0}, {
        "u11": ("eye", None, np.ones(2)), "u": (*REAL, np.ones(2)), "u12": ("0", np.ones(3)), "u21": ("0",)}),
    Row(constructions.linear_attention_blocks, {
        "params": constructions.linear_attention_weights(np.eye(2), 1.0)}, {"params": (None, 3, PARAMS)}),
    Row(models.learner, {"network": NETWORK, "params": PARAMS}, OF_LEARNER),
    Row(models.traced, {"network": NETWORK, "params": PARAMS}, OF_LEARNER),
    Row(fast.batch_learner, {"network": NETWORK, "params": PARAMS}, OF_LEARNER),
    Row(asked(models.learner), {"network": NETWORK, "params": PARAMS, "prompt": ONE}, {
        "params": (OTHERS, MEMBERS, {}), "prompt": (BATCH, None)}, "answer of learner"),
    Row(asked(models.traced), {"network": NETWORK, "params": PARAMS, "prompt": ONE}, {
        "params": (OTHERS, MEMBERS), "prompt": (BATCH, None)}, "answer of traced"),
    Row(asked(fast.batch_learner), {"network": NETWORK, "params": PARAMS, "prompt": BATCH}, {
        "params": (OTHERS, MEMBERS, {}), "prompt": (ONE, None)}, "answer of batch_learner"),
    Row(lambda layers: LinearSelfAttention(layers=layers).init(jax.random.key(0), jnp.zeros((3, 2))), {"layers": 1}, {
        "layers": SIZE}, "layers of a network"),
    *(Row(getattr(models, name), SEQUENCE | more, {
        "queries": ("q", np.ones((3, 1))), "keys": ("k", np.ones(3)), "values": ("v", np.ones((4, 1)))} | wrong)
      for name, more, wrong in (
          ("linear_attention", {}, {}),
          ("delta_rule", {}, {"rates": (*REAL, np.ones(2)), "gates": (*REAL, np.ones(2)), "momentum": REAL}),
          ("mesa_layer", {"strength": 1.0}, {"strength": POSITIVE, "rates": REAL, "gates": REAL}))),
    Row(theory.free_errors, {"layers": 1, "spectrum": SPECTRUM}, {"layers": (4, *SIZE)}),
    Row(theory.marchenko_pastur, {"ratio": 1.0, "degree": 2.0}, {"ratio": POSITIVE, "degree": SIZE}),
    Row(theory.power_spectrum, {"modes": 3.0, "decay": 1.75, "task_decay": 0.5}, {
        "modes": SIZE, "decay": POSITIVE, "task_decay": POSITIVE}),
    Row(compare.compare, {"a": RIDGE, "b": RIDGE, "samples": SAMPLES}, {
        "a": (3, jax.vmap(RIDGE)), "b": (3, jax.vmap(RIDGE)), "samples": (BATCH, ONE, FIRST, None)}),
    Row(compare.compare_batches, {"a": jax.vmap(RIDGE), "b": jax.vmap(RIDGE), "samples": SAMPLES}, {
        "a": (RIDGE,), "b": (RIDGE,), "samples": (BATCH, FIRST)}),
    Row(compare.mean_loss, {"learner": RIDGE, "samples": SAMPLES}, {
        "learner": (lambda prompt: jnp.zeros((N + 1, 1)), lambda prompt: jnp.zeros(()), solvers.ridge, NETWORK, 3),
        "samples": (BATCH, FIRST), "objective": (3, "loss", lambda predictions, samples: predictions)}),
    Row(compare.task_losses, {"learner": RIDGE, "samples": SAMPLES}, {
        "samples": (BATCH, FIRST, None), "objective": (3, "loss", lambda predictions, samples: predictions)}),
    Row(compare.prefix_losses, {"learner": RIDGE, "samples": SAMPLES}, {
        "learner": (lambda prompt: jnp.zeros(()), solvers.ridge, NETWORK, 3), "samples": (BATCH, FIRST, None),
        "objective": (3, "loss", lambda predictions, samples: predictions)}),
    Row(compare.implied_prior, {
        "learner": lambda p: 2 * (np.ones((len(p.x), 1)),), "sampler": SAMPLER, "key": jax.random.key(0),
        "rollouts": 3.0}, {
        "learner": (3, None, jax.vmap(RIDGE), lambda p: (np.ones((3, 1)), -np.ones((3, 1))),
                    lambda p: (np.ones(3), np.ones(3)), lambda p: 3 * (np.ones((3, 2)),),
                    lambda p: (np.full((3, 1), NAN), np.ones((3, 1)))),
        "sampler": (3, lambda key, batch: 3, prompts.linear_regression(context_length=1, input_size=2)),
        "key": KEY, "rollouts": SIZE}),
    Row(identify, {"learners": RIDGE, "context_length": 2.0, "input_size": 1.0}, {
        "learners": (3, [], [3], lambda prompt: 3), "context_length": (1, *SIZE), "input_size": SIZE, "seed": SEED,
        "sampler": (3, lambda key, batch: 3, SAMPLER), "families": ([], {})}),
    Row(identify_classifier, {
        "learner": lambda x, labels, q: np.zeros((len(x), 3)), "context_length": 2.0, "input_size": 1.0, "labels": 3.0,
    }, {
        "learner": (3, None, lambda prompt: 3, lambda x, labels, q: np.zeros(3)), "context_length": (1, *SIZE),
        "input_size": SIZE, "labels": (1, *SIZE), "seed": SEED,
        "sampler": (3, lambda key, batch: 3, SAMPLER, SAMPLES)}),
    Row(theory.task_resolvent, {"covariance": np.eye(2), "diversity": 1.0, "shift": 1.0}, {
        "covariance": TASK_COVARIANCES, "diversity": POSITIVE, "shift": (*POSITIVE, np.inf)}),
    Row(theory.diversity_error, {
        "train": np.eye(2), "context": 2.0, "diversity": 4.0, "prompts": 4.0, "noise_variance": 0.0}, {
        "train": TASK_COVARIANCES, "test": (*TASK_COVARIANCES[1:], np.eye(3)), "context": (*POSITIVE, np.inf),
        "diversity": POSITIVE, "prompts": (*POSITIVE, 1.0), "noise_variance": (*REAL, -1.0)}),
    Row(training.rising, {"start": 1, "end": 3}, {
        "start": (4, *REAL), "end": REAL, "by": POSITIVE, "every": (0, *REAL)}),
    Row(training.curriculum, {"inputs": training.rising(1, 3)}, {"inputs": FUNCTION}),
    Row(training.training, TRAINED, OF_TRAINING | {"keys": (jax.random.split(jax.random.key(0), 3),)}),
    Row(icl_lab.train, TRAINED, OF_TRAIN),
    Row(functools.partial(icl_lab.load_run), {"folder": "figures/von_oswald/weight_maps/lab"}, {
        "folder": (3, "figures/von_oswald/weight_maps/lab/record.json", "nowhere")}, "load_run"),
]  # fmt: skip
REFUSED_ELSEWHERE = {
    # of language models and their texts: tests/models, tests/solvers/test_finetuning.py, tests/compare
    "load_gpt2", "load_garg", "load_tokenizer", "captured", "local_logits", "language_logits", "finetune",
    "random_update",
    "trained_embeddings", "untrained", "update_norms", "finetuned_token_scores", "label_directions", "matched_update",
    "network_states", "similarities", "kendall", "attention_similarity", "attention_update_similarity",
    "orthogonal_noise_floor", "random_update_similarity", "update_similarity", "update_similarity_floor",
    "within_span", "relative_sizes", "recall_to_finetuning", "agreement_where_wrong", "top_overlap",
    "order_sensitivity", "jensen_shannon",
    # of weights and networks of one paper: their own tests
    "align_weights", "interpolate", "progress_measures", "folded_weights", "reduced_logits", "prefix_predictions",
    "induction_logits", "item_label_law", "copies_without_bursts", "evaluation_laws", "input_variance",
    # take functions that are asked when they are called, by what is in a row
    "load", "save", "from_every_prefix", "every_prefix", "one_prompt", "same_tasks",
    "context_in_an_orthant", "with_orthogonal_query", "fit",
}  # fmt: skip
CASES = [pytest.param(row, argument, id=f"{row.name}-{argument}") for row in ROWS for argument in row.wrong]
FOREIGN = re.compile(r"\[Chex\]|XLA|xla|jaxlib|Tracer|\bvmap got|dot_general|ScopeParam|object has no attribute")


@pytest.mark.parametrize(("row", "argument"), CASES)
def test_a_wrong_argument_is_refused_in_one_sentence_that_names_it(row, argument):
    for wrong in row.wrong[argument]:
        with pytest.raises((ValueError, LookupError)) as caught:
            row.call(**{**row.right, argument: wrong})
        said = str(caught.value)
        assert argument.rstrip("s") in said, (wrong, said)
        assert "\n" not in said
        assert not FOREIGN.search(said), said
        assert type(caught.value).__module__.split(".")[0] in ("builtins", "icl_lab"), type(caught.value)
        if isinstance(wrong, str | int | float) and not isinstance(wrong, bool):
            assert any(part in said for part in (str(wrong), type(wrong).__name__, "()")), (wrong, said)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_right_arguments_are_taken(row):  # whole numbers as floats too
    if row.call is not identify:  # which is tried in tests/identify
        row.call(**row.right)


def test_every_public_function_has_a_row():
    driven = {row.name for row in ROWS}
    for package in (icl_lab, prompts, solvers, constructions, models, fast, compare, training):
        for name in package.__all__:
            one = getattr(package, name)
            if inspect.isfunction(one):
                assert name in driven | REFUSED_ELSEWHERE, f"{package.__name__}.{name} has no row here"


def test_no_exception_of_chex_is_left():
    with pytest.raises(ValueError, match=r"w0 must be \(D, O\) = \(2, 1\)"):
        solvers.gradient_descent(0.1, 1, w0=jnp.zeros((D,)))(ONE)
    with pytest.raises(ValueError, match=r"preconditioner must be \(2, 2\)"):
        solvers.preconditioned_gradient_descent(jnp.eye(3))(ONE)
    with pytest.raises(ValueError, match=r"network Mine must return \(tokens, Trace\), or .* use SelfAttention"):
        models.learner(Mine(), Mine().init(jax.random.key(0), jnp.zeros((N + 1, D + 1))))(ONE)
    with pytest.raises(ValueError, match="tasks must be"):
        solvers.dmmse(jnp.ones((2, D, 2)), 1.0)(ONE)
    with pytest.raises(ValueError, match="context_length must be"):  # 0 is given: not that of the sampler
        identify(RIDGE, sampler=SAMPLER, context_length=0)


def test_lookups_say_what_there_is():
    run = icl_lab.load_run("figures/von_oswald/weight_maps/lab")
    for wrong, said in [
        (lambda: run.record["nope"], "holds no 'nope'; it has "),
        (lambda: run.learner(member=3), r"allowed is stage= one of looped_1, looped_3"),
        (lambda: run.learner(member=99, stage="looped_1"), "no member 99"),
        (lambda: run.learner(member="3", stage="looped_1"), "no member"),
        (lambda: icl_lab.trian, "has no attribute 'trian'; it has compare, identify,"),
    ]:
        with pytest.raises((ValueError, LookupError, AttributeError), match=said):
            wrong()
