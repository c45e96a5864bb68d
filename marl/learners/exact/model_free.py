"""Learners that never differentiate the game: they learn from sampled episodes, or from exact payoffs alone.

All are players of `InfinitelyRepeated`, whose action is a whole memory-one policy. The co-player's last policy serves
the samplers for drawing its actions in episodes of the repeated game, and for nothing else; its gradient and its
learning rule stay unknown. In every round of an episode the state is the last joint action in one's own view (start,
CC, CD, DC, DD), and both actions come from the two halves of one random word, so that a probability is exact to within
2^-17. Several policies of a co-player, one in each environment, are all played against, with the same number of
episodes each.

An episode of `rounds` rounds leaves out the share `discount ** rounds` of the weight of the infinite game: 13 % of it
at the default 50 and a discount of 0.96. What is truncated is `reinforce`'s and `tabular_ppo`'s return; `q_learning`
bootstraps beyond the last round and loses nothing. With a discount of 0 an episode is one round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.game import Scalar
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.exact.fixed import MAX_LOGIT
from marl.learners.exact.naive import PolicyState, normal_logits, one_policy

MOST_EPISODES = 1_000_000  # and most rounds of one


@factory
def reinforce(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: Scalar = 1.0,
    episodes: int = 32,
    rounds: int = 50,
    init_scale: Scalar = 1.0,
) -> Learner:
    """The policy gradient from sampled episodes, with the reward to go and a baseline.

        theta <- theta + learning_rate / N sum_n sum_t d log pi(a_t | s_t) / d theta  A_t,
        A_t = W_t - b_t,        W_t = sum_{k >= t} discount^k r_k

    with b_t the mean of W_t over the other N - 1 episodes, which therefore biases nothing: the expected step is the
    exact gradient of the return of `rounds` rounds, and that of `naive` when both numbers are large.

    Args:
      game: what is played.
      seat: 0 row, 1 column.
      learning_rate: step size; 1.0 as the naive learner's.
      episodes: N, 2 or more.
      rounds: in an episode.
      init_scale: standard deviation of the normal initial logits.

    Raises:
      ValueError: for a learning rate below 0, or `episodes` or `rounds` that are no such whole numbers.

    Source: Williams, Simple Statistical Gradient-Following Algorithms (1992); the baseline: Kool, van Hoof and Welling,
    Buy 4 REINFORCE Samples, Get a Baseline for Free! (2019).
    """
    checks.number("learning_rate", learning_rate, 0)
    checks.size("episodes", episodes, 2, MOST_EPISODES)
    parts = [lambda advantages: advantages]
    sample = partial(_advantages, game, seat, episodes=episodes, rounds=_rounds(game, rounds), parts=parts)

    def update(key: jax.Array, state: PolicyState, trajectory: Trajectory) -> tuple[PolicyState, Metrics]:
        (advantages,) = sample(key, state.logits, _others(trajectory))
        step = jax.grad(lambda logits: (advantages * _log_probabilities(logits)).sum())(state.logits)
        return PolicyState(state.logits + learning_rate * step), {}

    return one_policy(_policy(game, init_scale), update)._replace(seat=seat)


@factory
def tabular_ppo(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: Scalar = 0.25,
    clip: Scalar = 0.2,
    epochs: int = 4,
    episodes: int = 32,
    rounds: int = 50,
    init_scale: Scalar = 1.0,
) -> Learner:
    """Proximal policy optimisation of a table of logits: several steps up the clipped surrogate of the same episodes.

        L(theta) = 1 / N sum_n sum_t min(rho_t A_t, min(max(rho_t, 1 - clip), 1 + clip) A_t),
        rho_t = pi_theta(a_t | s_t) / pi_old(a_t | s_t)

    with the advantages A_t of `reinforce`, whose step the first epoch takes; nothing is normalised, and the steps are
    plain gradient ascent. rho depends on state and action only, so that the positive and the negative advantages of
    each pair add up beforehand, and an epoch costs a table of ten.

    Args:
      game: what is played.
      seat: 0 row, 1 column.
      learning_rate: of an epoch; with the default four, 0.25 is the naive learner's step where nothing is clipped.
      clip: how far rho counts, in (0, 1); 0.2 in the paper.
      epochs: steps on the same episodes.
      episodes: N, 2 or more.
      rounds: in an episode.
      init_scale: standard deviation of the normal initial logits.

    Raises:
      ValueError: for `clip` outside (0, 1), a learning rate below 0, or whole numbers that are too small or none.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), arXiv:1707.06347, equation 7. There the
    steps are Adam's, and a learned value takes the place of the other episodes' mean.
    """
    checks.number("clip", clip, 0, 1, brackets="()")
    checks.size("epochs", epochs, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.size("episodes", episodes, 2, MOST_EPISODES)
    parts = [lambda advantages: jnp.maximum(advantages, 0.0), lambda advantages: jnp.minimum(advantages, 0.0)]
    sample = partial(_advantages, game, seat, episodes=episodes, rounds=_rounds(game, rounds), parts=parts)

    def update(key: jax.Array, state: PolicyState, trajectory: Trajectory) -> tuple[PolicyState, Metrics]:
        gains, losses = sample(key, state.logits, _others(trajectory))
        old = _log_probabilities(state.logits)
        played = (gains > 0) | (losses < 0)  # an action that was never played has no weight, and rho may overflow

        def surrogate(logits: jax.Array) -> jax.Array:
            log_ratio = jnp.where(played, _log_probabilities(logits) - old, 0.0)
            clipped = jnp.minimum(log_ratio, jnp.log1p(clip)), jnp.maximum(log_ratio, jnp.log1p(-clip))
            return (gains * jnp.exp(clipped[0]) + losses * jnp.exp(clipped[1])).sum()

        def epoch(logits: jax.Array, _: None) -> tuple[jax.Array, None]:
            return logits + learning_rate * jax.grad(surrogate)(logits), None

        return PolicyState(jax.lax.scan(epoch, state.logits, None, epochs)[0]), {}

    return one_policy(_policy(game, init_scale), update)._replace(seat=seat)


class QState(NamedTuple):
    """State of a player with action values."""

    logits: jax.Array  # `[logits]`, the policy that it plays, which explores
    q: jax.Array  # `[logits, 2]`, expected discounted returns, not multiplied by `1 - discount`


@factory
def q_learning(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: Scalar = 0.1,
    temperature: Scalar = 0.25,
    episodes: int = 16,
    rounds: int = 50,
    init_scale: Scalar = 1.0,
) -> Learner:
    """Tabular Q-learning over the five states, with a Boltzmann policy.

        Q(s, a) <- Q(s, a) + learning_rate (r + discount max_b Q(s', b) - Q(s, a)),
        logits(s) = (Q(s, 0) - Q(s, 1)) / temperature

    Round after round of the episodes that this policy plays; the episodes go on side by side, and where several are in
    the same state with the same action their mean error counts. The policy changes when they are over.

    Q is a discounted return, so that the temperature is in units of one round's payoff: playing the worse action once
    has odds of exp(-loss / temperature). All values start at the return of the mean of the four payoffs, half a draw
    up for one action and down for the other, such that the initial logits are from N(0, init_scale^2).

    Args:
      game: what is played.
      seat: 0 row, 1 column.
      learning_rate: alpha, from 0 to 1.
      temperature: of the Boltzmann policy, in payoffs of one round.
      episodes: played side by side.
      rounds: in an episode.
      init_scale: standard deviation of the normal initial logits.

    Raises:
      ValueError: for a learning rate outside [0, 1], a temperature that is not above 0, or `episodes` or `rounds` that
        are no whole numbers above 0.

    Source: Watkins and Dayan, Q-learning (1992).
    """
    checks.number("learning_rate", learning_rate, 0, 1)
    checks.number("temperature", temperature, 0, brackets="()")
    checks.size("episodes", episodes, 1, MOST_EPISODES)
    sample = partial(_episodes, game, seat, episodes=episodes, rounds=_rounds(game, rounds))

    draw = normal_logits(init_scale, game.num_logits)

    def init(key: jax.Array) -> QState:
        logits = draw(key)
        level = sum(game.payoffs.seen_by(seat)[0]) / 4 / (1 - game.discount)
        half = temperature * logits / 2
        return QState(logits, jnp.stack([level + half, level - half], 1))

    def update(key: jax.Array, state: QState, trajectory: Trajectory) -> tuple[QState, Metrics]:
        others = _others(trajectory)
        played = jax.vmap(partial(sample, own=state.logits), out_axes=1)(
            random_bits.split(key, len(others)), other=others
        )

        def learn_round(q: jax.Array, round_: Episodes) -> tuple[jax.Array, None]:
            best = jnp.maximum(q[:, 0], q[:, 1])
            targets = round_.rewards(game, seat) + game.discount * _pick(best, round_.next_states)
            return q + learning_rate * _mean_error(q, targets, round_), None

        q, _ = jax.lax.scan(learn_round, state.q, played)
        return QState((q[:, 0] - q[:, 1]) / temperature, q), {}

    return one_policy(init, update)._replace(seat=seat)


@factory
def best_response(game: InfinitelyRepeated, seat: int = 0, *, init_scale: Scalar = 1.0) -> Learner:
    """An oracle: at every step the exact best reply to the policy that the co-player played last.

    Against a memory-one policy the repeated game is a Markov decision process of four states and two actions, where
    one deterministic policy is best from every state at once. It is found by comparing the exact payoffs of all 16,
    each started evenly in the four states, so that also what is never reached is answered best; then the two first
    actions are compared. Of several that are equally good to rounding any may be played. Against several policies at
    once (one in each environment) what is compared are their mean payoffs, and the reply is best on average over such
    starts.

    Args:
      game: what is played.
      seat: 0 row, 1 column.
      init_scale: standard deviation of the normal initial logits, played before anything is known.

    Source: Puterman, Markov Decision Processes (1994), theorem 6.2.7.
    """
    num_then = game.num_logits - 1

    def certain(choice: jax.Array, digits: int) -> jax.Array:
        """The logits of a deterministic policy from its number, whose binary digits are the actions."""
        return jnp.where((choice[..., None] >> np.arange(digits)) & 1, -MAX_LOGIT, MAX_LOGIT)

    def best(policies: jax.Array, others: jax.Array) -> jax.Array:
        values = jax.vmap(lambda own: jax.vmap(partial(game.value, seat, own))(others).mean())(policies)
        return jnp.argmax(values)

    def reply(others: jax.Array) -> jax.Array:
        then = jnp.zeros(0)
        if num_then:
            candidates = certain(jnp.arange(2**num_then), num_then)
            anywhere = jnp.concatenate([jnp.zeros((len(candidates), 1)), candidates], 1)
            evenly = jnp.concatenate([jnp.zeros((len(others), 1)), others[:, 1:]], 1)
            then = certain(best(anywhere, evenly), num_then)
        starts = certain(jnp.arange(2), 1)
        policies = jnp.concatenate([starts, jnp.broadcast_to(then, (2, num_then))], 1)
        return jnp.concatenate([certain(best(policies, others), 1), then])

    def update(key: jax.Array, state: PolicyState, trajectory: Trajectory) -> tuple[PolicyState, Metrics]:
        del key, state
        return PolicyState(reply(_others(trajectory))), {}

    return one_policy(_policy(game, init_scale), update)._replace(seat=seat)


class Episodes(NamedTuple):
    """Sampled episodes in one player's view; T rounds of N episodes."""

    states: jax.Array  # [T, N], 0 start, then the last joint action: 1 CC, 2 CD, 3 DC, 4 DD
    next_states: jax.Array  # [T, N]

    @property
    def pairs(self) -> jax.Array:
        """Twice the state and the action, 0 or 1, `[T, N]`."""
        return 2 * self.states + (self.next_states > 2)

    def rewards(self, game: InfinitelyRepeated, seat: int) -> jax.Array:
        """`[T, N]`."""
        payoffs = jnp.stack([jnp.asarray(x, jnp.float32) for x in game.payoffs.seen_by(seat)[0]])
        return _pick(payoffs, self.next_states - 1)


def _episodes(
    game: InfinitelyRepeated, seat: int, key: jax.Array, own: jax.Array, other: jax.Array, episodes: int, rounds: int
) -> Episodes:
    """Plays both policies, `[logits]` each, against each other."""
    thresholds = [jnp.round(65536 * jax.nn.sigmoid(logits)).astype(jnp.uint32) for logits in (own, other)]
    if game.num_logits > 1:  # the co-player's CD is one's own DC
        thresholds[1] = jnp.stack([thresholds[1][s] for s in (0, 1, 3, 2, 4)])

    def play_round(state: jax.Array, word: jax.Array) -> tuple[jax.Array, Episodes]:
        action = ((word & 0xFFFF) >= _pick(thresholds[0], state)).astype(jnp.int32)
        answer = ((word >> 16) >= _pick(thresholds[1], state)).astype(jnp.int32)
        after = 1 + 2 * action + answer
        return after, Episodes(state, after)

    start = jnp.zeros(episodes, jnp.int32)
    # Drawn beforehand: in the loop each member of a batch would draw again what all of them share.
    words = random_bits.array(key, rounds * episodes).reshape(rounds, episodes)
    return jax.lax.scan(play_round, start, words)[1]


def _advantages(
    game: InfinitelyRepeated,
    seat: int,
    key: jax.Array,
    own: jax.Array,
    others: jax.Array,
    *,
    episodes: int,
    rounds: int,
    parts: Sequence[Callable[[jax.Array], jax.Array]],
) -> list[jax.Array]:
    """Advantages of each state and action, summed over an episode on average: `[logits, 2]` for each part of them."""
    weights = jnp.asarray(game.discount ** np.arange(rounds), jnp.float32)

    def centred(to_go: jax.Array) -> jax.Array:
        # One's own share in the mean is left out: (W - mean of the others) = (W - mean of all) N / (N - 1).
        return (to_go - to_go.mean()) * (episodes / (episodes - 1))

    def sums(advantages: jax.Array, pairs: jax.Array, first: int, last: int) -> list[list[jax.Array]]:
        return [[jnp.where(pairs == pair, part(advantages), 0.0) for pair in range(first, last)] for part in parts]

    def against(key: jax.Array, other: jax.Array) -> list[jax.Array]:
        played = _episodes(game, seat, key, own, other, episodes=episodes, rounds=rounds)

        def back(carry: Any, weighted: tuple[jax.Array, Episodes]) -> tuple[Any, None]:
            (to_go, before), (weight, round_) = carry, weighted
            to_go = to_go + weight * round_.rewards(game, seat)
            # Computed once, and not in each of the many sums that read them.
            advantages, pairs = jax.lax.optimization_barrier((centred(to_go), round_.pairs))
            return (to_go, jax.tree.map(jnp.add, before, sums(advantages, pairs, 2, 2 * len(own)))), None

        none = jnp.zeros(episodes)
        nothing = [[none] * (2 * len(own) - 2) for _ in parts]
        (to_go, later), _ = jax.lax.scan(back, (none, nothing), (weights, played), reverse=True)
        # The start is the state of the first round alone, whose return is the last that was added up.
        found = [a + b for a, b in zip(sums(centred(to_go), played.pairs[0], 0, 2), later, strict=True)]
        return [jnp.stack([x.sum() / episodes for x in one]).reshape(-1, 2) for one in found]

    return [found.mean(0) for found in jax.vmap(against)(random_bits.split(key, len(others)), others)]


def _mean_error(q: jax.Array, targets: jax.Array, round_: Episodes) -> jax.Array:
    """Mean of `targets - q` over the episodes in each state with each action; 0 where there are none."""
    errors = targets - _pick(q.reshape(-1), round_.pairs)
    each = [round_.pairs == pair for pair in range(q.size)]
    means = [jnp.where(here, errors, 0.0).sum() / jnp.maximum(here.sum(), 1) for here in each]
    return jnp.stack(means).reshape(q.shape)


def _pick(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]` of a short table, by comparing: elementwise, and so fast in a batch."""
    found = table[0]
    for i in range(1, len(table)):
        found = jnp.where(index == i, table[i], found)
    return jnp.broadcast_to(found, index.shape)


def _log_probabilities(logits: jax.Array) -> jax.Array:
    """Logarithms of pi(a | s), `[logits, 2]`."""
    return jnp.stack([jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)], 1)


def _others(trajectory: Trajectory) -> jax.Array:
    """The policies that the co-player played last, one or one in each environment: `[N, logits]`."""
    return trajectory.others[0][-1].reshape(-1, trajectory.others[0].shape[-1])


def _policy(game: InfinitelyRepeated, init_scale: Scalar) -> Callable[[jax.Array], PolicyState]:
    draw = normal_logits(init_scale, game.num_logits)
    return lambda key: PolicyState(draw(key))


def _rounds(game: InfinitelyRepeated, rounds: int) -> int:
    checks.size("rounds", rounds, 1, MOST_EPISODES)
    return rounds if game.discount else 1
