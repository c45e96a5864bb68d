"""Shared by all tests."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)  # the same examples in every run
settings.load_profile("fixed")


def pytest_configure(config):
    """Compilation dominates the fast tests; what makes programs faster takes half of it, and changes rounding only."""
    if "not slow" in config.option.markexpr:
        quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}"


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where compiled programs are kept for all processes of a test session: compilation dominates the tests."""
    return {
        "jax_compilation_cache_dir": str(tmp_path_factory.getbasetemp().parent / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }


@pytest.fixture(scope="session", autouse=True)
def _cached(cache):
    for name, value in cache.items():
        jax.config.update(name, value)
    jax.devices()  # JAX begins with one device here, whatever a command asks for


@pytest.fixture(scope="session")
def environment(cache):
    """The variables of a process that shares what was compiled."""
    return os.environ | {name.upper(): str(value) for name, value in cache.items()}


@pytest.fixture(scope="session")
def command(environment):
    """Runs `python -m marl.mfos ...` as a user would: (exit status, stdout, stderr)."""

    def run(*arguments: str, cwd: Path, prefix: tuple[str, ...] = (), timeout: float = 300):
        line = [*prefix, sys.executable, "-m", "marl.mfos", *arguments]
        return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture
def within(monkeypatch, capsys):
    """Runs a command in this process, where another one would show nothing more and costs seconds to start."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers

    def run(*arguments: str, cwd: Path, module: str = "marl.mfos") -> subprocess.CompletedProcess:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        package, _, name = module.partition(".")
        exported = getattr(importlib.import_module(package), name, None)
        main = importlib.import_module(module).main
        if callable(exported):  # a function of that name, as marl.mfos, in whose place the import has put the module
            setattr(sys.modules[package], name, exported)
        try:
            status = main(arguments)
        except SystemExit as stopped:
            status = stopped.code
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run
