"""`python -m marl.discover`, the command `marl-shaping discover`."""

from marl.commands import alias

main = alias("marl.discover", runs=__name__ == "__main__")
