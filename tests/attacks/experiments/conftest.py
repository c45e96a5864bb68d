"""Fixtures of the commands that attack."""

import pytest


@pytest.fixture
def act(within, tmp_path):
    def run(*arguments, cwd=tmp_path):
        return within(*arguments, cwd=cwd, module="attacks.act")

    return run
