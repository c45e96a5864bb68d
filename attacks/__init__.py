"""Who whispers: adversaries that append messages to what a learner sees. `python -m attacks.act cartpole`."""
