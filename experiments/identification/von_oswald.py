"""What the networks of von Oswald et al. 2022 compute, by the kept parameters of their lab records.

Every network is identified on prompts of its training. What is expected of each (``expected``: families, residual,
range) was written before any of them was identified. A record that is not there, or kept no parameters, is listed
under ``missing`` and its claims are not judged. Two controls are made here, twenty members each, that should get no
name: two layers whose training stops early, and one layer that was never trained.

Ten members leave the share that has a name open down to .72 even where all have it. Shares of kept networks are
therefore estimates without a verdict; those of the controls are judged. Averaged over rotations one layer of linear
attention is one step of gradient descent, whatever its weights: residual and range say nothing of it. Judged is its
asymmetry, how far its weights are from a multiple of the identity, against that of random weights of the same size.

On two scales of the inputs that nothing was fitted on (1.75 and 3) the loss of every named member is predicted twice:
by the named algorithm with its parameters fixed, and by the member's own relative loss in training.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.identification.expected import (
    CONTROLS,
    EXPECTED,
    HALF_TRAINED,
    ONE_LAYER,
    OTHERWISE,
    UNTRAINED,
    Expected,
)
from experiments.identification.findings import FINDINGS
from experiments.identification.judging import claimed
from experiments.identification.networks import (
    functions,
    held_back_losses,
    identify_members,
    members_of,
)
from experiments.settings import member_keys
from experiments.von_oswald.common import Setting, model, train
from icl_lab.compare.identify.decision import asymmetry_by_chance
from icl_lab.compare.identify.families import FAMILIES
from icl_lab.identify import Identified
from icl_lab.lab import Claim, Experiment, NotRun, Record, Session, claims_of, load_run, main, setting, style
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import RecordError
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention

GALLERY = Path(__file__).parents[2] / "figures" / "von_oswald"
LARGE = 2.0
"""``init_scale`` at which a layer that was never trained does not predict zero; its asymmetry depends on no scale."""
NAMES = tuple(name for name in FAMILIES if name != "dMMSE or ridge")  # whose tasks are a finite set, unlike here


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Which networks, and how the controls are made."""

    networks: tuple[str, ...] = setting(tuple(EXPECTED), "record/training of each network", choices=tuple(EXPECTED))
    controls: int = setting(20, "members of each control", at_least=1)
    steps: int = setting(400, "training steps of half_trained, a multiple of measure_every", at_least=1)
    measure_every: int = setting(400, "steps between measurements of half_trained", at_least=1)
    batch: int = setting(512, "batch of half_trained", at_least=1)
    eval_tasks: int = setting(500, "tasks that measure half_trained", at_least=1)


