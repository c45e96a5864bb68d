"""Games around games."""
