"""Joining runs that had some members each: records of made-up numbers, cut into shares and put together again."""

import dataclasses

import numpy as np
import pytest

from experiments.dai import implicit_finetuning, pretrain
from experiments.dai.common import COMMITTED, RANDOM
from experiments.dai.pretrain import PRESETS
from experiments.dai.tables import by_task
from experiments.tools import anchoring, join_members
from experiments.tools.join_members import joined
from experiments.zhang_frei_bartlett import nonlinear_transformer
from icl_lab import machine
from icl_lab.lab import FlagError, flags, records
from icl_lab.lab.record import below
from icl_lab.lab.records import Record
from icl_lab.lab.trainings import Fits

TASKS = 6
WHOLE = dataclasses.replace(PRESETS["lab"], positions=("rotary", "sinusoidal", "learned"), members=4, fewer=(2, 1))
COUNTS = dict(zip(WHOLE.positions, (4, 2, 1)))


def made(config, label):
    """The record of a configuration whose numbers depend on encoding and number of a network alone."""
    own = {}
    for positions in config.positions:
        numbers = [n for n in range(config.first, config.first + config.members) if n < COUNTS[positions]]
        draw = lambda *shape, numbers=numbers, positions=positions: np.stack(  # noqa: E731
            [np.random.default_rng([n, len(positions)]).random(shape) for n in numbers]
        )
        own[positions] = {f"{positions}/final_accuracy": draw(TASKS, 3), f"{positions}/reached": draw()}
    worlds = [np.random.default_rng(n).random(TASKS) for n in range(config.first, config.first + config.members)]
    arrays = {"ceiling": np.stack(worlds)} | {name: a for group in own.values() for name, a in group.items()}
    params = {f"{positions}/w": own[positions][f"{positions}/final_accuracy"][:, 0] for positions in own}
    origin = {"sources": "a", "versions": {}, "precision": {}, "seconds": 1.5, "stages": {}}
    origin["command"] = ["pretrain.py", "--preset=lab", "--outdir=elsewhere/runs"]
    axes = pretrain.EXPERIMENT.axes_of(arrays, flags.to_json(config))
    return Record("dai.pretrain", label, flags.to_json(config), {}, arrays, origin, axes, params)


def share(**changes):
    return made(dataclasses.replace(WHOLE, **changes), "lab with less")


@pytest.fixture
def shares():
    return [
        share(positions=("rotary",), first=2, members=2),
        share(positions=("sinusoidal",), members=2),
        share(positions=("rotary",), members=2),
        share(positions=("learned",), members=1),
    ]


def test_shares_joined_are_the_whole(shares):
    whole, found = made(WHOLE, f"lab with members=4, positions={WHOLE.positions}, fewer=(2, 1)"), joined(shares)
    assert found.config == whole.config
    assert found.preset == whole.preset
    assert found.axes == whole.axes
    for parts in ("arrays", "params"):
        assert vars(found)[parts].keys() == vars(whole)[parts].keys()
        for name, values in vars(whole)[parts].items():
            np.testing.assert_array_equal(vars(found)[parts][name], values, err_msg=name)
    assert found.provenance["seconds"] == 6.0
    assert found.provenance["joined"][0]["command"] == ["pretrain.py", "--preset=lab"]


def test_a_joined_record_that_is_joined_again_lists_every_run(shares):
    again = joined([joined(shares[:1] + shares[2:]), shares[1]]).provenance
    assert (len(again["joined"]), again["seconds"]) == (4, 6.0)


def test_what_does_not_belong_together_is_refused(shares):
    with pytest.raises(FlagError, match="rotary network 2 is in two"):
        joined([*shares, shares[0]])
    with pytest.raises(FlagError, match=r"no run has the rotary networks \[1\]"):
        joined([shares[0], share(positions=("rotary",), members=1)])
    with pytest.raises(FlagError, match="differ in steps"):
        joined([shares[0], share(positions=("learned",), members=1, steps=50)])
    other = dataclasses.replace(shares[0], provenance=shares[0].provenance | {"sources": "b"})
    with pytest.raises(FlagError, match="differ in sources"):
        joined([*shares[1:], other])


def anchor_of(folder, experiment, arrays):
    """Puts an anchor beside the record in a folder, whose arrays may differ by 0.1."""
    metrics = {"record": anchoring.identity(folder), "limits": dict.fromkeys(arrays, 0.1)}
    origin = {"conditions": anchoring.conditions(), "vectors": machine.vectors()}
    smoke = flags.to_json(experiment.presets["smoke"])
    records.save(Record(experiment.name, "smoke", smoke, metrics, arrays, origin), folder / anchoring.ANCHOR, [])


