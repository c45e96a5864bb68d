"""`python -m marl.report`, the command `marl-shaping report`."""

from marl.commands import alias

main = alias("marl.report", runs=__name__ == "__main__")
