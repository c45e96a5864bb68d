"""Shared by all tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    """Runs `python -m marl.mfos ...` as a user would: (exit status, stdout, stderr)."""
    # Small programs, compiled again and again: kept between the processes of a test session.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.getbasetemp().parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def run(*arguments: str, cwd: Path, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        environment = os.environ | cache
        line = [*prefix, sys.executable, "-m", "marl.mfos", *arguments]
        return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)

    return run
