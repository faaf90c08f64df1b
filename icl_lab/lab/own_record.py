"""The record of a training of a user's own: what the call was, its members; saved, and read back."""

import dataclasses
import functools
import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from icl_lab import machine
from icl_lab.fast.batched import OURS
from icl_lab.lab import checkpoints, execution, own_comparison, records
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.provenance import provenance
from icl_lab.lab.recognised import described, is_known
from icl_lab.lab.record import Record, RecordError, below, flat, in_single
from icl_lab.lab.session import taken
from icl_lab.lab.trainings import After, host
from icl_lab.models import Transformer
from icl_lab.models.attention import ATTENTIONS
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import Layout
from icl_lab.training.fitting import Fit
from icl_lab.training.model import Model, in_dtype, model_of
from icl_lab.training.plans import LEARNING_RATE, Training, training
from icl_lab.training.starts import parameters
from icl_lab.training.trained import Trained

NAME, STAGE = "icl_lab.train", "training"
"""What the record of such a training says of which experiment it is, and the name of its one training."""
ELSEWHERE = "choose another folder"
INSTEAD = "choose another folder, or give overwrite=True"
LOCKED = ("choose another folder, or wait for its end", "choose a folder on a disk of this machine")


class Keepable(Trained):
    """Trained members that can be written into a folder."""

    __slots__ = ()

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Writes the members and what was measured into a folder; raises as ``icl_lab.save``."""
        save(self, folder, overwrite)


def configuration(
    call: Mapping[str, Any], planned: Training, foreign: Mapping[str, str], name: str = ""
) -> dict[str, Any]:
    """What a call of ``training`` was, as plain JSON by place, without ``steps``.

    Args:
      call: the arguments.
      planned: the training.
      foreign: operations that call Python for a value, by the part of the training (``own_comparison.computed``).
      name: stands for what cannot be compared.

    Raises:
      ValueError: naming what cannot be compared, where no ``name`` stands for it: a part that calls Python, other than
        the measurement, or an unknown value where code and values are all that there is to compare.
    """
    usual = {key: one.default for key, one in inspect.signature(training).parameters.items()}
    given = {key: value for key, value in {**usual, **call}.items() if value is not None}
    given |= {"members": len(planned.keys), "measure_every": planned.measure_every}
    if "start" in given:
        given["start"] = parameters(given["start"])
    if "dtype" in given:
        given["dtype"] = str(jnp.dtype(given["dtype"]))
    if "optimizer" not in given:
        given.setdefault("learning_rate", LEARNING_RATE)
    if "keys" not in given:
        given.setdefault("seed", 0)
    given["attention"] = foreign_attentions(given["network"])
    del given["steps"]
    description, unknown = described(given)
    problems = [
        f"{part} contains {operation}, which calls Python or cannot be compared"
        for part, operation in foreign.items()
        if part != "measurement"
    ]
    problems += [f"{place} is {description[place]}" for place in unknown if foreign or place.split("/")[0] == "until"]
    if problems and not name:
        raise ValueError(
            f"{problems[0]}: whether a later call gives the same one cannot be seen; give icl_lab.train a name= that "
            "stands for it, and another one whenever it changes"
        )
    return description | ({"name": name} if name else {})


def foreign_attentions(network: nn.Module | Model) -> dict[str, Any]:
    """Attentions of a person's own, by the name that stands for them in a ``Transformer``."""
    named = network.attentions() if isinstance(network, Transformer) else ()
    return {name: ATTENTIONS[name] for name in named if ATTENTIONS[name] not in OURS}


