"""What the networks of von Oswald et al. 2022 compute, by the kept parameters of their lab records.

Every network is identified on prompts of its training. What is expected of each (``EXPECTED``: families, residual,
range) was written before any of them was identified. A record that is not there, or kept no parameters, is listed
under ``missing`` and its claims are not judged. A two-layer network whose training stops early is trained here, as a
control: it should get no name.

On two scales of the inputs that nothing was fitted on (1.75 and 3) the loss of every named member is predicted twice:
by the named algorithm with its parameters fixed, and by the member's own relative loss in training.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.identification.findings import FINDINGS
from experiments.identification.networks import functions, identify_members, members_of, sampler_of
from experiments.von_oswald.common import Setting, model, train
from icl_lab.compare.identify.families import FAMILIES
from icl_lab.compare.identify.fitting import predicted
from icl_lab.compare.identify.probes import battery, training_prompts
from icl_lab.identify import Identified
from icl_lab.lab import Experiment, NotRun, Record, Session, claims_of, load_run, main, setting, style
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import RecordError
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention

GALLERY = Path(__file__).parents[2] / "figures" / "von_oswald"
NAMES = tuple(name for name in FAMILIES if name != "dMMSE or ridge")  # whose tasks are a finite set, unlike here
CONTROL = "control/half_trained"
HELD_BACK = (1.75, 3.0)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is expected of a network: the families of which one is named (none: no name, or zero), residual, range."""

    families: tuple[str, ...]
    residual: float = 0.05
    range: float = 1.0
    why: str = ""


EXPECTED = {
    "weight_maps/looped_1": Expected(("GD",), 0.01, 4.0, "one linear layer: one step, and a polynomial of one degree"),
    "weight_maps/looped_3": Expected(("GD++",), 0.03, 1.25, "three passes that also transform the inputs"),
    "multi_step/looped_2": Expected(("GD++", "GD"), 0.02, 1.25, "two steps; with e >= 27 g / 4 also GD of four rates"),
    "multi_step/free_5": Expected(("GD++",), 0.05, 1.0, "close to least squares inside the range, diverges outside"),
    "multi_step/looped_10": Expected(("GD++",), 0.05, 1.0, "ten passes; steps cannot be told from predictions"),
    "twelve_layers/free_12": Expected(("GD++", "ridge", "least squares", "normalised Newton"), 0.05, 1.0, "as free_5"),
    "softmax/heads_1": Expected(("softmax regression",), 0.05, 1.0, "one head cannot take the mean of labels off"),
    "softmax/heads_2": Expected(("centred GD",), 0.05, 1.0, "two blunt heads of opposite sign"),
    "layer_norm/looped_1": Expected((), why="normalised tokens mix inputs and labels"),
    "layer_norm/free_2": Expected((), why="as looped_1"),
    "layer_norm/looped_1_without": Expected(("GD",), 0.01, 4.0, "as weight_maps/looped_1"),
    "layer_norm/free_2_without": Expected(("GD++", "GD"), 0.02, 1.25, "two steps of their own"),
    "separate_tokens/softmax": Expected(("GD",), 0.05, 1.0, "a layer that copies, then one step"),
    "separate_tokens/linear": Expected(("GD",), 0.05, 1.0, "the same with a linear first layer"),
    CONTROL: Expected((), why="on the plateau, or leaving it: not symmetric yet"),
}
ONE_LAYER = ("weight_maps/looped_1", "layer_norm/looped_1_without")
"""Averaged over rotations, one layer of linear attention is one step of GD, whatever its weights."""


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Which networks, and how the control is trained."""

    networks: tuple[str, ...] = setting(tuple(EXPECTED), "record/training of each network", choices=tuple(EXPECTED))
    steps: int = setting(400, "training steps of the control, a multiple of measure_every", at_least=1)
    measure_every: int = setting(400, "steps between measurements of the control", at_least=1)
    batch: int = setting(512, "batch of the control", at_least=1)
    eval_tasks: int = setting(500, "tasks that measure the control", at_least=1)


PRESETS = {
    "smoke": Config(members=1, networks=("weight_maps/looped_1", CONTROL), steps=2, measure_every=2, batch=16,
                    eval_tasks=16, context_length=4, input_size=3),
    "quick": Config(members=2, networks=("weight_maps/looped_1", "weight_maps/looped_3")),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Identifies every network that is there."""
    metrics: dict[str, Any] = {"missing": {}}
    arrays: dict[str, Any] = {}
    for name in config.networks:
        folder, stage = name.split("/")
        try:
            if name == CONTROL:
                learners, law = _control(config, session), dict(to_json(config))
            else:
                kept = load_run(GALLERY / folder / "lab")
                learners, law = members_of(kept, stage, config.members), dict(kept.record.config)
        except (RecordError, OSError) as error:
            metrics["missing"][name] = str(error).replace(str(GALLERY), "figures/von_oswald")
            continue
        found = identify_members(learners, law, config.seed)
        losses = _losses(found, learners, law, config.seed)
        arrays[name] = _arrays(found) | losses
        metrics[name] = _said(found)
    return metrics, arrays


