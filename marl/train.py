"""`python -m marl.train`, the command `marl-shaping train`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.train")

if __name__ == "__main__":
    start("marl.train")
