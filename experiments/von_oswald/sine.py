"""Sine regression with MLPs: learned features and a gradient step on them (von Oswald et al. 2022, Fig. 4).

Tasks y = a sin(x + p). A network of embedding, MLP and linear self-attention is trained whole. Its control has the same
embedding and MLP, trained *through* attention layers that are fixed: K steps of gradient descent on the last layer
(Proposition 1), so that the MLP meta-learns features m for them. Attention behind an MLP is kernel smoothing,
prediction = sum_i k(q, i) v_i + offset with k(q, i) = h_q A h_i (Proposition 2); further layers without MLP iterate it:
functional gradient descent. The released code draws amplitude and phase from one key, which makes them one number
(--laws=dependent); both laws are trained.

Panels, one row a law and depth: one task before and after the attention; loss; agreement of the two networks over
training; the kernel of a trained layer at three queries.
"""

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import panels
from experiments.settings import check, member_keys
from experiments.training import Model, always, paired_losses, squared_error
from experiments.von_oswald.settings import Setting
from experiments.von_oswald.training import model, train
from icl_lab.compare import compare_batches
from icl_lab.constructions import gradient_descent_weights
from icl_lab.lab.claims import Claim, claims_of
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, from_json, setting
from icl_lab.lab.records import Record
from icl_lab.lab.session import Session
from icl_lab.lab.style import LEARNERS, band
from icl_lab.lab.style import panels as axes_grid
from icl_lab.models import LinearSelfAttention, learner, traced
from icl_lab.models.kernels import kernel_form
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler, sine_regression
from icl_lab.solvers import functional_gradient_descent


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 4 as the released code runs it."""

    input_size: int = setting(1, "D: a sine has one input", at_least=1, at_most=1)
    input_range: float = setting(10.0, "r, inputs are U(-r/2, r/2)", above=0)
    amplitudes: tuple[float, ...] = setting((0.1, 0.5), "lowest and highest amplitude; the text says 0.1, 5", above=0)
    laws: tuple[str, ...] = setting(
        ("independent", "dependent"), "amplitude and phase drawn apart, or from one number as in the released code",
        choices=("independent", "dependent"),
    )  # fmt: skip
    layers: tuple[int, ...] = setting((1, 1), "K of each law: looped attention layers, gradient steps", at_least=1)
    width: int = setting(40, "E, width of the embedding", at_least=2)
    mlp_width: int = setting(160, "hidden width of the MLP", at_least=1)
    steps: int = setting(50_000, "training steps: 50,000 in the figure, 20,000 in the notebook", at_least=1)
    measure_every: int = setting(1000, "steps between measurements", at_least=1)
    gradient_clip: float = setting(100.0, "clip of the gradient's norm", above=0)
    control_rate: float = setting(3e-4, "Adam's learning rate for the control (b2 = .999)", above=0)
    inner_rate: float = setting(0.1, "eta of the control's fixed gradient steps", above=0)
    control_scale: float = setting(
        0.002, "variance at the control's start: over D + 1 up to the hidden layer, over E behind", above=0
    )
    depth: int = setting(4, "layers up to which the trained features are held against functional GD", at_least=1)
    population_tasks: int = setting(100_000, "tasks for final losses, shared by both", at_least=1)


PRESETS = {
    "smoke": Config(members=2, context_length=4, batch=8, steps=20, measure_every=10, eval_tasks=8, width=6,
                    mlp_width=8, laws=("independent",), layers=(1,), depth=2, population_tasks=16),
    "quick": Config(members=2, batch=128, steps=2000, measure_every=200, eval_tasks=256, population_tasks=5000),
    "lab": Config(batch=128, steps=20_000, measure_every=500, eval_tasks=1000),
    "paper": Config(),
}  # fmt: skip


def check_laws(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    if len(config.layers) != len(config.laws):
        raise FlagError(f"--layers has {len(config.layers)} values; allowed is one for each of --laws")
    if len(set(zip(config.laws, config.layers))) != len(config.laws):
        raise FlagError("--laws with --layers: allowed is each pair once")
    if len(config.amplitudes) != 2 or config.amplitudes[0] > config.amplitudes[1]:
        raise FlagError(f"--amplitudes={','.join(map(str, config.amplitudes))}: allowed is lowest,highest")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains network and control of every law side by side, on the same tasks, and compares them."""
    arrays: dict[str, np.ndarray] = {}
    for stage, (law_name, layers) in enumerate(zip(config.laws, config.layers)):
        name, law = f"{law_name}_{layers}", _law(config, name=law_name)
        network = LinearSelfAttention(
            layers=layers, looped=True, embedding=config.width, embedding_mlp=config.mlp_width,
            init_scale=config.init_scale,
        )  # fmt: skip
        trained, control = model(network, config), _control(network, config)

        def both(params: dict, trained: Model = trained, control: Model = control) -> dict[str, BatchLearner]:
            return {"trained": trained.learner(params["trained"]), "control": control.learner(params["control"])}

        def compared(params: dict, samples: Sample, both: Callable = both) -> dict[str, Array]:
            learners = both(params)
            found = compare_batches(learners["trained"], learners["control"], samples)
            return {f"control_{name}": value for name, value in found.items()}

        fitted = train(
            session, name, config, _side_by_side(both, trained, control), law=partial(_law, name=law_name),
            keys=member_keys(config, stage), objective=_both_errors, variants=both, extra=compared,
            optimiser=_optimisers,
        )  # fmt: skip
        keys = member_keys(config, 900 + stage)
        finals = paired_losses(both, always(law), fitted.params, keys, config.population_tasks)
        keys = member_keys(config, 970 + stage)
        arrays |= {"steps": fitted.steps}
        arrays |= {f"{name}_{metric}": values for metric, values in fitted.metrics.items()}
        arrays |= {f"{name}_final_{which}": values for which, values in finals.items()}
        first = jax.tree.map(lambda leaf: leaf[0], fitted.params)
        networks = {"trained": first["trained"], "control": _whole(config, first["control"])}
        arrays |= {f"{name}_{k}": v for k, v in _one_task(config, network, networks, law).items()}
        if layers == 1:
            found = jax.jit(jax.vmap(partial(_value_r2, config, network, law)))(fitted.params["trained"], keys)
            arrays[f"{name}_value_r2"] = np.asarray(found)
        deep = jax.jit(jax.vmap(partial(_as_gradient_steps, config, network, law)))(fitted.params["control"], keys)
        arrays[f"{name}_functional_error"] = np.asarray(deep)
    return {}, arrays


