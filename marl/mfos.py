"""`python -m marl.mfos`, the command `marl-shaping mfos`."""

from marl.commands import alias

main = alias("marl.mfos", runs=__name__ == "__main__")
