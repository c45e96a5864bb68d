"""`python -m marl.bound`, the command `marl-shaping bound`."""

from marl.commands import alias

main = alias("marl.bound", runs=__name__ == "__main__")