def _control(config: Config, session: Session) -> list[Callable]:
    """Members of a two-layer network after few steps."""
    trained = model(LinearSelfAttention(layers=2, looped=True, init_scale=config.init_scale), config)
    fitted = train(session, "half_trained", config, trained)
    return functions(lambda params: trained.learner(params), fitted.params, config.members)


def _arrays(found: Identified) -> dict[str, np.ndarray]:
    """(M,) numbers of every member, and its fingerprint."""
    members = found.members
    named = [NAMES.index(m.family) if m.family else -1 for m in members]
    grid, r, spread = found.filter
    return {
        "named": np.array(named),
        "steps": np.array([m.steps or 0 for m in members]),
        "residual": np.array([m.residual for m in members]),
        "free": np.array([m.free for m in members]),
        "asymmetry": np.array([m.asymmetry for m in members]),
        "range": np.array([m.range or 0.0 for m in members]),
        "label_range": np.array([m.label_range or 0.0 for m in members]),
        "equals": np.array([[name in m.equals for name in NAMES] for m in members]),
        "grid": grid,
        "r": r,
        "spread": spread,
    }


def _said(found: Identified) -> dict[str, Any]:
    """What a person reads: the verdict over members and one row a member."""
    row = ("verdict", "family", "equals", "steps", "parameters", "residual", "asymmetry", "range", "reason")
    return {
        "verdict": found.verdict,
        "family": found.family,
        "said": str(found),
        "members": [{k: list(v) if isinstance(v := getattr(m, k), tuple) else v for k in row} for m in found.members],
    }


def _losses(found: Identified, learners: list[Callable], law: Any, seed: int) -> dict[str, np.ndarray]:
    """(M, S) log10 relative losses at the held-back scales: the member's, and as predicted in two ways.

    Relative is |f - target|^2 / |target|^2 over the queries of a context, median over contexts.
    """
    n, d = law["context_length"], law["input_size"]
    units, on, _ = battery(sampler_of(law), n, d, seed + 1)
    even = np.arange(0, len(on.x), 2)
    out = {name: np.full((len(learners), len(HELD_BACK)), np.nan) for name in ("loss", "by_algorithm", "by_loss")}
    for m, (member, learner) in enumerate(zip(found.members, learners)):
        ask = lambda prompts: learner(prompts[0], prompts[1][:, :, None], prompts[2])[:, 0]  # noqa: E731, B023
        for s, factor in enumerate((1.0, *HELD_BACK)):
            scaled = on.scaled(factor, factor)
            x, y, q = training_prompts(scaled, units)
            target = np.einsum("bd,bdn,bn->b", q, np.linalg.pinv(x), y, optimize=True).reshape(len(even), -1)
            f = np.asarray(ask((x, y, q)), float).reshape(target.shape)
            if s == 0:
                training = _relative_loss(f, target)
                continue
            out["loss"][m, s - 1], out["by_loss"][m, s - 1] = _relative_loss(f, target), training
            if member.fit is not None:
                g = units.label * predicted(member.fit.model, member.fit.theta, scaled.take(even))
                out["by_algorithm"][m, s - 1] = _relative_loss(g, target)
    return out


def _relative_loss(f: np.ndarray, target: np.ndarray) -> float:
    errors = ((f - target) ** 2).sum(1) / np.maximum((target**2).sum(1), 1e-300)
    return float(np.log10(max(np.median(errors), 1e-12)))


