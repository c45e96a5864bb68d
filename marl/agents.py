"""`python -m marl.agents`, the command `marl-shaping agents`."""

from marl.commands import alias

main = alias("marl.agents", runs=__name__ == "__main__")
