"""`python -m marl.play`, the command `marl-shaping play`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.play")

if __name__ == "__main__":
    start("marl.play")
