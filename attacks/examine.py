"""`python -m attacks.examine`, the command `marl-shaping examine`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "attacks.examine")

if __name__ == "__main__":
    start("attacks.examine")
