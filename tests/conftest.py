"""Shared by all tests."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)  # the same examples in every run
settings.load_profile("fixed")


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


@pytest.fixture(scope="session")
def command(cache):
    """Runs `python -m marl.mfos ...` as a user would: (exit status, stdout, stderr)."""
    variables = {name.upper(): str(value) for name, value in cache.items()}

    def run(*arguments: str, cwd: Path, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        line = [*prefix, sys.executable, "-m", "marl.mfos", *arguments]
        return subprocess.run(line, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=300)

    return run
