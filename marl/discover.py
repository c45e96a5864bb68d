"""`python -m marl.discover`, the command `marl-shaping discover`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.discover")

if __name__ == "__main__":
    start("marl.discover")
