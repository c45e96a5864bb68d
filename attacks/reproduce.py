"""`python -m attacks.reproduce`, the command `marl-shaping reproduce-act`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "attacks.reproduce")

if __name__ == "__main__":
    start("attacks.reproduce")
