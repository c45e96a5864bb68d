"""Comparison of a run's bits on different numbers of cores: `python -m tests.fault_injection.cores [NAME ...]`.

Runs small experiments of every command that takes a chunk size in real processes: on one core, with the threads of two,
four and eight, on Ray and in the two processes of a job, and compares their metrics byte by byte. Prints a line for
each, and exits with 1 if some differ.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sockets import free_port

TWO = ["--evolution.generations=2"]
SMALL = [*TWO, "--evolution.population-size=16"]
FORMULA = ["marl.mfos", "ipd", "--seed=5", *TWO, "--evaluation-trials=8"]
ATTACK = [*SMALL, "--warm-up.generations=2", "--warm-up.population-size=16", "--evaluation-trials=4"]
RUNS = {
    **{f"formula, chunks of {size}": [*FORMULA, f"--evolution.chunk-size={size}"] for size in (4, 64, 128, 256)},
    "sampled game": ["marl.mfos", "ipd_sampled", *SMALL, "--evolution.chunk-size=4", "--evaluation-trials=2",
                     "--start=screened(candidates=24, trials=2, finalists=9, final_trials=3)"],
    "matrix": ["marl.mfos", "ipd_in_the_matrix", *SMALL, "--evolution.chunk-size=4", "--evaluation-trials=2",
               "--meta-steps=2"],
    "cheap talk": ["attacks.act", "cartpole", *ATTACK, "--num-updates=10", "--warm-up-updates=4"],
    "images": ["attacks.act", "breakout", *ATTACK, "--evolution.chunk-size=4",
               "--warm-up.chunk-size=4", "--num-updates=2", "--warm-up-updates=1"],
    "discovery": ["marl.discover", "drift", "cartpole", *SMALL, "--tuning.generations=2",
                  "--tuning.population-size=16", "--evaluation-trials=2", "--evolution.chunk-size=4"],
    "PPO over trials": ["marl.mfos", "ipd", "--meta-learner=ppo", "--meta-ppo.iterations=2",
                        "--meta-ppo.batch-size=512", "--evaluation-trials=8"],
}  # fmt: skip
PLACES: dict[str, tuple[dict[str, str], list[str]]] = {
    "1 core": ({"cores": "0"}, []),
    "2 threads": ({"NPROC": "2"}, []),
    "4 threads": ({"NPROC": "4"}, []),
    "8 threads": ({"NPROC": "8"}, []),
    "Ray": ({}, ["--cluster=ray", "--cluster-workers=1"]),
    "two processes": ({}, ["--cluster=jax", "--processes=2"]),
}


def digest(line: list[str], place: str, folder: Path) -> str:
    """The metrics of a run in a process of its own, as hexadecimal digits."""
    variables, more = PLACES[place]
    environment = {name: x for name, x in (os.environ | variables).items() if name not in ("XLA_FLAGS", "cores")}
    pinned = (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})) if "cores" in variables else None
    called = [sys.executable, "-m", *line, *more, "--quiet", f"--out={folder}"]
    if "--cluster=jax" in more:
        called = [*called, f"--coordinator=127.0.0.1:{free_port()}", "--process-id"]
        started = [subprocess.Popen([*called, str(i)], env=environment) for i in range(2)]
        if any(process.wait() for process in started):
            raise SystemExit(f"{' '.join(called)}: a process failed")
    else:
        subprocess.run(called, env=environment, check=True, preexec_fn=pinned)
    return hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()[:12]


def main(names: list[str]) -> int:
    """Compares the runs with these names, or all."""
    differ = 0
    for name in names or RUNS:
        line = RUNS[name]
        places = [place for place in PLACES if not PLACES[place][1] or "--meta-learner=ppo" not in line]
        with tempfile.TemporaryDirectory() as folder:
            found = {place: digest(line, place, Path(folder) / str(i)) for i, place in enumerate(places)}
        same = len(set(found.values())) == 1
        differ += not same
        print(f"{name}: {'the same bits' if same else found} ({', '.join(places)})", flush=True)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
