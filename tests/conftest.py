"""Shared by all tests: two devices, as the sharding tests need, and the text of the README."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def command():
    """Runs `python -m marl.mfos ...` as a user would: (exit status, stdout, stderr)."""

    def run(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess:
        environment = os.environ | options.pop("environment", {})
        line = [sys.executable, "-m", "marl.mfos", *arguments]
        return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, **options)

    return run
