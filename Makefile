# `make ipd`, `make test` and `make docs` need Python 3.11 or newer with pip, and nothing else.
PYTHON ?= python3
# The versions that are installed: `make CONSTRAINTS=` takes the newest of everything.
CONSTRAINTS ?= -c constraints.txt
BIN := .venv/bin
# Modules are compiled when they are first imported, because most never are, and kept for the processes of the tests.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(CONSTRAINTS)
PYTEST := $(BIN)/python -m pytest -q -n auto --dist worksteal

.PHONY: ipd docs test test-all unit tests mode lint hooks slow benchmark clean

ipd: .venv/installed
	$(BIN)/python -m marl.mfos ipd

# The site, in build/site; every broken link and every warning is an error.
docs: .venv/documented
	$(BIN)/python -m docs.site

# Lint, types and the unit tests.
test: lint unit

# These and the system tests: processes, whole commands, clusters, documents; but none of the nightly run.
test-all: lint tests

unit: .venv/tested
	$(PYTEST) -m "not slow and not system"

tests: .venv/tested
	$(PYTEST)

# Games, learners and evolution in a mode of JAX: JAX_ENABLE_X64=1 make mode
TIER ?= not slow
mode: .venv/tested
	$(PYTEST) -m "$(TIER)" tests/games tests/marl/core tests/marl/learners tests/marl/shapers tests/meta/test_evolution.py

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

hooks: .venv/tested
	$(INSTALL) -e ".[test,hooks]"
	$(BIN)/pre-commit install

# What CI runs every night: results of whole experiments, then all that `make test-all` leaves to representatives.
slow: .venv/tested
	first=0; $(BIN)/python -m pytest -m "slow and not system" || first=$$?; \
	$(PYTEST) -m "slow and system" && exit $$first

benchmark: .venv/tested
	$(BIN)/python -m benchmarks.speed.exact_game
	$(BIN)/python -m benchmarks.speed.games
	$(BIN)/python -m benchmarks.speed.ppo
	$(BIN)/python -m benchmarks.speed.cheap_talk
	$(BIN)/python -m benchmarks.speed.sampled

# The install is in place (editable), so that what is edited is what runs.
.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(INSTALL) -e .
	touch $@

.venv/bin/pip:
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed: make PYTHON=...' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade pip  # the pip of Python 3.11 resolves half as fast

.venv/documented: .venv/installed
	$(INSTALL) -e ".[docs]"
	touch $@

.venv/tested: pyproject.toml constraints.txt | .venv/bin/pip
	$(INSTALL) -e ".[test]"
	touch .venv/installed $@

clean:
	rm -rf .venv
