"""Wrong calls of the public API; `python -m tests.fault_injection.calls --seed N` draws others."""

import random

import marl
from marl.learners.registry import FORMULA, SAMPLED
from tests.fault_injection import calls


def test_wrong_calls_are_refused_in_one_line():
    source = random.Random(0)
    answers = {}
    for _ in range(300):
        name, arguments = calls.draw(source)
        if found := calls.fault(name, arguments):
            answers[name] = found
    assert answers == {}


def test_right_calls_are_accepted_and_include_every_learner():
    of_marl = ("marl.ppo", "marl.lola", "marl.shapers.mfos", "marl.sparse")
    for name in (*of_marl, "attacks.messages.linear", "attacks.defences.seeing", "meta.evolve", "meta.screen"):
        function, arguments = calls.RIGHT[name]
        assert function(**arguments) is not None
    # Learners that `marl` registers and exports under the same name.
    learners = {*FORMULA.names(), *SAMPLED.names()} & set(marl.__all__)
    assert len(learners) > 25
    assert {f"marl.{name}" for name in learners} <= set(calls.RIGHT)
