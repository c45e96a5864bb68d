"""`python -m attacks`: the list of this package's commands."""

from marl.commands import overview

print(overview("attacks"))
