"""A trained policy as a file of C that needs nothing else: its weights in compressed rows, where they are few."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from configs import specs
from configs.specs import first_line
from configs.usage import Positional
from games import Box, Discrete, Game
from games.registry import make_game
from marl.blocks import fan_in
from marl.core.learner import Learner
from marl.distributed.adapters.maker import make_env
from marl.distributed.seat_learners import suited
from marl.experiments.single_agent import LEARNER_FILE, SEAT
from marl.learners import registry
from marl.learners.registry import make_learner
from meta.atomic_files import write_whole
from meta.runs import array_files
from meta.runs.formatting import many, say

ACTOR = "0."  # of a policy with a central critic
DENSE_FROM = 0.5  # share of weights from which a layer is not compressed
CHECKED = 512  # observations on which the exported policy has to do what the learner does
TOLERANCE = 1e-4
MEASURED = 0.2  # seconds


@dataclasses.dataclass(frozen=True)
class ExportConfig(configs.CommandConfig):
    """The policy of a training, as C."""

    directory: Annotated[str, Positional("DIR")] = ""
    """A run directory of marl.train or marl.distributed, or its learner.safetensors."""
    number: int = 0
    """Which one, where there are several: of the seeds of marl.train, or the players of marl.distributed."""
    out: str = "policy.c"
    """File to write."""

    def __post_init__(self) -> None:
        configs.check(self, "a whole number of at least 0", lambda x: x >= 0, "number")


class Layer(NamedTuple):
    """A layer of numbers of the host."""

    kernel: np.ndarray  # [inputs, units]
    bias: np.ndarray  # [units]

    @property
    def num_weights(self) -> int:
        """The number of weights that are not 0."""
        return int(np.count_nonzero(self.kernel))

    @property
    def is_sparse(self) -> bool:
        """True if the kernel is compressed."""
        return self.num_weights < DENSE_FROM * self.kernel.size


class Policy(NamedTuple):
    """A learner's policy without exploration, as numbers."""

    layers: tuple[Layer, ...]
    activation: str  # between them, tanh or relu
    inputs: tuple[np.ndarray, np.ndarray] | None  # what is taken from observations, and what they are multiplied with
    bounds: tuple[np.ndarray, np.ndarray] | None  # middle and half width of actions that are squashed
    best: bool  # whether it is the number of the largest output
    limits: tuple[np.ndarray, np.ndarray] | None = None  # least and largest of actions that are clipped


class Source(NamedTuple):
    """A policy, and what it is compared with."""

    policy: Policy
    act_greedy: Callable[[jax.Array], jax.Array]  # (obs [N, ...]) -> action
    obs_shape: tuple[int, ...]
    words: str


def read(config: ExportConfig) -> Source:
    """The policy in a file.

    Raises:
      ValueError: if there is no such file, or for a policy that is none of layers.
    """
    spec, environment, game, seat, own = load_arrays(Path(config.directory), config.number)
    learner, parameters = with_parameters(spec, game, seat, own, config.directory)
    return Source(
        _policy(spec, game, seat, _dense(parameters, own)),
        _exploit(game, seat, learner, parameters),
        game.observation_space(game.agents[seat]).shape,
        f"{spec} of {environment}",
    )


class Arrays(NamedTuple):
    """Arrays of one learner from a run of marl.train or marl.distributed."""

    spec: str  # of the learner
    environment: str
    game: Game
    seat: int
    arrays: dict[str, np.ndarray]


