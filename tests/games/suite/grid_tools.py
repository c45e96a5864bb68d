"""Helpers of the tests of gridworlds: boards from cells, states by hand, and steps with actions in order."""

import jax
import jax.numpy as jnp
import numpy as np

from games.toolbox import boards

STAY, FORWARD, BACK, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, BEAM, SECOND_BEAM = range(9)
UP, RIGHT, DOWN, LEFT = range(4)
KEY = jax.random.key(0)
first_state = jax.jit(lambda game: game.reset(KEY)[1])  # compiled, as each operation alone would be otherwise
_step = jax.jit(lambda game, key, state, actions: game.step_env(key, state, actions))


def board(game, *cells):
    """The board of the cells `(row, column)`."""
    lie = np.zeros((game.grid.rows, game.grid.columns), bool)
    for row, column in cells:
        lie[row, column] = True
    return jnp.asarray(boards.constant(lie))


def cells(game, words):
    """The set of the cells `(row, column)` on a board."""
    lie = boards.cells(words, game.grid.num_cells).reshape(game.grid.rows, game.grid.columns)
    return {(int(row), int(column)) for row, column in np.argwhere(lie)}


def begin(game, positions, directions, **fields):
    """A first state with the players where they are wanted."""
    return first_state(game).replace(positions=jnp.array(positions), directions=jnp.array(directions), **fields)


def play(game, state, *acts, key=KEY):
    """(observations, state, rewards in order, infos) after one step."""
    actions = {agent: jnp.asarray(act, jnp.int32) for agent, act in zip(game.agents, acts, strict=True)}
    obs, state, rewards, _, infos = _step(game, key, state, actions)
    infos = {name: np.asarray(values).tolist() for name, values in infos.items()}
    return obs, state, [round(float(rewards[agent]), 5) for agent in game.agents], infos
