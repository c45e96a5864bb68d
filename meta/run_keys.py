"""Keys of runs, and the branches of them that neither `learn` nor `evolve` nor `iterate` draws from.

These split the key that they are given, or fold small numbers into it. An owner of another kind of key, such as an
attack's, has an enumeration of its own beside its code. `enum.unique` holds inside one enumeration: an attack draws
from its own alone, whose numbers are those of other branches here.
"""

import enum

import jax
import jax.numpy as jnp


@enum.unique
class RunBranch(enum.IntEnum):
    """Branches of a run's key: `jax.random.fold_in(key, RunBranch.EVALUATION)`."""

    EVALUATION = 2**32 - 1  # fresh trials, episodes, victims
    FILM = 2**32 - 2  # the trial that is shown
    ANALYSIS = 2**32 - 3  # trials of a trained shaper, to be analysed
    SCREENING = 2**32 - 4  # the random parameters of which the best is where an evolution begins
    RANDOM = 2**32 - 5  # the parameters of an untrained shaper
    IMITATION = 2**32 - 6  # what a shaper imitates before an evolution, and how
    PRETRAINING = 2**32 - 7  # of a model of play, before two learners meet


def of_seeds(seed: int, seeds: int) -> jax.Array:
    """The keys `[seeds]` of independent runs, with the seeds seed, seed + 1, ..."""
    return jnp.stack([jax.random.key(seed + i) for i in range(seeds)])