def load_arrays(path: Path, number: int) -> Arrays:
    """One learner of a run of marl.train or marl.distributed.

    Args:
      path: the run's directory, or the learner's file.
      number: of the seed, or of the player of a run of marl.distributed. Where each player of a run of marl.train has a
        network of its own, the players of the first seed come first, then those of the second.

    Raises:
      ValueError: if there is no such file or number, or if it is none of a learner.
    """
    found, about = array_files.load_arrays(path / LEARNER_FILE if path.is_dir() else path)
    method, settings = about.get("method"), about.get("config", {})
    if method not in ("train", "distributed"):
        raise ValueError(f"directory: got {str(path)!r}; a run of marl.train or marl.distributed is needed")
    if not found:
        raise ValueError(f"directory: got {str(path)!r}; a learner with parameters is needed")
    if method == "train":
        game = make_game(settings["environment"])
        seats = game.num_agents if next(iter(found)).startswith(SEAT) else 1
        numbers = [*range(seats * next(len(x) for x in found.values()))]
        seed, seat = divmod(number, seats)
        prefix = f"{SEAT}{seat}." if seats > 1 else ""
        mine = {name.removeprefix(prefix): x for name, x in found.items() if name.startswith(prefix)}
        own = {name: x[seed] for name, x in mine.items()} if number in numbers else {}
    else:
        numbers = sorted({int(name.partition(".")[0]) for name in found})
        own = {name.removeprefix(f"{number}."): x for name, x in found.items() if name.startswith(f"{number}.")}
        game = _played_by_actors(settings)
        seat = min(number, game.num_agents - 1)
    if not own:
        raise ValueError(f"number: got {number}; one of {', '.join(map(str, numbers))} is needed")
    players = specs.terms(settings["learner"])
    spec = players[number if method == "distributed" and len(players) > 1 else 0].strip()
    if method == "distributed":  # images have a network of their own, which the config does not name
        spec = suited(spec, game, seat)
    return Arrays(spec, settings["environment"], game, seat, own)


