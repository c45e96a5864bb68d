"""A person against an agent in a game that is sampled: step by step, on a board or in rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.text import Text

from games import Discrete, Game, RepeatedGame
from marl.core.interactive import Play, make_steps
from marl.core.learner import Learner
from meta.runs.formatting import many, say

PICTURE = 40  # characters across, at most
AGENT, PERSON = 0, 1  # their seats


def check_game(game: Game) -> int:
    """The number of actions of a person.

    Raises:
      ValueError: for a game that a person cannot play.
    """
    space = game.action_space(game.agents[PERSON]) if game.num_agents == 2 else None
    if not isinstance(space, Discrete):
        raise ValueError(f"environment: got {game.name}; a game of two players with actions to choose from is needed")
    return space.n


def play_steps(
    game: Game, learner: Learner, console: Console, *, title: str, rounds: int, episode_length: int, seed: int
) -> None:
    """Asks for an action in every step, and shows what comes of it; the agent learns after every episode.

    Args:
      game: of two players; the person sits in the second seat.
      learner: the agent.
      console: where to.
      title: the game and the opponent.
      rounds: steps, at most.
      episode_length: steps between two updates of the agent.
      seed: of everything that is drawn.

    Raises:
      KeyboardInterrupt: if the person presses Ctrl-C; the result is shown before.
    """
    play = Play(make_steps(game, learner, AGENT), steps_per_update=episode_length, key=jax.random.key(seed))
    totals, played, number = np.zeros(2), 0, check_game(game)
    answers = {str(action): action for action in range(number)} | ({"c": 0, "d": 1} if number == 2 else {})
    _introduce(console, game, title, episode_length, number)
    try:
        while played < rounds:
            _show(console, game, play.game_state, play.observations)
            prompt = f"step {played + 1} of {rounds}, action 0 to {number - 1}: "
            action = ask(console, prompt, answers, f"a number from 0 to {number - 1}, or q, is needed")
            if action is None:
                break
            answer, updates = play.act(), play.updates
            rewards = play.go_on(jnp.int32(action))
            got = [float(rewards[game.agents[seat]]) for seat in (PERSON, AGENT)]
            totals, played = totals + got, played + 1
            say_round(console, action, np.array2string(np.asarray(answer), precision=2), got, totals / played)
            if play.updates > updates:
                console.print("an episode is over, and a learner has learned from it", soft_wrap=True)
    finally:
        own, other = totals / max(played, 1)
        words = f"Over {many(played, 'step')} you got {own:.3f} per step, and the agent {other:.3f}."
        say(console, f"\n{words}" if played else "")


def ask(console: Console, prompt: str, answers: dict[str, int], needed: str) -> int | None:
    """The action of an answer; None for q or the end of the input."""
    while True:
        console.print(prompt, end="", soft_wrap=True)
        try:
            text = input().strip().lower()
        except EOFError:
            return None
        if text in answers or text == "q":
            return answers.get(text)
        console.print(f"got {text!r}; {needed}", markup=False, soft_wrap=True)


def say_round(console: Console, own: Any, other: str, payoffs: Sequence[float], averages: np.ndarray) -> None:
    """Prints the actions of the person and the agent, their payoffs, and the averages so far."""
    console.print(
        f"you {own}, agent {other}: you get {payoffs[0]:g}, the agent {payoffs[1]:g}; "
        f"on average {averages[0]:.2f} and {averages[1]:.2f}",
        soft_wrap=True,
    )


def _introduce(console: Console, game: Game, title: str, episode_length: int, number: int) -> None:
    lines = [f"{title}; an episode is {episode_length} of them, after which a learner learns"]
    if states := _states(game):
        payoffs = np.asarray(game.payoffs).swapaxes(0, 1).reshape(-1, 2)[:, ::-1]  # type: ignore[attr-defined]
        table = "   ".join(f"{name}: {own:g} / {other:g}" for name, (own, other) in zip(states, payoffs, strict=True))
        lines.append(f"payoffs, you / the agent, your action first: {table}")
    elif about := re.search(r"^\s*(Actions: .*?)(?:\n\s*\n|\Z)", type(game).__doc__ or "", re.MULTILINE | re.DOTALL):
        lines.append(" ".join(about[1].split()))
    for line in (*lines, f"you are the second player, and choose from 0 to {number - 1}; q stops"):
        console.print(line, markup=False, soft_wrap=True)


def _states(game: Game) -> list[str]:
    """The joint actions of a repeated game, the person's first, by their letters; none of other games."""
    if not isinstance(game, RepeatedGame):
        return []
    own, other = (game.letters(seat) for seat in (PERSON, AGENT))
    return [a + b for a in own for b in other]


def _show(console: Console, game: Game, state: Any, observations: dict[str, jax.Array]) -> None:
    """Prints the last actions, or the board in half blocks where the terminal has colours, else the observations."""
    if states := _states(game):
        last = int(np.argmax(np.asarray(observations[game.agents[PERSON]])))
        console.print(f"you see {states[last - 1] if last else 'the start'}", soft_wrap=True)
        return
    if type(game).render is not Game.render and console.color_system:
        console.print(_picture(np.asarray(game.render(jax.tree.map(np.asarray, state)))))
        return
    seen = np.asarray(observations[game.agents[PERSON]])
    console.print(f"you see {np.array2string(seen, precision=2, separator=' ')}", markup=False, soft_wrap=True)


def _picture(image: np.ndarray) -> Text:
    """An RGB image in characters, each of two pixels one above the other."""
    step = max(1, -(-image.shape[1] // PICTURE))
    rows, columns = (size // step for size in image.shape[:2])
    small = image[: rows * step, : columns * step].reshape(rows, step, columns, step, 3).mean((1, 3)).astype(int)
    text = Text()
    for top, below in zip(small[0 : rows - rows % 2 : 2], small[1::2], strict=True):
        for one, two in zip(top, below, strict=True):
            text.append("▀", f"rgb({','.join(map(str, one))}) on rgb({','.join(map(str, two))})")
        text.append("\n")
    return text
