"""`python -m attacks.act`, the command `marl-shaping act`."""

from functools import partial

from marl.commands import run, start

main = partial(run, "attacks.act")

if __name__ == "__main__":
    start("attacks.act")
