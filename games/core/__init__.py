"""What a game is."""
