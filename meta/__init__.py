"""Evolution over whole trials, and run directories; independent of games."""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING

import marl_shaping as marl_shaping  # first: it reports a file that hides one of the packages

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

if TYPE_CHECKING:
    from meta.public import *
else:

    def __getattr__(name):  # so that `import meta` takes no time
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from meta import public

        found = globals()[name] = getattr(public, name)
        return found


def __dir__() -> list[str]:
    return __all__
