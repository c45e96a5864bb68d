"""The interface of a learner, and `learn`, the loop in which learners learn together."""
