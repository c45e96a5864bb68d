"""`python -m marl.distributed`, the command `marl-shaping distributed`."""

from marl.commands import alias

main = alias("marl.distributed", runs=__name__ == "__main__")
