"""Who whispers: adversaries that attack a learner by mere talk (planned; see README.md)."""
