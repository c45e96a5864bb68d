"""Runs that are stopped again and again, at random moments, end as unbroken runs.

    python -m tests.fault_injection.stops [--stops 100] [--seed 0] [--only "mfos, exact"]

Every command that keeps a run is run once to its end, and then again with stops: by Ctrl-C, SIGTERM or SIGKILL, while
it imports, compiles, trains or evaluates, several times in a row; each time the run is resumed as by a user. Its files
must be equal to the last bit, except times. Environments on a host cannot be saved: there all updates must be recorded.
Prints a table; status 1 if anything differs, if a stop was not one line with status 130, or if a run could not be
resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from meta.runs import array_files

TINY_ACT = (
    "attacks.act cartpole --num-updates 2 --steps-per-update 8 --num-envs 2 --evaluation-episodes 2"
    " --evaluation-steps 8 --evaluation-trials 4 --message 'mlp(hidden=[4])' --victim 'ppo(hidden=[4], minibatches=1)'"
    " --warm-up-updates 1 --warm-up.population-size 2 --warm-up.chunk-size 0 --warm-up.generations 8"
    " --warm-up.checkpoint-seconds 0 --evolution.population-size 2 --evolution.chunk-size 0"
    " --evolution.generations 20 --evolution.checkpoint-seconds 0"
)
TINY_EXACT = "marl.mfos ipd --meta-steps 5 --trials 2 --hidden-units 4 --evaluation-trials 16 --unseen tft"
TINY_SAMPLED = (
    "marl.mfos ipd_sampled --environment 'ipd(episode_length=4)' --meta-steps 3 --episode-length 4 --num-envs 12"
    " --opponent reinforce --unseen random --shaper 'shaper(hidden_units=3)' --trials 1 --evaluation-trials 5"
    " --start 'screened(candidates=16, finalists=4, final_trials=2)'"
)
SEARCH = "--evolution.population-size 4 --evolution.generations 60 --evolution.checkpoint-seconds 0"
COMMANDS = {  # each as it is typed after `python -m`; --out is added
    "mfos, exact": f"{TINY_EXACT} {SEARCH}",
    "mfos, two seeds": f"{TINY_EXACT} {SEARCH} --seeds 2",
    "mfos, ppo": f"{TINY_EXACT.replace('--trials 2 --hidden-units 4', '')} --meta-learner ppo --meta-ppo.iterations 60"
    " --meta-ppo.batch-size 8 --meta-ppo.hidden-units 4 --meta-ppo.checkpoint-seconds 0",
    "mfos, sampled": f"{TINY_SAMPLED} {SEARCH}",
    "train": "marl.train CartPole-v1 --learner 'ppo(hidden=[8], minibatches=2)' --num-envs 2 --steps-per-update 8"
    " --total-steps 8000 --evaluation-episodes 4 --seeds 2 --checkpoint-seconds 0",
    "train, team": "marl.train 'coin_game(episode_length=8)' --learner 'mappo(hidden=[8], minibatches=2)' --num-envs 2"
    " --steps-per-update 8 --total-steps 8000 --evaluation-episodes 4 --checkpoint-seconds 0",
    "act": TINY_ACT,
    "act, control": f"{TINY_ACT.replace(' --warm-up-updates 1', '')} --goal control --oracle-updates 1 --shapers 2"
    " --controller 'mlp(hidden=[4])'",
    "discover": "marl.discover drift 'CartPole-v1(max_steps_in_episode=8)' --learner 'ppo(hidden=[4], minibatches=2)'"
    " --total-steps 64 --num-envs 2 --steps-per-update 8 --hidden 3 --evaluation-trials 3 --unseen --longer 1"
    f" --searches 2 --tuning.population-size 4 --tuning.generations 60 --tuning.checkpoint-seconds 0"
    f" --tuning.chunk-size 4 --evolution.chunk-size 4 {SEARCH}",
    "crossplay": "marl.crossplay ipd --agents naive,tft,mfos --evaluation-trials 32 --sampled-evaluation-trials 4"
    " --meta-steps 5 --trials 2 --hidden-units 4 --evolution.population-size 4 --evolution.generations 20"
    " --evolution.checkpoint-seconds 0",
    "bound": "marl.bound ipd --meta-steps 5 --num-states 4 --iterations 60 --checkpoint-seconds 0",
    "schelling": "marl.schelling 'public_goods(episode_length=50)' --episodes 20000",
    "cola": "marl.cola ipd --iterations 60 --hidden 4 --evaluation-trials 8 --checkpoint-seconds 0",
    "meva": "marl.meva ipd --iterations 60 --hidden 4 --evaluation-trials 8 --checkpoint-seconds 0",
    # Episodes as long as a rollout, and no chance: new environments begin in the states of an unbroken run.
    "distributed": "marl.distributed 'ipd(episode_length=8)' --learner 'ppo(hidden=[8], minibatches=2)' --num-envs 2"
    " --steps-per-update 8 --total-steps 16000 --evaluation-episodes 4 --checkpoint-seconds 0",
    "distributed, host": "marl.distributed CartPole-v1 --learner 'impala(hidden=[8])' --num-envs 2 --steps-per-update 8"
    " --total-steps 16000 --evaluation-episodes 4 --where threads --actors 2 --checkpoint-seconds 0",
    "mmaml": "marl.mmaml ipd --meta-steps 3 --iterations 60 --initialisations 4 --opponents 2 --evaluation-trials 8"
    " --checkpoint-seconds 0",
}
NEW_ENVIRONMENTS = ("distributed, host",)  # resumes with new environments, so that all results differ
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
MOST_IN_A_ROW = 4
TIMES = ("wall_seconds", "seconds_to_compile", "seconds_to_run", "seconds", "digest", "learner_steps_per_cpu_second")
# All names that end in _per_second are times too.


def main() -> int:
    """Runs the script; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault_injection.stops", description=__doc__)
    parser.add_argument("--stops", type=int, default=100, help="how many, over all commands")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the signals")
    parser.add_argument(
        "--only", action="append", choices=COMMANDS, help="this command, and no other that is not named"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = try_all(Path(folder), options.only or list(COMMANDS), options.stops, random.Random(options.seed))
    return 1 if faults else 0


def try_all(folder: Path, names: list[str], stops: int, draw: random.Random) -> list[str]:
    """Stops every command in turn until there were so many stops; returns the faults, one line each."""
    wholes = {name: Stopped(name, folder / f"whole {i}") for i, name in enumerate(names)}
    for whole in wholes.values():
        whole.run(draw, may_stop=False)
        print(f"{whole.name}: {whole.faults or f'{whole.seconds:.1f} s unbroken'}", flush=True)
    tried, faults, counts = defaultdict(list), [x for one in wholes.values() for x in one.faults], Counter[str]()
    while sum(counts.values()) < stops and not any(whole.faults for whole in wholes.values()):
        name = min(names, key=lambda name: (counts[name], len(tried[name])))
        one = Stopped(name, folder / f"{name} {len(tried[name])}")
        one.stop_and_go_on(draw, wholes[name])
        tried[name].append(one)
        counts[name] += len(one.stops)
        faults += one.faults
        print(f"{name}: {', '.join(one.stops) or 'ended before it was stopped'}: {one.faults or 'equal'}", flush=True)
    print(f"\n{'command':<16} runs  stops  before the first file  equal")
    for name, runs in tried.items():
        early, equal = sum(run.early for run in runs), sum(not run.faults for run in runs)
        print(f"{name:<16} {len(runs):>4}  {counts[name]:>5}  {early:>21}  {equal:>2} of {len(runs)}")
    print("\n".join([f"{sum(counts.values())} stops, {len(faults)} faults", *faults]))
    return faults


class Stopped:
    """A run of one command in a folder of its own."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder, self.line = name, folder, shlex.split(COMMANDS[name])
        self.stops, self.faults, self.early, self.seconds = list[str](), list[str](), 0, 0.0
        folder.mkdir()

    def stop_and_go_on(self, draw: random.Random, whole: Stopped) -> None:
        """Stops the run several times in a row, lets it go on to its end, and compares what it leaves."""
        for _ in range(draw.randint(1, MOST_IN_A_ROW)):
            self.seconds = whole.seconds
            if self.run(draw, may_stop=True):
                if not self.stops:  # nothing had to be compiled any more
                    whole.seconds = min(whole.seconds, self.seconds)
                break
        else:
            self.run(draw, may_stop=False)
        mine, theirs = contents(self.folder), contents(whole.folder)
        if self.name in NEW_ENVIRONMENTS:
            mine, theirs = updates(mine), updates(theirs)
        self.faults += [f"{self.name}: {x} differs" for x in {*mine, *theirs} if mine.get(x) != theirs.get(x)]

    def run(self, draw: random.Random, *, may_stop: bool) -> bool:
        """Begins or resumes the run; returns True if it came to its end."""
        begun = next(self.folder.glob("run*/config.yaml"), None)
        line = [self.line[0], "--resume", begun.parent.name] if begun else [*self.line, "--out", "run"]
        cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(self.folder.parent / "compiled")
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": cache,  # so that not every stop is in a compilation
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0",  # compiles faster
            "PYTHONPATH": os.pathsep.join(["", *sys.path]).strip(os.pathsep),
        }
        with (self.folder.parent / "stderr").open("w+") as said, (self.folder.parent / "stdout").open("w") as nowhere:
            started = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", *line], cwd=self.folder, env=environment, stdout=nowhere, stderr=said
            )
            how = draw.choice(SIGNALS) if may_stop else None
            if how:
                moment = draw.random() ** 1.5 * self.seconds  # a resumed run has less to do
                while not listens(process.pid) and process.poll() is None:
                    time.sleep(0.002)  # Python's own start handles no signals
                try:
                    process.wait(moment)
                except subprocess.TimeoutExpired:
                    process.send_signal(how)
            try:
                status, self.seconds = process.wait(), time.perf_counter() - started
            finally:  # no process is left behind if this script is stopped
                process.kill()
            said.seek(0)
            errors = said.read()
        if "damaged" in errors:
            self.faults.append(f"{self.name}: {' '.join(line)}: {errors[-500:]!r}")
        if status == 0:
            return True
        expected = -signal.SIGKILL if how == signal.SIGKILL else 130
        one_line = errors.count("\n") == 1 and errors.startswith(f"python -m {self.line[0]}: stopped; ")
        if not how or status != expected or (expected == 130 and not one_line):
            self.faults.append(f"{self.name}: {' '.join(line)}: {how and how.name}: status {status}: {errors[-500:]!r}")
        if how:
            self.stops.append(f"{how.name} after {moment:.1f} s")
            self.early += not any(self.folder.glob("run*/config.yaml"))
        return not how


def listens(pid: int) -> bool:
    """True if a process handles SIGTERM itself already."""
    try:
        masks = dict(
            line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        return bool(int(masks["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)
    except (OSError, KeyError, ValueError):  # it has ended
        return False


def contents(folder: Path) -> dict[str, Any]:
    """The files of a run without times: results, metrics and parameters."""
    found = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    found = {name: file for name, file in found.items() if file.name != "report.html"}  # which has times
    return {name: _read(file) for name, file in found.items() if not {"checkpoints", "figures"} & {*Path(name).parts}}


def updates(found: dict[str, Any]) -> dict[str, list[int]]:
    """Numbers of the updates in each file of a run."""
    return {name: [row["update"] for row in x] if name.endswith(".jsonl") else [] for name, x in found.items()}


def _read(file: Path) -> Any:
    if file.suffix == ".json":
        return _timeless(json.loads(file.read_text()))
    if file.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in file.read_text().splitlines()]
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
    if file.suffix == ".safetensors":
        arrays, metadata = array_files.load_arrays(file)
        return metadata, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
    return file.read_bytes()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(x) for k, x in value.items() if k not in TIMES and not k.endswith("_per_second")}
    return [_timeless(x) for x in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
