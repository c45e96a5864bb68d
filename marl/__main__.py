"""`python -m marl` lists this package's commands; `python -m marl COMMAND ...` runs one."""

import sys

from marl.commands import main

if __name__ == "__main__":
    sys.exit(main(package="marl"))