def _law(config: Config, _: Any = None, *, name: str) -> Sampler:
    return sine_regression(
        context_length=config.context_length, input_range=config.input_range, amplitude=config.amplitudes,
        dependent=name == "dependent",
    )  # fmt: skip


def _control(network: LinearSelfAttention, config: Config) -> Model:
    """Embedding and MLP trained through fixed gradient steps on the features, all channels but the last.

    They start as in the released code (the text says: as the network does): untruncated normals, of variance
    control_scale / (D + 1) for the embedding and the MLP's first matrix, control_scale / E for its second.
    """
    d, e, hidden, scale = config.input_size, config.width, config.mlp_width, config.control_scale
    plain = model(network, config)

    def init(key: Array) -> dict:
        keys = jax.random.split(key, 3)
        return {
            "embedding": (scale / (d + 1)) ** 0.5 * jax.random.normal(keys[0], (d + 1, e)),
            "embedding_mlp_in": (scale / (d + 1)) ** 0.5 * jax.random.normal(keys[1], (e, hidden)),
            "embedding_mlp_in_bias": jnp.zeros(hidden),
            "embedding_mlp_out": (scale / e) ** 0.5 * jax.random.normal(keys[2], (hidden, e)),
            "embedding_mlp_out_bias": jnp.zeros(e),
        }

    return Model(init, lambda params, prompts: plain.predict(_whole(config, params), prompts), network.layers)


