"""Separate tokens: one layer copies labels to inputs, the next takes one GD step (von Oswald et al. 2022, Fig. 5).

Tokens x_1, (0, .., 0, y_1), x_2, .., x_q with positions beside them; two layers, softmax attention and then linear. To
take a gradient step the second layer needs x_j and y_j in one token: the first must copy. After a long plateau the loss
drops to nearly that of one step of gradient descent. With a linear first layer it does not: over 2N = 20 tokens ten
sinusoidal channels have five directions of any size (singular values 8.2 to 1.3, then .07), and the best attention
pattern that is linear in these has loss .302 (this lab, by regression on sampled tasks). Softmax makes it sharper.

Weights written by hand (Proposition 3) copy and then take exactly the gradient step, given positions that tell x-tokens
from y-tokens. Sinusoidal positions do not: a head with which x_j finds its next token, y_j, lets y_j find its own next
token too, x_{j+1}, whose last coordinate then acts as the label of y_j. The best step behind such a head has a closed
form, .2128 for N = D = 10 against .2062 for GD (this lab, ``icl_lab.theory.gradient_descent.copy_everything``). With
2,048 tasks a step six of nine members that drop go below that bound, by attention that depends on content, not on
positions alone (the page of the paper). One-hot positions, a second control, do tell them apart: there x_j looks at
y_j, and y_j at itself, as in the weights by hand.

Panels: loss over training, with a linear first layer beside; copying sensitivities around the drop; agreement with GD
and with the step behind a head that copies everything; where the first layer looks, trained and by hand. Members whose
loss does not drop in time are shown and counted, but not averaged.
"""

import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import check, member_keys
from experiments.training import Model, learners_of, paired_losses
from experiments.von_oswald.common import Setting, law_sizes, model, sampler, train
from experiments.von_oswald.copying import by_hand, by_position, copy_everything
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.separate_tokens_claims import CLAIMS
from experiments.von_oswald.separate_tokens_figures import figures
from experiments.von_oswald.tuning import best_step, eigenvalues
from icl_lab.compare.copying import copy_shares, copying_sensitivities, mean_attention
from icl_lab.lab import Experiment, FlagError, Session, main, setting
from icl_lab.models import Transformer
from icl_lab.prompts import BatchLearner, Prompt, Sample, input_variance
from icl_lab.prompts.layouts import Layout, separate_layout
from icl_lab.solvers import gradient_descent, oracle
from icl_lab.theory import one_step_loss

FIRST_LAYERS = {"softmax": "softmax", "linear": "linear", "one_hot": "softmax"}
"""Attention of the first layer in each training."""


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 5; its curves run to about 50,000 steps, the released notebook to 10,000."""

    only: str = setting("all", "the one training to run, or all", choices=("all", *FIRST_LAYERS))
    steps: int = setting(50_000, "training steps, a multiple of measure_every: 10,000 in the notebook", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    gradient_clip: float = setting(10.0, "clip of the gradient's norm", above=0)
    init_scale: float = setting(0.02, "weights start with variance init_scale / layers / fan_in", above=0)
    key_size: int = setting(20, "width of queries, keys and values", at_least=1)
    positions: str = setting("sinusoidal", "positional encoding", choices=("sinusoidal", "one_hot"))
    position_size: int = setting(10, "channels of the positions: even, for one_hot at least 2N + 1", at_least=1)
    readout: str = setting(
        "position", "the prediction is minus the last position channel, or the label's", choices=("position", "label")
    )
    released_other: bool = setting(False, "count the next token among the others, as the released code does")
    control_members: int = setting(10, "trainings with a linear first layer, and with one-hot positions", at_least=2)
    copy_tasks: int = setting(1000, "tasks that measure what the first layer copies, at most eval_tasks", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)
    oracle_contexts: int = setting(
        100_000, "contexts on which two GD steps are tuned, and as many held out", at_least=2
    )


PRESETS = {
    "smoke": Config(
        members=2, control_members=2, context_length=3, input_size=2, batch=16, steps=20, measure_every=10,
        eval_tasks=16, position_size=4, key_size=4, copy_tasks=8, population_tasks=32, oracle_contexts=100,
    ),
    "quick": Config(
        members=3, control_members=2, context_length=5, input_size=5, batch=128, steps=200, measure_every=50,
        eval_tasks=500, copy_tasks=100, population_tasks=10_000, oracle_contexts=20_000, learning_rate=2e-3,
    ),
    "lab": Config(
        control_members=5, batch=256, steps=20_000, measure_every=250, eval_tasks=2000, copy_tasks=500,
    ),
    "paper": Config(),
}  # fmt: skip


def check_positions(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    n, size = config.context_length, config.position_size
    if n < 2:
        raise FlagError(f"--context_length={n}: allowed is at least 2, or no token is left but a token and the next")
    if config.positions == "sinusoidal" and size % 2:
        raise FlagError(f"--position_size={size}: allowed is an even number with --positions=sinusoidal")
    if config.positions == "one_hot" and size < 2 * n + 1:
        raise FlagError(f"--position_size={size}: allowed is at least {2 * n + 1}, 2N + 1, with --positions=one_hot")


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    stacks = {name: _stack(config, name) for name in FIRST_LAYERS}
    return {name: model(network, config, layout) for name, (network, layout) in stacks.items()}


def parts(config: Mapping[str, Any]) -> list[str]:
    """Patterns of the arrays of the trainings to run (``Experiment.parts``)."""
    return [f"{name}/*" for name in FIRST_LAYERS if config.get("only", "all") in ("all", name)]


def _stack(config: Config, name: str) -> tuple[Transformer, Layout]:
    """Network and layout of one of the trainings."""
    attention = (FIRST_LAYERS[name], "linear")
    network = Transformer(layers=2, attention=attention, key_size=config.key_size, init_scale=config.init_scale)
    if name == "one_hot":  # with the hand-built network's free channels
        return network, separate_layout(2 * config.context_length + 2, "one_hot", config.readout)
    return network, separate_layout(config.position_size, config.positions, config.readout)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the stack and its two controls, and measures what the first layer copies."""
    eta, best = best_step(config)
    metrics = {
        "learning_rate": eta,
        "closed_form": best,
        "copy_everything": copy_everything(config)[1],
        "predict_zero": float(one_step_loss(0.0, **law_sizes(config))),
        "two_steps": _two_steps(config),
    }
    arrays: dict[str, Any] = by_hand(config, eta, config.copy_tasks)
    looked_at = jax.jit(sampler(config), static_argnums=1)(member_keys(config, 700, 1)[0], config.copy_tasks).prompt
    for stage, (name, trained) in enumerate(models(config).items()):
        if config.only not in ("all", name):
            continue
        arrays["steps"], arrays[name] = _trained(config, session, stage, name, trained, looked_at)
    return metrics, arrays


