"""`python -m marl.bench`, the command `marl-shaping bench`."""

from marl.commands import alias

main = alias("marl.bench", runs=__name__ == "__main__")
