"""Whether a kept training is the one that is asked for: by what both compute, or else by plain values; in words."""

import logging
import re
from collections.abc import Mapping
from typing import Any

import jax

from icl_lab.lab.computed import named, program
from icl_lab.lab.provenance import changed, digest, digest_of_array, other_settings, precision, versions
from icl_lab.lab.record import Record
from icl_lab.prompts import Prompt
from icl_lab.training.fitting import Member
from icl_lab.training.model import Model
from icl_lab.training.optimizers import of_setting, updated
from icl_lab.training.plans import Training

Tree = Any
Run = Mapping[str, Any]
"""A training as it is written down: ``experiment``, ``config`` (plain values by place), ``precision``, ``versions``,
and ``computed``, which trainings of icl_lab 0.2 have not."""
TRACING = ("icl-lab", "jax", "jaxlib", "flax", "optax")
"""Packages whose releases may write one training as different programs."""
ON_THE_HOST = ("until", "measure_every", "name", "keep", "keep_dtype")
"""Roots of plain values of which programs know nothing."""
NOT_DESCRIBED = ("as ", "unknown (", "object()")
"""Beginnings of words for what stands at another place, or nowhere."""
GRADIENT = "gradient of the loss"
log = logging.getLogger("icl_lab")


def computed(planned: Training, functions: Member) -> dict[str, Any]:
    """Digests of what decides the numbers of a training, by part, and what in it cannot be compared.

    Args:
      planned: the training.
      functions: its ``traceable``.

    Returns:
      Plain JSON: ``parts``, digests by part, among them the gradient with all that a step does; ``foreign``, an
      operation that calls Python for a value, by part; ``backend``.
    """
    key, setting = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (planned.keys, planned.settings)
    )
    state = jax.eval_shape(functions.begin, key, setting)

    def update(gradient: Tree, state: Any, setting: Tree) -> Tree:
        def total(params: Tree) -> Any:
            return sum(leaf.sum() for leaf in jax.tree.leaves(params))

        transformation = of_setting(planned.optimizer)(setting)
        return updated(transformation, gradient, state.opt_state, state.params, total(state.params), total)

    def schedule(setting: Tree, step: Any) -> list[Any]:
        now = planned.schedule(setting, step) if planned.schedule else ()
        return [leaf for leaf in jax.tree.leaves(now) if isinstance(leaf, jax.Array)]

    programs = {
        "initial weights": program(functions.begin, key, setting),
        "optimizer": program(jax.jit(update), state.params, state, setting),
        "schedule": program(jax.jit(schedule), setting, state.step),
        GRADIENT: program(functions.step, state, key, setting),
        "measurement": program(functions.observe, state, key, setting),
    }
    foreign = {part.removeprefix("gradient of the "): names[0] for part, (_, names) in programs.items() if names}
    outputs = {part: tree for part, (tree, _) in programs.items()}
    begun, (_, loss) = outputs["initial weights"], outputs[GRADIENT]
    outputs |= {"initial weights": begun.params, "optimizer": (begun.opt_state, outputs["optimizer"]), "loss": loss}
    outputs |= {"keys": digest_of_array(planned.keys), "settings": jax.tree.map(digest_of_array, planned.settings)}
    parts = {part: digest(named(tree)) for part, tree in outputs.items()}
    return {"backend": jax.default_backend(), "parts": parts, "foreign": foreign}


def prediction(model: Model, prompt: Mapping[str, Any]) -> str | None:
    """A digest of what a model predicts; None where it calls Python for it.

    Args:
      model: the model.
      prompt: type and shape of every part of a prompt, as a record's ``metrics["prompt"]``.
    """
    like: Any = {part: jax.ShapeDtypeStruct((2, *shape), kind) for part, (kind, *shape) in prompt.items()}
    params = jax.eval_shape(model.init, jax.random.key(0))
    predictions, foreign = program(jax.jit(model.predict), params, Prompt(**like))
    return None if foreign else digest(named(predictions))


def run_of(record: Record) -> Run:
    """The training that a record is of."""
    config = {place: value for place, value in record.config.items() if place != "steps"}
    kept = {name: record.provenance.get(name) or {} for name in ("precision", "versions", "computed")}
    return {"experiment": record.experiment, "config": config, **kept}


