"""Anchors of the gallery's records: made by smoke runs, kept beside the record, held against today's smoke run."""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icl_lab.lab import anchors, flags, provenance, records
from icl_lab.lab.anchors import ELSEWHERE, PERTURBED, Anchor, Init, perturbed
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import Record, RecordError
from icl_lab.lab.session import Session

FILES = ("anchor.json", "anchor.npz")
SCHEMA = 1
_CONTENT = {"record": str, "smoke": dict, "versions": dict, "sources": str, "arrays": str}
_CONTENT |= {"by_value": dict, "by_shape": dict}


@dataclasses.dataclass(frozen=True)
class Kept:
    """An anchor as it lies beside a record.

    Attributes:
      anchor: what a smoke run is compared with.
      record: digest of the record it belongs to (``identity``).
      smoke: configuration of the smoke run, plain JSON values by field.
      versions: of the packages it was made under.
      sources: digest of the source files it was made by.
    """

    anchor: Anchor
    record: str
    smoke: Mapping[str, Any]
    versions: Mapping[str, str]
    sources: str


def identity(folder: Path) -> str:
    """Digest of what a run found: its configuration, arrays and metrics, not how its claims were judged.

    Raises:
      RecordError: naming the file that is wrong.
    """
    record = records.load(folder, arrays=False)
    arrays = json.loads((folder / "record.json").read_bytes())["arrays"]
    return records.digest([record.experiment, record.preset, dict(record.config), dict(record.metrics), arrays])


def load(folder: Path) -> Kept | None:
    """The anchor beside a record, None where there is none.

    Raises:
      RecordError: naming the file that is wrong: it differs from its digest, or belongs to another record.
    """
    if not any((folder / name).exists() for name in FILES):
        return None
    path = folder / "anchor.json"
    content = records.read_json(path)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is not an anchor of schema {SCHEMA}")
    if content.pop("digest", None) != records.digest(content):
        raise RecordError(f"{path} differs from its own digest")
    if wrong := [name for name, kind in _CONTENT.items() if not isinstance(content.get(name), kind)]:
        raise RecordError(f"{path} has no usable {', '.join(wrong)}")
    values = records.read_arrays(folder / "anchor.npz", content["arrays"])
    if content["record"] != identity(folder):
        raise RecordError(f"{path} belongs to another record than the one beside it")
    if set(values) != set(content["by_value"]):
        raise RecordError(f"{path} and anchor.npz name different arrays")
    anchor = Anchor(values, content["by_value"], content["by_shape"])
    return Kept(anchor, content["record"], content["smoke"], content["versions"], content["sources"])


def save(folder: Path, anchor: Anchor, smoke: Mapping[str, Any]) -> None:
    """Writes the anchor of the record in a folder.

    Raises:
      RecordError: if the record cannot be read.
      OSError: naming the file that could not be written.
    """
    arrays = records.npz(anchor.values)
    content = {
        "schema": SCHEMA,
        "record": identity(folder),
        "record_config": records.digest(dict(records.load(folder, arrays=False).config)),
        "smoke": dict(smoke),
        "arrays": hashlib.sha256(arrays).hexdigest(),
        "by_value": anchor.by_value,
        "by_shape": anchor.by_shape,
        "versions": versions(),
        "xla_flags": anchors.XLA_FLAGS,
        "sources": provenance.source_version(),
        "commit": provenance.commit(),
    }
    records.write_atomically(folder / "anchor.npz", arrays)
    records.write_atomically(folder / "anchor.json", records.as_json(records.sealed(content)))


def versions() -> dict[str, str]:
    """Versions of the packages under which anchors are compared: all that decide numbers but the laboratory itself."""
    return {name: version for name, version in provenance.versions().items() if name != "icl-lab"}


def not_compared(kept: Kept) -> str:
    """Why a smoke run here is not compared with this anchor; empty where it is."""
    now = versions()
    if differing := [name for name in {**kept.versions, **now} if kept.versions.get(name) != now.get(name)]:
        words = (f"{name} {kept.versions.get(name)} there, {now.get(name)} here" for name in differing)
        return f"made under other versions ({', '.join(words)})"
    return other_compiler()


