"""`python -m marl.reproduce`, the command `marl-shaping reproduce`."""

from marl.commands import alias

main = alias("marl.reproduce", runs=__name__ == "__main__")