def _trained(
    config: Config, session: Session, stage: int, name: str, trained: Model, prompts: Prompt
) -> tuple[np.ndarray, dict[str, Any]]:
    """Steps (R,); training curves, final losses (M,) and attention (M, 2N + 1, 2N) on these prompts."""
    members = config.control_members if stage else config.members
    network, layout = _stack(config, name)
    gd = jax.vmap(gradient_descent(best_step(config)[0], 1))
    references = {"gd": gd, "copying": jax.vmap(copy_everything(config)[0])}

    def learners(params: dict) -> dict[str, BatchLearner]:
        looks = mean_attention(network, params, prompts, layout)
        positional = partial(by_position, network, params, layout, looks)
        return references | {"trained": trained.learner(params), "positional": positional}

    def copying(params: dict, samples: Sample) -> dict[str, Array]:
        own = jax.tree.map(lambda leaf: leaf[: config.copy_tasks], samples.prompt)
        shares = copy_shares(network, params, own, layout)
        found = copying_sensitivities(network, params, own, layout, released=config.released_other)
        return found | {f"share_{kind}": share[0] for kind, share in shares.items()}

    fitted = train(
        session,
        name,
        config,
        trained,
        keys=member_keys(config, stage, members),
        references={} if stage else references,
        variants=lambda _: {"zero": lambda prompts: jnp.zeros((prompts.x.shape[0], 1))},
        extra=copying,
    )
    keys = member_keys(config, 900 + stage, members)
    finals = paired_losses(learners, lambda _: sampler(config), fitted.params, keys, config.population_tasks)
    looks = jax.jit(lambda stack: jax.lax.map(lambda params: mean_attention(network, params, prompts, layout), stack))
    attention = np.asarray(looks(fitted.params))[:, 0]
    return fitted.steps, fitted.metrics | {"final": finals, "attention": attention}


def _two_steps(config: Config) -> float:
    """Exact loss of two GD steps with the best shared learning rate."""
    fitting, held_out = (eigenvalues(config, key, config.oracle_contexts) for key in member_keys(config, 10_000, 2))
    variance = input_variance("uniform", config.input_range)
    given: dict[str, Any] = {"held_out": held_out, "context_length": config.context_length, "input_variance": variance}
    return oracle.tune_gradient_descent(fitting, 2, **given).loss


AXES = {
    "steps": ("step",),
    "hand_built_difference": ("member",),
    "hand_built_attention": ("query", "key"),
    "softmax/final/*": ("member",),
    "softmax/attention": ("member", "query", "key"),
    "softmax/*": ("member", "step"),
    "*/final/*": ("control_member",),
    "*/attention": ("control_member", "query", "key"),
    "*": ("control_member", "step"),
}

EXPERIMENT = Experiment(
    "von_oswald.separate_tokens", __doc__, PRESETS, run, figures, CLAIMS, check_positions, parts, axes=AXES,
    learners=learners_of(models), quick=QUICK["separate_tokens"], effort={"quick": "little"},
    finding=FINDINGS["separate_tokens"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
