"""Every number that a learner, a shaper, a message function or a game takes: impossible ones are refused by name."""

import typing
from functools import partial
from typing import Any

import pytest

from attacks.messages import MESSAGES, make_message
from games import InfinitelyRepeated, prisoners_dilemma
from games.registry import make_game, ours, parameters
from marl.learners import registry as learners
from marl.shapers import registry as shapers

FORMULA, SAMPLED = InfinitelyRepeated(prisoners_dilemma, 0.96), make_game("ipd")
MAKERS = {
    "learners of formulas": (learners.FORMULA, partial(learners.make_learner, game=FORMULA, seat=1)),
    "learners of sampled games": (learners.SAMPLED, partial(learners.make_learner, game=SAMPLED, seat=1)),
    "shapers of formulas": (shapers.FORMULA, partial(shapers.make_shaper, game=FORMULA)),
    "shapers of sampled games": (shapers.SAMPLED, partial(shapers.make_shaper, game=SAMPLED)),
    "messages": (MESSAGES, partial(make_message, obs_shape=(4,), size=2)),
}


SIGNED = ("low", "high", "target_entropy")


@pytest.mark.parametrize("kind", MAKERS)
def test_impossible_numbers_of_a_factory_are_refused_by_name(kind):
    registry, make = MAKERS[kind]
    for name in registry.names():
        needed = {"table": "low=[0], high=[1], "}.get(name, "")
        for setting, (hint, _) in registry.settings(name).items():
            if hint is bool or setting in SIGNED or not ({int, float, Any} & {hint, *typing.get_args(hint)}):
                continue
            for value in ("-1", "-0.5", "nan", "inf", *(["9999999999999"] if hint is int else [])):
                with pytest.raises(ValueError, match=rf"\b{setting}: "):
                    pytest.fail(f"{make(f'{name}({needed}{setting}={value})')} of {name}({setting}={value})")


def test_impossible_numbers_of_a_game_are_refused_by_name():
    for name in ours():
        for setting, default in parameters(name).items():
            if type(default) not in (int, float):
                continue
            for value in ("nan", "-inf", "1e39", "None", "'x'", *(["-1", "9999999999999"] * (type(default) is int))):
                with pytest.raises(ValueError, match=rf"\b{setting}: got .* needed"):
                    pytest.fail(f"{make_game(f'{name}({setting}={value})')} of {name}({setting}={value})")
