"""What evolves, and how a run is kept: knows nothing of games."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meta.evolution import Evolved, NonFiniteFitness, Outcome, evolve
    from meta.runs.directory import RunDirectory
    from meta.scalars import scalarize
    from meta.strategies import Evolution, strategy_names
else:

    def __getattr__(name):  # so that `import meta` takes no time
        from configs.lazy import find

        return find(__name__, name)


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


def __dir__() -> list[str]:
    return __all__