def _whole(config: Config, features: dict) -> dict:
    """The control's features with its fixed attention layers: the pytree of the network."""
    fixed = gradient_descent_weights(
        config.inner_rate, context_length=config.context_length, input_size=config.width - 1
    )
    return {"params": jax.tree.map(lambda leaf: leaf.astype(jnp.float32), fixed["params"]) | features}


def _side_by_side(both: Callable[[dict], dict[str, BatchLearner]], trained: Model, control: Model) -> Model:
    """Both as one model with two outputs, so that every task's loss is the sum of theirs."""

    def init(key: Array) -> dict:
        first, second = jax.random.split(key)
        return {"trained": trained.init(first), "control": control.init(second)}

    def predict(params: dict, prompts: Prompt) -> Array:
        return jnp.concatenate([learner(prompts) for learner in both(params).values()], axis=1)

    return Model(init, predict, trained.layers)


def _both_errors(predictions: Array, samples: Sample) -> Array:
    """(B,) the sum of the losses of both, whose predictions are (B, 2); the loss of one, (B, 1)."""
    target = jnp.broadcast_to(samples.target, predictions.shape)
    return squared_error(predictions, dataclasses.replace(samples, target=target))


def _optimisers(config: Config) -> optax.GradientTransformation:
    """Adam of each, after a clip of its own gradient."""
    clip = lambda rate, b2: optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, b2=b2))  # noqa: E731
    optimisers = {"trained": clip(config.learning_rate, config.adam_b2), "control": clip(config.control_rate, 0.999)}
    return optax.partition(
        optimisers, lambda params: {name: jax.tree.map(lambda _, name=name: name, params[name]) for name in params}
    )


def _one_task(config: Config, network: LinearSelfAttention, networks: dict[str, dict], law: Sampler) -> dict[str, Any]:
    """One task of the law: its curve, its context, and on a grid of queries each network with and without attention."""
    sample = jax.tree.map(lambda leaf: leaf[0], law(member_keys(config, 950, 1)[0], 1))
    grid = jnp.linspace(-config.input_range / 2, config.input_range / 2, 100)[:, None]
    curve = sample.latent["amplitude"] * jnp.sin(grid + sample.latent["phase"])
    found = {"grid": grid, "curve": curve, "x": sample.prompt.x, "y": sample.prompt.y}

    def on_grid(params: dict) -> Array:
        one = learner(network, params)
        return jax.vmap(lambda query: one(replace(sample.prompt, x_query=query)))(grid)

    for name, params in networks.items():
        silent = {"params": params["params"] | {"w_p": jnp.zeros_like(params["params"]["w_p"])}}
        found |= {f"{name}_before": on_grid(silent), f"{name}_after": on_grid(params)}
        if network.layers == 1:
            queries = jnp.array([-0.3, 0.0, 0.3])[:, None] * config.input_range
            form = kernel_form(network, params)
            kernels = jax.vmap(lambda query, form=form: form(Prompt(grid, curve, query)).kernel[0])(queries)
            found |= {f"{name}_kernel": kernels, "queries": queries}
    return {name: np.asarray(value) for name, value in found.items()}


def _value_r2(config: Config, network: LinearSelfAttention, law: Sampler, params: dict, key: Array) -> Array:
    """Squared correlation of the values v_i of a layer as kernel smoothing with the labels y_i."""
    prompts = law(key, config.eval_tasks).prompt
    values = jax.vmap(kernel_form(network, params))(prompts).values
    return jnp.corrcoef(values[:, 0].ravel(), prompts.y.ravel())[0, 1] ** 2


def _as_gradient_steps(config: Config, network: LinearSelfAttention, law: Sampler, features: dict, key: Array) -> Array:
    """(depth,) error of K attention layers behind trained features against K steps of functional GD, K = 1..depth.

    The MLP stands before the first layer only, so the features m are fixed and the kernel is m.m; one step is kernel
    smoothing. Root mean square of the difference over that of the predictions.
    """
    samples, weights = law(key, config.eval_tasks), _whole(config, features)

    def by_descent(prompt: Prompt, steps: int) -> Array:
        tokens = traced(network, weights)(prompt)[1].residual[0]
        embedded = Prompt(tokens[:-1, :-1], tokens[:-1, -1:], tokens[-1, :-1])
        return functional_gradient_descent(jnp.dot, config.inner_rate, steps)(embedded) - tokens[-1, -1:]

    errors = []
    for steps in range(1, config.depth + 1):
        deep = model(network.clone(layers=steps), config).predict(weights, samples.prompt)
        descent = jax.vmap(partial(by_descent, steps=steps))(samples.prompt)
        errors.append(jnp.sqrt(((deep - descent) ** 2).mean() / (descent**2).mean()))
    return jnp.stack(errors)


