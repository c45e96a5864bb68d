"""`python -m attacks.reproduce`, the command `marl-shaping reproduce-act`."""

from marl.commands import alias

main = alias("attacks.reproduce", runs=__name__ == "__main__")
