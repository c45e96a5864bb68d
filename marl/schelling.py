"""`python -m marl.schelling`, the command `marl-shaping schelling`."""

from marl.commands import alias

main = alias("marl.schelling", runs=__name__ == "__main__")