LOOKS = {
    "trained": dict(LEARNERS["trained"], marker=""),
    "control": dict(LEARNERS["gd"], marker="", label="features + GD"),
}


def figures(record: Record) -> dict[str, Figure]:
    """One row a law: a task, losses, agreement, the kernel."""
    a, config = record.arrays, from_json(Config, record.config)
    pairs = list(zip(config.laws, config.layers))
    figure, axes = axes_grid(4, len(pairs), width=3.2)
    for row, (law, layers) in zip(axes, pairs):
        name = f"{law}_{layers}"
        part = {key.removeprefix(f"{name}_"): value for key, value in a.items() if key.startswith(f"{name}_")}
        grid = part["grid"][:, 0]
        row[0].plot(grid, part["curve"][:, 0], color="0.6", label="task")
        row[0].plot(part["x"][:, 0], part["y"][:, 0], "k.", label="context")
        for which, look in LOOKS.items():
            row[0].plot(grid, part[f"{which}_after"][:, 0], **look)
            row[0].plot(grid, part[f"{which}_before"][:, 0], **(look | {"label": None, "linewidth": 0.7, "alpha": 0.7}))
            band(row[1], a["steps"], part[f"{which}_loss"], **{k: v for k, v in look.items() if k != "marker"})
        row[0].set_title(f"{law} law, {layers} layer{'s' * (layers > 1)} (thin: before)")
        row[0].set_xlabel("input")
        row[0].set_ylabel("prediction")
        row[0].set_ylim(-0.85, 1.2)
        row[1].set_yscale("log")
        row[1].set_xlabel("training step")
        row[1].set_ylabel("loss")
        panels.alignment_panel(row[2], a["steps"], part, "control", title="trained against features + GD")
        if layers == 1:
            _kernel_panel(row[3], part)
        else:
            row[3].set_visible(False)
        row[0].legend(ncols=2, loc="upper center")
        row[1].legend()
    return {"sine": figure}


def _kernel_panel(axes: Axes, part: dict[str, np.ndarray]) -> None:
    """Kernels at three queries, each scaled to a largest size of 1, with the sign that makes k(q, q) positive."""
    grid = part["grid"][:, 0]
    for which, look in LOOKS.items():
        for i, (query, kernel) in enumerate(zip(part["queries"][:, 0], part[f"{which}_kernel"])):
            at_query = kernel[np.abs(grid - query).argmin()]
            scaled = kernel / np.abs(kernel).max() * np.sign(at_query)
            axes.plot(grid, scaled, **(look | {"alpha": 0.4 + 0.3 * i, "label": look["label"] if i == 2 else None}))
            axes.axvline(query, color="0.8", linewidth=0.8)
    axes.set_xlabel("input of the context token")
    axes.set_ylabel("kernel at three queries (scaled)")
    axes.legend(ncols=2, **panels.ABOVE)


def _final(law: str, which: str) -> Callable[[Record], np.ndarray]:
    return lambda record: record.arrays[f"{law}_1_final_{which}"]


def _last(law: str, metric: str) -> Callable[[Record], np.ndarray]:
    return lambda record: record.arrays[f"{law}_1_control_{metric}"][:, -1]


claim = claims_of("von_oswald.sine")


