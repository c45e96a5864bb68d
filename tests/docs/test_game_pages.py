"""Pages of games and notebooks: what they say is what the code has."""

import json
from dataclasses import fields

import jax
import pytest

import games
from docs.site import documents, game_pages, notebooks
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


def test_a_notebook_is_downloaded_from_the_site_and_run_beside_the_source_code(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    page = notebooks.pages()["notebooks/game.md"]
    assert "colab" not in page
    assert '<a href="game.ipynb" download>' in page
    assert "`jupyter lab game.ipynb`" in page
    assert notebooks.files()["notebooks/game.ipynb"] == (ROOT / notebooks.FOLDER / "game.ipynb").read_bytes()


def test_where_the_repository_is_known_pages_link_to_it_and_notebooks_install_from_it(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/shaping")
    address = "https://colab.research.google.com/github/owner/shaping/blob/main/examples/notebooks/{}.ipynb"
    for name, package in (("game", "marl-shaping"), ("cluster", "marl-shaping[ray]")):
        line = f'%pip install -q "{package} @ git+https://github.com/owner/shaping"'
        page = notebooks.pages()[f"notebooks/{name}.md"]
        assert f"]({address.format(name)})" in page
        assert f"```python\n{line}\n```" in page
        cells = json.loads(notebooks.files()[f"notebooks/{name}.ipynb"])["cells"]
        assert cells[1]["source"] == [line]
    assert "git clone https://github.com/owner/shaping" in documents.pages()["index.md"]
