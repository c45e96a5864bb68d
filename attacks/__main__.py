"""`python -m attacks` lists this package's commands; `python -m attacks COMMAND ...` runs one."""

import sys

from marl.commands import main

if __name__ == "__main__":
    sys.exit(main(package="attacks"))