def _of_law(law: str) -> tuple[Claim, ...]:
    """The claims of Fig. 4 on one law: the figure's is the dependent one, and the text's the other."""
    paper = f"von Oswald et al. 2022, Fig. 4 (amplitude and phase {law})"
    verdicts = {"lab": "holds", "paper": "holds"}
    short = {"lab": "fails", "paper": "holds"}  # as found after 20,000 steps of 128 tasks
    close = {"lab": "not resolved", "paper": "holds"}
    return (
        claim(
            f"{law}_loss", paper, "The network trained whole learns sines in context (loss).", _final(law, "trained"),
            expected=0.001, relation="<=", reason="where the published curves end, on an axis to .006",
            expected_verdict=short,
        ),
        claim(
            f"{law}_same_loss", paper,
            "It is no better and no worse than meta-learned features with one gradient step (difference of losses).",
            lambda record: _final(law, "trained")(record) - _final(law, "control")(record), expected=0.0,
            tolerance=0.0005, reason="about a line's width on the figure's axis to .006", expected_verdict=close,
        ),
        claim(
            f"{law}_cosine", paper,
            "The two agree on the sign of d prediction / d query (mean of the cosine, which is 1 or -1).",
            _last(law, "sensitivity_cosine"), expected=0.9, relation=">=",
            reason="near 1 on the figure's axis from .5 to 1.1", expected_verdict=close,
        ),
        claim(
            f"{law}_prediction_difference", paper,
            "Their predictions differ little: a tenth of the root mean square target, .22, at most.",
            _last(law, "prediction_difference"), expected=0.022, relation="<=",
            reason="a tenth of what there is to predict; the figure's axis ends at .08", expected_verdict=short,
        ),
        claim(
            f"{law}_kernel", "von Oswald et al. 2022, Prop. 2",
            "One layer behind the meta-learned features is kernel smoothing with k(x, x') = m(x).m(x') (relative root "
            "mean square error).",
            lambda record: record.arrays[f"{law}_1_functional_error"][:, 0], expected=1e-5, relation="<=",
            reason="an identity: float32 rounding of sums of forty products",
            expected_verdict={"quick": "holds"} | verdicts,
        ),
        claim(
            f"{law}_values", "this lab, on von Oswald et al. 2022, Prop. 2",
            "The network trained whole is another kernel machine: the values that it smooths are not the labels "
            "(squared correlation; 1 in Prop. 2).",
            lambda record: record.arrays[f"{law}_1_value_r2"], expected=0.9, relation="<=",
            reason="a tenth of the variance is more than rounding or noise leaves", expected_verdict=verdicts,
        ),
        claim(
            f"{law}_functional", "von Oswald et al. 2022, A.8",
            "Up to four attention layers behind the meta-learned features, with no MLP between, are as many steps of "
            "functional gradient descent (largest relative root mean square error).",
            lambda record: record.arrays[f"{law}_1_functional_error"].max(axis=1), expected=1e-4, relation="<=",
            reason="an identity; each step rounds the residuals of the one before",
            expected_verdict={"quick": "holds"} | verdicts,
        ),
    )  # fmt: skip


CLAIMS = (
    *_of_law("dependent"),
    *_of_law("independent"),
    claim(
        "one_number", "this lab",
        "The released code's law is easier: its loss is at most half of the other's (ratio, median).",
        lambda record: _final("dependent", "trained")(record) / _final("independent", "trained")(record), expected=0.5,
        relation="<=", interval="median", reason="a family of one parameter against one of two",
        expected_verdict={"lab": "not resolved", "paper": "holds"},
    ),
)  # fmt: skip

AXES = {
    "steps": ("step",),
    "*_final_*": ("member",),
    "*_kernel_error": ("member",),
    "*_value_r2": ("member",),
    "*_functional_error": ("member", "depth"),
    "*_x": ("context", "input"),
    "*_y": ("context", "output"),
    "*_queries": ("query", "input"),
    "*_kernel": ("query", "point"),
    "*_grid": ("point", "input"),
    "*_curve": ("point", "output"),
    "*_before": ("point", "output"),
    "*_after": ("point", "output"),
    "*": ("member", "step"),
}

EXPERIMENT = Experiment(
    "von_oswald.sine", __doc__, PRESETS, run, figures, CLAIMS, check_laws,
    lambda c: [f"{law}_{k}_*" for law, k in zip(c["laws"], c["layers"])],
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