PRESETS = {
    "smoke": Config(members=1, controls=1, networks=("weight_maps/looped_1", *CONTROLS), steps=2, measure_every=2,
                    batch=16, eval_tasks=16, context_length=4, input_size=3),
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
            if name in CONTROLS:
                learners, law = _control(name, config, session), to_json(config)
            else:
                kept = load_run(GALLERY / folder / "lab")
                learners, law = members_of(kept, stage, config.members), dict(kept.record.config)
        except (RecordError, OSError) as error:
            metrics["missing"][name] = str(error).replace(str(GALLERY), "figures/von_oswald")
            continue
        found = identify_members(learners, law, config.seed)
        arrays[name] = _arrays(found) | held_back_losses(found, learners, law, config.seed)
        arrays[name]["by_chance"] = np.full(len(learners), asymmetry_by_chance(law["input_size"]))
        metrics[name] = _said(found)
    return metrics, arrays


def _control(name: str, config: Config, session: Session) -> list[Callable]:
    """Members of a two-layer network after few steps, or of one layer as it is drawn."""
    config = dataclasses.replace(config, members=config.controls)
    layers, scale = (2, config.init_scale) if name == HALF_TRAINED else (1, LARGE)
    made = model(LinearSelfAttention(layers=layers, looped=True, init_scale=scale), config)
    if name == HALF_TRAINED:
        params = train(session, "half_trained", config, made).params
    else:
        params = jax.vmap(made.init)(member_keys(config, 1))
    return functions(lambda own: made.learner(own), params, config.members)


def _arrays(found: Identified) -> dict[str, np.ndarray]:
    """(M,) numbers of every member, and its fingerprint; ``equals`` without families that only contain the name."""
    members = found.members
    named = [NAMES.index(m.family) if m.family else -1 for m in members]
    steps = [m.steps if isinstance(m.steps, tuple) else (m.steps or 0,) for m in members]
    grid, r, spread = found.filter
    return {
        "named": np.array(named),
        "steps": np.array([min(k) for k in steps]),
        "steps_most": np.array([max(k) for k in steps]),
        "stability": np.array([m.stability for m in members]),
        "gain": np.array([np.nan if m.gain is None else m.gain for m in members]),
        "residual": np.array([m.residual for m in members]),
        "free": np.array([m.free for m in members]),
        "asymmetry": np.array([m.asymmetry for m in members]),
        "range": np.array([m.range or 0.0 for m in members]),
        "label_range": np.array([m.label_range or 0.0 for m in members]),
        "equals": np.array([[name in claimed(m) for name in NAMES] for m in members]),
        "grid": grid,
        "r": r,
        "spread": spread,
    }


def _said(found: Identified) -> dict[str, Any]:
    """What a person reads: the verdict over members and one row a member."""
    row = ("verdict", "family", "equals", "steps", "parameters", "intervals", "gain", "stability", "residual",
           "asymmetry", "range", "nearest", "reason", "evidence")  # fmt: skip
    return {
        "verdict": found.verdict,
        "family": found.family,
        "stability": found.stability,
        "said": str(found),
        "members": [json.loads(json.dumps({k: getattr(m, k) for k in row})) for m in found.members],  # tuples as lists
    }


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


def _claims() -> Iterator[Claim]:
    for name, expected in EXPECTED.items():
        tag, said = name.replace("/", "_"), " or ".join(expected.families) or "none"
        verdict = {what: {"lab": OTHERWISE.get(f"{tag}_{what}", "holds")} for what in ("residual", "range")}

        def as_expected(record: Record, name: str = name, expected: Expected = expected) -> np.ndarray:
            _present(record, name)
            if not expected.families:
                return np.isin(record[f"{name}/named"], (-1, NAMES.index("zero"))).astype(float)
            return record[f"{name}/equals"][:, [NAMES.index(f) for f in expected.families]].any(1).astype(float)

        share = {"relation": ">=", "interval": "wilson", "unit": "network", "reason": expected.why}
        if name in CONTROLS:
            said = f"{name}: no name in at least 80 % of the members."
            yield claim(f"{tag}_class", "", said, as_expected, 0.8, **share)
        else:
            yield claim(f"{tag}_class", "", f"{name}: {said}, share of the members (an estimate without a verdict).",
                        as_expected, 0.0, expected_verdict={}, **share)  # fmt: skip
        if name in ONE_LAYER:
            yield claim(f"{tag}_asymmetry", "", f"{name}: largest asymmetry of a member, over that below which one in "
                        "a hundred random layers of the same size is.", _over_chance(name, np.max), 1.0, relation="<=",
                        interval="exact", control=_over_chance(UNTRAINED, np.median),
                        reason="the weights are nearer to a multiple of the identity than by chance")  # fmt: skip
        elif expected.families:
            statistics = {k: _values(name, k) for k in ("residual", "range")}
            yield claim(f"{tag}_residual", "", f"{name}: residual of the named model, or of the nearest.",
                        statistics["residual"], expected.residual, relation="<=", interval="median",
                        reason=expected.why, expected_verdict=verdict["residual"])  # fmt: skip
            yield claim(f"{tag}_range", "", f"{name}: holds up to inputs times this (0: not in training).",
                        statistics["range"], expected.range, relation=">=", interval="median",
                        reason=expected.why, expected_verdict=verdict["range"])  # fmt: skip


def _over_chance(name: str, of_members: Callable[[np.ndarray], float]) -> Callable[[Record], np.ndarray]:
    """(1,) of the asymmetries of a network, as shares of the 1 % quantile of random ones, one number."""

    def value(record: Record) -> np.ndarray:
        return np.atleast_1d(of_members(_values(name, "asymmetry")(record) / _values(name, "by_chance")(record)))

    return value


def _untrained(record: Record) -> np.ndarray:
    return (_values(UNTRAINED, "asymmetry")(record) > _values(UNTRAINED, "by_chance")(record)).astype(float)


def _better(record: Record) -> np.ndarray:
    """(cases,) whether the algorithm predicts a named member's loss at a scale better than the training loss does.

    One layer, which no scale takes away from its name, is left out.
    """
    better = []
    for name in record.config["networks"]:
        if f"{name}/loss" in record.arrays and name not in ONE_LAYER:
            true, ours, theirs = (record[f"{name}/{part}"] for part in ("loss", "by_algorithm", "by_loss"))
            keep = np.isfinite(ours)
            better.append((np.abs(ours - true) < np.abs(theirs - true))[keep])
    return np.concatenate(better).astype(float) if better else np.array([])


CLAIMS = (
    *_claims(),
    claim("untrained_asymmetry", "", "Untrained layers are above this, at least 80 % of them.", _untrained, 0.8,
          relation=">=", interval="wilson", unit="network", reason="the control of the asymmetry of one layer"),
    claim("out_of_range", "", "At held-back scales the named algorithm predicts the loss better than the training loss "
          "does (share of members and scales; networks of more than one layer).", _better, 0.8, relation=">=",
          interval="wilson", unit="case", reason="a name that helps in less than four of five cases says little"),
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
    reads=tuple(sorted({f"von_oswald.{name.split('/')[0]}" for name in EXPECTED if name not in CONTROLS})),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
