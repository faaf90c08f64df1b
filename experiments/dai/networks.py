"""The networks that ``pretrain`` trained, read from its record: what the other binaries of this paper analyse."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai.common import RANDOM, Network, Networks, OfNetworks, count, network, stacked
from experiments.settings import member_keys
from icl_lab.lab import FlagError, Record, report
from icl_lab.lab.record import RecordError, below
from icl_lab.lab.records import load
from icl_lab.lab.trainings import Fits
from icl_lab.prompts.text import CLASSES, LABELS, LENGTH, MEANING, WORDS, Language, TextTask
from icl_lab.prompts.text_tasks import HELD_OUT


def check_networks(config: OfNetworks) -> None:
    """Raises FlagError where the networks are not there, or were trained with fewer demonstrations."""
    for encoding in config.positions:
        most = load_networks(config.networks, encoding, count(config, encoding), config.first).demonstrations
        if config.demonstrations > most:
            raise FlagError(
                f"--demonstrations={config.demonstrations}: allowed is at most {most}, with which the networks of "
                f"--networks={config.networks} were trained"
            )


def load_networks(folder: str, encoding: str, members: int, first: int = 0) -> Networks:
    """Networks of a finished run of ``pretrain``, in the order of their numbers.

    Args:
      folder: of the run, from the working directory or else from the root of the laboratory; or ``random``.
      encoding: of positions.
      members: how many.
      first: number of the first.

    Raises:
      FlagError: for a folder without such a record, or a record without so many of such networks; naming the command
        that makes one.
    """
    if folder == RANDOM:
        return _random(encoding, members)
    record = record_of(folder)
    encodings = record.config["positions"]
    if encoding not in encodings:
        raise _refused(folder, f"a run with networks of --positions={encoding}; it has {', '.join(encodings)}", record)
    if (params := below(record.params, encoding)) is None:
        raise _refused(folder, "a run that kept its final parameters, params.npz", record)
    start, kept = record.config["first"], len(jax.tree.leaves(params)[0])
    span = slice(first - start, first - start + members)
    if span.start < 0 or span.stop > kept:
        wanted, stored = f"{first} to {first + members - 1}", f"{start} to {start + kept - 1}"
        raise _refused(folder, f"a run with the networks {wanted} of {encoding} positions; it has {stored}", record)
    settings = {field.name for field in dataclasses.fields(Network)} & record.config.keys()  # older runs had fewer
    config = Network(**{name: record.config[name] for name in settings})
    all_of_them = (params, Language(**record["language"]), TextTask(**record["task"]))
    params, languages, tasks = jax.tree.map(lambda leaf: leaf[span], all_of_them)
    return Networks(network(config, encoding), params, languages, tasks, config.demonstrations)


def one_network(networks: Networks, member: int) -> Networks:
    """One of them, without the member axis."""
    trees = jax.tree.map(lambda leaf: leaf[member], (networks.params, networks.languages, networks.tasks))
    return networks._replace(params=trees[0], languages=trees[1], tasks=trees[2])


def every_network(config: OfNetworks, fits: Fits, stream: int) -> Iterator[tuple[str, Array, Networks]]:
    """Position encoding, key and network, one after the other, with a progress bar.

    Args:
      config: which networks.
      fits: for the progress bar, and for what anchors do to loaded parameters.
      stream: PRNG stream of the keys; networks of one number have the same key in every encoding.

    Raises:
      FlagError: where the networks are not there.
    """
    check_networks(config)
    done, total = 0, sum(count(config, encoding) for encoding in config.positions)
    with fits.bar("networks", total) as advance:
        for encoding in config.positions:
            members = count(config, encoding)
            networks = load_networks(config.networks, encoding, members, config.first)
            for m, key in enumerate(member_keys(config, stream, config.first + members)[config.first :]):
                one = one_network(networks, m)
                yield encoding, key, one._replace(params=fits.perturbed(one.params))
                done += 1
                advance(done, total)


def stacked_by_encoding(found: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """What was found of every network, stacked by position encoding: (M, ..), real numbers as float32."""
    trees: dict[str, list] = {}
    for encoding, tree in found:
        trees.setdefault(encoding, []).append(tree)
    single = lambda values: values.astype(np.float32) if values.dtype == float else values  # noqa: E731
    return {encoding: jax.tree.map(single, stacked(members)) for encoding, members in trees.items()}


def source_digest(path: str) -> str:
    """SHA-256 of a file of weights, or of the parameters of a run: which networks another record is about."""
    if path == RANDOM:
        return RANDOM
    place = _place(path)
    return hashlib.sha256((place / "params.npz" if place.is_dir() else place).read_bytes()).hexdigest()


def record_of(folder: str) -> Record:
    """The record of a finished run of ``pretrain``.

    Raises:
      FlagError: for a folder without one, naming the command that makes it.
    """
    try:
        record = load(_place(folder))
    except RecordError as error:
        raise _refused(folder, f"the folder of a finished run of dai.pretrain; {error}") from error
    if record.experiment != "dai.pretrain":
        raise _refused(folder, f"a run of dai.pretrain; it holds one of {record.experiment}")
    return record


def _place(folder: str) -> Path:
    below_root = Path(__file__).resolve().parents[2] / folder
    return below_root if below_root.is_dir() and not Path(folder).is_dir() else Path(folder)


def _refused(folder: str, allowed: str, record: Record | None = None) -> FlagError:
    command = "python -m experiments.dai.pretrain --preset=lab"
    if record:
        from experiments.dai.pretrain import EXPERIMENT  # for this message alone

        command = report.command(EXPERIMENT, record)
    return FlagError(
        f"--networks={folder}: allowed is {allowed}. One is made by {command} --outdir=runs/networks, "
        "and given as --networks=runs/networks"
    )


def _random(encoding: str, members: int) -> Networks:
    module = network(Network(layers=1, heads=2, width=8, demonstrations=2), encoding)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.zeros(1, np.int32))
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return generator.normal(0, 0.3, (members, *shape)).astype(np.float32)

    def same(values: list) -> Any:
        return np.repeat(np.array([values]), members, axis=0)

    tasks = TextTask(
        template=same([0] * len(HELD_OUT)),
        labels=same([generator.permutation(LABELS)[:CLASSES] for _ in HELD_OUT]),
        classes=same([task.classes for task in HELD_OUT]),
        directions=draw(len(HELD_OUT), CLASSES, LENGTH, MEANING),
        pair=same([False] * len(HELD_OUT)),
    )
    params = jax.tree.map(lambda leaf: draw(*leaf.shape), dict(shapes))
    return Networks(module, params, Language(draw(WORDS, MEANING), draw(LABELS, MEANING)), tasks, 2)
