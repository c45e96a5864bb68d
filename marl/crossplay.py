"""`python -m marl.crossplay`, the command `marl-shaping crossplay`."""

from marl.commands import alias

main = alias("marl.crossplay", runs=__name__ == "__main__")
