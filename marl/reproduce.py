"""`python -m marl.reproduce`, the command `marl-shaping reproduce`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.reproduce")

if __name__ == "__main__":
    start("marl.reproduce")
