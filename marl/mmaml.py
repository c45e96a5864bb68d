"""`python -m marl.mmaml`, the command `marl-shaping mmaml`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.mmaml")

if __name__ == "__main__":
    start("marl.mmaml")
