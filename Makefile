# `make ipd` and `make test` need Python 3.11 or newer with pip, and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: ipd test lint slow benchmark clean

ipd: .venv/installed
	$(BIN)/python -m marl.mfos ipd

test: .venv/tested lint
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: .venv/tested
	$(BIN)/python -m pytest -m slow

benchmark: .venv/tested
	$(BIN)/python -m benchmarks.exact_game
	$(BIN)/python -m benchmarks.games
	$(BIN)/python -m benchmarks.ppo
	$(BIN)/python -m benchmarks.cheap_talk
	$(BIN)/python -m benchmarks.sampled

# The install is in place (editable), so that what is edited is what runs.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed: make PYTHON=...' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf .venv
