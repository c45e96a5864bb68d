"""`python -m marl.sweep`, the command `marl-shaping sweep`."""

from marl.commands import alias

main = alias("marl.sweep", runs=__name__ == "__main__")
