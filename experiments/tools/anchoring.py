"""Anchors of the gallery's records, and which records the present code no longer reproduces (docs/dev/anchors.md).

An anchor is the record of a smoke run, in the folder ``anchor`` beside the record that was made by the same code. A
record is of today if a smoke run of today's code repeats its anchor; without one it is of the commit that it names.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from experiments.binaries import belongs, unlike
from icl_lab.lab import anchors, flags, provenance, records
from icl_lab.lab.combining import code_of
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.provenance import changed, commit_of, digest, of_others, other_settings, versions
from icl_lab.lab.record import Record, RecordError, in_single
from icl_lab.lab.trainings import Fits
from icl_lab.machine import CAP, vectors
from icl_lab.training.fitting import Fit
from icl_lab.training.plans import Training

ANCHOR = "anchor"
NEARBY = 3
"""Smoke runs whose initial parameters differ by the last bit."""
UNNAMED_WIDTH = "AVX512"
"""The vector width of records and anchors that name none."""
MINIMISED = ("von_oswald.logistic",)
"""Binaries whose arrays rest on minimisers of float32 losses, not of trainings (L-BFGS for its algorithms' rates)."""


def load(folder: Path) -> Record | None:
    """The anchor beside a record, None where there is none.

    Raises:
      RecordError: naming the file that is wrong: it differs from its digest, or belongs to another record.
    """
    if not (folder / ANCHOR).exists():
        return None
    anchor = records.load(folder / ANCHOR)
    if anchor.metrics.get("record") != identity(folder):
        raise RecordError(f"{folder / ANCHOR} belongs to another record than the one beside it")
    return anchor


def identity(folder: Path) -> str:
    """Digest of what a run found: its configuration, arrays and metrics, not how its claims were judged.

    Raises:
      RecordError: naming the file that is wrong.
    """
    records.load(folder, arrays=False)
    content = records.read_json(folder / "record.json")
    return digest([content[name] for name in ("experiment", "preset", "config", "arrays", "metrics")])


def anchored(folder: Path) -> bool:
    """Whether the record of a gallery folder has an anchor that belongs to it; says so where one cannot be used."""
    try:
        return load(folder) is not None
    except RecordError as error:
        print(f"anchor not used: {error}", file=sys.stderr)
        return False


def make(experiment: Experiment, folder: Path) -> None:
    """Makes the anchor of the record in a folder, from smoke runs under the present code."""
    smoke = experiment.presets["smoke"]
    with compiling_quickly():
        kept = smoke_run(experiment)
        nearby = [smoke_run(experiment, n, anchors.NEARBY) for n in range(NEARBY)]
        limits = anchors.limits(kept, nearby, smoke_run(experiment, NEARBY, anchors.ELSEWHERE))
    metrics, process = {"record": identity(folder), "limits": limits}, provenance.provenance(0.0)
    origin = {name: process[name] for name in ("versions", "vectors", "precision", "commit", "uncommitted_changes")}
    origin |= {"sources": experiment.source_version(), "conditions": conditions()}
    records.save(Record(experiment.name, "smoke", flags.to_json(smoke), metrics, kept, origin), folder / ANCHOR, [])


def make_at_its_commit(record: Record, folder: Path) -> str:
    """Makes the anchor of the record in a folder by the code of its commit, which collects it in a clone of its own.

    Returns:
      Why none is made; else nothing.
    """
    commit = record.provenance.get("commit")
    if not commit or record.provenance.get("uncommitted_changes") is not False:
        return "its code is in no commit"
    run = partial(subprocess.run, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as place:
        home, gallery = Path(place) / "home", Path(place) / "figures"
        records.save(record, Path(place) / "run", [])
        places = [f"--runs={place}/run", f"--figures={gallery}", f"--readme={place}/none"]
        try:
            run(["git", "clone", "--quiet", "--shared", "--no-checkout", provenance.HOME, home])
            run(["git", "checkout", "--quiet", "--detach", commit], cwd=home)
            environment = os.environ | {"PYTHONPATH": str(home)}
            done = run([sys.executable, "-m", "experiments.gallery", *places], cwd=home, env=environment)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{error} {getattr(error, 'stderr', '')}".strip()
        made = gallery.joinpath(*record.experiment.split("."), record.preset, ANCHOR)
        if not made.exists():
            return f"the code of its commit makes none: {done.stdout}{done.stderr}".strip()
        shutil.copytree(made, folder / ANCHOR)
    return ""


def is_of_this_code(record: Record, experiment: Experiment) -> bool:
    """Whether the sources and versions that made a record are those of this process."""
    code = code_of(record)
    return (code["sources"], code["versions"]) == (experiment.source_version(), of_others(versions()))


def differs_from_smoke(record: Record, experiment: Experiment) -> str:
    """The settings in which a record is not of the present smoke preset, in words; younger ones as in ``belongs``."""
    smoke = experiment.presets["smoke"]
    return changed(flags.to_json(type(smoke)()) | dict(record.config), flags.to_json(smoke))


def smoke_run(experiment: Experiment, number: int = 0, size: float = 0.0) -> dict[str, np.ndarray]:
    """The arrays of the present smoke preset, from initial parameters that are changed by a relative ``size``."""

    def moved(init: anchors.Init) -> anchors.Init:
        return anchors.perturbed(init, number, size) if size else init

    def fit(stage: str, training: Training) -> Fit:
        return replace(training, init=moved(training.init)).carried_out(warn=False)

    config = experiment.presets["smoke"]
    perturbed = lambda params: moved(lambda *_: params)(jax.random.key(0), None)  # noqa: E731
    _, arrays, _ = experiment.carried_out(config, Fits(experiment.trainings(config), fit, perturbed=perturbed))
    return {name: np.asarray(in_single(array)) for name, array in arrays.items()}


@contextmanager
def compiling_quickly() -> Iterator[None]:
    """Compiles without most optimisations, as the tests do: a smoke run is all compilation."""
    if jax.config.read("jax_disable_most_optimizations"):
        yield
        return
    jax.clear_caches()  # programs that were compiled otherwise round otherwise
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
        jax.clear_caches()


def conditions() -> dict[str, str]:
    """What must be the same for a smoke run to be compared with an anchor: versions, compiler options, device.

    Not the vector width: at another one the tolerances are wider (``anchors.at_another_width``).
    """
    packages = of_others(versions())
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(CAP)]
    return packages | {"XLA_FLAGS": " ".join(flags), "device": jax.default_backend()}


def not_compared(anchor: Record | None) -> str:
    """Why no smoke run here is compared with the anchor of a record; empty where one is."""
    if anchor is None:
        return "it has no anchor"
    origin = anchor.provenance
    reasons = changed(origin["conditions"], conditions()), other_settings(origin.get("precision", {}))
    differing = ", ".join(filter(None, reasons))
    return f"its anchor was made under other conditions ({differing})" if differing else ""


def differs_from_anchor(
    anchor: Record, experiment: Experiment, arrays: Callable[[], Mapping[str, np.ndarray]]
) -> list[str]:
    """What today's smoke run (``arrays()``) says otherwise than an anchor, a sentence each; none if nothing."""
    if changes := differs_from_smoke(anchor, experiment):
        return [f"the smoke preset is no longer that of the anchor ({changes})"]
    with compiling_quickly():
        now = arrays()
    sentences = anchors.differences(anchor.arrays, tolerances(anchor, anchor.metrics["limits"]), now)
    return [f"smoke run differs: {sentence}" for sentence in sentences]


def tolerances(then: Record, limits: anchors.Limits) -> anchors.Limits:
    """How far a smoke run of this process may be from one that was made by these ``limits``, maybe at another width."""
    if then.provenance.get("vectors", UNNAMED_WIDTH) == vectors():
        return limits
    return anchors.at_another_width(limits, then.arrays, then.experiment in MINIMISED)


def why_stale(folder: Path, experiment: Experiment) -> list[str]:
    """Why a record of the gallery is not of today, a sentence each; runs the smoke preset.

    A record without an anchor, or with one that cannot be compared here, is named on stderr: nothing is known of it.
    """
    try:
        record, anchor = records.load(folder, arrays=False), load(folder)
    except RecordError as error:
        return [str(error)]
    reasons = []
    if not belongs(experiment, folder.name, record.preset, record.config):
        changes = unlike(experiment, folder.name, record.config) or record.preset
        reasons.append(f"record is not of the present {folder.name} preset ({changes})")
    unknown = not_compared(anchor)
    if anchor is None or unknown:
        commit = commit_of(record.provenance)
        print(f"{experiment.name} {folder.name}: of commit {commit}, not compared: {unknown}", file=sys.stderr)
    else:
        reasons += differs_from_anchor(anchor, experiment, lambda: smoke_run(experiment))
    return reasons
