"""The interface of a game, and the tools that all games share."""
