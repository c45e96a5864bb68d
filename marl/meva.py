"""`python -m marl.meva`, the command `marl-shaping meva`."""

from marl.commands import alias

main = alias("marl.meva", runs=__name__ == "__main__")
