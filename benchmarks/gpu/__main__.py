"""Kernels, launches and memory of the main programs on a GPU, by compiling them for one; no card is needed.

A kernel that moves little costs its launch: about 1 us inside of a CUDA graph, 3 us outside. Its bytes cost their
share of the card's bandwidth. The larger of the two sums is a lower bound of the time. On a machine with a card,
programs also run, and the measured time stands beside. Without JAX's plugin for NVIDIA's cards (`pip install
jax-cuda13-plugin jax-cuda13-pjrt`) nothing is compiled, and the exit status is 0: a benchmark that cannot run is no
failure.

    python -m benchmarks.gpu [--programs "ipd;coin_game"] [--card h100,a100] [--out FILE]
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

LAUNCH = (1e-6, 3e-6)  # seconds, inside of a CUDA graph and outside
HEAD = """\
# GPUs: compiled for, not run on

No card was at hand. These programs were compiled for it by XLA on a machine without one, and their kernels counted in
what came out, `python -m benchmarks.gpu`, on {date} with jax {jax} and jaxlib {jaxlib}. XLA chooses some kernels by
timing them on a card, so that counts can shift a little there. All times are estimates: the smaller one of launches
is for CUDA graphs, {graph:.0f} us each, the larger for single launches, {single:.0f} us each. The time of memory is all
bytes that kernels read and write at the card's bandwidth. The bound is the larger of launches in graphs and memory.

Kernels are those of one iteration of each loop, from the outermost to the innermost, with the number of its iterations:
`54, 101 x 7` is a generation of 54 kernels around a loop of 101 steps of 7 kernels. Loops of less than a hundredth of
all launches are left out. Conditionals wait for the host. A row is one generation, one iteration of PPO, one update of
`marl.train`, all fresh trials, or 64 steps of a game.
"""
COLUMNS = "program | kernels | launches | conditionals | launch time | memory time | bound | temporary"


class Row(NamedTuple):
    """Predictions for a program on a card."""

    program: str
    kernels: str
    launches: float
    conditionals: float
    launch_seconds: tuple[float, float]
    memory_seconds: float
    temporary: float  # bytes
    measured: float | None = None  # seconds

    @property
    def cells(self) -> list[str]:
        """The row of a table."""
        low, high = self.launch_seconds
        found = [self.program, self.kernels, f"{self.launches:,.0f}", f"{self.conditionals:,.0f}"]
        found += [f"{_seconds(low)} to {_seconds(high)}", _seconds(self.memory_seconds)]
        found += [_seconds(max(low, self.memory_seconds)), f"{self.temporary / 1e6:,.1f} MB"]
        return found if self.measured is None else [*found, _seconds(self.measured)]


def measured_row(name: str, card: Any, compiled: Any, seconds: float | None = None) -> Row:
    """The row of a compiled program."""
    from benchmarks.gpu.hlo import Program
    from meta.runs.formatting import many

    text = compiled.as_text()
    parsed = Program.parse(text)
    cost = parsed.cost()
    shown = [loop for loop in parsed.loops() if loop.kernels * loop.runs >= 0.01 * cost.launches or loop.depth == 0]
    parts = [f"{loop.trips} x {loop.kernels}" if loop.trips else f"{loop.kernels}" for loop in shown]
    if exchanges := len(re.findall(r" all-gather(?:-start)?\(", text)):
        parts.append(many(exchanges, "all-gather"))
    temporary = compiled.memory_analysis().temp_size_in_bytes
    launches = cost.launches * LAUNCH[0], cost.launches * LAUNCH[1]
    bytes_seconds = cost.bytes / card.bandwidth
    return Row(
        name,
        ", ".join(parts) or f"{cost.launches:.0f}",
        cost.launches,
        cost.conditionals,
        launches,
        bytes_seconds,
        temporary,
        seconds,
    )


def compile_row(name: str, card: Any) -> Row:
    """Compiles a program for a card that is not here."""
    import jax

    from benchmarks.gpu.programs import PROGRAMS, SEVERAL, caught
    from meta.evaluators import evaluating, on_devices
    from meta.xla.backend import tracing_for
    from meta.xla.memory import check_memory

    topology = SEVERAL.get(name, "1x1x1")

    def compiler(jitted: Any, arguments: tuple[Any, ...]) -> Any:
        compiled = card.compile(jitted, arguments, topology)
        check_memory(compiled)
        return compiled

    place = on_devices(card.devices(topology)) if name in SEVERAL else on_devices()
    # The share of the memory that JAX takes, and the precision of the commands.
    with tracing_for("gpu", 0.75 * card.memory), evaluating(place), jax.default_matmul_precision("float32"):
        return measured_row(name, card, caught(PROGRAMS[name], compiler))


def run_row(name: str, card: Any) -> Row:
    """Compiles a program for the card of this machine, and runs it."""
    from benchmarks.gpu.programs import PROGRAMS, caught

    def compiler(jitted: Any, arguments: tuple[Any, ...]) -> tuple[Any, float]:
        import jax

        with jax.default_matmul_precision("float32"):
            compiled = jitted.lower(*arguments).compile()
        if arguments and getattr(arguments[-1], "shape", None) == ():  # the number of iterations
            arguments = *arguments[:-1], jax.numpy.int32(1)
        arguments = jax.tree.map(_filled, arguments)
        jax.block_until_ready(compiled(*arguments))
        started = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        return compiled, time.perf_counter() - started

    return measured_row(name, card, *caught(PROGRAMS[name], compiler))


def _filled(x: Any) -> Any:
    """An array for a shape."""
    import jax

    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), x.shape)
    return jax.numpy.ones(x.shape, x.dtype)


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="names with semicolons between them; all without")
    parser.add_argument("--card", default="h100", help="h100, a100 or both with a comma")
    parser.add_argument("--out", default="", help="a file for the tables too")
    options = parser.parse_args()
    here = os.path.exists("/dev/nvidia0")
    if not here:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jaxlib

    from benchmarks.gpu.cards import CARDS, has_plugin

    if not has_plugin():
        print("skipped: jax-cuda13-plugin is not installed, and without it nothing can be compiled for a GPU")
        return
    from benchmarks.gpu.programs import PROGRAMS, SEVERAL

    names = [name.strip() for name in options.programs.split(";")] if options.programs else list(PROGRAMS)
    if here:  # where programs run, and on one card
        names = [name for name in names if name not in SEVERAL]
    for field, got, known in (("programs", names, PROGRAMS), ("card", options.card.split(","), CARDS)):
        if unknown := [one for one in got if one not in known]:
            parser.error(f"--{field}: got {unknown[0]}; some of {'; '.join(known)} are needed")
    columns = COLUMNS + (" | measured" if here else "")
    texts = [
        HEAD.format(
            date=datetime.date.today().isoformat(),
            jax=jax.__version__,
            jaxlib=jaxlib.__version__,
            graph=1e6 * LAUNCH[0],
            single=1e6 * LAUNCH[1],
        )
    ]
    for key in options.card.split(","):
        card = CARDS[key]
        table = [f"## {card.name}", "", f"| {columns} |", "|" + "---|" * (columns.count("|") + 1)]
        print("\n".join(table), flush=True)
        for name in names:
            row = (run_row if here else compile_row)(name, card)
            jax.clear_caches()
            table.append(f"| {' | '.join(row.cells)} |")
            print(table[-1], flush=True)
        texts.append("\n".join([*table, ""]))
    if options.out:
        Path(options.out).write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    main()
