"""Pages of games and notebooks: what they say is what the code has."""

import json
from dataclasses import fields

import jax
import pytest

import games
from docs.site import game_pages, notebooks
from docs.site.links import ROOT
from games import registry

MEASURED = json.loads((ROOT / game_pages.MEASURED).read_text())


@pytest.mark.parametrize("name", registry.ours())
def test_the_page_of_a_game_has_its_rules_parameters_and_rewards(name):
    page, game = game_pages.page(name, MEASURED[name]), games.make(name)
    parameters = page.split("## Parameters")[1].split("\n## ")[0]
    assert [line.split("`")[1] for line in parameters.splitlines() if line.startswith("| `")] == [
        field.name for field in fields(game)
    ]
    assert all(heading in page for heading in ("## Rules", "## Actions and observations", "## Learners", "## Source"))
    assert f"| players | {game.num_agents}: " in page
    assert all(cell.strip() for line in page.splitlines() if line.startswith("| ") for cell in line.split("|")[1:-1])
    seen = " ".join(page.split("## Actions and observations")[1].split("\n## ")[0].split())
    assert "The observation" in seen
    assert "Actions: " in seen
    library = "games.gymnasium.env" if game.num_agents == 1 else "games.pettingzoo.parallel_env"
    assert f'{library}("{name}")' in page
    random, trained = (found["reward"] for found in MEASURED[name]["rewards"].values())
    assert f"| random play | {random:.3f} |" in page
    assert f"| {trained:.3f} ± " in page


def test_payoffs_are_shown_by_action():
    page = game_pages.page("ipd", MEASURED["ipd"])
    assert "| own action | cooperate | defect |" in page
    assert "| cooperate | -1, -1 | -3, 0 |\n| defect | 0, -3 | -2, -2 |" in page


def test_entries_of_an_observation_are_those_of_the_game():
    """After a round in which only agent_0 defects."""
    key = jax.random.key(0)
    for name, entry in (("ipd", "3 `DC`"), ("three_player_ipd", "5 `DCC`"), ("public_goods", "5 to 8 own defection")):
        game = games.make(name)
        actions = dict.fromkeys(game.agents, 0) | {"agent_0": 1}
        obs = game.step(key, game.reset(key)[1], actions)[0]["agent_0"]
        assert int(obs.argmax()) == int(entry.split()[0])
        assert entry in game_pages.page(name, MEASURED[name])


def test_actions_of_games_in_the_matrix_are_moves():
    page = game_pages.page("stag_hunt_in_the_matrix", MEASURED["stag_hunt_in_the_matrix"])
    assert "Resources: 0 is stag, 1 is hare." in page


def test_parameters_of_base_classes_are_explained():
    found = game_pages.sections(type(games.make("harvest"))).parameters
    assert found["zap_steps"].startswith("for which a player that was zapped is away")
    assert found["regrowth_radius"].startswith("Euclidean distance")


def test_formulas_of_notebooks_are_mathml_and_their_pictures_are_files():
    page, files = notebooks.pages()["notebooks/extortion.md"], notebooks.files()
    assert "$$" not in page
    assert page.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') == 3
    pictures = [line.rsplit("(", 1)[1].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert len(pictures) == 2
    assert all(files[f"notebooks/{name}"][:4] == b"\x89PNG" for name in pictures)


def test_the_badge_of_colab_stands_where_the_repository_is_known(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "colab" not in notebooks.pages()["notebooks/game.md"]
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/shaping")
    address = "https://colab.research.google.com/github/owner/shaping/blob/main/examples/notebooks/game.ipynb"
    assert f"]({address})" in notebooks.pages()["notebooks/game.md"]
