"""`python -m marl.train`, the command `marl-shaping train`."""

from marl.commands import alias

main = alias("marl.train", runs=__name__ == "__main__")
