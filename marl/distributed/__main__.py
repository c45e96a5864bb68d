"""`python -m marl.distributed`, the command `marl-shaping distributed`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.distributed")

if __name__ == "__main__":
    start("marl.distributed")