def record_of(
    fit: Fit, planned: Training, call: Mapping[str, Any], config: Mapping[str, Any], computed: Mapping[str, Any],
    seconds: float,
) -> Record:  # fmt: skip
    """What is kept of a finished training."""
    assert planned.sampler is not None
    of_first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], planned.settings)
    prompt = jax.eval_shape(lambda key: planned.sampler(of_first)(key, 1), jax.random.key(0)).prompt  # type: ignore[misc]
    arrays: dict[str, Any] = {"steps": fit.steps, "diverged_at": fit.diverged_at, **fit.metrics}
    axes = {name: ("member", "step", *(f"{name}_{i}" for i in range(2, np.ndim(a)))) for name, a in fit.metrics.items()}
    metrics: dict[str, Any] = {
        "diverged": int((fit.diverged_at >= 0).sum()),
        "network": _constructor(call["network"]),
        "prompt": {part: [str(leaf.dtype), *leaf.shape[1:]] for part, leaf in vars(prompt).items() if leaf is not None},
    }
    origin = provenance(seconds, config.get("seed")) | {"stages": {STAGE: taken(fit, seconds)}}
    assert planned.model is not None
    origin |= {"computed": {**computed, "prediction": own_comparison.prediction(planned.model, metrics["prompt"])}}
    return Record(
        NAME, "own", {**config, "steps": planned.steps}, metrics,
        {name: in_single(array) for name, array in arrays.items()}, origin,
        axes={"steps": ("step",), "diverged_at": ("member",)} | axes,
        params={at(STAGE, place): leaf for place, leaf in by_place(host(fit.params)).items()},
    )  # fmt: skip


def save(found: Trained, folder: str | Path, overwrite: bool = False) -> None:
    """Writes trained members into a folder, as ``train`` does with ``folder``, but for the state of the optimizer.

    Raises:
      RecordError: where the folder holds a run, or other files.
    """
    folder = machine.path(folder).absolute()
    execution.check_place(folder, ELSEWHERE)
    with records.locked(folder, instead=LOCKED):
        if (folder / "record.json").exists() and not overwrite:
            raise RecordError(f"{folder} holds a run; {INSTEAD}")
        record = found.call.get("record")
        if record is None:
            planned = training(**found.call)
            computed = own_comparison.computed(planned, own_comparison.traceable(planned))
            config = configuration(found.call, planned, computed["foreign"], name="saved")
            record = record_of(found.fit, planned, found.call, config, computed, 0.0)
        checkpoints.remove(folder / "checkpoints")
        records.save(record, folder, claims=[])


def load(folder: str | Path, network: nn.Module | Model | None = None, layout: Layout | None = None) -> Keepable:
    """Trained members that ``train(..., folder=...)`` or ``trained.save(folder)`` has kept.

    Args:
      folder: of the training.
      network: the network or ``Model`` that was trained, where the folder cannot say it: a ``Model``, or a module with
        functions among its attributes or of a file that cannot be imported.
      layout: that was given to ``train``, if any.

    Raises:
      RecordError: where the folder holds no finished training of ``icl_lab.train``, the network has to be given, or is
        another one, naming what differs.
    """
    place = machine.path(folder)
    if not (place / "record.json").exists():
        hint = "; the same call of train finishes it" if (place / "checkpoints").exists() else ""
        raise RecordError(
            f"folder: {str(folder)!r} holds no record.json; allowed is the folder of a finished training{hint}"
        )
    record = records.load(place)
    if record.experiment != NAME:
        raise RecordError(f"{folder} holds a run of {record.experiment}; icl_lab.load_run reads it")
    return trained_of(record, _model(record, network, layout), {"record": record})


def experiment_of(record: Record, network: nn.Module | Model | None, layout: Layout | None) -> Experiment:
    """What ``load_run`` asks of an experiment, of such a training; ``load`` has the arguments."""

    @functools.cache
    def model() -> Model:
        return _model(record, network, layout)

    def learner(params: Any) -> Any:
        return model().learner(_placed(params, model()))

    table = {name: After(lambda fits: None, learner) for name in {place.split("/")[0]: 0 for place in record.params}}
    return Experiment(
        NAME, "A training by icl_lab.train.", {}, lambda config, fits: (), (), trainings=lambda config: table,
        claims=(), figures=lambda record: {},
    )  # fmt: skip


