"""The settings of an evolution, and the evosax strategy that they name."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp

import configs
from configs import LARGEST, MOST
from meta.xla.backend import platform

if TYPE_CHECKING:
    import optax

# Strategies whose second half of candidates are the mirror images of the first.
MIRRORED = ("open_es", "pgpe", "ars", "asebo", "guidedes", "noisereusees", "persistentes", "cr_fm_nes")
# Numbers that may differ between the runs of one program.
TRACEABLE = ("sigma", "learning_rate", "sigma_end", "learning_rate_end")
CHUNKS = 16  # of a population on a cluster, where nothing is said of their size
# RandomSearch draws around 0, wherever a search begins; CMAAnchoredLES of evosax 0.3.2 does not compile in `evolve`.
LEFT_OUT = ("RandomSearch", "CMAAnchoredLES")
NUM_STEIN_PARTICLES = 4  # search distributions of the two Stein variational strategies, which need several

Fall = Literal["cosine", "exponential"]
Sharing = Literal["generation", "pair"]
FitnessShaping = Literal["default", "centered_rank", "standardize", "normalize", "identity"]
Noise = Literal["full", "low_rank"]
CHOICES = {"fall": Fall, "shared_trials": Sharing, "fitness_shaping": FitnessShaping, "noise": Noise}


@dataclasses.dataclass(frozen=True)
class Evolution(configs.Part):
    """Settings of an evolution.

    Attributes:
      strategy: A distribution-based strategy of evosax, such as open_es, pgpe, snes, xnes, cma_es or sep_cma_es (all:
        `meta.strategy_names`); with shared_trials pair one of antithetic pairs, such as open_es or pgpe. The mean of
        snes and xnes moves by Adam as well, where their papers take the natural gradient itself; and evosax's xnes
        keeps its covariance diagonal.
      population_size: Candidates per generation; even for strategies with antithetic sampling.
      generations: How many generations to evolve.
      sigma: Standard deviation of the search distribution (its first one, where the strategy adapts it). With guidedes
        and asebo it is divided by the square root of the number of parameters, with gradientlessdescent it is less.
      learning_rate: Step size of Adam on the distribution's mean, for strategies that follow a gradient.
      learning_rate_end: What is left of the step size in the end, as a fraction.
      sigma_end: What is left of sigma in the end, as a fraction, for strategies that do not adapt it.
      fall: How both fall: along half a cosine, or by the same factor in every generation.
      shared_trials: Candidates that share trials: all of a generation, or the two of each antithetic pair, so that
        a generation has many. Shaping by ranks compares pairs with different trials; standardize does not.
      fitness_shaping: How fitness becomes a weight; `default` is what the strategy's authors chose.
      noise: Noise of a candidate's matrices: full, an independent draw for each number; or low_rank, the product of
        two thin factors, so that candidates share the matrices: far less memory from layers of 64 units on.
      rank: Columns of these factors; vectors, and matrices with no more rows or columns, have full noise.
      weight_decay: Penalty on the sum of squares of a candidate's parameters, added to its cost before shaping.
      chunk_size: Candidates evaluated at once on each device, to bound memory; 0 for all of them.
      checkpoint_seconds: Save a checkpoint when the last one is this old; 0 saves after every call to the device.
    """

    strategy: str = "open_es"
    population_size: int = 256
    generations: int = 500
    sigma: float = 0.2
    learning_rate: float = 0.05
    learning_rate_end: float = 0.0
    sigma_end: float = 0.1
    fall: Fall = "cosine"
    shared_trials: Sharing = "generation"
    fitness_shaping: FitnessShaping = "default"
    noise: Noise = "full"
    rank: int = 1
    weight_decay: float = 0.0
    chunk_size: int = 0
    checkpoint_seconds: float = 15.0

    def __post_init__(self) -> None:
        check = partial(configs.check, self, prefix="evolution.")
        check("a name", lambda x: isinstance(x, str), "strategy")
        for name, kind in CHOICES.items():
            check(f"one of {', '.join(get_args(kind))}", get_args(kind).__contains__, name)
        fits = lambda x: 1 <= operator.index(x) <= MOST  # noqa: E731
        check(f"a whole number from 1 to {MOST}", fits, "population_size", "generations", "rank")
        check("a number above 0", lambda x: 0 < x <= LARGEST, "sigma", "learning_rate")
        check("a fraction from 0 to 1", lambda x: 0 <= x <= 1, "learning_rate_end", "sigma_end")
        check("a number of at least 0", lambda x: 0 <= x <= LARGEST, "checkpoint_seconds", "weight_decay")
        if self.fall == "exponential":
            words = "a fraction above 0, where both fall by a factor,"
            check(words, lambda x: x > 0, "learning_rate_end", "sigma_end")
        check("a whole number of at least 0", lambda x: 0 <= operator.index(x) <= MOST, "chunk_size")
        if self.shared_trials == "pair":
            check("an even number, for shared_trials pair,", lambda x: x % 2 == 0, "population_size")
            words = f"one of {', '.join(MIRRORED)}, or any with shared_trials generation,"
            check(words, lambda x: x.lower() in MIRRORED, "strategy")
        if self.noise == "low_rank":
            check("open_es, for noise low_rank,", lambda x: x.lower() == "open_es", "strategy")
            check("0, for noise low_rank,", lambda x: x == 0, "weight_decay")
        if configs.has_defaults(self):
            return
        try:
            # Nothing is computed, so that the devices may still be chosen after the config is made.
            jax.eval_shape(lambda: make_strategy(self, 10)[1])
        except (TypeError, ValueError):  # it does not fit, or it is one of the two that cannot be traced
            make_strategy(self, 10)

    @property
    def at_once(self) -> int:
        """Candidates that a device evaluates together; one at least on a GPU, where `evolve` makes chunks that fit."""
        return min(self.chunk_size, self.population_size) or (self.population_size if platform() == "cpu" else 1)

    def in_chunks(self) -> Evolution:
        """With chunks of a fixed size, so that no bit depends on where they are evaluated: some 16 if none is set."""
        return dataclasses.replace(self, chunk_size=self.chunk_size or -(-self.population_size // CHUNKS))

    @property
    def falling(self) -> list[str]:
        """Settings that fall over the generations, so that the number of these decides what happens in each."""
        return [f"evolution.{name}" for name in self._scheduled if getattr(self, f"{name}_end") != 1]

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing with this strategy, and why."""
        without_rank = {} if self.noise == "low_rank" else {"rank": "with evolution.noise full"}
        if self.strategy == "open_es":  # which has all, and is not imported to say so
            return without_rank
        idle = [f"{name}_end" for name in ("learning_rate", "sigma") if name not in self._scheduled]
        idle += ["learning_rate"] * ("learning_rate_end" in idle) + ["fall"] * (len(idle) == 2)
        return dict.fromkeys(idle, f"with evolution.strategy {self.strategy}") | without_rank

    @property
    def _scheduled(self) -> list[str]:
        arguments = inspect.signature(_class(self.strategy).__init__).parameters
        return [name for by, name in (("optimizer", "learning_rate"), ("std_schedule", "sigma")) if by in arguments]


