"""`python -m marl.crossplay`, the command `marl-shaping crossplay`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.crossplay")

if __name__ == "__main__":
    start("marl.crossplay")
