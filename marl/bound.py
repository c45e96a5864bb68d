"""`python -m marl.bound`, the command `marl-shaping bound`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.bound")

if __name__ == "__main__":
    start("marl.bound")
