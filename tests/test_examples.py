"""Each example does what it says, made shorter."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "attack_your_learner": {"generations": 6, "population_size": 8, "num_victims": 16},
    "game_of_your_own": {"num_updates": 150, "seeds": 8},
    "learner_of_your_own": {"num_updates": 60, "seeds": 8},
    "shape_your_learner": {"generations": 40, "population_size": 64, "num_trials": 64},
}


def test_all_of_them_are_here():
    assert sorted(SHORT) == sorted(file.stem for file in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module", params=SHORT)
def found(request):
    main = runpy.run_path(str(EXAMPLES / f"{request.param}.py"))["main"]
    return request.param, main(**SHORT[request.param])


def test_it_finds_what_it_promises(found):
    name, result = found
    if name == "attack_your_learner":  # a seventh of the search, and yet worse for the victims than random talk
        assert result["evolved"] < result["random"] - 10
        assert result["evolved"] < result["silence"] - 10
    elif name == "game_of_your_own":  # of 0 to 4, where even play has 2
        assert result.shape == (8, 2)
        assert np.asarray(result).mean() < 1.6
    elif name == "learner_of_your_own":  # both come to defect
        np.testing.assert_allclose(np.asarray(result).mean(0), -2, atol=0.3)
    else:  # payoffs a round, where two who defect get -2
        shaper, learner = result["evolved"]
        assert shaper > result["untrained"][0] + 0.2
        assert shaper > learner
