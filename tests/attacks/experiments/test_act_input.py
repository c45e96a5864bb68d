"""Input that `python -m attacks.act` refuses, in one line each."""

import pytest

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["inverted_pendulum"],
            "preset: got 'inverted_pendulum', a game; a preset is needed, as in cartpole --environment inverted",
        ),
        (["ipd"], "preset: got 'ipd'; one of breakout"),  # a game of two
        (["cartpole", "--environment", "ipd"], "environment: got 'ipd', of 2 players; a game of one is needed"),
        (["breakout", "--goal", "control"], "goal: got 'control' in Breakout-MinAtar, without goals; harm or help"),
        (["cartpole", "--victim", "mfos"], "victim: got 'mfos', which does not learn; a learner such as ppo"),
        (["cartpole", "--evolution.strategy", "cma_es"], "cr_fm_nes, or any with shared_trials generation, is needed"),
        (["cartpole", "--goal", "hurt"], "goal"),
        (["cartpole", "--message", "mpl"], "message: got 'mpl'; did you mean mlp?"),
        (["cartpole", "--victim", "ppo(epoch=3)"], "has no setting 'epoch'"),
        (["cartpole", "--victim", "dqn", "--environment", "pendulum"], "Discrete is needed"),
        (["cartpole", "--victim", "ppo(network='recurrent')", "--goal", "control"], "memory"),
        (["cartpole", "--goal", "control", "--fitness", "training"], "fitness: has no effect with the goal control"),
        (["cartpole", "--goal", "control", "--defence", "masking"], "defence: has no effect with the goal control"),
        (["cartpole", "--goal", "control", "--begin", "zero"], "begin: has no effect with the goal control"),
        (["cartpole", "--goal", "control", "--shapers", "100000000"], "shapers: got 100000000"),
        (
            ["cartpole", "--fitness", "training", "--steps-per-update", "24"],
            "fitness: got 'training', of training runs of 192 steps; at least 201 are needed",
        ),
        (
            ["cartpole", "--victim", "a2c", "--fitness", "last_update"],
            "fitness: got 'last_update', of 8 x 5 steps; an update of at least an episode's 201 is needed",
        ),
        (
            ["cartpole", "--defence", "masking", "--num-envs", "1"],
            "defence: masking: num_envs: got 1; masking exchanges inputs between environments",
        ),
        (
            ["pendulum", "--fitness", "last_update", "--steps-per-update", "64"],
            "fitness: got 'last_update', of 16 x 64 steps; an update of at least an episode's 200 steps of each",
        ),
        (
            ["cartpole", "--goal", "control", "--warm-up.shared-trials", "pair"],
            "warm_up.shared_trials: has no effect with the goal control",
        ),
        (["cartpole", "--victim", "random"], "victim: got 'random', which does not learn; a learner such as ppo"),
        (
            ["cartpole", "--begin", "expert", "--message", "lstm"],
            "begin: got 'expert' with the message 'lstm'; one without",
        ),
        (
            ["cartpole", "--begin", "expert", "--victim", "ppo(network='recurrent')"],
            "begin: got 'expert' with ppo(network='recurrent'); a victim without memory is needed",
        ),
        (["cartpole", "--defence", "mask"], "defence: got 'mask'; did you mean masking?"),
        (["cartpole", "--goal", "control", "--controller", "lstm"], "controller: got 'lstm'; a message without memory"),
        (
            ["cartpole", "--goal", "control", "--controller", "linear(scale=20)"],
            "controller: scale: got 20; at most 6.283, 2 pi, with goal control, is needed",
        ),
        (
            ["breakout", "--environment", "Asterix-MinAtar", "--begin", "expert"],
            "message_size: got 2, with begin expert in Asterix-MinAtar; at least 3 is needed",
        ),
        (["cartpole", "--begin", "hub:ppo-cartpole"], "begin: got 'hub:ppo-cartpole', which is no attack"),
        (["cartpole", "--oracle-updates", "3"], "oracle_updates: has no effect with the goal harm"),
        (["cartpole", "--goal", "help", "--controller=linear"], "controller: has no effect with the goal help"),
        (
            ["cartpole", "--warm-up-updates=0", "--warm-up.sigma=1"],
            "warm_up.sigma: has no effect with warm_up_updates 0",
        ),
        (["cartpole", "--message-size", "1000000000"], "message_size: got 1000000000; a whole number from 1 to 4096"),
        (["cartpole", "--evaluation-episodes", "3"], "a multiple of num_envs, 4, is needed"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(act, tmp_path, arguments, words):
    finished = act(*arguments)
    assert finished.returncode == 2
    assert words in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