def trained_of(record: Record, model: Model | None, call: Mapping[str, Any]) -> Keepable:
    """What ``train`` returned when the record was made."""
    assert model is not None
    params = jax.device_put(_placed(below(record.params, STAGE), model))
    fields = ("steps", "diverged_at")
    metrics = {name: array for name, array in record.arrays.items() if name not in fields}
    steps, diverged_at = (record.arrays[name] for name in fields)
    return Keepable(model, Fit(params, steps, metrics, diverged_at, resumed=int(steps[-1])), call)


def _model(record: Record, network: nn.Module | Model | None, layout: Layout | None) -> Model:
    """What was trained: as it is given, or as the record says."""
    if network is not None and not isinstance(network, nn.Module | Model):
        raise RecordError(f"network must be the module or Model that was trained, got {network!r}")
    if isinstance(network, Model) and layout is not None:
        raise RecordError("layout: a Model brings its own, so none can be given beside it")
    made_again = network is None
    network = _made_again(record) if network is None else network
    if isinstance(network, Model):
        model = network
    else:
        parts = {part: jnp.zeros(shape, kind) for part, (kind, *shape) in record.metrics["prompt"].items()}
        model = model_of(network, Prompt(**parts), layout)
    model = in_dtype(model, record.config["dtype"]) if "dtype" in record.config else model
    # a module of this package is made again by its name; a class of a person's own may have been edited
    compared = {"layout"} if made_again and is_known(type(network).__module__) else {"network", "layout"}
    given = {name: value for name, value in {"network": network, "layout": layout}.items() if value is not None}
    description = json.loads(json.dumps(described(given)[0]))
    if different := own_comparison.difference_of_models(record, model, description, compared):
        raise RecordError(f"this training was of {different}; give load the network= and layout= that were trained")
    return model


def _made_again(record: Record) -> nn.Module:
    """The network that the record says."""
    spec = record.metrics["network"]
    if spec is None:
        problem = f"{record.config['network']} is a network that no record can make again"
        raise RecordError(f"{problem}; give it to load as network=")
    module, _, name = spec["class"].partition(":")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in spec["fields"].items()}
    try:
        kind: Any = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        return kind(**fields)
    except (ImportError, AttributeError, TypeError) as error:
        raise RecordError(f"{spec['class']} cannot be made again ({error}); give load the network=") from error


def _constructor(network: nn.Module | Model) -> dict[str, Any] | None:
    """Class and fields of a module that ``load`` can make again; None where it cannot."""
    kind = type(network)
    resolved = importlib.import_module(kind.__module__) if kind.__module__ != "__main__" else None
    for name in kind.__qualname__.split("."):
        resolved = getattr(resolved, name, None)
    if resolved is not kind or not dataclasses.is_dataclass(network) or not isinstance(network, nn.Module):
        return None
    fields = {field.name: getattr(network, field.name) for field in dataclasses.fields(network) if field.init}
    fields = {name: value for name, value in fields.items() if name not in ("parent", "name")}
    words = [word for value in fields.values() for word in (value if isinstance(value, tuple) else (value,))]
    if not all(word is None or type(word) in (bool, int, float, str) for word in words):
        return None
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}


def by_place(tree: Any) -> dict[str, Any]:
    """Leaves by their places, ``{"params/w": ...}``; of nested dicts as ``flat``."""
    return {"/".join(map(_word, path)): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def at(stage: str, place: str) -> str:
    """The name of a leaf in a record."""
    return f"{stage}/{place}" if place else stage


def _word(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


def _placed(kept: Any, model: Model) -> Any:
    """Kept leaves, by place or as nested dicts, as the pytree that the model takes."""
    like = jax.eval_shape(model.init, jax.random.key(0))
    leaves = flat(kept) if isinstance(kept, Mapping) else {"": kept}
    ordered = [leaves[place].astype(leaf.dtype) for place, leaf in by_place(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), ordered)
