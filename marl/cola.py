"""`python -m marl.cola`, the command `marl-shaping cola`."""

from marl.commands import alias

main = alias("marl.cola", runs=__name__ == "__main__")
