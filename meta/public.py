"""Public names of `meta`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from meta.evolution import Evolved, NonFiniteFitness, Outcome, evolve
from meta.runs.directory import RunDirectory
from meta.screening import Screened, screen
from meta.strategies import Evolution, strategy_names
from meta.trackers.names import make_tracker
from meta.trackers.tracker import MetricsRow, TrackedRun, Tracker
from meta.xla.scalar_replacement import scalarize
