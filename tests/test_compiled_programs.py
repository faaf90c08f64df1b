"""Compiled programs are kept on disk from run to run, those of diffrax too."""

import os

import jax
import numpy as np
import pytest

from icl_lab import machine
from icl_lab.lab import command_line as lab


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