@pytest.mark.parametrize(
    ("now", "refused"),
    [(1.05, ""), (1.2, "1: smoke run differs: array loss"), (None, "1: it has no anchor")],
)
def test_members_are_added_to_a_record_of_another_commit_whose_anchor_repeats(
    shares, tmp_path, monkeypatch, now, refused
):
    binary = pretrain.EXPERIMENT
    todays = {"sources": binary.source_version(), "versions": anchoring.versions(), "finished": "2026-02-01"}
    commits = ({"commit": "a" * 40, **todays}, {"commit": "b" * 40, **todays, "sources": "former", "finished": ""})
    runs = [
        dataclasses.replace(run, provenance=run.provenance | commits[place == 1]) for place, run in enumerate(shares)
    ]
    folders = [tmp_path / str(place) for place in range(len(runs))]
    for run, folder in zip(runs, folders):
        records.save(run, folder, [])
    if now is not None:
        anchor_of(folders[1], binary, {"loss": np.array([1.0])})
    monkeypatch.setattr(anchoring, "smoke_run", lambda _: {"loss": np.array([now])})
    if refused:
        with pytest.raises(FlagError, match=f"differ in sources .commits aaaaaaaaa, bbbbbbbbb., and of .*{refused}"):
            joined(runs, folders=folders)
    else:
        found = joined(runs, folders=folders)
        assert found.arrays["rotary/reached"].tolist() == joined(shares).arrays["rotary/reached"].tolist()
        assert found.provenance["commit"] == "a" * 40  # of the last run
        assert [one["commit"][0] for one in found.provenance["joined"]] == ["a", "b", "a", "a"]
    with pytest.raises(FlagError, match=r"differ in sources .commits aaaaaaaaa, bbbbbbbbb.; allowed are runs of one"):
        joined(runs)


def test_parameters_that_no_run_has_kept_are_asked_for_in_vain(shares):
    fewer = {name: values[:1] for name, values in shares[2].params.items()}
    runs = [*shares[:2], dataclasses.replace(shares[2], params=fewer), shares[3]]
    assert len(joined(runs, keep=1).params["rotary/w"]) == 1
    with pytest.raises(FlagError, match="the parameters of the first 1 rotary networks, not of 3"):
        joined(runs, keep=3)


def test_the_command_line_says_what_is_missing(capsys):
    assert join_members.main(["join_members", "--runs=somewhere"]) == 2
    assert "--outdir" in capsys.readouterr().err


def test_the_command_writes_one_record(tmp_path, shares, monkeypatch):
    monkeypatch.setattr(join_members, "draw", lambda *_: [])
    monkeypatch.setattr(pretrain, "EXPERIMENT", dataclasses.replace(pretrain.EXPERIMENT, claims=()))
    for i, one in enumerate(shares):
        records.save(one, tmp_path / str(i), [])
    folders = [str(tmp_path / str(i)) for i in range(len(shares))]
    words = [f"--outdir={tmp_path / 'all'}", "--keep=1", f"--runs={','.join(folders)}"]
    assert join_members.main(["join_members", *words]) == 0
    kept = records.load(tmp_path / "all")
    np.testing.assert_array_equal(kept.params["rotary/w"], joined(shares).params["rotary/w"][:1])
    assert len(kept.arrays["rotary/reached"]) == 4


@pytest.mark.parametrize("taken", ["0", "file"])
def test_a_folder_that_holds_anything_is_refused_before_anything_is_read(tmp_path, shares, capsys, taken):
    records.save(shares[0], tmp_path / "0", [])
    before = (tmp_path / "0" / "record.json").read_bytes()
    (tmp_path / "file").touch()
    words = [f"--outdir={tmp_path / taken}", f"--runs={tmp_path / '0'},{tmp_path / '1'}"]
    assert join_members.main(["join_members", *words]) == 2
    assert f"--outdir={tmp_path / taken}: allowed is a new or an empty folder" in capsys.readouterr().err
    assert (tmp_path / "0" / "record.json").read_bytes() == before
    assert join_members.main(["join_members", f"--outdir={tmp_path / 'new'}", words[1]]) == 2
    assert f"{tmp_path / '1'} holds no record.json" in capsys.readouterr().err


