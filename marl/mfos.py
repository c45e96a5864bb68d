"""`python -m marl.mfos`, the command `marl-shaping mfos`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "marl.mfos")

if __name__ == "__main__":
    start("marl.mfos")
