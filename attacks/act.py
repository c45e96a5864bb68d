"""`python -m attacks.act`, the command `marl-shaping act`."""

from marl.commands import alias

main = alias("attacks.act", runs=__name__ == "__main__")