def other_compiler() -> str:
    """Why this process does not compute as anchors do; empty where it does."""
    if os.environ.get("XLA_FLAGS", "") != anchors.XLA_FLAGS:
        return f"XLA_FLAGS are {os.environ.get('XLA_FLAGS', '')!r}, anchors are made with {anchors.XLA_FLAGS!r}"
    return "" if jax.default_backend() == "cpu" else f"anchors are made on a CPU, this is {jax.default_backend()}"


@contextmanager
def compiling_quickly(quickly: bool = True) -> Iterator[None]:
    """Compiles without most optimisations, as the tests do: a smoke run is all compilation."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()  # programs that were compiled otherwise round otherwise
    jax.config.update("jax_disable_most_optimizations", quickly)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
        jax.clear_caches()


def smoke_run(
    experiment: Experiment, config: Any, starting: Callable[[Init], Init] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of a run, from initial parameters of which ``starting`` makes others."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), "", float("inf"), None, starting=starting)
        return experiment.run(config, session)[1]


def make(experiment: Experiment, config: Any, progress: Callable[[int, int], None] = lambda done, of: None) -> Anchor:
    """The anchor of a smoke configuration under the present code, from seven runs; ``progress(done, of)`` counts them.

    Raises:
      RecordError: if this process does not compute as anchors do.
    """
    if reason := other_compiler():
        raise RecordError(reason)
    starts = [None, *(perturbed(number) for number in range(PERTURBED)), perturbed(PERTURBED, ELSEWHERE)]
    runs = []
    with compiling_quickly():
        for starting in starts:
            runs.append(smoke_run(experiment, config, starting))
            progress(len(runs), len(starts) + 1)
    with compiling_quickly(False):
        optimised = smoke_run(experiment, config)
    progress(len(starts) + 1, len(starts) + 1)
    return anchors.make(runs[0], [*runs[1:-1], optimised], runs[-1])


def why_none(record: Record) -> str:
    """Why no anchor may be made for a record now; empty where it may.

    An anchor is made with its record, by the same code under the same versions: made later, it would vouch for a record
    that the code may no longer give.
    """
    if "sources" not in record.provenance:
        return "its provenance does not say which sources made it"
    if record.provenance["sources"] != provenance.source_version():
        return f"the sources have changed since it was made at commit {commit(record.provenance)}"
    if record.provenance["versions"] != provenance.versions():
        return "it was made under other package versions"
    return other_compiler()


def differing(kept: Kept, experiment: Experiment, arrays: Callable[[], Mapping[str, np.ndarray]]) -> list[str]:
    """What today's smoke run (``arrays()``) says otherwise than an anchor, a sentence each; none if nothing."""
    smoke = flags.to_json(experiment.presets["smoke"])
    if changes := changed(kept.smoke, smoke):
        return [f"the smoke preset is no longer that of the anchor ({changes}); --reanchor makes the anchor anew"]
    return [f"smoke run differs: {sentence}" for sentence in anchors.differences(kept.anchor, arrays())]


def todays(experiment: Experiment) -> dict[str, np.ndarray]:
    """The arrays of the present smoke preset, compiled as for the anchor."""
    with compiling_quickly():
        return smoke_run(experiment, experiment.presets["smoke"])


def remade(kept: Kept, experiment: Experiment, progress: Callable[[int, int], None]) -> Anchor:
    """The anchor of the present smoke preset, where that preset alone has changed.

    The present code must still give the former anchor when it runs the former smoke preset.

    Raises:
      RecordError: saying how the code differs; then only a new record brings a new anchor.
    """
    preset = experiment.presets["smoke"]
    try:
        former = flags.from_json(type(preset), kept.smoke)
        flags.validate(former)
        experiment.check(former)
    except (TypeError, flags.FlagError) as error:
        raise RecordError(f"the smoke preset of the anchor can no longer be run ({error})") from error
    with compiling_quickly():
        said = anchors.differences(kept.anchor, smoke_run(experiment, former))
    if said:
        raise RecordError(f"the former smoke preset does not give the anchor any more: {'; '.join(said)}")
    return make(experiment, preset, progress)


def changed(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The settings in which two configurations differ, in words."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return ", ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in names)


def commit(origin: Mapping[str, Any]) -> str:
    """The commit that a provenance names, in nine digits, with ``-dirty`` where files differed from it."""
    return origin.get("commit", "")[:9] + ("-dirty" if origin.get("uncommitted_changes") else "") or "unknown"
