"""Networks of finished runs as functions of arrays: the members of one training share one compiled program."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icl_lab.identify import Identified, battery, identify, predicted, training_prompts
from icl_lab.lab.runs import FinishedRun
from icl_lab.prompts import BatchLearner, Prompt, Sampler, gaussian_regression, linear_regression

GALLERY = Path(__file__).parents[2] / "figures" / "von_oswald"
LAW = ("input_range", "input_law", "label_noise")
"""Arguments of ``linear_regression`` that are fields of configurations, too."""

CLIP_FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
CLIP_PROMPTS = 2048
HELD_BACK = (1.75, 3.0)
"""Factors on the inputs on which ``identify`` fits nothing."""


def sampler_of(config: Any) -> Sampler:
    """The training distribution that a configuration describes: uniform inputs of a range, or Gaussian of a spectrum.

    Raises:
      ValueError: for a configuration of neither kind: its prompts are no linear regression.
    """
    if "context_length" in config and "spectrum" in config:
        return gaussian_regression(context_length=config["context_length"], covariance=np.diag(config["spectrum"]))
    if not {"context_length", "input_size"} <= set(config) or "laws" in config:
        raise ValueError("identify needs prompts of linear regression of one kind: the run's configuration must have "
                         "context_length and input_size, or context_length and spectrum, and no laws")  # fmt: skip
    return linear_regression(context_length=config["context_length"], input_size=config["input_size"], **_law(config))


def _law(config: Any) -> dict[str, Any]:
    return {name: config[name] for name in LAW if isinstance(config.get(name), float | str)}


def of_stage(config: Any, stage: str) -> dict[str, Any]:
    """The configuration with the sizes of one training: N of ``lengths``, N = D of ``sizes``, or D of the spectrum."""
    sizes = {"input_size": len(config["spectrum"])} if "spectrum" in config else {}
    sized = {f"length_{n}": {"context_length": n} for n in config.get("lengths", ())}
    sized |= {f"size_{d}": {"input_size": d, "context_length": d} for d in config.get("sizes", ())}
    return dict(config) | sizes | sized.get(stage, {})


def prompts_of(config: Any, stage: str) -> str:
    """The training distribution in words."""
    one = of_stage(config, stage)
    kind = ", ".join(f"{name} {value}" for name, value in _law(one).items())
    kind = f"covariance diag({one['spectrum']})" if "spectrum" in one else kind
    return f"linear regression, N = {one['context_length']}, D = {one['input_size']}, {kind or 'input_range 1.0'}"


def members_of(run: FinishedRun, stage: str, members: int | None = None) -> list[Callable]:
    """The members of a training as functions ``(x, y, x_query) -> (B, 1)``, all of them or the first few.

    Raises:
      RecordError: for a training whose parameters were not kept.
    """
    run.batch_learner(0, stage)  # says what is missing
    count = next(len(leaf) for name, leaf in run.record.params.items() if name.startswith(f"{stage}/"))
    chosen = range(min(count, members or count))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(run.params(member, stage) for member in chosen))
    return functions(lambda params: run.with_params(params, stage), stacked, len(chosen))


def functions(learner: Callable[[Any], BatchLearner], params: Any, members: int) -> list[Callable]:
    """Members, whose parameters have a leading axis, as functions of arrays that share one compiled program."""

    @jax.jit
    def program(member_params: Any, x: Any, y: Any, q: Any) -> Any:
        return learner(member_params)(Prompt(x, y, q))

    def one(member_params: Any, name: str) -> Callable:
        def answer(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
            return np.asarray(program(member_params, *(np.asarray(part, np.float32) for part in (x, y, q))))

        answer.__name__ = name
        return answer

    params = jax.device_get(params)
    return [one(jax.tree.map(lambda leaf: leaf[m], params), f"member {m}") for m in range(members)]  # noqa: B023


def identify_members(learners: list[Callable], config: Any, seed: int) -> Identified:
    """Members on the prompts that a run's configuration describes; raises as ``sampler_of`` and ``identify``."""
    sampler = sampler_of(config)
    sizes = {name: config[name] for name in ("context_length", "input_size")}
    return identify(learners, **sizes, sampler=sampler, seed=seed)


