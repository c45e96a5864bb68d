"""What evolves, and how a run is kept: knows nothing of games."""

from meta.evolution import Evolved, NonFiniteFitness, Outcome, evolve
from meta.runs.directory import RunDirectory
from meta.scalars import scalarize
from meta.strategies import Evolution, strategy_names

__all__ = [
    "Evolution",
    "Evolved",
    "NonFiniteFitness",
    "Outcome",
    "RunDirectory",
    "evolve",
    "scalarize",
    "strategy_names",
]
