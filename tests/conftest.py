"""What holds for every test: rank promotion raises, no compilation cache, few and always the same random examples."""

import gc
import os
import signal

import hypothesis
import jax
import pytest

from icl_lab.lab.anchors import XLA_FLAGS

if XLA_FLAGS:
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the suite in the background makes it deaf
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 20)  # tracing makes many small objects, and there is memory enough
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)  # whatever folder a binary under test asks for

hypothesis.settings.register_profile(
    "icl_lab",
    max_examples=12,
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("icl_lab")


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=50, help="how often test_faults.py kills a run")


@pytest.fixture
def x64():
    """The test computes in float64. Under ``hypothesis.given`` write ``with jax.enable_x64(True)`` in the test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def compile_quickly():
    """The tests of a module that are mostly compilation and compute little: without most optimisations."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def processes_compile_quickly(monkeypatch):
    """The test and the processes that it starts compile without most optimisations."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() == "cpu":
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an accelerator"))
