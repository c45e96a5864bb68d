"""Shaping Bench: one protocol for methods of opponent shaping, and results that others can check and add to.

`python -m marl.bench METHOD` plays the protocol and writes a result. `verify` plays a part of a result again, and
`table` puts results side by side. A method of your own is a function `train(game, opponent, budget, key)`, named by
`module:function`.
"""

from marl.bench.methods import Train
from marl.bench.protocol import Budget

__all__ = ["Budget", "Train"]
