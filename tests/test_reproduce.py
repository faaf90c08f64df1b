import dataclasses
import json
import os
import re

import jax
import numpy as np
import optax
import pytest
from toys import Config, made_up

from experiments import papers
from experiments.binaries import belongs
from experiments.page import drawing
from experiments.papers import ORDER, Paper
from experiments.tools import anchoring, forks, gallery, pace, reproduce, verdict_tables
from icl_lab.lab import flags, records
from icl_lab.lab.claims import Claim, Quick
from icl_lab.lab.drift import committed
from icl_lab.lab.execution import default_outdir, execute
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.plans import Run
from icl_lab.lab.quantities import quantity
from icl_lab.lab.record import Record
from icl_lab.lab.records import LOG
from icl_lab.lab.style import panels
from icl_lab.training import Training

SIX = Config(members=6)
VALUES = quantity("values", "member")


@dataclasses.dataclass
class Toy:
    """A binary that counts how often it runs and how often its training is traced, trains and raises where told to."""

    name: str
    verdict: str = "holds"
    raises: BaseException | None = None
    trains: bool = False
    runs: int = 0
    traces: int = 0

    def trainings(self, config):
        def loss(params, key, setting):
            self.traces += 1
            return (params - jax.random.normal(key)) ** 2

        keys = jax.random.split(jax.random.key(config.seed), config.members)
        one = Training(lambda k, s: jax.random.normal(k), loss, optax.sgd(0.1), keys, steps=2)
        return {"train": one} if self.trains else {}

    def measured(self, config, fits):
        self.runs += 1
        list(fits.values())
        if self.raises is not None:
            raise self.raises
        yield VALUES, np.arange(config.members, dtype=float)

    def experiment(self):
        claim = Claim(
            f"{self.name}.finite", "Toy", "Every member | is finite.",
            lambda record: np.isfinite(record.arrays["values"]).astype(float), expected=1.0, tolerance=1.0,
            reason="any fraction will do", interval="wilson", expected_verdict={"lab": self.verdict},
            quick=Quick(1.0, "as at lab", self.verdict), headline=1,
        )  # fmt: skip

        def figures(record):
            figure, axes = panels(1)
            axes[0, 0].plot(record.arrays["values"])
            return {"values": figure}

        return made_up(
            self.name, SIX, self.measured, (VALUES,), about=f"About {self.name}.", trainings=self.trainings,
            figures=figures, claims=(claim,),
        )  # fmt: skip


class Child:
    """A process that has ended."""

    def __init__(self, status):
        self.poll = lambda: status
        self.terminate = self.kill = lambda: None


def start_inside(runs):
    """As what ``forks.starter`` returns, in this process."""
    for run in runs:
        try:
            execute(run.experiment, run.preset, run.config, run.folder)
            yield Child(0)
        except Exception as error:
            run.folder.mkdir(parents=True, exist_ok=True)
            (run.folder / LOG).write_text(f"Traceback\n{type(error).__name__}: {error}\n\n")
            yield Child(1)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """``start(toys, *flags)``: the exit status of reproduce, as if these toys were all binaries, in this process."""

    def run(toys, *words):
        monkeypatch.setattr(forks, "starter", lambda _: start_inside)
        monkeypatch.setattr(reproduce, "discover", lambda: {toy.name: toy.experiment() for toy in toys})
        return reproduce.main(["reproduce", f"--outroot={tmp_path}", *words])

    return run


def test_list_names_and_runs_nothing(start, capsys):
    toy = Toy("toy.a")
    assert start([toy], "--list") == 0
    assert "toy.a" in capsys.readouterr().out
    assert toy.runs == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only=something"], "there are toy.a, toy.b"),
        (["--only=toy.a,toi.b"], "--only=toi.b: there is no such binary; did you mean toy.b?"),
        (["--workers=-1"], "--workers"),
        (["--preset=huge"], "huge"),
        (["--seed=-1"], "--seed=-1"),
    ],
)
def test_refuses_before_any_run(start, capsys, words, message):
    toys = [Toy("toy.a"), Toy("toy.b")]
    assert start(toys, *words) == 2
    assert message in capsys.readouterr().err
    assert not any(toy.runs for toy in toys)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("clamping", "did you mean reddy.clamping?"),
        ("von_oswald.landscape", "did you mean reddy.landscape or zhang_frei_bartlett.landscape?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(
        flags.FlagError, match=rf"--only={re.escape(name)}: there is no such binary; {re.escape(nearest)}"
    ):
        reproduce.choose(reproduce.discover(), name)


def test_a_folder_stands_for_its_binaries():
    found = reproduce.discover()
    chosen = reproduce.choose(found, "dai, reddy.clamping")
    assert set(chosen) == {"reddy.clamping", *(name for name in found if name.startswith("dai."))}


