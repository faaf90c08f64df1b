"""What holds for every test: rank promotion raises, quick compilation, few random examples.

The suite is mostly compilation, so that LLVM optimises little, random examples are always the same, and compiled
programs are kept for the next test, worker and run of pytest. JAX finds them by a digest of the program, the options of
the compiler, the versions and the kind of device: a program that an edit changes is compiled anew.
"""

import contextlib
import ctypes
import functools
import gc
import logging
import os
import shutil
import signal
from pathlib import Path

# before numpy and scipy are imported: threads of small matrix products take turns on the cores of the workers
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import jax
import pytest

from icl_lab import machine
from icl_lab.lab import anchors
from icl_lab.machine import peak_memory
from icl_lab.training import effort, programs

anchors.set_flags()
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"  # also of processes that tests start
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
os.environ["EQX_ON_ERROR"] = "off"  # as on the command line: programs of diffrax are kept too

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the suite in the background makes it deaf
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 20)  # tracing makes many small objects, and there is memory enough
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # a fifth of the time: LLVM does less, HLO is the same
jax.config.update("jax_traceback_in_locations_limit", 0)  # programs do not say of each operation which line made it
COMPILED = Path(__file__).parents[1] / ".xla_cache" / machine.processor()
SLOW = Path(__file__).with_name("slow.txt")  # tests, or functions with all their cases, that take seconds each
LARGEST = 1_000_000_000  # bytes; a larger folder is emptied
LARGE_PROCESS = 1_200_000_000  # bytes from which on a process forgets its programs: two are well on a machine of 8 GB
LARGEST_PROCESS = 2_500_000_000  # bytes that none may have held
MEMORY = []  # of the workers that have ended
jax.config.update("jax_compilation_cache_dir", os.fspath(COMPILED))  # a binary under test leaves it as it is
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

hypothesis.settings.register_profile(
    "icl_lab",
    max_examples=12,
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("icl_lab")


def pytest_configure(config):
    of_worker = hasattr(config, "workerinput")
    if not of_worker and sum(path.stat().st_size for path in COMPILED.glob("*")) > LARGEST:
        shutil.rmtree(COMPILED)


def pytest_report_header():
    return effort.upgraded("little")


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(items):
    slow = set(SLOW.read_text().splitlines())
    for item in items:
        if {item.nodeid, item.nodeid.partition("[")[0]} & slow:
            item.add_marker("slow")
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() == "cpu":
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an accelerator"))


def pytest_collection_finish():
    gc.freeze()  # what was imported stays: it is not looked at again


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=50, help="how often test_faults.py kills a run")
    parser.addoption(
        "--strangers", action="store_true", help="identify all strangers, up to an hour, and print a table"
    )


@pytest.fixture(autouse=True)
def compiler_options():
    """What a command line asks of XLA for its whole process ends with the test: anchors are compared under our own."""
    before, precision = os.environ.get("XLA_FLAGS"), jax.config.jax_default_matmul_precision
    yield
    jax.config.update("jax_default_matmul_precision", precision)
    if before is not None:
        os.environ["XLA_FLAGS"] = before


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_file():
    """What JAX has compiled and traced leaves memory with the file that needed it; it is still on disk."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def programs_of_a_large_process():
    """A worker would grow to several GB, in one file too."""
    yield
    if resident_memory() > LARGE_PROCESS:
        forget_programs()


def forget_programs():
    jax.clear_caches()
    programs.forget()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps what is free
        ctypes.CDLL(None).malloc_trim(0)


def resident_memory():
    """Bytes that this process holds now; where Linux does not tell, the most that it has held."""
    with contextlib.suppress(OSError):
        return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])
    return peak_memory()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["memory"] = peak_memory()
    elif max(MEMORY, default=peak_memory()) > LARGEST_PROCESS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    MEMORY.append(getattr(node, "workeroutput", {}).get("memory", 0))


def pytest_terminal_summary(terminalreporter, config):
    if config.option.markexpr == "not slow":
        terminalreporter.write_line(f"tests of {SLOW.name} are left out; all: make test TESTS=all")
    largest = max(MEMORY, default=peak_memory())
    terminalreporter.write_line(f"largest test process: {largest / 1e9:.2f} GB, allowed {LARGEST_PROCESS / 1e9} GB")


@pytest.fixture
def log(caplog):
    """What the laboratory logs; a binary under test may have stopped the propagation."""
    logger = logging.getLogger("icl_lab")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.fixture
def x64():
    """The test computes in float64. Under ``hypothesis.given`` write ``with jax.enable_x64(True)`` in the test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def compile_fully():
    """From here on the module compiles as users do: that is what is tested, or it computes for long."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory):
    """``smoke_run(name)``: the smoke run of a binary, one for all tests and workers; nothing is written into it."""
    import smoke_runs  # not by the process that hands out tests

    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    return functools.partial(smoke_runs.made, shared / "smoke")


@pytest.fixture(scope="module")
def browser():
    """Chromium with a profile of its own; where there is none the test is skipped."""
    from experiments.tools.benchmarks.first_answer import chromium

    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(chromium())
        except LookupError as error:
            pytest.skip(str(error))
        yield found


@pytest.fixture
def open_page(browser):
    """``open_page(url, **options)``: a page of its own in Chromium, which is closed after the test."""
    with contextlib.ExitStack() as stack:

        def opened(url, **options):
            page = stack.enter_context(browser.new_page(**options))
            page.goto(url)
            return page

        yield opened


@pytest.fixture(scope="module")
def in_page(browser):
    """``in_page(path, expression, *values)``: over the functions of a model.js, as ``m``, and ``v``, the values."""
    from icl_lab.pages import bundle

    def told(path, expression, *values):
        text, blank = bundle(path).removeprefix('"use strict";\n'), browser.new_page()
        said = blank.evaluate(
            f"v => {{ {text} const m = {path.parent.name}_model; return {expression}; }}", list(values)
        )
        blank.close()
        return said

    return told


@pytest.fixture(scope="session")
def axe():
    """``axe(page)``: what axe finds wrong with an opened page for people who do not see or point well, in words."""
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed (make install)")
    script = Path(package.__file__).with_name("axe.min.js").read_text("utf-8")
    run = """axe.run(document, {resultTypes: ["violations"], rules: {"target-size": {enabled: true}}}).then((found) =>
        found.violations.flatMap(({id, nodes}) => nodes.map(({target}) => `${id}: ${target.join(" ")}`)))"""

    def found(page):
        page.evaluate(script)
        return page.evaluate(run)

    return found


@pytest.fixture(scope="module")
def light_page(tmp_path_factory):
    """A page of no record: what is computed in it is there all the same."""
    from experiments import page

    out = tmp_path_factory.mktemp("page") / "page.html"
    page.write_page([], out.with_name("none.json"), out, {})
    return out


@pytest.fixture
def light_tab(browser, light_page):
    """The page of no record, opened, which jumps where it would glide; afterwards the console must be empty."""
    opened, said = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce"), []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(light_page.as_uri())
    yield opened
    opened.close()
    assert said == []
