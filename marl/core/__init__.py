"""What a learner is, and the loop in which all of them meet."""
