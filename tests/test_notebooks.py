"""The notebooks run at small sizes, and what they say holds there too."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.nightly import grid

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
SIZES = {
    "extortion": {"generations": 150, "population_size": 64, "num_trials": 64},
    "learner": {"generations": 30, "population_size": 32, "num_trials": 32},
    "game": {"num_updates": 20, "seeds": 2},
    "cheap_talk": {"generations": 2, "population_size": 4, "num_victims": 4},
    "coin_game": {"generations": 2, "population_size": 4, "meta_steps": 4, "num_trials": 4},
    "objective": {"generations": 2, "population_size": 4, "num_updates": 4, "num_seeds": 4},
    "cluster": {"generations": 2, "total_steps": 2_000},
}


def run(name, sizes):
    """The names that a notebook has defined after all its cells, with other sizes in place of its parameters."""
    found = {"__name__": "__main__"}
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code" and not cell["source"][0].startswith("%pip"):
            exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), found)
            if "parameters" in cell["metadata"].get("tags", ()):
                assert sizes.keys() <= found.keys()
                found |= sizes
    return found


def test_every_notebook_is_run():
    assert {file.stem for file in NOTEBOOKS.glob("*.ipynb")} == SIZES.keys()


def test_notebooks_begin_with_what_to_install_and_keep_their_outputs():
    for file in NOTEBOOKS.glob("*.ipynb"):
        title, install, parameters, *others = json.loads(file.read_text())["cells"]
        assert title["source"][0].startswith("# ")
        assert install["source"][0].startswith("%pip install -q ")
        assert parameters["metadata"]["tags"] == ["parameters"]
        assert any(cell.get("outputs") for cell in others), file


@pytest.mark.system
@pytest.mark.usefixtures("headless")
@pytest.mark.parametrize("name", grid(SIZES, "game"))
def test_a_notebook_runs(name, monkeypatch):
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    found = run(name, SIZES[name])
    CLAIMS[name](found)


def extortion(found):
    """Payoffs of the extortioner lie on its line, and the evolved policy gets more than a naive learner would."""
    assert found["deviation"] < 1e-9
    assert found["trials"].shaper_payoffs.mean() > -1.2 > found["trials"].opponent_payoffs.mean()
    assert found["lured"].shaper_payoffs.mean() > found["trials"].shaper_payoffs.mean() - 0.2


def learner(found):
    """The evolved shaper gets more than an untrained one, and the learner's payoff against tit for tat rises."""
    assert found["found"]["evolved"][0].mean() > found["found"]["untrained"][0].mean() + 0.3
    assert found["curves"]["tft"][:, -1].mean() > found["curves"]["tft"][:, 0].mean()


def game(found):
    """The cheaper trader has all buyers, in PettingZoo as in JAX."""
    assert {agent: float(reward) for agent, reward in found["rewards"].items()} == {"agent_0": 0.0, "agent_1": 4.0}
    assert found["earned"] == {"agent_0": 0.0, "agent_1": 4.0}


def cheap_talk(found):
    """Silence differs by nothing from itself, and every return is possible."""
    assert set(found["found"]) == {"silence", "random", "evolved"}
    assert all(((values >= 1) & (values <= 200)).all() for values in found["found"].values())


def coin_game(found):
    """Two players take at most two coins a step, and all shares are shares."""
    assert np.abs(found["shaped"]).max() <= 4
    assert 0 <= found["shaped_coins"].min() <= found["shaped_coins"].max() <= 1


def objective(found):
    """Returns of CartPole lie between 1 and 500, and all objectives meet the same seeds."""
    assert {len(values) for values in found["found"].values()} == {4}
    assert all(((values >= 1) & (values <= 500)).all() for values in found["found"].values())


def cluster(found):
    """Ray's workers give the bits of one process."""
    assert found["same"]
    assert found["weights"][0] == found["weights"][1]


CLAIMS = {claim.__name__: claim for claim in (extortion, learner, game, cheap_talk, coin_game, objective, cluster)}
