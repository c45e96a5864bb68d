"""`python -m marl.play`, the command `marl-shaping play`."""

from marl.commands import alias

main = alias("marl.play", runs=__name__ == "__main__")
