"""The command line of a binary: what it says, its exit statuses, and the compiled programs that it keeps."""

import os

import jax
import numpy as np
import pytest
from test_experiment import Config, Toy

from icl_lab import machine
from icl_lab.lab import command_line as lab
from icl_lab.lab import records
from icl_lab.lab.execution import default_outdir


def test_the_command_line_runs_and_tells_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Toy().main("--preset=smoke", f"--outdir={tmp_path / 'run'}", "--seed=4") == 0
    assert str(tmp_path / "run") in capsys.readouterr().out.replace("\n", "")
    assert records.load(tmp_path / "run").config["seed"] == 4


def test_an_interrupt_at_the_command_line_is_130_and_resumable(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy = Toy(raises_at=("stage_0", 2))
    assert toy.main("--checkpoint_seconds=0", f"--outdir={tmp_path / 'run'}") == 130
    assert "the same command resumes" in capsys.readouterr().err
    toy.raises_at, toy.reported = None, []
    assert toy.main("--checkpoint_seconds=0", f"--outdir={tmp_path / 'run'}") == 0
    assert toy.reported == [("stage_0", 2), ("stage_0", 4), ("stage_0", 6)]


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_tells_the_science_the_presets_and_the_flags(capsys, word):
    assert Toy().main(word) == 0
    text = capsys.readouterr().out
    assert text.startswith("About toys and their training.")
    for part in ("one of smoke, quick, lab, paper", "--outdir", "--overwrite", "--checkpoint_seconds"):
        assert part in text
    assert "smoke 2; quick 2; lab 3; paper 2. Allowed: whole number >= 1" in text
    assert "0.5 in every preset. Allowed: comma-separated, each: number > 0" in text


def test_every_configuration_has_its_folder(tmp_path):
    toy = Toy().experiment()
    configs = [Config(), Config(seed=1), Config(rates=(0.5, 0.1))]
    assert len({default_outdir(toy, "quick", config) for config in configs}) == 3
    assert default_outdir(toy, "quick", Config(), tmp_path).parent == tmp_path / "toy" / "train"


def test_compiled_programs_are_kept_below_runs_or_where_jax_was_told_to(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        for told, kept in (("elsewhere", "elsewhere"), (None, str(tmp_path / ".xla_cache" / machine.processor()))):
            jax.config.update("jax_compilation_cache_dir", told)
            lab.use_compilation_cache(tmp_path)
            assert jax.config.jax_compilation_cache_dir == kept
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize(("set_before", "kept"), [(None, "off"), ("raise", "raise")])
def test_programs_of_diffrax_are_kept_too_unless_its_checks_are_asked_for(set_before, kept, tmp_path, monkeypatch):
    monkeypatch.delenv("EQX_ON_ERROR")
    if set_before:
        monkeypatch.setenv("EQX_ON_ERROR", set_before)
    lab.use_compilation_cache(tmp_path)  # the folder of compiled programs that the tests have stays
    assert os.environ["EQX_ON_ERROR"] == kept


def test_without_its_checks_diffrax_does_not_call_back_into_python():
    import diffrax

    def solved(times):
        term, how = diffrax.ODETerm(lambda t, y, _: -y), {"stepsize_controller": diffrax.PIDController(1e-3, 1e-6)}
        saved = diffrax.SaveAt(ts=times)
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, times[-1], None, 1.0, saveat=saved, throw=False, **how
        ).ys

    assert "callback" not in jax.jit(solved).lower(np.ones(3)).as_text()  # JAX keeps no program that does on disk
