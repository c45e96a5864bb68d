"""`python -m marl.compare`, the command `marl-shaping compare`."""

from marl.commands import alias

main = alias("marl.compare", runs=__name__ == "__main__")
