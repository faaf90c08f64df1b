"""What holds for every test: rank promotion raises, quick compilation without a cache, few random examples.

The suite is mostly compilation, so that LLVM optimises little, and random examples are always the same.
"""

import gc
import os
import signal

import hypothesis
import jax
import pytest

from icl_lab.lab.anchors import XLA_FLAGS

if XLA_FLAGS:
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"  # also of processes that tests start

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the suite in the background makes it deaf
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 20)  # tracing makes many small objects, and there is memory enough
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # a fifth of the time: LLVM does less, HLO is the same
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


@pytest.fixture
def compile_fully():
    """What the test compiles first is compiled as users compile it: that is what is tested, or it computes for long."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() == "cpu":
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an accelerator"))