def strategy_names() -> list[str]:
    """Every name that `Evolution.strategy` takes."""
    return sorted(_classes())


def _falling(evolution: Evolution, first: Any, end: Any) -> optax.Schedule:
    """From `first` to the fraction `end` of it over the generations."""
    import optax

    if evolution.fall == "exponential":  # optax's asks whether `end` is 0, which may be traced here
        return lambda count: first * end ** (count / evolution.generations)
    return optax.cosine_decay_schedule(first, evolution.generations, alpha=end)


def _classes() -> dict[str, Any]:
    from evosax.algorithms import distribution_based_algorithms

    return {name.lower(): cls for name, cls in distribution_based_algorithms.items() if name not in LEFT_OUT}


def _class(strategy: str) -> Any:
    classes = _classes()
    if strategy.lower() not in classes:
        raise ValueError(f"evolution.strategy: got {strategy!r}; {configs.one_of(strategy, sorted(classes))}")
    return classes[strategy.lower()]


def promoting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls evosax, with ranks and dtypes promoted: strict modes are for the code of the user."""

    @functools.wraps(function)
    def promoted(*args: Any, **keywords: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"), jax.debug_nans(False):
            return function(*args, **keywords)

    return promoted


@promoting
def make_strategy(evolution: Evolution, num_dims: int, **numbers: jax.Array) -> tuple[Any, Any]:
    """The evosax strategy over vectors `[num_dims]`, and its parameters.

    Args:
      evolution: the settings.
      num_dims: length of the vectors.
      **numbers: settings of `TRACEABLE` in place of those of `evolution`, `[]` each; they may be traced.

    Raises:
      ValueError: for an unknown strategy, or a population size that it cannot take.
    """
    import optax
    from evosax.core import fitness_shaping

    cls = _class(evolution.strategy)
    arguments = inspect.signature(cls.__init__).parameters
    options: dict[str, Any] = {}
    population_size = evolution.population_size
    numbers = {name: getattr(evolution, name) for name in TRACEABLE} | numbers
    sigma = numbers["sigma"]
    if "optimizer" in arguments:
        falling = _falling(evolution, numbers["learning_rate"], numbers["learning_rate_end"])
        options["optimizer"] = optax.adam(falling)
    if "std_schedule" in arguments:
        options["std_schedule"] = _falling(evolution, sigma, numbers["sigma_end"])
    if "sampling_fn" in arguments:
        options["sampling_fn"] = lambda key: sigma * jax.random.normal(key, (num_dims,))
    if "num_populations" in arguments:
        options["num_populations"] = NUM_STEIN_PARTICLES
        if population_size % (2 * NUM_STEIN_PARTICLES):
            raise ValueError(
                f"evolution.population_size: got {population_size}; {evolution.strategy} needs a multiple of "
                f"{2 * NUM_STEIN_PARTICLES}"
            )
        population_size //= NUM_STEIN_PARTICLES
    shaping = arguments["fitness_shaping_fn"].default
    if evolution.fitness_shaping != "default":
        if shaping is fitness_shaping.weights_fitness_shaping_fn:
            raise ValueError(
                f"evolution.fitness_shaping: got {evolution.fitness_shaping!r}; {evolution.strategy} has "
                "weights of its own, and default is needed"
            )
        shaping = getattr(fitness_shaping, f"{evolution.fitness_shaping}_fitness_shaping_fn")
    try:
        strategy = cls(population_size, solution=jnp.zeros(num_dims), fitness_shaping_fn=shaping, **options)
    except (AssertionError, ZeroDivisionError) as error:  # how evosax says that a size does not fit
        raise ValueError(
            f"evolution.population_size: got {evolution.population_size}; {evolution.strategy} says: {error}"
        ) from None
    params = strategy.default_params
    if hasattr(params, "std_init"):
        # xnes begins with a factor of the covariance that has this on its diagonal too.
        params = params.replace(std_init=sigma**0.5 if evolution.strategy.lower() == "xnes" else sigma)
    if hasattr(params, "radius_max"):
        params = params.replace(radius_max=sigma, radius_min=sigma / 200)
    return strategy, params
