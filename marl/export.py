"""`python -m marl.export`, the command `marl-shaping export`."""

from marl.commands import alias

main = alias("marl.export", runs=__name__ == "__main__")
