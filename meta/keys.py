"""Keys: branches that their owner never draws from, by name; those of several runs; keys as data, to be kept or sent.

`learn`, `evolve` and `iterate` split the key that they are given, or fold small numbers into it. What is drawn beside
them, from the same key, is drawn from one of these: `jax.random.fold_in(key, keys.EVALUATION)`. Two that are the same
number belong to keys of different kinds.
"""

from typing import Any

import jax
import jax.numpy as jnp

EVALUATION = 2**32 - 1  # of a run's key: fresh trials, episodes, victims
FILM = 2**32 - 2  # of a run's key: the trial that is shown
ANALYSIS = 2**32 - 3  # of a run's key: trials of a trained shaper, to be analysed
RANDOM = 2**32 - 5  # of a run's key: the parameters of a shaper that nobody has trained
SCREENING = 2**32 - 4  # of a run's key: the random parameters of which the best is where an evolution begins
MEETING = 2**32 - 2  # of the key of a pair in self-play: whether naive learners are met
NOISE = 2**32 - 2  # of the key of a trial, or of a bound's initial states: what is added to where somebody begins
SEAT = 2**32 - 1  # of a player's key: its own in every step, where one of several sits
SPEAKER = 2**32 - 1  # of a victim's key: the random message that it hears
LATER = 2**32 - 2  # of an attack's key, or a discovery's: its second evolution, after the warm-up
UNIT = 2**32 - 3  # of a discovery's key: the trainings of which the units of its games are made
BESIDE = 2**32 - 3  # of an attack's key: controllers that are evolved for shapers that are not
CHOICE = 2**32 - 4  # of an attack's key: the victims by which parameters are chosen
ACTOR = 2**32 - 1  # of a run's key: what one of several actors draws from
RESUMED = 2**32 - 2  # of the keys of what is played: those of a run that goes on
EXPERT = 2**32 - 5  # of an attack's key: the expert whose words are where a search begins


def of_seeds(seed: int, seeds: int) -> jax.Array:
    """The keys `[seeds]` of independent runs, with the seeds seed, seed + 1, ..."""
    return jnp.stack([jax.random.key(seed + i) for i in range(seeds)])


def kind_of(x: Any) -> Any:
    """The kind of keys, or of their shapes; None of anything else."""
    return jax.random.key_impl(jnp.zeros(0, x.dtype)) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None


def data_of(x: Any) -> Any:
    """An array as it is, of keys their data."""
    return x if kind_of(x) is None else jax.random.key_data(x)


def typed(x: Any, kind: Any) -> Any:
    """What `data_of` had: keys of a kind, or if None what it is."""
    return x if kind is None else jax.random.wrap_key_data(x, impl=kind)