def incomparable(there: Run, here: Run) -> str:
    """Why what two trainings compute cannot be compared, in words; empty: it can."""
    if not there.get("computed"):
        release, current = (there.get("versions") or {}).get("icl-lab", "before 0.3"), here["versions"]["icl-lab"]
        return f"kept by icl_lab {release} (here {current}), without digests of its programs"
    before, now = (
        {package: run["versions"].get(package) for package in TRACING} | {"back end": run["computed"]["backend"]}
        for run in (there, here)
    )
    different = changed(before, now)
    return f"made with other versions: {different}" if different else ""


def difference(there: Run, here: Run) -> str:
    """How a kept training differs from that of this process, in words; empty: not, or not as far as can be seen.

    Both computing the same makes them one, and the plain values of which programs know nothing; all plain values count
    where a program calls Python. Where programs cannot be compared, plain values can only tell trainings apart.
    """
    before, now, reason = there["config"], here["config"], incomparable(there, here)
    if there["experiment"] != here["experiment"]:
        return str(there["experiment"])
    if settings := other_settings({**there["precision"], "matmul": precision()["matmul"]}):
        return f"another training, under {settings}"
    if reason:
        plain = _plain_difference(before, now, releases=True)
        return f"another configuration ({plain}) ({reason})" if plain else ""
    digests, foreign = there["computed"]["parts"], here["computed"]["foreign"]
    parts = [part for part, value in here["computed"]["parts"].items() if digests.get(part) != value]
    on_the_host = [place for place in {**before, **now} if foreign or place.split("/")[0] in ON_THE_HOST]
    if not parts and all(before.get(place) == now.get(place) for place in on_the_host):
        return ""
    if plain := changed(before, now):
        return f"another configuration ({plain})"
    named = [part for part in parts if part != GRADIENT] or parts
    return f"another training, which differs in what these compute: {', '.join(named)}"


def difference_of_models(record: Record, model: Model, described: Mapping[str, Any], roots: set[str]) -> str:
    """How a model differs from the one that was trained, in words; empty: not, or not as far as can be seen.

    The log says where nothing but plain values shows that a model of a person's own is the one that was trained.

    Args:
      record: of the training.
      model: the model of this process.
      described: its plain values by place.
      roots: of the places that count where what models predict cannot be compared.
    """
    there = run_of(record)
    here = {"versions": versions(), "computed": {"backend": jax.default_backend()}}
    reason = incomparable(there, here) or other_settings({**there["precision"], "matmul": precision()["matmul"]})
    trained, asked = there["computed"].get("prediction"), prediction(model, record.metrics["prompt"])
    comparable = not reason and trained is not None and asked is not None
    if comparable and trained == asked:
        return ""
    roots = {"network", "layout"} if comparable else roots
    before = {place: value for place, value in there["config"].items() if place.split("/")[0] in roots}
    now = {place: value for place, value in described.items() if place.split("/")[0] in roots}
    plain = _plain_difference(before, now, releases=bool(reason))
    if plain:
        return f"another configuration ({plain})" + (f" ({reason})" if reason else "")
    if comparable:
        return "a network that predicts otherwise"
    if "network" in roots:
        reason = reason or "it calls Python"
        words = "whether the network predicts as what was trained cannot be seen (%s); its plain values are the same"
        log.warning(words, reason)
    return ""


def _plain_difference(there: Mapping[str, Any], here: Mapping[str, Any], releases: bool) -> str:
    """The places whose plain values differ, with both, in words; of two ``releases`` those that tell them apart."""
    places = [place for place in {**there, **here} if not releases or _tells(place, there, here)]
    return changed(*({place: config.get(place) for place in places} for config in (there, here)))


def _tells(place: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether other plain values at a place tell trainings apart that two releases have described.

    Code that two releases of Python have compiled does not, nor a value that one of them does not describe, nor a part
    that only one of them names of a function or an object. A member of a dict or a list does.
    """
    words = [str(config[place]) for config in (there, here) if place in config]
    if any(word.startswith(NOT_DESCRIBED) for word in words):
        return False
    if len(words) == 2:
        one, other = (re.fullmatch(r"(.*) \((.*), code .*\)", word) for word in words)
        return not (one and other and one[1] == other[1] and one[2] != other[2])
    fewer = here if place in there else there
    while place := place.rpartition("/")[0]:
        if place in there or place in here:
            return False
        if any(other.startswith(f"{place}/") for other in fewer):
            break
    return True