def transformers(**changes):
    """The record of a nonlinear transformer that trains for four steps."""
    config = dataclasses.replace(
        nonlinear_transformer.PRESETS["smoke"], steps=4, measure_every=2, warm_up=1, positions=("without",), **changes
    )
    return record_of(nonlinear_transformer.EXPERIMENT, config)


def record_of(experiment, config, **said):
    """The record of a run of the configuration, whose own one may say otherwise."""
    fits = Fits(experiment.trainings(config), lambda stage, training: training.carried_out())
    facts, arrays, _ = experiment.carried_out(config, fits)
    config = dataclasses.replace(config, **said)
    origin = {"sources": "a", "versions": {}, "precision": {}}
    axes = experiment.axes_of(arrays, flags.to_json(config))
    return Record(experiment.name, "lab", flags.to_json(config), facts, arrays, origin, axes)


def test_nonlinear_transformers_trained_apart_are_those_trained_together():
    whole = transformers(members=2)
    one, other = (transformers(members=1, first=n) for n in (0, 1))
    found = joined([other, one])
    assert (found.config, found.axes, found.metrics) == (whole.config, whole.axes, whole.metrics)
    assert found.arrays.keys() == whole.arrays.keys()
    for name, values in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
    assert np.abs(one.arrays["identity/4_without/loss"] - other.arrays["identity/4_without/loss"]).min() > 1e-3
    with pytest.raises(FlagError, match="member 0 is in two"):
        joined([one, one])
    unknown = [dataclasses.replace(run, provenance={"versions": {}, "precision": {}}) for run in (one, other)]
    with pytest.raises(FlagError, match="names neither its sources nor a commit"):
        joined(unknown)
    changed = dataclasses.replace(other, arrays=dict(other.arrays) | {"identity/4_without/steps": np.arange(3)})
    with pytest.raises(FlagError, match="the array identity/4_without/steps is not the same"):
        joined([one, changed])


def test_only_binaries_that_number_their_members_are_joined():
    with pytest.raises(FlagError, match=r"a run of reddy.mixtures .* allowed are .* zhang_frei_bartlett"):
        joined([Record("reddy.mixtures", "lab", {}, {}, {}, {}, {}, {})])


@pytest.fixture
def analyses():
    """Of four rotary and two sinusoidal networks, and of the next two sinusoidal ones."""
    few = dataclasses.replace(
        implicit_finetuning.PRESETS["smoke"],
        networks="all",
        positions=("rotary", "sinusoidal"),
        members=3,
        fewer=(2, 3),
    )
    return [
        analysis(few),
        analysis(dataclasses.replace(few, networks="new", positions=("sinusoidal",), first=2, members=2)),
    ]


def analysis(config):
    random = dataclasses.replace(config, networks=RANDOM)
    found = record_of(implicit_finetuning.EXPERIMENT, random, networks=config.networks)
    metrics = dict(found.metrics) | {"networks": config.networks}
    return dataclasses.replace(found, metrics=metrics, provenance=found.provenance | {"sources": config.networks})


def test_an_analysis_gets_further_networks(analyses):
    old, new = (dataclasses.replace(run, provenance=run.provenance | {"sources": "a"}) for run in analyses)
    found = joined([old, new])
    assert (found.config["members"], found.config["fewer"], found.config["networks"]) == (4, [3, 3], COMMITTED)
    assert found.config["positions"] == ["sinusoidal", "rotary"]  # of which there are most comes first
    assert found.metrics["networks"] == "all, new"
    for name in ("zero_shot", "path/sim_aou"):
        both = [run.arrays[f"sinusoidal/{name}"] for run in (old, new)]
        np.testing.assert_array_equal(found.arrays[f"sinusoidal/{name}"], np.concatenate(both))
        np.testing.assert_array_equal(found.arrays[f"rotary/{name}"], old.arrays[f"rotary/{name}"])
    of_both = {p: below(found.arrays, p) for p in ("rotary", "sinusoidal")}
    assert found.metrics["by_task"] == by_task(found.metrics["tasks"], of_both)
    times = [run.metrics["undefined"]["sinusoidal"] for run in (old, new)]
    assert found.metrics["undefined"]["sinusoidal"] == {why: times[0].get(why, 0) + n for why, n in times[1].items()}
    with pytest.raises(FlagError, match=r"runs of dai.implicit_finetuning and dai.pretrain"):
        joined([share(members=1), old])
