"""`python -m marl.cola`, the command `marl-shaping cola`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.cola")

if __name__ == "__main__":
    start("marl.cola")