def figures(record: Record) -> dict[str, Figure]:
    """The measured residual factor of every network: members as lines, spread over rotations as bands."""
    names = [name for name in record.config["networks"] if f"{name}/r" in record.arrays]
    rows = max(1, -(-len(names) // 4))
    figure, axes = style.panels(4, rows, width=2.6, height=2.2)
    for axis, name in zip(axes.flat, names):
        grid, r, spread = (record[f"{name}/{part}"] for part in ("grid", "r", "spread"))
        for line, width in zip(r, spread):
            axis.fill_between(grid, line - width, line + width, color="0.85", lw=0)
        axis.plot(grid, r.T, color="C0", lw=0.8)
        axis.axhline(0, color="0.6", lw=0.5)
        family = record.metrics[name]["family"] or record.metrics[name]["verdict"]
        axis.set(xscale="log", ylim=(-0.6, 1.2), title=f"{name.replace('/', ', ')}\n{family}")
        axis.set_xlabel("eigenvalue of X$^T$X/N")
    for axis in axes[:, 0]:
        axis.set_ylabel("residual factor")
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    return {"von_oswald": figure}


claim = claims_of("identification.von_oswald", "von Oswald et al. 2022, networks of this lab", presets=("lab",))


def _present(record: Record, name: str) -> None:
    if f"{name}/named" not in record.arrays:
        raise NotRun(f"{name}, whose record was not there or kept no parameters")


def _values(name: str, what: str) -> Callable[[Record], np.ndarray]:
    def values(record: Record) -> np.ndarray:
        _present(record, name)
        return record[f"{name}/{what}"].astype(float)

    return values


OTHERWISE = {
    "multi_step_free_5_class": "fails",
    "multi_step_free_5_residual": "not resolved",
    "multi_step_free_5_range": "not resolved",
    "softmax_heads_1_range": "not resolved",
    "softmax_heads_2_class": "fails",
    "softmax_heads_2_range": "not resolved",
    **{f"twelve_layers_free_12_{what}": "fails" for what in ("class", "residual", "range")},
    **{f"separate_tokens_{layer}_class": "fails" for layer in ("softmax", "linear")},
    **{f"separate_tokens_{layer}_residual": "not resolved" for layer in ("softmax", "linear")},
    "separate_tokens_softmax_range": "fails",
    "separate_tokens_linear_range": "not resolved",
}
"""Verdicts of the records other than the usual ones (``USUALLY``)."""
USUALLY = {"class": "not resolved", "residual": "holds", "range": "holds"}
"""Ten members of ten leave the share of a class open down to .72, where .8 is asked."""


def _claims() -> list:
    found = []
    for name, expected in EXPECTED.items():
        tag, said = name.replace("/", "_"), " or ".join(expected.families) or "none"
        kind = "identity" if name in ONE_LAYER else "claim"
        verdict = {what: {"lab": OTHERWISE.get(f"{tag}_{what}", usual)} for what, usual in USUALLY.items()}

        def as_expected(record: Record, name: str = name, expected: Expected = expected) -> np.ndarray:
            _present(record, name)
            if not expected.families:
                return np.isin(record[f"{name}/named"], (-1, NAMES.index("zero"))).astype(float)
            return record[f"{name}/equals"][:, [NAMES.index(f) for f in expected.families]].any(1).astype(float)

        found.append(claim(f"{tag}_class", "", f"{name}: {said} in at least 80 % of the members.", as_expected, 0.8,
                           relation=">=", interval="wilson", reason=expected.why,
                           expected_verdict=verdict["class"]))  # fmt: skip
        if expected.families:
            statistics = {k: _values(name, k) for k in ("residual", "range")}
            found.append(claim(f"{tag}_residual", "", f"{name}: residual of the named model, or of the nearest.",
                               statistics["residual"], expected.residual, relation="<=", interval="median",
                               reason=expected.why, expected_verdict=verdict["residual"], kind=kind))  # fmt: skip
            found.append(claim(f"{tag}_range", "", f"{name}: holds up to inputs times this (0: not in training).",
                               statistics["range"], expected.range, relation=">=", interval="median",
                               reason=expected.why, expected_verdict=verdict["range"], kind=kind))  # fmt: skip
    return found


def _better(record: Record) -> np.ndarray:
    """(cases,) whether the algorithm predicts a named member's loss at a scale better than the training loss does."""
    better = []
    for name in record.config["networks"]:
        if f"{name}/loss" in record.arrays:
            true, ours, theirs = (record[f"{name}/{part}"] for part in ("loss", "by_algorithm", "by_loss"))
            keep = np.isfinite(ours)
            better.append((np.abs(ours - true) < np.abs(theirs - true))[keep])
    return np.concatenate(better).astype(float) if better else np.array([])


CLAIMS = (
    *_claims(),
    claim("out_of_range", "", "At held-back scales the named algorithm predicts the loss better than the training loss "
          "does (share of members and scales).", _better, 0.8, relation=">=", interval="wilson", unit="case",
          reason="a name that helps in less than four of five cases says little",
          expected_verdict={"lab": "not resolved"}),
)  # fmt: skip

AXES = {
    "*/grid": ("point",), "*/*/r": ("{0}_{1}_member", "point"), "*/*/spread": ("{0}_{1}_member", "point"),
    "*/*/equals": ("{0}_{1}_member", "family"), "*/*/loss": ("{0}_{1}_member", "scale"),
    "*/*/by_algorithm": ("{0}_{1}_member", "scale"), "*/*/by_loss": ("{0}_{1}_member", "scale"),
    "*/*/*": ("{0}_{1}_member",),
}  # fmt: skip

QUICK = {"weight_maps_looped_1_class": None, "weight_maps_looped_3_class": None, "out_of_range": None}
"""Quick asks two members of two networks: too few for a share."""

EXPERIMENT = Experiment(
    "identification.von_oswald", __doc__, PRESETS, run, figures, CLAIMS, axes=AXES, quick=QUICK,
    finding=FINDINGS["von_oswald"], given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
