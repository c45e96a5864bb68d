"""Each example has its promised results in a shorter run."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from tests.nightly import grid

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "attack_your_learner": {"generations": 6, "population_size": 8, "num_victims": 16},
    "bench_your_method": {"generations": 20, "population_size": 32, "num_trials": 16},
    "game_of_your_own": {"num_updates": 150, "seeds": 8},
    "learner_of_your_own": {"num_updates": 60, "seeds": 8},
    "optuna_search": {"rounds": 2, "at_once": 4, "generations": 8, "population_size": 16, "num_trials": 2},
    "shape_your_learner": {"generations": 40, "population_size": 64, "num_trials": 64},
}


def test_every_example_is_tested():
    assert sorted(SHORT) == sorted(file.stem for file in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module", params=grid(SHORT, "learner_of_your_own"))
def found(request):
    if request.param.startswith("optuna"):
        pytest.importorskip("optuna")
    main = runpy.run_path(str(EXAMPLES / f"{request.param}.py"))["main"]
    return request.param, main(**SHORT[request.param])


def test_an_example_has_its_promised_results(found):
    name, result = found
    if name == "attack_your_learner":  # a seventh of the search is still worse for the victims than random messages
        assert result["evolved"] < result["random"] - 10
        assert result["evolved"] < result["silence"] - 10
    elif name == "bench_your_method":  # two naive learners get -1.98 each
        assert result[0] > -1.2
        assert result[0] > result[1]
    elif name == "game_of_your_own":  # rewards from 0 to 4; even play has 2
        assert result.shape == (8, 2)
        assert np.asarray(result).mean() < 1.6
    elif name == "learner_of_your_own":  # both learn to defect
        np.testing.assert_allclose(np.asarray(result).mean(0), -2, atol=0.3)
    elif name == "optuna_search":  # all draws are different, and the best payoff is one that the game has
        assert len({tuple(one.params.values()) for one in result.trials}) == 8
        assert result.best_value == max(one.value for one in result.trials)
        assert -3 <= result.best_value <= 0
    else:  # payoffs a round; mutual defection has -2
        shaper, learner = result["evolved"]
        assert shaper > result["untrained"][0] + 0.2
        assert shaper > learner
