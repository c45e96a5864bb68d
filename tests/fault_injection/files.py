"""Every file of a run directory, damaged in every way: `python -m tests.fault_injection.files [COMMAND ...]`.

A small run of each command that keeps one, to its end and stopped in the midst. Then each of its files, and the one
that it makes beside its directory, is removed, emptied, cut, flipped in one bit, replaced by noise and by a folder, one
at a time, and the run goes on: it has to end equal to the one that nothing happened to, or to be refused in one line.
The same with links and pipes in place of the files, after which nothing outside may have changed. Some minutes for each
command.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from marl.commands import describe
from meta.runs.command import RUN, ToFile
from meta.runs.execution import execute
from tests.fault_injection.damages import ATTACKS, DAMAGES, contents, copy, files, go, make_outside, results, verdict

EVOLUTION = ("--evolution.population-size=4", "--evolution.checkpoint-seconds=0")
SAMPLED = (
    *("--meta-steps=2", "--episode-length=4", "--trials=1", "--evaluation-trials=4"),
    *("--shaper=good_shepherd", "--start=random"),
)
LEARNER = "ppo(hidden=[4], epochs=1, minibatches=1)"
ATTACK = (
    *("--num-updates=1", "--steps-per-update=8", "--num-envs=2", "--evaluation-episodes=2"),
    *("--evaluation-steps=8", "--evaluation-trials=2", "--message=mlp(hidden=[4])", *EVOLUTION),
    *("--warm-up.population-size=4", "--warm-up.generations=3", "--warm-up.checkpoint-seconds=0"),
    *("--warm-up.sigma=0.05", "--warm-up.learning-rate=0.02", "--warm-up.chunk-size=0"),
    *("--evolution.generations=300", "--evolution.chunk-size=0", f"--victim={LEARNER}"),
)
ONCE = ("ipd", "--discount=0")  # policies of one logit are sooner traced than those of five, and kept in the same files
TRAINING = (*ONCE, "--iterations=300", "--checkpoint-seconds=0")  # more of them than one call to the device takes
# What is run, and after how many reports it is stopped.
RUNS = {
    "exact": ("marl.mfos", [*ONCE, *EVOLUTION, "--evolution.generations=300", "--meta-steps=3", "--trials=1",
                            "--hidden-units=2", "--evaluation-trials=4"], 2),
    "seeds": ("marl.mfos", [*ONCE, *EVOLUTION, "--evolution.generations=300", "--meta-steps=3", "--trials=1",
                            "--hidden-units=2", "--evaluation-trials=4", "--seeds=2"], 2),
    "ppo": ("marl.mfos", [*ONCE, "--meta-learner=ppo", "--meta-ppo.iterations=300", "--meta-ppo.batch-size=4",
                          "--meta-ppo.hidden-units=2", "--meta-ppo.checkpoint-seconds=0", "--meta-steps=3",
                          "--evaluation-trials=4"], 2),
    "sampled": ("marl.mfos", ["ipd_sampled", *EVOLUTION, "--evolution.generations=300", *SAMPLED], 2),
    "train": ("marl.train", ["CartPole-v1(max_steps_in_episode=20)", f"--learner={LEARNER}", "--num-envs=2",
                             "--steps-per-update=8", "--total-steps=128", "--evaluation-episodes=4",
                             "--checkpoint-seconds=0"], 2),
    "act": ("attacks.act", ["cartpole", *ATTACK, "--warm-up-updates=1"], 4),
    "control": ("attacks.act", ["reacher", *ATTACK, "--goal=control", "--oracle-updates=1", "--shapers=2",
                                "--controller=mlp(hidden=[4])"], 6),
    "crossplay": ("marl.crossplay", [*ONCE, "--agents=naive,mfos", *EVOLUTION, "--evolution.generations=4",
                                     "--evaluation-trials=4", "--meta-steps=3", "--trials=1",
                                     "--hidden-units=2"], None),
    "bound": ("marl.bound", [*TRAINING, "--meta-steps=3", "--num-states=2", "--evaluation-trials=4"], 2),
    "cola": ("marl.cola", [*TRAINING, "--hidden=4", "--batch=4", "--evaluation-trials=4"], 2),
    "meva": ("marl.meva", [*TRAINING, "--hidden=4", "--batch=4", "--evaluation-trials=4"], 2),
    "mmaml": ("marl.mmaml", [*TRAINING, "--meta-steps=3", "--initialisations=2", "--opponents=2",
                             "--evaluation-trials=4"], 2),
}  # fmt: skip


def draw_fast(self, file, **_) -> None:
    """Replaces matplotlib's drawing, which takes half of the time and is not tested here."""
    file.write(b"\x89PNG")