def test_refuses_an_outroot_that_is_a_file(start, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert start([Toy("toy.a")], f"--outroot={tmp_path / 'file'}") == 2
    assert f"--outroot={tmp_path / 'file'}" in capsys.readouterr().err


def test_runs_once_and_then_skips(start, tmp_path, capsys):
    toys = [Toy("toy.a"), Toy("toy.b")]
    assert start(toys) == 0
    said = capsys.readouterr().out
    assert "[2/2] holds        toy.b: Every member | is finite: 1.00 [0.61, 1.00], expected 1 ± 1; " in said
    assert "/values.png\n" in said
    assert "toy: 2 of 2 headline claims judged here hold\n  held         a; b\n" in said
    assert f"Page: {tmp_path / 'report-quick.html'}" in said
    page = (tmp_path / "report-quick.html").read_text()
    assert all(f'<article id="{toy.name}"' in page for toy in toys)
    assert start(toys) == 0
    assert [toy.runs for toy in toys] == [1, 1]


def test_seed_and_only_reach_the_runs(start, tmp_path):
    toys = [Toy("toy.a"), Toy("toy.b")]
    assert start(toys, "--only=toy.b", "--seed=3") == 0
    assert [toy.runs for toy in toys] == [0, 1]
    folder = default_outdir(toys[1].experiment(), "quick", Config(seed=3, members=6), tmp_path)
    assert json.loads((folder / "config.json").read_text())["seed"] == 3


def test_a_failing_binary_does_not_stop_the_others_and_is_resumed(start, tmp_path, capsys):
    broken, sound = Toy("toy.a", raises=ValueError("not today"), trains=True), Toy("toy.b")
    assert start([broken, sound]) == 1
    assert sound.runs == 1
    captured = capsys.readouterr()
    (log,) = tmp_path.rglob(LOG)
    assert f"no record    toy.a: ValueError: not today; {log}\n" in captured.out
    assert (
        "toy: 1 of 1 headline claims judged here hold\n  held         b\n  no record    a (ValueError" in captured.out
    )
    assert "did not finish: toy.a" in captured.err
    assert "ValueError: not today" in (tmp_path / "report-quick.html").read_text()
    broken.raises, traced = None, broken.traces
    assert start([broken, sound]) == 0
    assert broken.traces == traced > 0  # the finished stage was not trained again
    assert (broken.runs, sound.runs) == (2, 1)


def test_a_claim_that_raises_stops_no_other_run(start, monkeypatch, capsys):
    def judged(self, record):
        raise KeyError("valeus")

    toys = [Toy("toy.a"), Toy("toy.b")]
    assert start(toys) == 0
    monkeypatch.setattr(Experiment, "judged", judged)
    assert start(toys) == 1
    assert "[2/2] no record    toy.b: KeyError: 'valeus'; " in capsys.readouterr().out


def test_a_run_is_judged_once_by_itself_and_again_only_where_it_finished_earlier(start, monkeypatch):
    judged, times = Experiment.judged, []
    monkeypatch.setattr(Experiment, "judged", lambda *its: times.append(its) or judged(*its))
    for so_far in (1, 2):
        assert start([Toy("toy.a")]) == 0
        assert len(times) == so_far


def test_verbose_names_every_claim(start, capsys):
    assert start([Toy("toy.a")], "--verbose") == 0
    assert "  toy.a.finite: holds, 1.00 [0.61, 1.00], expected 1 ± 1" in capsys.readouterr().out


def planned(*names):
    return [Run(name, Toy(name).experiment(), "quick", SIX, None) for name in names]


def test_a_headline_of_each_paper_comes_first_and_then_the_longest():
    names = ["toy.short", "toy.long", *reproduce.FIRST]
    seconds = dict(zip(names, [1.0, 9.0, 4.0, 2.0, 3.0, 5.0]))
    found = [run.name for run in reproduce.in_order(planned(*names), seconds)]
    first = [reproduce.FIRST[i] for i in (1, 2, 0, 3)]
    assert found == [*first, "toy.long", "toy.short"]
    assert {name.split(".")[0] for name in reproduce.FIRST} == set(ORDER)
    assert set(reproduce.FIRST) <= set(reproduce.discover())


def test_the_picture_of_a_run_is_the_one_that_the_page_shows_first(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.png").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(papers, "paper_of", lambda key: Paper(key, key, captions={"mixers/b": "", "other/a": ""}))
        assert [path.stem for path in papers.pictures("dai.mixers", tmp_path)] == ["b", "a", "c"]


def test_what_is_left_is_scaled_by_how_fast_runs_went_here():
    now, runs = [0.0], planned("a", "b", "c")
    expected = dict(zip(runs, (10.0, 20.0, 30.0)))
    found = pace.Pace(expected, workers=2, clock=lambda: now[0])
    assert found.left() == 30  # 60 seconds for two, one run takes half of them
    found.begins(runs[0])
    found.begins(runs[1])
    now[0] = 20.0
    found.ends(runs[0])  # took twice as long as committed
    assert found.ratio() == 2
    assert found.left() == 60  # that of the third, which waits; the second has 20 left
    failed = pace.Pace(expected, workers=2, clock=lambda: now[0])
    failed.begins(runs[0])
    failed.ends(runs[0], finished=False)  # at once
    assert failed.left() == 30
    now[0] = 50.0
    found.ends(runs[1])
    found.begins(runs[2])
    assert found.ratio() == pytest.approx(70 / 30)
    assert found.left() == pytest.approx(70)
    assert found.words() == "about 70 s left"
    now[0] = 150.0
    assert found.left() == pytest.approx(10)  # it has taken 100 and should have ended
    found.ends(runs[2])
    assert found.left() == 0


def test_committed_seconds_are_listed_or_those_of_the_record_or_the_usual(tmp_path):
    (tmp_path / "seconds.json").write_text('{"quick": {"p.a": 12.0}}')
    (tmp_path / "p/b/quick").mkdir(parents=True)
    (tmp_path / "p/b/quick/provenance.json").write_text('{"seconds": 20.0}')
    assert pace.committed_seconds(["p.a", "p.b", "p.c"], "quick", tmp_path) == {"p.a": 12.0, "p.b": 20.0, "p.c": 16.0}
    assert pace.committed_seconds(["p.a"], "lab", tmp_path / "none") == {"p.a": 60.0}


def test_interrupt_is_resumable(start, capsys):
    later = Toy("toy.b")
    assert start([Toy("toy.a", raises=KeyboardInterrupt()), later]) == 130
    assert "resumes" in capsys.readouterr().err
    assert later.runs == 0


def test_another_verdict_than_committed_is_an_error(start, capsys):
    assert start([Toy("toy.a", verdict="fails")]) == 1
    captured = capsys.readouterr()
    assert "toy.a.finite" in captured.err


def test_gallery_collects_draws_and_writes_the_ledger(start, tmp_path, monkeypatch, capsys):
    toy = Toy("toy.a")
    assert start([toy]) == 0
    assert start([toy], "--preset=lab") == 0
    monkeypatch.setattr(gallery, "discover", reproduce.discover)
    monkeypatch.setattr(gallery, "LARGEST_ARRAYS", 10)
    readme, figures = tmp_path / "README.md", tmp_path / "figures"
    readme.write_text(f"before\n{verdict_tables.BEGIN}\nformer table\n{verdict_tables.END}\nafter\n")
    words = ["gallery", f"--runs={tmp_path}", f"--figures={figures}", f"--readme={readme}"]
    assert gallery.main(words) == 0
    (row,) = json.loads((figures / "claims.json").read_text())
    assert (row["id"], row["preset"], row["verdict"]) == ("toy.a.finite", "lab", "holds")
    kept = sorted(path.name for path in (figures / "toy/a/lab").iterdir())
    assert kept == [
        "anchor",
        "arrays.txt",
        "config.json",
        "provenance.json",
        "record.json",
        "values.png",
    ]
    assert list((figures / "toy/a").iterdir()) == [figures / "toy/a/lab"]
    assert "| `toy.a.finite`: Every member \\| is finite. | 1 ± 1 | 1.00 [" in (figures / "claims.md").read_text()
    assert "| `toy.a` | lab | 1 on 6 | 1 |  |  |  | yes |" in (figures / "claims.md").read_text()
    before = readme.read_text()
    assert "| [toy](experiments/toy/README.md) | 1 | 0 | 0 | 0 |" in before
    assert "former table" not in before
    assert before.endswith(f"{verdict_tables.END}\nafter\n")
    assert gallery.main(words) == 0
    assert readme.read_text() == before


def test_a_run_at_another_setting_stands_in_the_gallery_and_in_no_ledger(tmp_path, capsys):
    experiment = Toy("toy.a").experiment()
    record = execute(experiment, "lab", experiment.presets["lab"], tmp_path / "run").record
    gallery.put(experiment, "lab", record, tmp_path / "figures/toy/a/lab")
    gallery.put(experiment, "lab-9-steps", record, tmp_path / "figures/toy/a/lab-9-steps")
    capsys.readouterr()
    assert len(gallery.ledger(tmp_path / "figures", {"toy.a": experiment})) == 1
    assert not capsys.readouterr().err
    fewer = {name: array[:-1] for name, array in record.arrays.items()}
    earlier = dataclasses.replace(record, config=record.config | {"members": len(fewer["values"])}, arrays=fewer)
    gallery.put(experiment, "lab", earlier, tmp_path / "figures/toy/a/lab")
    assert not gallery.ledger(tmp_path / "figures", {"toy.a": experiment})
    assert "out of date, not in the ledger" in capsys.readouterr().err


def test_gallery_keeps_arrays_and_parameters_that_other_binaries_read(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "LARGEST_ARRAYS", 10)
    monkeypatch.setattr(gallery, "LARGEST_PARAMS", 10)
    experiment = Toy("toy.a").experiment()
    record = execute(experiment, "lab", experiment.presets["lab"], tmp_path / "run").record
    record = dataclasses.replace(record, params={"training/w": np.zeros((2, 3))})
    for feeds, kept in ((True, "arrays.npz"), (False, "arrays.txt")):
        folder = tmp_path / kept
        gallery.put(dataclasses.replace(experiment, feeds_others=feeds), "lab", record, folder)
        assert [path.name for path in folder.glob("arrays.*")] == [kept]
        assert (folder / "params.npz").exists() == feeds


@pytest.mark.parametrize("kept", [True, False])
def test_records_of_the_gallery_are_judged_by_the_claims_as_they_are_now(tmp_path, kept):
    experiment, folder = Toy("toy.fine").experiment(), tmp_path / "lab"
    (row,) = execute(experiment, "lab", experiment.presets["lab"], folder).ledger
    if not kept:
        (folder / "arrays.npz").unlink()
    assert gallery.rejudge(folder, experiment) == []
    assert committed(folder)[1] == [row]
    estimates = tuple(dataclasses.replace(claim, expected_verdict={}) for claim in experiment.claims)
    assert len(gallery.rejudge(folder, dataclasses.replace(experiment, claims=estimates))) == 1
    assert committed(folder)[1] == [row | {"verdict": "not judged", "expected_verdict": None}]
    records.replace_claims(folder, [row])
    (stricter,) = (dataclasses.replace(claim, expected=2.0, tolerance=0.5) for claim in experiment.claims)
    (said,) = gallery.rejudge(folder, dataclasses.replace(experiment, claims=(stricter,)))
    (now,) = committed(folder)[1]
    assert (now["expected"], now["estimate"]) == (2.0, row["estimate"])
    assert now["verdict"] == ("fails" if kept else "not judged")
    assert f"{row['id']}: holds" in said
    if not kept:
        assert (now["interval"], now["note"]) == ([None, None], gallery.NOT_KEPT)


def test_gallery_takes_the_present_preset_with_at_least_its_members():
    experiment, config = Toy("toy.a").experiment(), flags.to_json(SIX)
    assert belongs(experiment, "lab", "lab", config)
    assert belongs(experiment, "lab", "lab", {**config, "members": 9})
    assert not belongs(experiment, "lab", "lab", {**config, "members": 3})
    assert not belongs(experiment, "lab", "lab", {**config, "seed": 1})
    assert not belongs(experiment, "lab", "lab", {**config, "older": 1})
    assert not belongs(experiment, "lab", "lab with steps=3", config)


def test_a_setting_younger_than_a_record_counts_as_its_default():
    experiment, older = Toy("toy.a").experiment(), {"members": 6}  # from before there was a seed

    def with_seed(seed):
        presets = dict.fromkeys(experiment.presets, Config(seed=seed, members=6))
        return dataclasses.replace(experiment, presets=presets)

    record = Record(experiment.name, "smoke", older, {}, {})
    assert belongs(with_seed(0), "lab", "lab", older)
    assert not belongs(with_seed(1), "lab", "lab", older)
    assert anchoring.differs_from_smoke(record, with_seed(0)) == ""
    assert "seed" in anchoring.differs_from_smoke(record, with_seed(1))


def test_gallery_takes_paths_out_of_the_command():
    words = [gallery._without_path(w) for w in ("one_step.py", "--seed=0", "--outdir=/a/b", "--outdir", "/a/b")]
    assert words == ["one_step.py", "--seed=0", "--outdir=...", "--outdir", "..."]


def test_gallery_shrinks_a_large_picture(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    drawing.Image.fromarray(noise).save(tmp_path / "noise.png")
    drawing.shrink(tmp_path / "noise.png", 20_000)
    assert (tmp_path / "noise.png").stat().st_size < 20_000


def test_runs_side_by_side_have_a_core_each_and_what_the_user_says_holds(monkeypatch):
    monkeypatch.setattr(reproduce, "cores", lambda: 4)
    for name in ("NPROC", "OMP_NUM_THREADS"):
        for given, workers, expected in ((None, 2, "2"), (None, 8, "1"), (None, 1, None), ("3", 2, "3")):
            monkeypatch.delenv(name, raising=False)
            if given:
                monkeypatch.setenv(name, given)
            with reproduce.threads_for(workers):
                assert os.environ.get(name) == expected
            assert os.environ.get(name) == given