def clipped(run: FinishedRun, stage: str, members: int | None = None, seed: int = 0) -> dict[float, np.ndarray]:
    """How often the token clip of a network acts: (M,) shares of training prompts by factor on their inputs.

    It acts where it moves the prediction by more than .001 of the label size: the members are asked with and without
    it. Empty for a network without a clip.
    """
    config = run.record.config
    if not dict(zip(config.get("networks", ()), config.get("token_clips", ()))).get(stage):
        return {}
    off = dict(config) | {"token_clips": [0.0] * len(config["token_clips"])}
    without = FinishedRun(dataclasses.replace(run.record, config=off), run.experiment)
    pairs = list(zip(members_of(run, stage, members), members_of(without, stage, members)))
    prompt = sampler_of(config)(jax.random.key(seed), CLIP_PROMPTS).prompt
    x, y, q = (np.asarray(part) for part in (prompt.x, prompt.y, prompt.x_query))
    shares = {}
    for factor in CLIP_FACTORS:
        bound = 1e-3 * factor * np.sqrt((y**2).mean())
        moved = [one(*(factor * part for part in (x, y, q))) - free(*(factor * part for part in (x, y, q)))
                 for one, free in pairs]  # fmt: skip
        shares[factor] = np.array([(~(np.abs(one) <= bound)).mean() for one in moved])  # what is not finite has moved
    return shares


def held_back_losses(found: Identified, learners: list[Callable], config: Any, seed: int) -> dict[str, np.ndarray]:
    """(M, S) log10 relative losses at the held-back scales: the member's, and as predicted in two ways.

    ``by_algorithm``: by the named algorithm, parameters and gain fixed (NaN without a name). ``by_loss``: by the
    member's own loss in training. Relative is |f - target|^2 / |target|^2 over the queries of a context, median over
    contexts.
    """
    n, d = config["context_length"], config["input_size"]
    fresh_units, on, _ = battery(sampler_of(config), n, d, seed + 1)
    units = found.units  # those of the fits; of other prompts they are a little different
    inputs, labels = (fresh_units.eigenvalue / units.eigenvalue) ** 0.5, fresh_units.label / units.label
    on = dataclasses.replace(on, x=inputs * on.x, y=labels * on.y, q=inputs * on.q)
    even = np.arange(0, len(on.x), 2)
    out = {name: np.full((len(learners), len(HELD_BACK)), np.nan) for name in ("loss", "by_algorithm", "by_loss")}
    for m, (member, learner) in enumerate(zip(found.members, learners)):
        for s, factor in enumerate((1.0, *HELD_BACK)):
            scaled = on.scaled(factor, factor)
            x, y, q = training_prompts(scaled, units)
            target = np.einsum("bd,bdn,bn->b", q, np.linalg.pinv(x), y, optimize=True).reshape(len(even), -1)
            f = np.asarray(learner(x, y[:, :, None], q)[:, 0], float).reshape(target.shape)
            if s == 0:
                training = _relative_loss(f, target)
                continue
            out["loss"][m, s - 1], out["by_loss"][m, s - 1] = _relative_loss(f, target), training
            if (fit := member.fit) is not None:
                g = units.label * fit.gain * predicted(fit.model, fit.theta, scaled.take(even))
                out["by_algorithm"][m, s - 1] = _relative_loss(g, target)
    return out


def _relative_loss(f: np.ndarray, target: np.ndarray) -> float:
    errors = ((f - target) ** 2).sum(1) / np.maximum((target**2).sum(1), 1e-300)
    return float(np.log10(max(np.median(errors), 1e-12)))
