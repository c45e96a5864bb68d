"""A small command that keeps a run: a random walk of two seeds, which takes its time and draws a figure and a film."""

import dataclasses
import os
import sys
import time
from functools import partial

import jax
import numpy as np
from PIL import Image

from configs import CommandConfig
from meta.atomic_files import save_whole
from meta.loop import iterate
from meta.runs.command import Command
from meta.runs.execution import execute


@dataclasses.dataclass(frozen=True)
class WalkConfig(CommandConfig):
    generations: int = 8
    """Steps of the walk."""

    @property
    def may_rise(self):
        return {"generations": ()}


def walk(config, run, console):
    def step(key, number, state):
        x = state + jax.random.normal(jax.random.fold_in(key, number), (2,))
        return x, {"x": x, "mean": x.mean()}

    def report(generation, *_):
        time.sleep(float(os.environ.get("WALK_SECONDS", "0")))
        if generation >= int(os.environ.get("WALK_UNTIL", "1000")):
            time.sleep(1000.0)

    start = {"store": run, "report": report, "checkpoint_seconds": 1000.0}
    part = run.part("warm up", print)
    iterate(step, jax.numpy.zeros(2), jax.random.key(1), 2, **start | {"store": part})
    found = iterate(step, jax.numpy.zeros(2), jax.random.key(0), config.generations, **start)
    frames = [Image.fromarray(np.full((8, 8, 3), x, np.uint8)) for x in (0, 200)]
    save_whole(run.figures / "walk.png", partial(frames[0].save, format="PNG"))
    save_whole(run.figures / "film.gif", partial(frames[0].save, format="GIF", save_all=True, append_images=frames[1:]))
    run.write_summary({"last": found.state.tolist(), "nested": {"generations": config.generations}})


COMMAND = Command({"there": WalkConfig}, walk, "python -m tests.meta.trackers.walk", "Walks.", first="way")

if __name__ == "__main__":
    import meta.loop
    import meta.trackers.tracker_process

    meta.loop.MAX_ITERATIONS_PER_CALL = 2
    meta.trackers.tracker_process.PATIENCE = float(os.environ.get("WALK_PATIENCE", "30"))
    sys.exit(execute(COMMAND, sys.argv[1:]))
