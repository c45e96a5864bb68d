"""What evolves, and how a run is kept: knows nothing of games."""

from meta.evolve import Evolved, NonFiniteFitness, Outcome, evolve
from meta.run import RunDirectory
from meta.scalarize import scalarize
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