def make(name: str, folder: Path) -> list[Path]:
    """Folders with the run as `found`, one run to its end and one stopped before."""
    from meta.runs.progress import Progress

    module, arguments, reports = RUNS[name]
    main = partial(execute, describe(module))
    done = [folder / "whole"]
    done[0].mkdir()
    status, said = go(main, *arguments, "--quiet", "--out", str(done[0] / "found"))
    assert (status, said) == (0, ""), said
    if reports:
        report, count = Progress.__call__, 0

        def stop(self, *given):
            nonlocal count
            count += 1
            if count == reports:
                raise KeyboardInterrupt
            report(self, *given)

        Progress.__call__ = stop
        done.append(folder / "stopped")
        done[1].mkdir()
        try:
            status, said = go(main, *arguments, "--quiet", "--out", str(done[1] / "found"))
        finally:
            Progress.__call__ = report
        assert status == 130, said
    return done


def examine(name: str, every: int) -> list[tuple[str, str, str, str]]:
    """(run, file, damage, verdict) for every n-th pair of a file and a damage."""
    found, count = [], itertools.count()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.chdir(folder)
        bases = make(name, folder)
        expected, command = results(bases[0]), describe(RUNS[name][0])
        main, run_in = partial(execute, command), f"found{RUN if command.output is ToFile else ''}"
        came = verdict(main, copy(bases[-1], folder / "run"), expected, run_in)
        assert came == "equal", came
        outside = make_outside(folder / "outside")
        before = contents(outside)
        for base in bases:
            for file in files(base):
                for damage in DAMAGES:
                    if next(count) % every:
                        continue
                    run = copy(base, folder / "run")
                    damage(run / file)
                    found.append((base.name, str(file), damage.__name__, verdict(main, run, expected, run_in)))
                    say(name, found[-1])
                for attack in ATTACKS:
                    run = copy(base, folder / "run")
                    attack(run / file, outside)
                    came = verdict(main, run, expected, run_in)
                    came = came if contents(outside) == before else "wrote outside"
                    found.append((base.name, str(file), attack.__name__, came))
                    say(name, found[-1])
    return found


def say(name: str, case: tuple[str, str, str, str]) -> None:
    if case[-1] not in ("equal", "refused"):
        print(f"{name}: {' '.join(case)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--every", type=int, default=1, help="only every so many damages, where time is short")
    given = parser.parse_args()
    if len(given.commands) > 1:  # each in a process of its own, because commands change JAX's settings
        lines = [
            [sys.executable, "-m", "tests.fault_injection.files", name, f"--every={given.every}"]
            for name in given.commands
        ]
        with ThreadPoolExecutor(given.workers) as pool:
            return max(pool.map(subprocess.call, lines))
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    import jax

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
    from matplotlib.figure import Figure

    Figure.savefig = draw_fast
    (name,), started = given.commands, time.perf_counter()
    found = examine(name, given.every)
    bad = 0
    print(f"{name}: {len(found)} cases, {time.perf_counter() - started:.0f} s", flush=True)
    for damage in dict.fromkeys(case[2] for case in found):
        counts = Counter(case[3] for case in found if case[2] == damage)
        others = sum(n for came, n in counts.items() if came not in ("equal", "refused"))
        bad += others
        print(f"  {damage:12} {counts['equal']:4} equal {counts['refused']:4} refused {others:4} failed", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
