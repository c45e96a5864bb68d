"""`python -m attacks.examine`, the command `marl-shaping examine`."""

from marl.commands import alias

main = alias("attacks.examine", runs=__name__ == "__main__")
