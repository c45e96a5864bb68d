"""`python -m marl.export`, the command `marl-shaping export`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.export")

if __name__ == "__main__":
    start("marl.export")
