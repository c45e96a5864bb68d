"""Fixtures and hooks of all tests."""

import gc
import importlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings

from games import registry
from games.core.modes import lenient

settings.register_profile("fixed", derandomize=True)  # the same examples in every run
settings.load_profile("fixed")


def pytest_configure(config):
    """Compiles without optimisations: they take half of the tests' time and change rounding only.

    Results of whole experiments, `slow and not system`, are computed with them.
    """
    if "not slow" in config.option.markexpr or "slow and system" in config.option.markexpr:
        flags = [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
        if jax.__version_info__ < (0, 11):  # later versions do not know the first flag
            # One LLVM module for each program, because all cores have tests to run, and splitting it has its price.
            flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
        os.environ["XLA_FLAGS"] = " ".join(flags)


def pytest_xdist_auto_num_workers(config):
    """One worker for each core, as far as there are 3 GB of memory for each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return cores
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores, memory // (3 * 2**30)))


def pytest_sessionfinish(session):
    kept = getattr(session.config, "cache", None)
    if not kept or hasattr(session.config, "workerinput"):  # only the main process cleans up
        return
    compiled = kept.mkdir("compiled")
    if sum(file.stat().st_size for file in compiled.iterdir()) > 2**31:  # after the changes of many sessions
        shutil.rmtree(compiled)


@pytest.fixture(scope="session")
def cache(pytestconfig):
    """JAX's settings for a cache of compiled programs, shared by all processes of this session and of later ones."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR") or pytestconfig.cache.mkdir("compiled")
    return {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }


@pytest.fixture(scope="session", autouse=True)
def _cached(cache):
    for name, value in cache.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for the processes that are started from here, a cluster's too
    os.environ.setdefault("RAY_worker_niceness", "0")  # with Ray's 15, workers starve beside other tests
    gc.freeze()  # imported objects are never garbage; collecting them takes a tenth of all time
    gc.set_threshold(200_000, 50, 100)
    jax.devices()  # JAX begins with one device here, and no command can change that later


@pytest.fixture(scope="module", autouse=True)
def _games():
    """Drops what a file's tests registered and compiled, because other files go through all games, and for memory."""
    kept = dict(registry._ENTRIES)
    yield
    jax.clear_caches()  # kept programs save no time: two files share next to none
    registry._ENTRIES.clear()
    registry._ENTRIES.update(kept)


@pytest.fixture
def nans():
    """Lets a test make NaN, also with `JAX_DEBUG_NANS=1`."""
    with jax.debug_nans(False):
        yield


@pytest.fixture
def promoted():
    """NumPy's promotion for a test whose own code needs it, in any mode of JAX that the tests run in."""
    with lenient():
        yield


@pytest.fixture
def headless():
    """Figures without a screen, closed after the test."""
    from matplotlib import pyplot

    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; a test that needs it is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    arguments += ["--disable-component-update", "--disable-sync"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=300_000)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def environment(_cached):
    """The environment variables of a process that shares the cache of compiled programs."""
    return dict(os.environ)


@pytest.fixture(scope="session")
def command(environment):
    """Runs `python -m marl.mfos ...` as a user would: (exit status, stdout, stderr)."""

    def run(*arguments: str, cwd: Path, prefix: tuple[str, ...] = (), timeout: float = 300):
        line = [*prefix, sys.executable, "-m", "marl.mfos", *arguments]
        return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)

    return run


def process_state():
    """All state that a command could change in the process of another program."""
    import matplotlib

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root, backend = logging.getLogger(), dict.get(matplotlib.rcParams, "backend")
    return {
        "signals": (handlers, sys.unraisablehook, sys.excepthook, threading.excepthook),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "variables": dict(os.environ),
        "jax": dict(jax.config.values),
        "garbage": (gc.isenabled(), gc.get_threshold()),
        "logging": (root.level, list(root.handlers), logging.root.manager.disable),
        "matplotlib": backend if isinstance(backend, str) else None,
        "numpy": np.geterr(),
        "directory": os.getcwd(),
    }


@pytest.fixture
def within(monkeypatch, capsys):
    """Runs a command in this process, because another process costs seconds to start and shows nothing more.

    Every run leaves the process as it was.
    """

    def run(*arguments: str, cwd: Path, module: str = "marl.mfos") -> subprocess.CompletedProcess:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        main, before = importlib.import_module(module).main, process_state()
        try:
            status = main(arguments)
        except SystemExit as stopped:
            status = stopped.code
        assert process_state() == before
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run