def _dense(parameters: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of these parameters, with whole kernels in place of those of a constant fan-in."""
    if not fan_in.has_fan_in(parameters):
        return arrays
    whole = jax.tree.map(lambda x: fan_in.dense(x) if fan_in.is_fan_in(x) else x, parameters, is_leaf=fan_in.is_fan_in)
    return {name: np.asarray(x) for name, x in array_files.named_leaves(whole).items()}


def _played_by_actors(settings: dict[str, Any]) -> Game:
    """Agents and spaces of the environment of a run of marl.distributed."""
    env = make_env(settings["environment"], seen=settings.get("seen", ()), images=settings.get("images"))()
    try:
        return env.game
    finally:
        env.close()


def _policy(spec: str, game: Game, seat: int, arrays: dict[str, np.ndarray]) -> Policy:
    agent, (name, given) = game.agents[seat], registry.SAMPLED.read("learner", spec)
    actions = game.action_space(agent)
    chosen = registry.settings(name, game) | given
    network, inside = specs.read("network", chosen.get("network") or "feed_forward", "feed_forward")
    chosen |= inside
    params = {key.removeprefix("params."): x for key, x in arrays.items()}
    if any(key.startswith(ACTOR) for key in params):
        params = {key.removeprefix(ACTOR): x for key, x in params.items() if key.startswith(ACTOR)}
    if any("LayerNorm" in key for key in params):
        raise ValueError(f"directory: got a policy of {spec}, which normalises its layers; one that does not is needed")
    if network != "feed_forward" or not params.keys() & {"Dense_0.kernel", "_Heads_0.Dense_0.kernel"}:
        raise ValueError(f"directory: got a policy of {spec}; one of layers without memory, feed_forward, is needed")
    if not isinstance(actions, Box | Discrete):
        raise ValueError(f"directory: got actions {actions}; Discrete or a Box is needed")
    names = [f"Dense_{i}" for i in range(len(chosen["hidden"]))]
    squashed = "_Heads_0.Dense_0.kernel" not in params
    names.append(f"Dense_{len(names)}" if squashed else "_Heads_0.Dense_0")
    layers = [Layer(params[f"{name}.kernel"], params.get(f"{name}.bias", np.zeros(0))) for name in names]
    layers = [Layer(kernel, bias if bias.size else np.zeros(kernel.shape[1])) for kernel, bias in layers]
    bounds = limits = None
    if isinstance(actions, Box):
        low, high = (np.broadcast_to(np.asarray(x, float), actions.shape).ravel() for x in (actions.low, actions.high))
        if squashed:  # the outputs of SAC's actor are followed by those of its noise
            layers[-1] = Layer(layers[-1].kernel[:, : low.size], layers[-1].bias[: low.size])
            bounds = (low + high) / 2, (high - low) / 2
        elif np.isfinite([low, high]).any():
            largest = np.finfo(np.float32).max  # `_array` writes no infinity
            limits = np.clip(low, -largest, largest), np.clip(high, -largest, largest)
    inputs = None
    if "statistics.mean" in arrays:
        epsilon = chosen.get("observation_epsilon", 1e-8)
        mean, variance = arrays["statistics.mean"].ravel(), arrays["statistics.variance"].ravel()
        inputs = mean, 1 / np.sqrt(variance + epsilon)
    return Policy(tuple(layers), chosen["activation"], inputs, bounds, isinstance(actions, Discrete), limits)


def _exploit(game: Game, seat: int, learner: Learner, own: Any) -> Callable[[jax.Array], jax.Array]:
    """The actions of the learner itself with these parameters, clipped as games clip them."""
    space = game.action_space(game.agents[seat])

    def act_greedy(obs: jax.Array) -> jax.Array:
        assert learner.act_greedy is not None
        if learner.sees_all:  # the policy reads the own observation alone
            obs = jnp.concatenate([obs] * game.num_agents, -1)
        action = learner.act_greedy(own, learner.init_memory(own, len(obs)), obs)[0]
        return jnp.clip(action, space.low, space.high) if isinstance(space, Box) else action

    return jax.jit(act_greedy)


def with_parameters(spec: str, game: Game, seat: int, arrays: dict[str, np.ndarray], file: str) -> tuple[Learner, Any]:
    """A learner, and the parameters in these arrays of a file, by which it acts.

    Ape-X and R2D2 give each parallel environment a share of random actions, for training. Loaded, they act greedily.
    """
    learner = make_learner(spec, game, seat, num_updates=1)
    own: Any = jax.jit(lambda key: learner.policy(learner.init(key)))(jax.random.key(0))  # its buffer is never made
    whole = array_files.named_leaves(own).keys() <= arrays.keys()
    if whole:
        own = array_files.as_tree({name: arrays[name] for name in array_files.named_leaves(own)}, own, file)
    elif hasattr(own, "_replace"):  # a file by an earlier version, which does not say how much is explored
        parts = {name for name in ("params", "statistics") if getattr(own, name, None) is not None}
        own = own._replace(**{name: _part(arrays, name, getattr(own, name), file) for name in parts})
        learner = _greedy(learner)
    else:
        own = _part(arrays, "params", own, file)
    own = jax.tree.map(jnp.asarray, own)
    explores = getattr(jax.eval_shape(lambda own: learner.init_memory(own, 1), own), "epsilon", None) is not None
    return _greedy(learner) if explores else learner, own


def _greedy(learner: Learner) -> Learner:
    """The learner without exploration."""

    def act(key: jax.Array, parameters: Any, memory: Any, obs: jax.Array) -> tuple[Any, Any, Any]:
        assert learner.act_greedy is not None
        return *learner.act_greedy(parameters, memory, obs), ()

    return learner._replace(act=act)


def _part(arrays: dict[str, np.ndarray], name: str, like: Any, file: str) -> Any:
    inside = {key.removeprefix(f"{name}."): x for key, x in arrays.items() if key.startswith(f"{name}.")}
    return array_files.as_tree(inside, like, file)


def to_c(policy: Policy, words: str = "", *, compressed: bool = True) -> str:
    """A function `int policy(const float *observation)`, or `void policy(const float *observation, float *action)`.

    Args:
      policy: of layers.
      words: what it is, for the comment at the top.
      compressed: whether layers with few weights are; all are dense otherwise.
    """
    lines = [f"/* {words.replace('*/', '')} */", "#include <math.h>", ""]
    sizes = [policy.layers[0].kernel.shape[0], *(layer.kernel.shape[1] for layer in policy.layers)]
    if policy.inputs:
        lines += [_array(name, x) for name, x in zip(("shift", "scale"), policy.inputs, strict=True)]
    if policy.limits:
        lines += [_array(name, x) for name, x in zip(("least", "largest"), policy.limits, strict=True)]
    if policy.bounds:
        lines += [_array(name, x) for name, x in zip(("middle", "half_width"), policy.bounds, strict=True)]
    body = [f"    float x0[{sizes[0]}];", f"    for (int i = 0; i < {sizes[0]}; i++)"]
    seen = "(observation[i] - shift[i]) * scale[i]" if policy.inputs else "observation[i]"
    body.append(f"        x0[i] = {seen};")
    for number, layer in enumerate(policy.layers):
        tables, steps = _layer(number, layer, compressed and layer.is_sparse)
        lines += tables
        body += steps
        if number + 1 < len(policy.layers):
            here = f"x{number + 1}[j]"
            activated = f"tanhf({here})" if policy.activation == "tanh" else f"{here} > 0 ? {here} : 0"
            body += [f"    for (int j = 0; j < {sizes[number + 1]}; j++)", f"        {here} = {activated};"]
    last = f"x{len(policy.layers)}"
    if policy.best:
        head = "int policy(const float *observation)"
        body += ["    int best = 0;", f"    for (int j = 1; j < {sizes[-1]}; j++)"]
        body += [f"        best = {last}[j] > {last}[best] ? j : best;", "    return best;"]
    else:
        head = "void policy(const float *observation, float *action)"
        out = f"middle[j] + half_width[j] * tanhf({last}[j])" if policy.bounds else f"{last}[j]"
        out = f"fminf(fmaxf({out}, least[j]), largest[j])" if policy.limits else out
        body += [f"    for (int j = 0; j < {sizes[-1]}; j++)", f"        action[j] = {out};"]
    return "\n".join([*lines, "", f"{head} {{", *body, "}", ""])


def _layer(number: int, layer: Layer, compressed: bool) -> tuple[list[str], list[str]]:
    """Its tables, and what makes x of the next number of the x of this one."""
    inputs, units = layer.kernel.shape
    before, after = f"x{number}", f"x{number + 1}"
    tables, steps = [_array(f"bias{number}", layer.bias)], [f"    float {after}[{units}];"]
    if not compressed:  # the inputs outside, so that the units inside are added up many at a time
        tables.append(_array(f"weight{number}", layer.kernel.ravel()))
        return tables, [
            *steps,
            f"    for (int j = 0; j < {units}; j++)",
            f"        {after}[j] = bias{number}[j];",
            f"    for (int i = 0; i < {inputs}; i++)",
            f"        for (int j = 0; j < {units}; j++)",
            f"            {after}[j] += {before}[i] * weight{number}[i * {units} + j];",
        ]
    rows, columns = np.nonzero(layer.kernel.T)
    ends = np.append(0, np.cumsum(np.bincount(rows, minlength=units)))
    tables.append(_array(f"weight{number}", layer.kernel.T[rows, columns]))
    tables.append(_array(f"column{number}", columns, "unsigned short" if inputs < 2**16 else "unsigned int"))
    tables.append(_array(f"row{number}", ends, "unsigned int"))
    return tables, [
        *steps,
        f"    for (int j = 0; j < {units}; j++) {{",
        f"        float sum = bias{number}[j];",
        f"        for (unsigned int k = row{number}[j]; k < row{number}[j + 1]; k++)",
        f"            sum += weight{number}[k] * {before}[column{number}[k]];",
        f"        {after}[j] = sum;",
        "    }",
    ]


def _array(name: str, values: np.ndarray, kind: str = "float") -> str:
    shown = (f"{x:.9g}" if kind == "float" else str(int(x)) for x in values) if len(values) else iter("0")
    return f"static const {kind} {name}[{max(len(values), 1)}] = {{{', '.join(shown)}}};"


def compiled(code: str, folder: Path) -> ctypes.CDLL | None:
    """The code as a library, by the C compiler of this machine; None where there is none that works."""
    compiler = shlex.split(os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or "")
    if not compiler:
        return None
    source, unlinked, library = (str(folder / f"policy.{end}") for end in ("c", "o", "so"))
    Path(source).write_text(code, encoding="utf-8")
    # Linked with -ffast-math by GCC before 13, a library sets denormal numbers to 0 in the process that loads it.
    compiling = ["-O3", "-march=native", "-ffast-math", "-fPIC", "-c", source, "-o", unlinked]
    try:
        for options in (compiling, ["-shared", unlinked, "-o", library, "-lm"]):
            subprocess.run([*compiler, *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ctypes.CDLL(library)


def caller(policy: Policy, library: ctypes.CDLL) -> Callable[[np.ndarray], np.ndarray]:
    """`(obs [N, ...]) -> actions` of a compiled policy."""
    pointer = ctypes.POINTER(ctypes.c_float)
    library.policy.restype = ctypes.c_int if policy.best else None
    library.policy.argtypes = [pointer] * (1 if policy.best else 2)

    def call(obs: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(obs.reshape(len(obs), -1), np.float32)
        found = np.zeros((len(rows), policy.layers[-1].kernel.shape[1]), np.float32)
        best = np.zeros(len(rows), int)
        for i, (row, action) in enumerate(zip(rows, found, strict=True)):
            if policy.best:
                best[i] = library.policy(row.ctypes.data_as(pointer))
            else:
                library.policy(row.ctypes.data_as(pointer), action.ctypes.data_as(pointer))
        return best if policy.best else found

    return call


def seconds_of_a_call(policy: Policy, library: ctypes.CDLL) -> float:
    """The least of several measurements of one observation at a time, with what it costs to call it from Python."""
    pointer = ctypes.POINTER(ctypes.c_float)
    row = np.zeros(policy.layers[0].kernel.shape[0], np.float32).ctypes.data_as(pointer)
    action = np.zeros(policy.layers[-1].kernel.shape[1], np.float32).ctypes.data_as(pointer)
    arguments = (row,) if policy.best else (row, action)
    call, best, until = library.policy, float("inf"), time.perf_counter() + MEASURED
    while time.perf_counter() < until:
        begun = time.perf_counter()
        for _ in range(100):
            call(*arguments)
        best = min(best, (time.perf_counter() - begun) / 100)
    return best


def disagreement(source: Source, call: Callable[[np.ndarray], np.ndarray]) -> float:
    """Difference of actions from the learner's: the largest one, or the share of different choices."""
    obs = np.random.default_rng(0).normal(size=(CHECKED, *source.obs_shape)).astype(np.float32)
    ours, theirs = call(obs), np.asarray(source.act_greedy(jnp.asarray(obs)))
    if source.policy.best:
        return float((ours != theirs).mean())
    return float(np.abs(ours - theirs.reshape(ours.shape)).max())


def checked(config: ExportConfig) -> tuple[ExportConfig, Source]:
    """The config and what it names; raises ValueError for what cannot be exported."""
    if not config.directory:
        raise ValueError("directory: none given; a run directory of marl.train or marl.distributed is needed")
    try:
        return config, read(config)
    except (KeyError, TypeError, ModuleNotFoundError) as error:
        raise ValueError(f"directory: got {config.directory!r}; {first_line(error)}") from None


def export(prepared: tuple[ExportConfig, Source], run: None, console: Console) -> None:
    """Writes the file, and says how large and how fast it is and whether it does what the learner does.

    Raises:
      ValueError: if it does not.
    """
    config, source = prepared
    code, layers = to_c(source.policy, source.words), source.policy.layers
    weights, full = sum(layer.num_weights for layer in layers), sum(layer.kernel.size for layer in layers)
    size = f"{weights:,} of {many(full, 'weight')} in {many(len(layers), 'layer')}"
    about = f"{source.words} is a function of C with {size}."
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(code, Path(folder))
        if library:
            off = disagreement(source, caller(source.policy, library))
            if off > TOLERANCE and not (source.policy.best and off < 0.01):  # of equal values either is best
                raise ValueError(f"directory: got {config.directory!r}, whose actions in C are off by {off:.2g}")
            kind = f"in {off:.1%} of them" if source.policy.best else f"by {off:.1e} at most"
            took = f"{1e6 * seconds_of_a_call(source.policy, library):.2f} microseconds"
            about += f" On {CHECKED} random observations its actions differ from the learner's {kind}, and a call "
            about += f"takes {took}."
        else:
            about += " No C compiler here works (cc, gcc or CC), so that it is neither compared nor timed."
    say(console, about)
    try:
        write_whole(Path(config.out), code.encode())
    except OSError as error:
        raise ValueError(f"out: got {config.out!r}; it cannot be written ({error.strerror})") from None
    say(console, f"written to {config.out}")
