"""Matches of `marl.play` without a terminal, to compare the page `docs/play` with."""

import dataclasses
import json
import shlex

import jax
import jax.numpy as jnp
import numpy as np

from configs.flags import parse
from docs.site.play_data import FILE
from marl.experiments.play import Person, load_match, make_agent_step, make_match

PAGE = FILE.parent
DATA = json.loads(FILE.read_text(encoding="utf-8").partition("const PLAY = ")[2].rstrip(";\n"))
OPPONENTS = DATA["opponents"]
BY_NAME = {one["id"]: one for one in OPPONENTS}
# Each opponent, and three places of each slider.
SHOWN = [one | member for one in OPPONENTS for member in (one.get("members") or [{}] * 3)[::17]]
SHOWN = [one for i, one in enumerate(SHOWN) if one not in SHOWN[:i]]


def match_of(spec):
    """The match that `python -m marl.play SPEC` plays."""
    first, *words = shlex.split(spec)
    if not words:
        return make_match(load_match(first))
    return make_match(dataclasses.replace(parse(load_match(first), words[1:]), agent=words[0]))


class Replay:
    """The agent of a match of `marl.play`, and its policies for moves that are given."""

    def __init__(self, spec, logits=None):
        """The agent of a spec, which begins at the logits that a page has drawn, or as it does by itself."""
        _, game, self.learner = match_of(spec)

        def init(key):
            drawn = self.learner.init(key)
            return drawn._replace(**{"logits" if hasattr(drawn, "logits") else "first": jnp.asarray(logits)})

        agent = self.learner if logits is None else self.learner._replace(init=init)
        self.begin, self.step = make_agent_step(game, agent)

    def first_logits(self, key):
        """The logits that the agent draws for its first step."""
        state = self.learner.init(jax.random.split(key, 3)[0])
        return [float(x) for x in (state.logits if hasattr(state, "logits") else state.first)]

    def play(self, key, moves):
        """The agent before the first round and after each one, and the estimates that it then read; `[rounds + 1]`.

        Args:
          key: of all draws.
          moves: (person's, agent's) in each round.
        """
        person, state = Person(5), 0
        minds, estimates = [self.begin(key)], [person.estimate]
        for action, answer in moves:
            person.saw(state, action)
            state = 1 + 2 * action + answer
            estimates.append(person.estimate.astype(jnp.result_type(float)))  # double precision in JAX's mode of it
            minds.append(self.step(key, minds[-1], estimates[-1]))
        return minds, estimates

    def policies(self, key, moves):
        """Probabilities before the first round and after each one, `[rounds + 1, 5]`."""
        return np.array([mind.policy for mind in self.play(key, moves)[0]], float)
