"""`python -m marl.mmaml`, the command `marl-shaping mmaml`."""

from marl.commands import alias

main = alias("marl.mmaml", runs=__name__ == "__main__")
