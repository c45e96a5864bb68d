"""Actors: play rollouts in this thread, in threads or in processes of Ray."""
